"""The Spark session of the demo's processes: local, and made for a run of a minute."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ferryman import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A minute is over before Java's optimising compiler pays off: without it, and with the collector that starts
# no threads of its own, a driver that lives for seconds spends less on compiling itself.
_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def cores() -> int:
    """Choose how many cores to use: what the machine has, within reason."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, min(4, have))


def local_spark(app_name: str) -> SparkSession:
    """Start Spark in this process, with tasks that are run again when they fail."""
    # With plain local[n] a task has one attempt, and the query ends with the first worker that is killed.
    spark = session(app_name, f"local[{cores()},4]", conf={"spark.driver.extraJavaOptions": _SHORT_RUN})
    threading.Thread(target=_wake, args=(spark,), name="ferryman-demo-wake", daemon=True).start()
    return spark


def _wake(spark: SparkSession) -> None:
    """Have Python workers started while the session is still busy with plans: they take seconds to come up."""
    rows = spark.range(0, cores(), 1, cores()).mapInArrow(lambda batches: batches, "id long")
    rows.write.format("noop").mode("overwrite").save()
