"""Two live drivers on one checkpoint: both are put to sleep and woken at random moments, and lose their locks.

Whenever one has the checkpoint and sleeps, its lock is taken from it, as by a lease that runs out; so the other takes
over, and then there are two that both believe they have it. A driver that ends is started again. At the end there
must be one history of manifests, in which terms only grow, and each sink must have every row once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.report import Progress, Result, environment
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory

_KEYS, _ROWS = 5, 20


class Pair:
    """Two drivers, and what happened to them."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._root = Path(__file__).resolve().parents[1]
        self.drivers: list[subprocess.Popen[str] | None] = [None, None]
        self.counts = {"starts": 0, "pauses": 0, "locks taken away": 0, "superseded": 0, "refused": 0, "other ends": 0}
        self.others: list[str] = []

    def start(self, number: int) -> None:
        """Start a driver that is not there."""
        path = os.pathsep.join([str(self._root), str(self._root / "src"), os.environ.get("PYTHONPATH", "")])
        self.counts["starts"] += 1
        self.drivers[number] = subprocess.Popen(
            [sys.executable, "-m", "bench.driven", str(self._place)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def gather(self, number: int) -> None:
        """See why a driver has ended, if it has."""
        driver = self.drivers[number]
        if driver is None or driver.poll() is None:
            return
        said = driver.communicate()[0]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        self.drivers[number] = None
        if driver.returncode == 0:
            return
        kind = "superseded" if "[SUPERSEDED]" in said else "refused" if "[CHECKPOINT_IN_USE]" in said else "other ends"
        self.counts[kind] += 1
        if kind == "other ends":
            self.others.append(said[-2000:])

    def pause(self, number: int, seconds: float) -> None:
        """Put a driver to sleep for a while; meanwhile its lock is gone."""
        driver = self.drivers[number]
        if driver is None or driver.poll() is not None:
            return
        # Sometimes with its JVM, as when a machine sleeps, and sometimes without.
        stop = os.killpg if self.counts["pauses"] % 2 else os.kill
        stop(driver.pid, signal.SIGSTOP)
        self.counts["pauses"] += 1
        with contextlib.suppress(FileNotFoundError):
            (self._place / "checkpoint" / ".lock").unlink()
            self.counts["locks taken away"] += 1
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGCONT)

    def end(self, seconds: float) -> None:
        """Let both come to an end."""
        deadline = time.monotonic() + seconds
        while any(self.drivers) and time.monotonic() < deadline:
            for number in range(2):
                self.gather(number)
            time.sleep(0.1)
        for driver in self.drivers:
            if driver is not None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()


def _feed(place: Path, chance: random.Random, until: float, count: list[int]) -> None:
    """Let files come, each with the next rows, one after the other by their times."""
    (place / "files").mkdir(exist_ok=True)
    while time.monotonic() < until:
        first = count[0] * _ROWS
        rows = [{"key": f"k-{number % _KEYS}", "id": number} for number in range(first, first + _ROWS)]
        draft = place / f".{count[0]}"
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(draft, (1_700_000_000 + count[0],) * 2)
        draft.rename(place / "files" / f"{count[0]:06d}.json")
        count[0] += 1
        time.sleep(chance.uniform(0.3, 1.0))


def _expected(files: int) -> tuple[list[tuple[Any, ...]], dict[str, tuple[int, int]]]:
    at: dict[str, tuple[int, int]] = {}
    last: dict[str, tuple[int, int]] = {}
    rows = []
    for number in range(files * _ROWS):
        key = f"k-{number % _KEYS}"
        n, digest = at.get(key, (0, 0))
        at[key] = n + 1, (digest * 1_000_003 + number + 1) % ((1 << 61) - 1)
        last[key] = n + 1, number
        rows.append((key, number, *at[key]))
    return sorted(rows), last


def run(*, seconds: float, seed: int, progress: Progress, scratch: Path | None = None) -> Result:
    """Run the two drivers, then check everything they have left."""
    chance = random.Random(seed)
    place = Path(tempfile.mkdtemp(prefix="ferryman-drivers-", dir=scratch))
    pair, files = Pair(place), [0]
    until = time.monotonic() + seconds
    feeder = threading.Thread(target=_feed, args=(place, random.Random(seed + 1), until, files), daemon=True)
    with progress.step(f"two drivers for {seconds:.0f} s"):
        feeder.start()
        while time.monotonic() < until:
            for number in range(2):
                pair.gather(number)
                if pair.drivers[number] is None:
                    pair.start(number)
            time.sleep(chance.uniform(0.2, 2.0))
            if chance.random() < 0.5:
                pair.pause(chance.randrange(2), chance.uniform(0.05, 6.0))
        feeder.join()
    with progress.step("one driver that finishes"):
        (place / "stop").touch()
        pair.end(60)
        (place / "stop").unlink()
        _finish(pair, place, files[0])
    result = _check(place, files[0])
    return {"benchmark": "drivers", "seconds": seconds, "seed": seed, **pair.counts, **result,
            "others": pair.others, "environment": environment()}  # fmt: skip


def _finish(pair: Pair, place: Path, files: int) -> None:
    """Have one driver process what is left, and stop in order."""
    log = Checkpoint(directory(str(place / "checkpoint")))
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        pair.gather(0)
        if pair.drivers[0] is None:
            pair.start(0)
        latest = log.latest()
        read = sum(log.manifest(epoch).operators["Trail"].rows for epoch in log.epochs()) if latest else 0
        if read >= files * _ROWS:
            break
        time.sleep(1)
    (place / "stop").touch()
    pair.end(60)


def _check(place: Path, files: int) -> Result:
    """Compare manifests and sinks with what they must be."""
    log = Checkpoint(directory(str(place / "checkpoint")))
    rows, last = _expected(files)
    manifests = [log.manifest(epoch) for epoch in log.epochs()]
    terms = [manifest.term for manifest in manifests]
    found = _listed(place / "trail", "key", "id", "n", "digest")
    calls = [json.loads(path.read_text()) for path in sorted((place / "calls").glob("[0-9]*.json"))]
    counted = [tuple(row) for call in calls for row in call]
    counts = _listed(place / "count", "key", "rows", "last")
    given = sum(manifest.operators["aggregate_key"].output for manifest in manifests)
    return {
        "epochs": len(manifests),
        "terms": len(set(terms)),
        "rows": len(rows),
        "one_history": [manifest.epoch for manifest in manifests] == list(range(1, len(manifests) + 1))
        and terms == sorted(terms),
        "parquet_exact": found == rows,
        "function_exact": sorted(counted) == rows,
        # One row for each key that an epoch touched: none twice, none missing, and the last ones right.
        "second_parquet_exact": len(counts) == len({row[:2] for row in counts}) == given
        and {key: max(row[1:] for row in counts if row[0] == key) for key in last} == last,
        "sound": verify(log).sound,
    }


def _listed(sink: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Read the rows that a Parquet sink shows: its files and its lists must say the same."""
    listed = [json.loads(path.read_text()) for path in sorted((sink / "_ferryman").glob("[0-9]*.json"))]
    named = {
        f"{attempt['attempt']}-{number:05d}.parquet" for attempt in listed for number in range(len(attempt["files"]))
    }
    assert named == {path.name for path in sink.glob("*.parquet")}, "files that are not listed, or not there"
    table = pq.read_table([str(sink / name) for name in sorted(named)])
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def show_result(result: Result) -> None:
    """Print what happened, and whether everything is as it must be."""
    for name, value in result.items():
        if name not in ("environment", "others"):
            print(f"{name:>22}  {value}")
    for ending in result["others"]:
        print(ending)
