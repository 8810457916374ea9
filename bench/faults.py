"""The fault campaign: hosts and the driver killed or stalled in every state of a migration, under every strategy.

One Spark standalone cluster of two hosts on this machine. `bench.faulty` is the driver that runs the cases and strikes
at the very step; this module starts it, again when it was the victim, and gives up on one that hangs. A case is right
if its plan ended done or aborted, the stream went on, every row counted once and in its order, the state equals that of
an unmoved run, and nothing was left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from bench.faulty import Case
from bench.report import Progress, Result, environment, result_of, show
from ferryman._migrate.strategies import STRATEGIES as MIGRATIONS
from ferryman._os.faults import PLAN_STEPS
from ferryman._os.processes import below, end, end_with_parent
from ferryman._spark.session.local_cluster import Cluster, standalone

STRATEGIES = tuple(MIGRATIONS)
PHASES = tuple(step.removeprefix("plan-") for step in PLAN_STEPS)
VICTIMS = ("destination executor", "driver", "source host", "source executor", "destination host")
HOW = ("killed", "stalls")

# A driver that has not said anything for so long hangs.
_HANGS_S = 400.0
ENDS = ("done", "aborted")


def cases(
    strategies: Sequence[str] = STRATEGIES,
    phases: Sequence[str] = PHASES,
    victims: Sequence[str] = VICTIMS,
    how: Sequence[str] = HOW,
    *,
    pairs: bool = False,
) -> list[Case]:
    """List the cases of a campaign, those of one job one after the other. A driver that stalls disturbs nobody.

    With `pairs` every strategy meets every phase, every victim every phase and every strategy every victim, but not
    every strategy every victim in every phase: a fifth of the cases.
    """
    chosen = product(how, victims, strategies, phases)
    every = (Case(strategy, phase, victim, means) for means, victim, strategy, phase in chosen)

    def chosen_pair(one: Case) -> bool:
        turn = STRATEGIES.index(one.strategy) + VICTIMS.index(one.victim)
        return PHASES.index(one.phase) == turn % len(PHASES)

    some = [case for case in every if (case.victim, case.how) != ("driver", "stalls")]
    return [case for case in some if chosen_pair(case)] if pairs else some


def run(
    *,
    progress: Progress,
    strategies: Sequence[str],
    phases: Sequence[str],
    victims: Sequence[str],
    how: Sequence[str],
    pairs: bool,
    minutes: float,
    scratch: Path | None,
) -> Result:
    """Run the cases on one cluster, as many as there is time for, and say how each ended."""
    parameters: dict[str, object] = {
        name: ",".join(chosen)
        for name, chosen, known in (
            ("strategies", strategies, STRATEGIES),
            ("phases", phases, PHASES),
            ("victims", victims, VICTIMS),
            ("how", how, HOW),
        )
        if tuple(chosen) != known
    }
    todo = cases(strategies, phases, victims, how, pairs=pairs)
    result = result_of("faults", parameters, environment())
    result["command"] += " --pairs" if pairs else ""
    place = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with standalone(place / "cluster") as cluster:
            said = campaign(cluster, place, todo, progress, time.time() + 60 * minutes)
            said.append({"chain": "all", "left": left_on(cluster)})
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result["cases"] = [line for line in said if "ended" in line]
    result["chains"] = [line for line in said if "left" in line]
    result["summary"] = {
        "cases": len(result["cases"]),
        "not_run": len(todo) - len(result["cases"]),
        **{end: sum(case["ended"] == end for case in result["cases"]) for end in ENDS},
        "neither": sum(case["ended"] not in ENDS for case in result["cases"]),
        "wrong": sum(not case["right"] for case in result["cases"]),
        "leaks": sum(bool(case["leaks"]) for case in result["cases"])
        + sum(bool(chain["left"]) for chain in result["chains"]),
    }
    return result


def campaign(
    cluster: Cluster, place: Path, todo: Sequence[Case], progress: Progress, until_s: float = float("inf")
) -> list[dict[str, Any]]:
    """Run drivers until every case has ended, or no time is left; give all that they said."""
    lines = place / "lines.jsonl"
    lines.touch()
    (place / "jobs").mkdir(parents=True)
    configuration = place / "configuration.json"
    configuration.write_text(
        json.dumps(
            {
                "place": str(place),
                "lines": str(lines),
                "url": cluster.url,
                "workers": [
                    {"host": worker.host, "pid": worker.pid, "place": str(worker.place)} for worker in cluster.workers
                ],
                "cases": [asdict(case) for case in todo],
                "until_s": until_s,
            }
        )
    )
    told = 0
    # A case that ended its driver is judged by the next one, however late it is.
    while len(_ended(lines)) < len(todo) and (time.time() < until_s or _open(lines)):
        before = len(lines.read_text())
        with (place / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "bench.faulty", str(configuration)],
                cwd=Path(__file__).parents[1],
                env={**os.environ, "FERRYMAN_JOBS": str(place / "jobs")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        try:
            size, heard = before, time.monotonic()
            while driver.poll() is None and time.monotonic() < heard + _HANGS_S:
                time.sleep(0.2)
                if len(lines.read_text()) != size:
                    size, heard = len(lines.read_text()), time.monotonic()
                told = _tell(lines, told, len(todo), progress)
        finally:
            hung = driver.poll() is None
            family = below(driver.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            end(family)
        if hung:
            progress.say("the driver hangs; another goes on")
        if len(lines.read_text()) == before and time.time() < until_s:
            raise RuntimeError(f"the driver ended before its first case:\n{(place / 'driver.log').read_text()[-4000:]}")
    _tell(lines, told, len(todo), progress)
    return _said(lines)


def left_on(cluster: Cluster, patience_s: float = 30.0) -> list[str]:
    """List what is left on a cluster after the last driver: homes, and processes other than Spark's daemons."""
    deadline = time.monotonic() + patience_s
    while True:
        left = [f"home {place}" for worker in cluster.workers for place in worker.homes("Trail")]
        left += [f"process {process.command[:100]}" for worker in cluster.workers for process in below(worker.pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _said(lines: Path) -> list[dict[str, Any]]:
    # The last line may be half written.
    return [json.loads(line) for line in lines.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _open(lines: Path) -> bool:
    """Tell whether a case has begun and has not been judged."""
    said = [line for line in _said(lines) if "case" in line]
    return bool(said) and "ended" not in said[-1]


def _ended(lines: Path) -> list[dict[str, Any]]:
    return [line for line in _said(lines) if "ended" in line]


def _tell(lines: Path, told: int, of: int, progress: Progress) -> int:
    said = [line for line in _said(lines) if "ended" in line or "left" in line]
    for line in said[told:]:
        if "left" in line:
            if line["left"]:
                progress.say(f"{line['chain']} LEFT {', '.join(line['left'])}")
            continue
        number = sum("ended" in other for other in said[: said.index(line) + 1])
        faults = [*line["wrong"], *line["leaks"]]
        verdict = "right" if line["right"] and not faults else f"WRONG: {'; '.join(faults)}"
        progress.say(f"{number}/{of} {line['case']} -> {line['ended']} ({line.get('plan_s', 0)} s), {verdict}")
    return len(said)


def show_result(result: Result) -> None:
    """Print how the cases ended, by strategy and victim."""
    show("how plans ended", _table(result))
    print(json.dumps(result["summary"]))


def _table(result: Result) -> list[dict[str, object]]:
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for case in result["cases"]:
        row = rows.setdefault(
            (case["victim"], case["how"]), {"victim": case["victim"], "how": case["how"], **dict.fromkeys(PHASES, "")}
        )
        good = case["right"] and not case["leaks"] and case["ended"] in ENDS
        counts = json.loads(str(row[case["phase"]]) or "{}")
        end = case["ended"] if good else "WRONG"
        counts[end] = counts.get(end, 0) + 1
        row[case["phase"]] = json.dumps(counts)
    for row in rows.values():
        for phase in PHASES:
            counts = json.loads(str(row[phase]) or "{}")
            row[phase] = ", ".join(f"{count} {end}" for end, count in sorted(counts.items(), reverse=True))
    return list(rows.values())


_PAGE = """\
# Faults: what is killed, and what comes of it

Written by `python -m bench.faults` from [bench/results/faults.json](../bench/results/faults.json), which
`{command}` made.

On a Spark standalone cluster of two hosts a job moves a quarter of its key groups from one host to the other, and
something is killed with SIGKILL or stalls (SIGSTOP, until the plan is over) at a step of the plan:

| phase | the instant |
| --- | --- |
| prepare | the next layout is made, the state hosts are found |
| copy | the first key groups have arrived at their new host |
| catch-up | all have arrived, the epochs since then have not |
| switch | an epoch begins with the new routing table |
| release | the plan is over, old main copies are still there |

Victims are the *driver*; the *host*, which is the state host's process; and the *executor*, which is every process on
that host but Spark's worker daemon: the executor, its Python workers and the state host.

{count} cases{pairs}: {summary[done]} plans ended done, {summary[aborted]} aborted, {summary[neither]} neither.
Results or state were wrong in {summary[wrong]}; {summary[leaks]} left something behind. {summary[not_run]} cases more
were not begun, for want of time. Before each case the destination forgets what is about to come to it, so that it has
to travel: in {travelled} of the cases bytes had come from the other host when the plan ended, or when the driver was
killed. Struck in prepare none have yet, and what a dead source no longer gives is taken from the checkpoint.
The columns count the strategies ({strategies}).

{table}

A case is right if the stream goes on, every row is in the output once, with a digest that depends on the order of
all rows of its key, and the state equals that of a job that never moved. Nothing may be left: a second state host, a
thread, a cached frame, a process that is stopped; once the job has ended a state host, an announcement of the job, a
fault that `ferryman verify` finds; and once the application has ended, a home or a process on the cluster.
"""


_PAIRS = """, a fifth of all: every strategy meets every phase and every victim, and every victim every phase,
but not every strategy every victim in every phase"""


def page(result: Result) -> str:
    """Write the page from a result."""
    lines = [f"| victim | | {' | '.join(PHASES)} |", "| --- |" + " --- |" * (len(PHASES) + 1)]
    for row in _table(result):
        lines.append(f"| {row['victim']} | {row['how']} | {' | '.join(str(row[phase]) for phase in PHASES)} |")
    return _PAGE.format(
        command=result["command"],
        count=result["summary"]["cases"],
        summary=result["summary"],
        travelled=sum(bool(case.get("moved_bytes")) for case in result["cases"]),
        pairs=_PAIRS if "--pairs" in result["command"] else "",
        strategies=", ".join(dict.fromkeys(case["strategy"] for case in result["cases"])),
        table="\n".join(lines),
    )


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    made = json.loads((root / "bench" / "results" / "faults.json").read_text())
    (root / "docs" / "faults.md").write_text(page(made))
