"""The driver of a chaos campaign: ferryman run bench/chaos_driver.py PLACE URL INSTANCES. PLACE/stop ends it."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from bench.chaos_job import start
from ferryman import session

# Compiling well takes these short-lived JVMs longer than they live.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(place: Path, url: str, instances: int) -> None:
    """Run the job until it is told to stop."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": BRIEF,
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.executorEnv.FERRYMAN_DISK": os.environ["FERRYMAN_DISK"],
        "spark.python.daemon.module": "ferryman._spark.session.warm_workers",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(place / "driver"),
        # The cut of the source must not depend on how many executors are there when a driver comes.
        "spark.sql.leafNodeDefaultParallelism": "2",
        # Spark takes an executor that says nothing for lost after two minutes; a campaign has less patience.
        "spark.executor.heartbeatInterval": "2s",
        "spark.network.timeout": "10s",
        "spark.network.timeoutInterval": "2s",
    }
    spark = session("ferryman chaos", url, conf=conf)
    goes_on = (place / "checkpoint" / "ferryman.json").exists()
    job = start(spark, place, None if goes_on else instances)
    job.wait_for((place / "stop").exists)
    job.stop()
    job.wait()
    left = [
        thread.name for thread in threading.enumerate() if thread.name.startswith("ferryman-") and thread.is_alive()
    ]
    (place / "threads.json").write_text(json.dumps(left))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
