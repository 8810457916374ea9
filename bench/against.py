"""The same benchmarks on the code as it is and on an earlier revision, in turns, so that a change can be judged.

Each turn is a process of its own, with the code and the benchmarks of its tree; the earlier tree is a `git worktree`
that goes away again. The order changes from round to round, so that the drift of a machine falls on both alike.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import Progress, Result, environment, result_of, show, spread
from ferryman._model.errors import FerrymanError

ROOT = Path(__file__).resolve().parents[1]
# What a turn of each runs; the figures are speeds, so that a ratio above 1 means that the newer code is faster.
BENCHMARKS = {
    "epoch": ["--rounds", "1", "--epochs", "100", "--warm", "40", "--contenders", "ferryman"],
    "throughput": ["--epochs", "6", "--engines", "ferryman_vectorised,ferryman_rows,ferryman_processor_row"],
    "reconfigure": ["--strategies", "live", "--before", "10", "--after", "8", "--warm", "10", "--rounds", "2"],
}
_START = "from ferryman._cli import app; app()"


class TurnFailed(FerrymanError):
    """A turn that ended with an error."""


def run(
    *,
    revision: str,
    benchmarks: Sequence[str] = tuple(BENCHMARKS),
    rounds: int = 6,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure both trees, round after round.

    Parameters
    ----------
    revision
        The earlier code, by any name that git knows.
    benchmarks
        Which to run.
    rounds
        Turns of each tree.
    scratch
        A directory for the earlier tree and its data; a temporary one by default.
    """
    progress = progress or Progress()
    parameters = {"benchmarks": ",".join(benchmarks), "rounds": rounds}
    result = result_of("against", parameters, environment())
    result["command"] = result["command"].replace("against", f"against {revision}", 1)
    changed = bool(_git("status", "--porcelain", "--untracked-files=no"))
    result["revisions"] = {"before": _revision(revision), "after": _revision("HEAD"), "with_changes": changed}
    figures: dict[str, dict[str, list[float]]] = {}
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with _worktree(result["revisions"]["before"], work / "before") as before:
            trees = [("before", before), ("after", ROOT)]
            for turn in range(rounds):
                for benchmark in benchmarks:
                    for name, tree in trees if turn % 2 == 0 else reversed(trees):
                        with progress.step(f"{benchmark} {name}, round {turn + 1} of {rounds}"):
                            speeds = _turn(tree, benchmark, work)
                        for what, speed in speeds.items():
                            figures.setdefault(what, {}).setdefault(name, []).append(speed)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    result["speeds"] = {
        what: {
            "before": [round(speed, 2) for speed in each["before"]],
            "after": [round(speed, 2) for speed in each["after"]],
            "ratio": _ratio(each["before"], each["after"]),
        }
        for what, each in figures.items()
    }
    return result


def _ratio(before: Sequence[float], after: Sequence[float]) -> Result:
    by_round = spread([new / old for old, new in zip(before, after, strict=True)])
    # Of the best turns: what a noisy neighbour takes only ever makes a turn slower.
    return {**by_round, "of_the_best": round(max(after) / max(before), 3)}


def _turn(tree: Path, benchmark: str, work: Path) -> dict[str, float]:
    written, said = work / "turn.json", work / "turn.log"
    # Nothing but what a shell has, so that the earlier tree finds its own package and not this one.
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    words = [
        sys.executable,
        "-c",
        _START,
        "bench",
        benchmark,
        *BENCHMARKS[benchmark],
        "--json",
        str(written),
        "--scratch",
        str(work),
    ]
    with said.open("w") as log:
        code = subprocess.run(words, cwd=tree, env=environment, stdout=log, stderr=subprocess.STDOUT).returncode
    if code:
        raise TurnFailed(f"{benchmark} on {tree} ended with {code}:\n{said.read_text()[-2000:]}")
    found = json.loads(written.read_text())
    written.unlink()
    if benchmark == "epoch":
        # Epochs per second.
        return {"epoch": 1000 / found["contenders"]["ferryman"]["p50_ms"]}
    if benchmark == "reconfigure":
        # How soon 99 of 100 rows are done while state moves.
        return {"reconfigure": 1000 / found["strategies"]["live"]["p99_during_ms"]}
    return {engine: figures["rows_per_s"] for engine, figures in found["engines"].items()}


@contextmanager
def _worktree(revision: str, path: Path) -> Iterator[Path]:
    # What a run that was killed has left is not there any more, but git still knows of it.
    _git("worktree", "prune")
    _git("worktree", "add", "--detach", str(path), revision)
    try:
        yield path
    finally:
        _git("worktree", "remove", "--force", str(path))


def _revision(name: str) -> str:
    return _git("rev-parse", "--verify", f"{name}^{{commit}}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise TurnFailed(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "speed": what,
            "before": max(each["before"]),
            "after": max(each["after"]),
            "ratio of the best": each["ratio"]["of_the_best"],
            "median of rounds": each["ratio"]["median"],
            "from": each["ratio"]["min"],
            "to": each["ratio"]["max"],
        }
        for what, each in result["speeds"].items()
    ]
    show(f"speed against {result['revisions']['before'][:10]}", rows)
