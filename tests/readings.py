"""A small job over files, one file per epoch, that notices a lost row, a repeated row and a changed order.

For tests that put something wrong in its way, set it right, and let the same job go on.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from appearing import appear
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from ferryman import Ferry, Job, Operator, Value, sinks
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.fold import rebuild
from ferryman._spark.api.stream import Stream
from ferryman._spark.sinks.sinks import MemorySink
from ferryman.errors import FerrymanError

# The workers do not have the tests' folder on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

NAME = "readings"
ROWS = 8
SCHEMA = "key string, id long, value double"
ONCE = {"availableNow": True}


class Trail(Operator):
    """Keep a digest per key that depends on every row and on their order."""

    n = Value(int, 0)
    digest = Value(int, 0)
    output = "key string, n long, digest long"

    def process(self, key, row):
        self.n += 1
        self.digest = (self.digest * 1_000_003 + row.id + 1) % ((1 << 61) - 1)
        yield key, self.n, self.digest


def epoch_rows(epoch: int) -> list[dict[str, Any]]:
    """Make the rows of an epoch, counted from 1: ids 0 to 7, 8 to 15, ... of three keys."""
    return [
        {"key": f"s-{number % 3}", "id": number, "value": number / 2}
        for number in range((epoch - 1) * ROWS, epoch * ROWS)
    ]


def put(folder: Path, epoch: int, rows: Iterable[dict[str, Any]]) -> None:
    """Put the file of an epoch where the stream finds it."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    # Spark takes files in the order of their times, which may be equal for files made at once.
    appear(folder / f"{epoch:04d}.json", 1_700_000_000 + epoch, lambda draft: draft.write_text(text))


def expected(rows: Iterable[dict[str, Any]]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Compute the state and the output of `Trail`, one row after the other."""
    state: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    output = []
    for row in rows:
        n, digest = state[row["key"]]
        state[row["key"]] = n + 1, (digest * 1_000_003 + row["id"] + 1) % ((1 << 61) - 1)
        output.append((row["key"], *state[row["key"]]))
    return sorted((key, *values) for key, values in state.items()), sorted(output)


@dataclass
class Readings:
    """The job on a checkpoint of its own, with its files and its sink."""

    spark: SparkSession
    root: Path
    epochs: int = 3
    schema: str = SCHEMA
    sink: MemorySink = field(default_factory=sinks.memory)
    files: Path = field(init=False)
    checkpoint: Path = field(init=False)

    def __post_init__(self) -> None:
        self.files, self.checkpoint = self.root / "files", self.root / "checkpoint"
        for epoch in range(1, self.epochs + 1):
            self.put(epoch, epoch_rows(epoch))

    @property
    def log(self) -> Checkpoint:
        return Checkpoint(directory(str(self.checkpoint)))

    def put(self, epoch: int, rows: Iterable[dict[str, Any]]) -> None:
        put(self.files, epoch, rows)

    def frame(self) -> DataFrame:
        return self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).json(str(self.files))

    def ferry(self, **options: Any) -> Ferry:
        given = {"idle": None, "groups": 8, "home": str(self.root / "home"), **options}
        return Ferry(self.spark, str(self.checkpoint), **given)

    def stream(self, **options: Any) -> Stream:
        return self.ferry(**options).stream(self.frame())

    def trail(self, operator: type[Operator] = Trail) -> Stream:
        return self.stream().key_by("key").process(operator, name="Trail")

    def start(self, stream: Stream | None = None, name: str = NAME, **options: Any) -> Job:
        output = (self.trail() if stream is None else stream).write(self.sink)
        return output.start(name, **{"instances": 2, "trigger": ONCE, **options})

    def run(self, stream: Stream | None = None, **options: Any) -> None:
        self.start(stream, **options).wait()

    def fails(
        self, error: type[FerrymanError], *says: str, stream: Stream | None = None, committed: int = 1, **options: Any
    ) -> FerrymanError:
        """Run the job, which must end with an error that says these things, and after so many epochs."""
        with pytest.raises(error) as caught:
            self.run(stream, **options)
        check_message(caught.value, error, says)
        assert self.log.epochs() == list(range(1, committed + 1)), "an epoch that failed is not committed"
        assert len(self.sink.rows()) <= committed * ROWS, "a sink shows no row of an epoch that failed"
        return caught.value

    def assert_right(self, rows: list[dict[str, Any]] | None = None) -> None:
        """Check state and output against the plain computation, every row once and in order."""
        if rows is None:
            rows = [row for epoch in range(1, self.epochs + 1) for row in epoch_rows(epoch)]
        state, output = expected(rows)
        assert self.state() == state
        assert sorted(tuple(row.values()) for row in self.sink.rows()) == output
        assert self.log.epochs() == list(range(1, self.epochs + 1))

    def state(self, operator: str = "Trail") -> list[tuple[Any, ...]]:
        latest = self.log.latest()
        assert latest is not None
        found = rebuild(self.log, operator, latest.epoch).drop_columns(["_hash"]).to_pylist()
        return sorted(tuple(row.values()) for row in found)


def check_message(error: FerrymanError, kind: type[FerrymanError], says: Iterable[str]) -> None:
    """Check that an error is of exactly this class, shows its error class, and says these things."""
    assert type(error) is kind
    text = str(error)
    assert text.startswith(f"[{kind.error_class}] ")
    for what in says:
        assert re.search(what, text, re.DOTALL), f"{what!r} is not in: {text}"
