"""State worth moving: a count per key, and a payload of a given size that is written once and stays.

The payload is a state of its own, so that an epoch's delta holds the counts it changed and not the payloads it did not.
A row may take some time: the operator then waits, as for a call to somebody else, and needs no core for it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from ferryman import List, Operator, Value


def payload(key: str, size: int) -> bytes:
    """Give a key its payload: the same in every run, and nothing that a codec could shrink."""
    return hashlib.shake_128(key.encode()).digest(size)


def movable_operator(size: int, work_s: float, flag: str) -> type[Operator]:
    """Make the operator; rows take time as soon as a file is there."""

    class Movable(Operator):
        n = Value(int, 0)
        held = List(bytes)
        output = "key string, id long, n long"

        def process(self, key: Any, row: Any) -> Iterator[tuple[Any, ...]]:
            if self.n == 0:
                self.held.append(payload(key, size))
            if work_s and os.path.exists(flag):
                time.sleep(work_s)
            self.n += 1
            yield key, row.id, self.n

    return Movable


def movable_processor(size: int, work_s: float, flag: str) -> tuple[StatefulProcessor, StructType]:
    """Make the same for Spark's own transformWithState, with its output's schema."""

    class Movable(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._n = handle.getValueState("n", StructType([StructField("n", LongType())]))
            self._held = handle.getListState("held", StructType([StructField("held", BinaryType())]))

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            found = self._n.get() if self._n.exists() else None
            n = found[0] if found else 0
            for row in sorted(rows, key=lambda sent: sent["id"]):
                if n == 0:
                    self._held.appendValue((payload(key[0], size),))
                if work_s and os.path.exists(flag):
                    time.sleep(work_s)
                n += 1
                yield Row(key=key[0], id=row["id"], n=n)
            self._n.update((n,))

        def close(self) -> None:
            pass

    schema = StructType([StructField("key", StringType()), StructField("id", LongType()), StructField("n", LongType())])
    return Movable(), schema
