"""One run of the demo from end to end, and the check of an earlier one; gives the result as JSON values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ferryman._demo.chart import draw
from ferryman._demo.fleet import Fleet
from ferryman._demo.operators import checkpoint_path
from ferryman._demo.show import Show
from ferryman._demo.supervise import Supervisor, ended_by_signals
from ferryman._model.errors import InvalidConfiguration

Result = dict[str, Any]


@dataclass(frozen=True)
class Demo:
    """What to run, and where it goes.

    Parameters
    ----------
    seconds
        How long the sensors send readings.
    rate
        Readings per second of all sensors together.
    sensors
        How many sensors there are.
    out
        A directory for everything the run leaves behind.
    kills
        Whether to kill a Python worker and the driver on the way.
    """

    seconds: float
    rate: float
    sensors: int
    out: Path
    kills: bool = True

    def run(self, console: Console) -> Result:
        """Run the demo and check it."""
        self.out.mkdir(parents=True, exist_ok=True)
        if any(self.out.iterdir()):
            raise InvalidConfiguration(f"{self.out} is not empty. Give the demo a directory of its own (--out).")
        (self.out / "logs").mkdir()
        fleet = Fleet(self.sensors, self.rate, max(1, round(self.rate * self.seconds)))
        fleet.save(self.out)
        began = time.time()
        chart = self.out / "chart.png"
        with ended_by_signals(), Show(console) as show, Supervisor(fleet, self.out, show) as supervisor:
            supervisor.run(kills=self.kills)
            answers, found = supervisor.check()
            history = supervisor.history
            show.phase("drawing the chart")
            drawn = draw(history, chart)
        result = {**_result(self.out, answers, found), **history.facts()}
        result["chart"] = str(chart) if drawn else None
        result["wall_s"] = round(time.time() - began, 1)
        result["missing"] = _missing(result["kills"]) if self.kills else []
        result["equal"] = result["equal"] and not result["missing"]
        return result


def check_again(out: Path, console: Console) -> Result:
    """Check what an earlier run left behind."""
    if not (out / "logs").is_dir():
        raise InvalidConfiguration(f"{out} holds no run of the demo. Give the directory that `ferryman demo` named.")
    with ended_by_signals(), Show(console) as show, Supervisor(Fleet.load(out), out, show) as supervisor:
        answers, found = supervisor.check()
    result = _result(out, answers, found)
    chart = out / "chart.png"
    result["chart"] = str(chart) if chart.exists() else None
    return result


def _result(out: Path, answers: list[dict[str, Any]], found: dict[str, Any]) -> Result:
    place = checkpoint_path(out)
    return {
        "out": str(out),
        "equal": bool(answers) and all(answer["equal"] for answer in answers),
        "operators": answers,
        **found,
        "state": {
            "keys": sum(answer.get("state_keys", 0) for answer in answers),
            "bytes": sum(answer.get("state_bytes", 0) for answer in answers),
            "checkpoint_bytes": sum(file.stat().st_size for file in place.rglob("*") if file.is_file()),
        },
        "missing": [],
    }


def _missing(kills: list[dict[str, Any]]) -> list[str]:
    """Name the kills that were to come and did not: without them the run proves less than it says."""
    done = {kill["victim"] for kill in kills}
    return [
        f"The {victim} was not killed: the readings ran out before. Give it more time with --seconds."
        for victim in ("Python worker", "driver")
        if victim not in done
    ]
