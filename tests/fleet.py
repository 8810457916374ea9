"""A job that notices everything: a lost row, a repeated row, a changed order; and what it should give.

`Trail` keeps a digest per key that depends on every row and on their order. The oracle computes the
same in plain Python from the generator's own rows.
"""

from __future__ import annotations

import os
import sys
from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from appearing import appear
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from ferryman import ArrowOperator, Counter, Ferry, Job, List, Operator, Value, aggregates, sinks
from ferryman._sources.generated_rows import GeneratorOptions, generate

# The workers do not have the tests' folder on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PRIME = (1 << 61) - 1
NAME = "fleet"


def step(digest: int, value: int) -> int:
    return (digest * 1_000_003 + value + 1) % PRIME


class Trail(Operator):
    """Row by row, fixed-width state: the columnar store."""

    n = Value(int, 0)
    digest = Value(int, 0)
    output = "key string, n long, id long, digest long, bucket long"

    def process(self, key, row):
        self.n += 1
        self.digest = step(self.digest, row.id)
        yield key, self.n, row.id, self.digest, row.id % 7


class Words(Operator):
    """Row by row, a text and entries: several tables in the lmdb store; forgets a key now and then."""

    seen = List(int)
    often = Counter(int)
    note = Value(str, "")
    output = "key string, note string"

    def process(self, key, row):
        self.seen.append(row.id)
        self.often[row.id % 3] += 1
        self.note = f"{key}:{len(self.seen)}"
        if len(self.seen) == 5:
            yield key, self.note + ":" + "+".join(map(str, self.seen))
            self.clear()


class Extremes(ArrowOperator):
    """Vectorised."""

    n = Value(int, 0)
    top = Value(int, -1)
    output = "key string, n long, top long"

    def process(self, batch):
        top = batch.state["top"].to_numpy().copy()
        np.maximum.at(top, batch.index, batch.rows["id"].to_numpy())
        n = batch.state["n"].to_numpy() + np.bincount(batch.index, minlength=batch.keys.num_rows)
        state = pa.table({"n": n, "top": top})
        return pa.table({"key": batch.keys["key"], "n": n, "top": top}), state


OPTIONS: dict[str, Any] = {"keys": 40, "seed": 7, "key_prefix": "s-"}
PARTITIONS = 2
# What a job can consist of; each part more makes its epochs longer.
ALL = ("trail", "buckets", "words", "extremes")


def start(
    spark: SparkSession,
    checkpoint: str,
    out: str,
    *,
    rows: int,
    per_epoch: int,
    instances: int,
    parts: Collection[str] = ALL,
    trigger: dict[str, Any] | None = None,
    **options,
) -> Job:
    """Start the job: a chain, a fan-out and four sinks, or some of these; until its rows end, or by another trigger."""
    ferry = Ferry(spark, checkpoint, **{"snapshot_every": 3, "retain": 2, "idle": None, **options})
    folder = os.environ.get("FLEET_SOURCE", f"{checkpoint}-source")
    source = ferry.stream(arriving(spark, Path(folder), rows, per_epoch))
    trail = source.key_by("key").process(Trail)
    buckets = trail.key_by("bucket").aggregate(
        name="Buckets", n=aggregates.count(), total=aggregates.sum("id"), newest=aggregates.last("id")
    )
    words = source.key_by("key").process(Words)
    extremes = source.key_by("key").process(Extremes)
    outputs = [
        stream.write(sinks.parquet(f"{out}/{name}"))
        for name, stream in {"trail": trail, "buckets": buckets, "words": words, "extremes": extremes}.items()
        if name in parts
    ]
    return ferry.start(NAME, *outputs, instances=instances, trigger=trigger or {"availableNow": True})


def arriving(spark: SparkSession, folder: Path, rows: int, per_epoch: int) -> DataFrame:
    """Stream the generator's rows from files: Spark starts no Python for those, which takes it longest."""
    put(folder, rows, per_epoch)
    stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return stream.option("maxFilesPerTrigger", PARTITIONS).parquet(str(folder))


