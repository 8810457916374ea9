"""A small job that does what jobs do.

Its JVM loads the classes that those of other jobs load too, and writes them down when it ends
(`_spark.session.class_archive`). Calls the public API.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ferryman import aggregates
from ferryman._operator.declare.operator import Operator
from ferryman._operator.types.value import Value
from ferryman._spark.api.ferry import Ferry
from ferryman._spark.session.session import session
from ferryman._spark.sinks import sinks

_FILES, _ROWS = 8, 200


class _Counts(Operator):
    n = Value(int, 0)
    last = Value(bytes, b"")
    output = "key long, n long"

    def process(self, key: int, row: Any) -> Iterator[tuple[int, int]]:
        self.n += 1
        self.last = row.data
        yield key, self.n


def main(place: str) -> None:
    """Run some epochs in a folder, by a shuffle and by express."""
    folder = Path(place)
    (folder / "rows").mkdir()
    for number in range(_FILES):
        rows = pa.table({"key": np.arange(_ROWS) % 50, "data": [b"data"] * _ROWS, "value": np.ones(_ROWS)})
        pq.write_table(rows, folder / "rows" / f"{number}.parquet")
    spark = session("ferryman-rehearsal", "local[2]")
    for most in (1, _FILES):
        files = spark.readStream.schema("key long, data binary, value double").option("maxFilesPerTrigger", most)
        ferry = Ferry(spark, folder / f"checkpoint-{most}")
        stream = ferry.stream(files.parquet(str(folder / "rows")))
        counts = stream.key_by("key").process(_Counts)
        totals = stream.key_by("key").aggregate(n=aggregates.count(), total=aggregates.avg("value"))
        outputs = (counts.write(sinks.parquet(folder / f"counts-{most}")), totals.write(sinks.none()))
        ferry.start("rehearsal", *outputs, trigger={"availableNow": True}).wait()
    spark.stop()
