"""Kill the driver of a job from Kafka to Kafka, again and again, and count what a reader of what is committed finds.

While one driver runs, the next one gets ready, so that a kill costs the start of a job and not that of a JVM.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from bench.connectors_driver import PER_EPOCH
from bench.connectors_kafka import committed, fill, make
from bench.report import Progress, Result

_KEYS = 50
# At which steps drivers die; "moment" is at any, from outside.
STEPS = ("start", "epoch", "before-sink", "after-sink", "before-manifest", "after-manifest", "moment")
_PATIENCE_S = 120.0


class Driver:
    """A driver that is ready to run."""

    def __init__(self, servers: str, source: str, target: str, place: Path) -> None:
        root = Path(__file__).resolve().parents[1]
        self._log = open(place / "drivers.log", "ab")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.connectors_driver", servers, source, target, str(place / "checkpoint")],
            cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            start_new_session=True,
        )  # fmt: skip

    def go(self, order: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("a driver did not start")
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def died(self, within_s: float) -> bool:
        """Wait until it is dead; tell whether it was so by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
            return True
        return False

    def kill(self) -> None:
        """Kill it, with its JVM and its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    @property
    def code(self) -> int | None:
        return self._process.returncode


def run(servers: str, place: Path, kills: int, seed: int, progress: Progress) -> Result:
    """Kill so many drivers; give what was lost and doubled."""
    source, target, chance = "kills-in", "kills-out", random.Random(seed)
    place.mkdir(parents=True, exist_ok=True)
    make(servers, source)
    make(servers, target)
    sent, steps = 0, Counter[str]()
    driver = Driver(servers, source, target, place)
    try:
        for _ in range(kills):
            fill(
                servers, source, [(f"k-{number % _KEYS}", str(number)) for number in range(sent, sent + 2 * PER_EPOCH)]
            )
            sent += 2 * PER_EPOCH
            step = chance.choice(STEPS)
            driver.go("-" if step == "moment" else f"{step}:{1 if step == 'start' else chance.choice([1, 2])}")
            following = Driver(servers, source, target, place)
            if not driver.died(chance.uniform(0.3, 4.0) if step == "moment" else _PATIENCE_S) or step == "moment":
                steps["moment"] += 1
            elif driver.code == -signal.SIGKILL:
                steps[step] += 1
            else:
                following.kill()
                raise RuntimeError(f"a driver ended with {driver.code}: {(place / 'drivers.log').read_text()[-2000:]}")
            driver.kill()
            driver = following
        driver.go("end")
        if not driver.died(600) or driver.code != 0:
            raise RuntimeError(f"the last driver did not end well: {(place / 'drivers.log').read_text()[-2000:]}")
    finally:
        driver.kill()
    progress.say(f"{kills} kills: {dict(steps)}")
    return {**_count(servers, target, sent), "kills": kills, "killed_at": dict(steps), "rows": sent}


def _count(servers: str, target: str, sent: int) -> Result:
    """Count the rows that are missing, those that are there again, and those that are not in their order."""
    times, numbers = Counter[int](), defaultdict[str, list[tuple[int, int]]](list)
    for key, value in committed(servers, target):
        times[value["id"]] += 1
        numbers[key].append((value["id"], value["n"]))
    return {
        "lost": sum(1 for number in range(sent) if not times[number]),
        "doubled": sum(count - 1 for count in times.values()),
        # The n-th row of a key has the number n, and stands behind those before it.
        "misplaced": sum(
            (number // _KEYS + 1, counted) != (place, place)
            for rows in numbers.values()
            for place, (number, counted) in enumerate(rows, 1)
        ),
    }
