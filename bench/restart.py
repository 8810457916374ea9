"""A driver is killed with SIGKILL, and all it has started with it; how long until a new one has committed an epoch?

The engines come in turns, round after round, each on its own checkpoint with the same state. When an epoch is committed
is seen from outside, by the file that says so: a manifest, or Spark's own commit. Rows keep coming while a driver is
there, a file at a time. In the end each engine reads all files, and what its state has counted must be all rows.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import Progress, Result, cores, show, spread
from ferryman._os import java
from ferryman._os.processes import below, end, kill

ENGINES = ("ferryman", "ferryman_unprepared", "spark_tws", "spark_groupby")
_RATIOS = {
    "ratio_driver_vs_spark": "spark_tws",
    "ratio_driver_vs_groupby": "spark_groupby",
    "ratio_driver_vs_unprepared": "ferryman_unprepared",
}
_ROOT = Path(__file__).resolve().parents[1]
_FILL_FILES, _TOUCHED, _EVERY_S = 10, 1000, 0.25
# Epochs after the state is there, and after each restart, before the driver is killed.
_EPOCHS = 8
_PATIENCE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """What state there is, and what is done to it."""

    mb: int
    bytes: int
    rounds: int
    engines: str
    instances: int

    @classmethod
    def of(cls, mb: int, size: int, rounds: int, engines: Sequence[str], instances: int | None) -> Load:
        """Settle what was left open."""
        return cls(mb=mb, bytes=size, rounds=rounds, engines=",".join(engines), instances=instances or cores())

    def parameters(self) -> dict[str, object]:
        """Give them as the command takes them."""
        return asdict(self)

    @property
    def keys(self) -> int:
        """Count the keys."""
        return max(_FILL_FILES, self.mb * 1_000_000 // self.bytes)


class Rows:
    """Files of rows for one engine: all keys first, then some of them again and again."""

    def __init__(self, place: Path, load: Load) -> None:
        self._place = place / "rows"
        self._place.mkdir(parents=True)
        self._load = load
        self._chance = np.random.default_rng(1)
        self._files = 0
        self.total = 0
        for part in np.array_split(np.arange(load.keys), _FILL_FILES):
            self.add(part)

    def add(self, keys: Any) -> None:
        """Add a file; it is whole when it has its name."""
        data = self._chance.bytes(len(keys) * self._load.bytes)
        offsets = pa.array(np.arange(len(keys) + 1) * self._load.bytes, pa.int32())
        values = pa.BinaryArray.from_buffers(pa.binary(), len(keys), [None, offsets.buffers()[1], pa.py_buffer(data)])
        draft = self._place / f".{self._files}"
        pq.write_table(pa.table({"key": pa.array(keys), "data": values}), draft, compression="none")
        # Spark reads the oldest first.
        os.utime(draft, (1_700_000_000 + self._files,) * 2)
        draft.rename(self._place / f"{self._files:06d}.parquet")
        self._files += 1
        self.total += len(keys)

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Let small files come, one by one, for a while."""
        over = threading.Event()

        def feed() -> None:
            while not over.wait(_EVERY_S):
                self.add(self._chance.choice(self._load.keys, min(_TOUCHED, self._load.keys), replace=False))

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Driver:
    """A driver in a process of its own."""

    def __init__(self, engine: str, place: Path, *words: str) -> None:
        self._committed = place / "checkpoint" / ("commits" if engine.startswith("spark") else "manifests")
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._log = place / "driver.log"
        self.before = self.newest()
        self.began = time.time()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.restarted", engine, str(place), *words],
                env=_environment(place),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "stdout is a pipe"
        for line in self._process.stdout:
            if line.startswith(b'{"event"'):
                self._events.put(json.loads(line))
        self._events.put(None)

    def newest(self) -> int:
        """Give the newest epoch, or micro-batch, that is committed; -1 for none."""
        found = os.listdir(self._committed) if self._committed.is_dir() else []
        return max((int(name.partition(".")[0]) for name in found if name[:1].isdigit()), default=-1)

    def wait(self, epochs: int) -> float:
        """Wait for so many commits of this driver; give when the last of them was there."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.newest() < self.before + epochs:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the driver did not go on:\n{self._log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.002)
        return time.time()

    def events(self) -> dict[str, dict[str, Any]]:
        """Give what it has said so far."""
        found = {}
        while not self._events.empty():
            if (event := self._events.get()) is not None:
                found[event["event"]] = event
        return found

    def kill(self) -> None:
        """Kill it and all it has started, at once."""
        family = below(self._process.pid)
        for process in (self._process.pid, *(process.id for process in family)):
            kill(process)
        self._process.wait()
        end(family)

    def end(self) -> dict[str, Any]:
        """Wait until it ends by itself, and give the last thing it said."""
        last: dict[str, Any] = {}
        while (event := self._events.get(timeout=_PATIENCE_S)) is not None:
            last = event
        if self._process.wait():
            raise RuntimeError(f"the driver failed:\n{self._log.read_text(errors='replace')[-4000:]}")
        return last


def _environment(place: Path) -> dict[str, str]:
    """Give each engine a cache of its own, so that only one of them has a class archive."""
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    more = {"PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(place / "local"), "XDG_CACHE_HOME": str(place / "cache")}
    # Spark's own sessions take the first `python3` of the path for their workers.
    return {**os.environ, **more, "PYSPARK_PYTHON": sys.executable}


def _prepare(place: Path) -> Result:
    began = time.perf_counter()
    words = [sys.executable, "-c", "from ferryman._cli import app; app()", "prepare"]
    subprocess.run(words, env=_environment(place), check=True, stdout=subprocess.DEVNULL)
    return {"prepare_s": round(time.perf_counter() - began, 1)}


def run(place: Path, load: Load, progress: Progress) -> Result:
    """Give all engines the same state, kill and restart them in turns, and check what they have kept."""
    engines = load.engines.split(",")
    (place / "parameters.json").write_text(json.dumps(load.parameters()))
    rows, prepared = {}, {}
    java.ensure()
    for engine in engines:
        if engine == "ferryman":
            with progress.step("ferryman prepare"):
                prepared = _prepare(place / engine)
        with progress.step(f"{engine}: {load.mb} MB of state"):
            rows[engine] = Rows(place / engine, load)
            driver = Driver(engine, place / engine)
            driver.wait(_FILL_FILES)
            _strike(driver, rows[engine], _FILL_FILES + _EPOCHS)
    found: dict[str, list[Result]] = {engine: [] for engine in engines}
    for turn in range(load.rounds):
        for engine in engines:
            with progress.step(f"{engine}: killed and started again, round {turn + 1} of {load.rounds}"):
                found[engine].append(_restart(engine, place / engine, rows[engine]))
    for engine in engines:
        with progress.step(f"{engine}: all rows, and a look at the state"):
            counted = Driver(engine, place / engine, "finish").end()["rows"]
        if counted != rows[engine].total:
            raise RuntimeError(f"{engine} has counted {counted} rows, and there were {rows[engine].total}")
    return {**figures(found), **prepared}


def _restart(engine: str, place: Path, rows: Rows) -> Result:
    driver = Driver(engine, place)
    with rows.coming():
        done = driver.wait(1)
    events = driver.events()
    _strike(driver, rows, _EPOCHS)
    marks = {"python": driver.began, "imports": events["imported"]["began"], "session": events["imported"]["at"],
             "start": events["session"]["at"], "first_epoch": events["started"]["at"]}  # fmt: skip
    ends = [*list(marks.values())[1:], done]
    return {
        "restart_s": done - driver.began,
        "phases_s": {name: after - at for (name, at), after in zip(marks.items(), ends, strict=True)},
        **events.get("back", {}),
    }


def _strike(driver: Driver, rows: Rows, epochs: int) -> None:
    """Kill a driver when it has committed so many epochs and is in the middle of one more."""
    with rows.coming():
        driver.wait(epochs)
        time.sleep(0.1)
        driver.kill()


def figures(found: dict[str, list[Result]]) -> Result:
    """Say what the rounds come to."""
    engines = {
        engine: {
            "restart_s": spread([turn["restart_s"] for turn in rounds]),
            "phases_s": {
                phase: spread([turn["phases_s"][phase] for turn in rounds]) for phase in rounds[0]["phases_s"]
            },
        }
        for engine, rounds in found.items()
    }
    result: Result = {"driver": engines}
    if "ferryman" in engines:
        own = engines["ferryman"]["restart_s"]["median"]
        result["driver_restart_s"] = own
        for name, rival in _RATIOS.items():
            if rival in engines:
                result[name] = round(own / engines[rival]["restart_s"]["median"], 3)
    return result


def show_part(result: Result) -> None:
    """Print the seconds of every engine, and what they were made of."""
    rows = []
    for engine, taken in result["driver"].items():
        phases = {phase: values["median"] for phase, values in taken["phases_s"].items()}
        rows.append({"engine": engine, "restart s": taken["restart_s"]["median"], **phases})
    show("from the start of a killed driver's successor to its first commit, s", rows)
    for name in ("driver_restart_s", *_RATIOS):
        if name in result:
            print(f"{name}: {result[name]}")
