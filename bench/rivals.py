"""What a user would otherwise choose: Spark's own four ways to keep a count and a sum per key.

Each is written as its documentation does it, and gives one row per key and epoch. Processors are made
inside functions so that Spark ships them by value and workers need no `bench` package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from bench.data import Input

OUTPUT = "key long, n long, total double"
STATE = "n long, total double"


def jvm(rows: DataFrame) -> DataFrame:
    """Aggregate inside the JVM, with no Python at all."""
    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def tws_row(rows: Any) -> Any:
    """Use transformWithState on Rows; on a Spark DataFrame or on a Ferryman stream."""

    class CountSum(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._sums = handle.getValueState("sums", STATE)

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            n, total = self._sums.get() or (0, 0.0)
            for row in rows:
                n += 1
                total += row.value
            self._sums.update((n, total))
            yield Row(key=key[0], n=n, total=total)

        def close(self) -> None:
            pass

    return rows.groupBy("key").transformWithState(CountSum(), OUTPUT, "Update", "None")


def tws_pandas(rows: Any) -> Any:
    """Use transformWithStateInPandas; on a Spark DataFrame or on a Ferryman stream."""

    class CountSum(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._sums = handle.getValueState("sums", STATE)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            import pandas as pd

            n, total = self._sums.get() or (0, 0.0)
            for frame in rows:
                n += len(frame)
                total += float(frame["value"].sum())
            self._sums.update((n, total))
            yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

        def close(self) -> None:
            pass

    return rows.groupBy("key").transformWithStateInPandas(CountSum(), OUTPUT, "Update", "None")


def apply_in_pandas(rows: DataFrame) -> DataFrame:
    """Use applyInPandasWithState."""

    def count_sum(key: Any, frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        import pandas as pd

        n, total = state.get if state.exists else (0, 0.0)
        for frame in frames:
            n += len(frame)
            total += float(frame["value"].sum())
        state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    return rows.groupBy("key").applyInPandasWithState(count_sum, OUTPUT, STATE, "update", GroupStateTimeout.NoTimeout)


RIVALS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "spark_jvm": jvm,
    "spark_tws_row": tws_row,
    "spark_tws_pandas": tws_pandas,
    "spark_apply_in_pandas": apply_in_pandas,
}


def run_rival(spark: SparkSession, name: str, made: Input, checkpoint: Path, census: Path | None) -> None:
    """Run all epochs there are; with `census`, keep what the engine emits there instead of dropping it."""
    writer = RIVALS[name](made.stream(spark)).writeStream.outputMode("update").queryName(name)
    if census is None:
        writer = writer.format("noop")
    else:
        writer = writer.foreachBatch(lambda batch, epoch: batch.write.mode("append").parquet(str(census)))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
