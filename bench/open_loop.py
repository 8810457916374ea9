"""Rows that are due by the clock, whether or not anybody reads them, and what a job makes of them.

A row is due at a time that was fixed beforehand, and its latency counts from that time to the commit of its epoch; a
job that stands still is not forgiven what it did not read.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.latency import Change, Rows
from bench.report import Result
from ferryman import sources
from ferryman.sinks import SinkStart

# A backlog of less than this is none: the epoch under way and the one before it.
_BEHIND_S = 3.0
# How long a stream must be as it was before a change, and how long that is waited for.
_CALM_S = 3.0
_PATIENCE_S = 90.0


@dataclass(frozen=True)
class Load:
    """What every strategy is given.

    Attributes
    ----------
    keys, size
        How many keys there are, and how many bytes each keeps.
    rate
        Rows per second, whatever happens.
    skew
        The Zipf exponent of the keys; with 0 they come in turn.
    work_ms
        How long a row takes.
    interval_ms
        How often an epoch begins; 0 for as soon as the one before is done.
    hosts
        How many hosts there are, each with an instance.
    groups
        How many key groups there are.
    link_mbit, delay_ms
        What the line out of a host carries, in Mbit/s, and how long everything on it is on its way; None and 0 for the
        loopback as it is.
    before_s, after_s
        How long to watch before the change, and after it.
    warm_s
        How long to wait before that, as compilers and caches are still getting warm.
    """

    keys: int
    size: int
    rate: float
    skew: float = 0.0
    work_ms: float = 0.0
    interval_ms: int = 1000
    hosts: int = 2
    groups: int = 64
    link_mbit: float | None = None
    delay_ms: float = 0.0
    before_s: float = 15.0
    after_s: float = 15.0
    warm_s: float = 20.0

    @property
    def trigger(self) -> dict[str, Any]:
        """Give when epochs begin, as Spark takes it."""
        return {"processingTime": f"{self.interval_ms} milliseconds"} if self.interval_ms else {}

    def rows(self, spark: SparkSession, start: datetime) -> DataFrame:
        """Stream the rows: due by the clock; every key once, then in turn or as the skew will have it."""
        most = max(4 * self.rate * max(0.5, self.interval_ms / 1000), min(20_000, 50e6 / self.size))
        frame = sources.generator(
            spark,
            keys=self.keys,
            skew=self.skew,
            rate=self.rate,
            start=start,
            rows_per_epoch=int(most),
            partitions=2,
        )
        key = f"IF(id < {self.keys}, id, key)" if self.skew else f"id % {self.keys}"
        return frame.selectExpr(f"concat('k-', {key}) AS key", "id")

    def start(self) -> datetime:
        """Give when the first row is due: so long ago that every key has had one by now."""
        return datetime.now(timezone.utc) - timedelta(seconds=self.keys / self.rate)

    def link(self) -> str:
        """Say what the line between two hosts is like."""
        if self.link_mbit is None and not self.delay_ms:
            return "loopback of one machine, not shaped"
        speed = "as fast as it can" if self.link_mbit is None else f"{self.link_mbit:g} Mbit/s"
        return (
            f"shaped transport: what a state host sends leaves it at {speed} for all its streams together and arrives "
            f"{self.delay_ms:g} ms later, a request as much later; control messages and Spark's own traffic are not "
            f"shaped ({netem()})"
        )


class Kept:
    """Keep what the epochs put out, and when."""

    whole = True
    skips_silence = False
    label = "bench"
    told = False

    def __init__(self, load: Load, start: datetime) -> None:
        self.parts: list[tuple[int, float, pa.Table]] = []
        self._load = load
        self._start = start.timestamp()

    def claim(self, job_id: str) -> int:
        """Know of no run."""
        return 0

    def begin(self, start: SinkStart) -> None:
        """Nothing to do."""

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows here."""
        part = _with_group(rows, self._load.groups).toArrow()
        # A batch that was cut off comes again.
        self.parts = [kept for kept in self.parts if kept[0] != epoch]
        self.parts.append((epoch, time.time(), part))
        return {}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do."""

    def wait(self, seconds: float, flag: Path | None = None) -> None:
        """Wait until every key has its state and no backlog is left, and a little more; rows take time from then on."""
        deadline = time.monotonic() + 600
        while True:
            parts = list(self.parts)
            done = sum(part.num_rows for _, _, part in parts)
            due = (time.time() - self._start) * self._load.rate
            # On a slow machine the epoch under way, and the one before it, are longer.
            epoch_s = parts[-1][1] - parts[-2][1] if len(parts) > 1 else 0.0
            if done >= self._load.keys and done > due - max(_BEHIND_S, 2.5 * epoch_s) * self._load.rate:
                if flag is not None:
                    flag.touch()
                time.sleep(seconds)
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the stream does not keep up: {done:,} rows done of {due:,.0f} that were due")
            time.sleep(0.1)

    def worst(self, since: float) -> float:
        """Give the longest that a row waited whose result came since a time."""
        late = [at - self._start - _first(part) / self._load.rate for _, at, part in list(self.parts) if at >= since]
        return max(late, default=float("inf"))

    def settle(self, bound_s: float) -> None:
        """Wait until no row has waited longer than a bound for some seconds, but not for ever."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.worst(time.time() - _CALM_S) > bound_s and time.monotonic() < deadline:
            time.sleep(0.2)

    def rows(self, committed: Mapping[int, float] | None = None) -> Rows:
        """Give all rows; done when they were here, or when their epoch was committed."""
        tables = [part for _, _, part in self.parts]
        done = [at if committed is None else committed[epoch] for epoch, at, _ in self.parts]
        whole = pa.concat_tables(tables)
        ids = whole["id"].to_numpy()
        return Rows(
            ids / self._load.rate,
            np.repeat(np.array(done) - self._start, [part.num_rows for part in tables]),
            ids,
            whole["key"].to_numpy().astype(str),
            whole["n"].to_numpy(),
            whole["group"].to_numpy(),
        )

    def change(self, rows: Rows, span: Span) -> Change:
        """Give a change among the rows."""
        times = (time_s - self._start for time_s in (span.asked, span.ended, span.since, span.until))
        return Change(rows, span.moving, *times, span.facts)


@dataclass(frozen=True)
class Span:
    """When a change was, by the clock: from when to look, asked for, over, until when to look."""

    since: float
    asked: float
    ended: float
    until: float
    moving: frozenset[int]
    facts: Result


def _first(part: pa.Table) -> float:
    return float(np.min(part["id"].to_numpy())) if part.num_rows else float("inf")


def _with_group(frame: DataFrame, groups: int) -> DataFrame:
    return frame.select("key", "id", "n", F.pmod(F.xxhash64("key"), F.lit(groups)).alias("group"))


def watch(seconds: float) -> None:
    # Time itself is what is measured here.
    time.sleep(seconds)


def netem() -> str:
    """Say whether this machine could shape its network itself."""
    if shutil.which("unshare") is None or shutil.which("tc") is None:
        return "this machine has no tc to shape its network with"
    asked = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    tried = subprocess.run(asked, capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return "network namespaces with netem are there, and are not used"
    return f"netem is not there: {tried.stderr.strip().splitlines()[0] if tried.stderr.strip() else 'refused'}"
