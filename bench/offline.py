"""Spark's own way to change the number of state partitions: stop the query, repartition its state, start it again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.latency import Change
from bench.movable import movable_processor
from bench.open_loop import Kept, Load, Span, watch


def repartitioned_offline(spark: SparkSession, load: Load, place: Path) -> Change:
    start = load.start()
    kept = Kept(load, start)
    processor, schema = movable_processor(load.size, load.work_ms / 1000, f"{place}.work")

    def begin(partitions: int, trigger: dict[str, Any] = load.trigger) -> Any:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        counted = load.rows(spark, start).groupBy("key").transformWithState(processor, schema, "Update", "None")
        writer = counted.writeStream.foreachBatch(kept.write).option("checkpointLocation", str(place))
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def stop(query: Any) -> None:
        # Stopped between two batches, as an expert would: one cut off could not be repartitioned.
        while query.status["isTriggerActive"] and query.isActive:
            time.sleep(0.001)
        query.stop()
        query.awaitTermination()
        if _newest(place / "offsets") != _newest(place / "commits"):
            # It had begun another one. Spark asks for such a batch to be finished, in this way.
            begin(int(spark.conf.get("spark.sql.shuffle.partitions")), {"availableNow": True}).awaitTermination()

    def changed(query: Any, partitions: int) -> Any:
        stop(query)
        spark._streamingCheckpointManager.repartition(str(place), partitions)  # type: ignore[attr-defined]
        before = len(kept.parts)
        query = begin(partitions)
        while len(kept.parts) == before:
            if not query.isActive:
                raise RuntimeError(f"Spark's query did not start again: {query.exception()}")
            time.sleep(0.01)
        return query

    query = begin(4)
    try:
        kept.wait(0.0, Path(f"{place}.work"))
        # Once before, so that what happens for the first time is not measured.
        query = changed(query, 2)
        kept.wait(load.warm_s)
        since = time.time()
        watch(load.before_s)
        usual, asked = kept.worst(since), time.time()
        query = changed(query, 4)
        ended = time.time()
        watch(load.after_s)
        kept.settle(usual)
        until = time.time()
        stop(query)
    finally:
        query.stop()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    facts = {
        "moved_bytes": load.keys * load.size,
        "duration_ms": round((ended - asked) * 1000),
        "moves": load.groups,
        "state_equal": None,
    }
    moving = frozenset(range(load.groups))
    return kept.change(kept.rows(), Span(since, asked, ended, until, moving, facts))


def _newest(log: Path) -> int:
    return max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)
