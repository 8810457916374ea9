"""The driver that `bench restart` starts, kills and starts again: python -m bench.restarted ENGINE PLACE [finish].

It says, a line of JSON each, when it had come how far. With `finish` it reads all that is there and ends; then it says
the sum of what its state has counted.
"""

from __future__ import annotations

import time

_BEGAN = time.time()

import json  # noqa: E402 - only what comes after this line counts as imports
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

# Those of bench.sessions, which would have Spark's own driver import Ferryman.
_STREAMING = "org.apache.spark.sql.execution.streaming"
CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",
}
SCHEMA = "key long, data binary"
INTERVAL = "250 milliseconds"


def say(event: str, **more: Any) -> None:
    """Tell the one who started us."""
    print(json.dumps({"event": event, "at": time.time(), **more}), flush=True)


def main(engine: str, place: Path, finish: bool) -> None:
    """Run the engine until it is killed, or all is read."""
    session = _session_of(engine)
    say("imported", began=_BEGAN)
    instances = json.loads((place.parent / "parameters.json").read_text())["instances"]
    spark = session(f"local[{instances}]", {**CONF, "spark.sql.shuffle.partitions": str(instances)})
    say("session")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(place / "rows"))
    trigger = {"availableNow": True} if finish else {"processingTime": INTERVAL}
    started, counted = ENGINES[engine](spark, rows, place / "checkpoint", trigger)
    say("started")
    started()
    if finish:
        say("counted", rows=counted())
    spark.stop()


def _session_of(engine: str) -> Callable[[str, dict[str, str]], Any]:
    """Import what the engine needs, and give what makes its session: each as its users have it."""
    if engine.startswith("ferryman"):
        import ferryman

        return lambda master, conf: ferryman.session("bench restart", master, conf=conf)

    from pyspark.sql import SparkSession

    def plain(master: str, conf: dict[str, str]) -> Any:
        builder = SparkSession.builder.master(master)
        for key, value in {"spark.driver.host": "127.0.0.1", **conf}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    return plain


def _ferryman(spark: Any, rows: Any, checkpoint: Path, trigger: dict[str, Any]) -> tuple[Any, Callable[[], int]]:
    from ferryman import Ferry, Operator, Value, sinks

    class Last(Operator):
        n = Value(int, 0)
        data = Value(bytes, b"")
        output = "key long, n long"

        def process(self, key: int, row: Any) -> Any:
            self.n += 1
            self.data = row.data
            yield key, self.n

    ferry = Ferry(spark, checkpoint)
    job = ferry.start("recovery", ferry.stream(rows).key_by("key").process(Last).write(sinks.none()), trigger=trigger)
    return job.wait, lambda: sum(job.state("Last").to_arrow().column("n").to_pylist())


def _spark_tws(spark: Any, rows: Any, checkpoint: Path, trigger: dict[str, Any]) -> tuple[Any, Callable[[], int]]:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Last(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._last = handle.getValueState("last", "n long, data binary")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            n, data = self._last.get() or (0, b"")
            for row in rows:
                n, data = n + 1, row.data
            self._last.update((n, data))
            yield Row(key=key[0], n=n)

        def close(self) -> None:
            pass

    kept = rows.groupBy("key").transformWithState(Last(), "key long, n long", "Update", "None")
    return _query(spark, kept, checkpoint, trigger, {"stateVarName": "last"})


def _spark_groupby(spark: Any, rows: Any, checkpoint: Path, trigger: dict[str, Any]) -> tuple[Any, Callable[[], int]]:
    from pyspark.sql import functions as F

    kept = rows.groupBy("key").agg(F.count("*").alias("n"), F.max("data").alias("data"))
    return _query(spark, kept, checkpoint, trigger, {})


def _query(
    spark: Any, kept: Any, checkpoint: Path, trigger: dict[str, Any], options: dict[str, str]
) -> tuple[Any, Callable[[], int]]:
    writer = kept.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**trigger).start()

    def counted() -> int:
        state = spark.read.format("statestore").options(**options).load(str(checkpoint))
        # The first of what is kept is the count, whatever Spark calls it.
        first = next(field.name for field in state.schema["value"].dataType.fields)
        return int(state.selectExpr(f"sum(value.`{first}`)").first()[0])

    return query.awaitTermination, counted


ENGINES: dict[str, Callable[..., tuple[Any, Callable[[], int]]]] = {
    "ferryman": _ferryman,
    "ferryman_unprepared": _ferryman,
    "spark_tws": _spark_tws,
    "spark_groupby": _spark_groupby,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), finish="finish" in sys.argv[3:])
