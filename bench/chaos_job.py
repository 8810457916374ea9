"""The job of a chaos campaign, what it is fed, and what it must give: a lost, repeated or overtaken row shows.

Three operators: `Trail` keeps a digest per key of every row in its order, in fixed width; `Reminded` keeps lists, and
asks to be called by the clock; an aggregate over another key follows `Trail`. Four sinks show rows: three of Parquet,
and a function.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ferryman import Ferry, Job, List, Operator, Value, aggregates, sinks

KEYS, BUCKETS, GROUPS, ROWS = 41, 7, 32, 50
HOT = "k-0"
SCHEMA = "key string, id long"
# Among each so many rows of the source, one is to be called back.
_CALLED = 5
_WAIT_MS = 1500
_PRIME = (1 << 61) - 1

Row = tuple[Any, ...]


def _step(digest: int, number: int) -> int:
    return (digest * 1_000_003 + number + 1) % _PRIME


class Trail(Operator):
    """Keep a digest per key that depends on every row and on their order."""

    n = Value(int, 0)
    digest = Value(int, 0)
    output = "key string, id long, n long, digest long, bucket long"

    def process(self, key: str, row: Any) -> Iterator[Row]:
        """Put out the digest after every row."""
        self.n += 1
        self.digest = _step(self.digest, row.id)
        yield key, row.id, self.n, self.digest, row.id % BUCKETS


class Reminded(Operator):
    """Remember rows, and put each out when its time has come."""

    waiting: Any = List(int)
    output = "key string, id long"

    def process(self, key: str, row: Any) -> None:
        """Ask to be called."""
        self.waiting.append(row.id)
        self.call_at(self.now_ms + _WAIT_MS)

    def due(self, key: str, time: Any) -> Iterator[Row]:
        """Put out what has waited, once."""
        for number in list(self.waiting):
            yield key, number
        self.waiting.clear()


def clock(file: Path) -> Callable[[], int]:
    """Give a clock that is ahead of the machine's by as many milliseconds as a file says."""
    from ferryman._engine.clock import system_ms

    return lambda: system_ms() + int(file.read_text())


def by_number(folder: Path) -> Any:
    """Write the rows of a call into a file of its number: what a function has to be, idempotent by it."""
    folder.mkdir(exist_ok=True)

    def write(rows: Any, number: int) -> None:
        listed = sorted(tuple(row) for row in rows.collect())
        draft = folder / f".{number}.{os.getpid()}"
        draft.write_text(json.dumps(listed))
        draft.rename(folder / f"{number:08d}.json")

    return sinks.foreach(write)


def start(spark: Any, place: Path, instances: int | None) -> Job:
    """Start the job, or go on with it."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 20).json(str(place / "files"))
    ferry = Ferry(
        spark, str(place / "checkpoint"), groups=GROUPS, idle="2 seconds", snapshot_every=10, retain=20,
        clock=clock(place / "clock"),
    )  # fmt: skip
    source = ferry.stream(files)
    trail = source.key_by("key").process(Trail)
    count = trail.key_by("bucket").aggregate(name="Buckets", rows=aggregates.count(), total=aggregates.sum("id"))
    called = source.where(f"id % {_CALLED} = 0").key_by("key").process(Reminded)
    outputs = [
        trail.write(sinks.parquet(place / "trail")),
        trail.write(by_number(place / "calls")),
        count.write(sinks.parquet(place / "buckets")),
        called.write(sinks.parquet(place / "called")),
    ]
    return ferry.start("chaos", *outputs, instances=instances, trigger={"processingTime": "500 milliseconds"})


def key_of(number: int) -> str:
    """Give the key of a row: a quarter of all are of one."""
    return HOT if number % 4 == 0 else f"k-{number % KEYS}"


class Feeder:
    """Let files with the next rows come until `stop`, one after the other by their times."""

    def __init__(self, place: Path, every_s: float = 0.5) -> None:
        self._place = place
        self._every_s = every_s
        self._over = threading.Event()
        self.files = 0
        (place / "files").mkdir()
        self._thread = threading.Thread(target=self._feed, name="chaos-feeder", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Count the rows that have come."""
        return self.files * ROWS

    def _feed(self) -> None:
        while not self._over.wait(self._every_s):
            rows = [{"key": key_of(number), "id": number} for number in range(self.rows, self.rows + ROWS)]
            draft = self._place / f".{self.files}"
            draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(draft, (1_700_000_000 + self.files,) * 2)
            draft.rename(self._place / "files" / f"{self.files:07d}.json")
            self.files += 1

    def stop(self) -> None:
        """Let no more come."""
        self._over.set()
        self._thread.join()


def wrong(place: Path, rows: int) -> dict[str, list[str]]:
    """Compare every sink with what it must have; say for each what is wrong."""
    trail, called = [], []
    at: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for number in range(rows):
        key = key_of(number)
        n, digest = at[key]
        at[key] = n + 1, _step(digest, number)
        trail.append((key, number, *at[key], number % BUCKETS))
        if number % _CALLED == 0:
            called.append((key, number))
    by_epoch = _by_epoch(place / "trail", "key", "id", "n", "digest", "bucket")
    calls = [json.loads(path.read_text()) for path in sorted((place / "calls").glob("[0-9]*.json"))]
    return {
        "trail": _differ(trail, [row for epoch in by_epoch.values() for row in epoch]),
        "function": _differ(trail, [tuple(row) for call in calls for row in call]),
        "called": _differ(
            called, [row for epoch in _by_epoch(place / "called", "key", "id").values() for row in epoch]
        ),
        "buckets": _differ(
            _buckets(by_epoch),
            [
                (epoch, *row)
                for epoch, some in _by_epoch(place / "buckets", "bucket", "rows", "total").items()
                for row in some
            ],
        ),
    }


def _by_epoch(sink: Path, *columns: str) -> dict[int, list[Row]]:
    """Read the rows that a Parquet sink shows, by epoch: its files and its lists must say the same."""
    listed = [json.loads(path.read_text()) for path in sorted((sink / "_ferryman").glob("[0-9]*.json"))]
    named = {f"{one['attempt']}-{number:05d}.parquet" for one in listed for number in range(len(one["files"]))}
    shown = {path.name for path in sink.glob("*.parquet")}
    assert named == shown, f"{sink.name}: files that are not listed, or not there: {sorted(named ^ shown)[:5]}"
    found: dict[int, list[Row]] = defaultdict(list)
    for name in sorted(named):
        table = pq.ParquetFile(sink / name).read(columns=list(columns))
        found[int(name[:12])] += zip(*(table.column(column).to_pylist() for column in columns), strict=True)
    return found


def _buckets(trail: dict[int, list[Row]]) -> list[Row]:
    """Compute what the aggregate must give of what `Trail` gave, epoch by epoch: one row per bucket that got some."""
    at: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    rows = []
    for epoch in sorted(trail):
        for _, number, _, _, bucket in trail[epoch]:
            count, total = at[bucket]
            at[bucket] = count + 1, total + number
        rows += [(epoch, bucket, *at[bucket]) for bucket in {row[-1] for row in trail[epoch]}]
    return rows


def _differ(wanted: list[Row], found: list[Row]) -> list[str]:
    missing, more = Counter(wanted), Counter(found)
    missing.subtract(Counter(found))
    more.subtract(Counter(wanted))
    lost, added = sorted((+missing).elements()), sorted((+more).elements())
    said = [f"{len(lost)} rows are not there, such as {lost[:3]}"] if lost else []
    return said + ([f"{len(added)} rows are too many, such as {added[:3]}"] if added else [])
