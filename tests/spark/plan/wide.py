"""A job on rows of two megabytes in a JVM that is much smaller than all of them: python wide.py DIRECTORY LIMIT."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import functions as F

from ferryman import Ferry, Operator, Value, session, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.fold import rebuild

WIDE = 2 << 20
ROWS = 300


class Length(Operator):
    """Adds up how long texts were, and gives them back."""

    total = Value(int, 0)
    output = "key string, total long, text string"

    def process(self, key: Any, row: Any) -> Any:
        self.total += len(row.text)
        return [(key, self.total, row.text)]


def main() -> None:
    """Run it and print what was added up."""
    place, limit = sys.argv[1:]
    conf = {"spark.driver.memory": "512m", "spark.sql.execution.arrow.maxBytesPerBatch": limit}
    spark = session("wide", "local[1]", conf=conf)
    rows = sources.generator(spark, rows=2 * ROWS, rows_per_epoch=ROWS, keys=1, key_prefix="k")
    ferry = Ferry(spark, f"{place}/checkpoint", groups=1)
    wide = ferry.stream(rows).transform(lambda frame: frame.select("key", F.repeat(F.lit("x"), WIDE).alias("text")))
    wide.key_by("key").process(Length).write(sinks.none()).start(
        "wide", instances=1, trigger={"availableNow": True}
    ).wait()
    log = Checkpoint(directory(f"{place}/checkpoint"))
    print(rebuild(log, "Length", 2).column("total").to_pylist()[0])
    spark.stop()


if __name__ == "__main__":
    main()