def put(folder: Path, rows: int, per_epoch: int) -> None:
    """Have there be so many rows of the generator in files, after those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    there = max((int(path.stem.split("-")[1]) for path in folder.glob("[0-9]*.parquet")), default=0)
    for first in range(there, rows, per_epoch):
        after = min(first + per_epoch, rows)
        table = source_table(rows).slice(first, after - first)
        part = np.array([int(key[2:]) for key in table["key"].to_pylist()]) % PARTITIONS
        for number in range(PARTITIONS):
            path = folder / f"{first:08d}-{after:08d}-{number}.parquet"
            some = table.filter(pa.array(part == number))
            appear(path, 1_700_000_000 + first, partial(pq.write_table, some))


def source_table(rows: int) -> pa.Table:
    return pa.table(generate(GeneratorOptions.of({**OPTIONS, "rows": rows}), 0, rows))


def source_rows(rows: int) -> list[dict[str, Any]]:
    return source_table(rows).to_pylist()


def part_of(what: str) -> str:
    """Name the part that something found or expected is of."""
    return what.partition(" ")[0].partition(".")[0].lower()


def expected(rows: int, parts: Collection[str] = ALL) -> dict[str, Any]:
    """Compute what the job must give, one row after the other."""
    trail: list[tuple[Any, ...]] = []
    words: list[tuple[Any, ...]] = []
    at: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    seen: dict[str, list[int]] = defaultdict(list)
    buckets: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    extremes: dict[str, tuple[int, int]] = defaultdict(lambda: (0, -1))
    for row in source_rows(rows):
        key, number = row["key"], row["id"]
        n, digest = at[key]
        at[key] = n + 1, step(digest, number)
        trail.append((key, n + 1, number, at[key][1], number % 7))
        count, total = buckets[number % 7]
        buckets[number % 7] = count + 1, total + number
        extremes[key] = extremes[key][0] + 1, max(extremes[key][1], number)
        seen[key].append(number)
        if len(seen[key]) == 5:
            words.append((key, f"{key}:5:" + "+".join(map(str, seen.pop(key)))))
    whole = {
        "trail rows": sorted(trail),
        "words rows": sorted(words),
        "Trail": sorted((key, *state) for key, state in at.items()),
        "Words": sorted((key, f"{key}:{len(ids)}") for key, ids in seen.items()),
        "Words.seen": sorted((key, number) for key, ids in seen.items() for number in ids),
        "Words.often": sorted(
            (key, rest, count)
            for key, ids in seen.items()
            for rest, count in Counted(number % 3 for number in ids).items()
        ),
        "Buckets": sorted((key, *state) for key, state in buckets.items()),
        "Extremes": sorted((key, *state) for key, state in extremes.items()),
    }
    return {what: rows for what, rows in whole.items() if part_of(what) in parts}


def found(spark: SparkSession, checkpoint: str, out: str, parts: Collection[str] = ALL) -> dict[str, Any]:
    """Read what the job gave: its sinks, and its state from the checkpoint directory alone."""
    from ferryman._log.files.checkpoint import Checkpoint
    from ferryman._log.files.directory import directory
    from ferryman._log.fold.fold import rebuild

    log = Checkpoint(directory(checkpoint))
    epoch = log.latest().epoch

    def state(operator: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = rebuild(log, operator, epoch).select(list(columns)).to_pylist()
        return [tuple(row.values()) for row in rows]

    def rows(name: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in sinks.read_parquet(spark, f"{out}/{name}").toArrow().to_pylist())

    ways = {
        "trail rows": lambda: rows("trail"),
        "words rows": lambda: rows("words"),
        "Trail": lambda: sorted(state("Trail", "key", "n", "digest")),
        "Words": lambda: sorted(state("Words", "key", "note")),
        "Words.seen": lambda: sorted((key, value["item"]) for key, value in state("Words.seen", "key", "_value")),
        "Words.often": lambda: sorted(
            (key, rest, value["item"]) for key, rest, value in state("Words.often", "key", "_key.key", "_value")
        ),
        "Buckets": lambda: sorted(state("Buckets", "bucket", "n", "total")),
        "Extremes": lambda: sorted(state("Extremes", "key", "n", "top")),
    }
    return {what: find() for what, find in ways.items() if part_of(what) in parts}
