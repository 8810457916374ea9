"""The driver that reads Kafka and is killed: python drive_kafka.py CHECKPOINT SERVERS FROM TO MASTER.

What a function of the job's was shown is written below CHECKPOINT-shown, call by call.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kafka_broker
from drive import BRIEF
from readings import SCHEMA, Trail

import ferryman
from ferryman import Ferry, sinks

PER_EPOCH = 40


def main(checkpoint: str, servers: str, source: str, target: str, master: str) -> None:
    jars = ",".join(map(str, kafka_broker.connector()))
    conf = {"spark.driver.extraJavaOptions": BRIEF, "spark.jars": jars}
    spark = ferryman.session("ferryman-kafka", master, conf=conf)
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_EPOCH)
        .load()
    )
    rows = raw.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS row").select("row.*")
    ferry = Ferry(spark, checkpoint, groups=8, idle=None, snapshot_every=3, retain=2)
    trail = ferry.stream(rows, "readings").key_by("key").process(Trail)
    shown = Path(f"{checkpoint}-shown")

    def show(rows, number):
        shown.mkdir(exist_ok=True)
        lines = sorted(str(tuple(row)) for row in rows.collect())
        (shown / f"{number:04}-{os.getpid()}").write_text("\n".join(lines))

    as_json = trail.transform(lambda rows: rows.selectExpr("key", "to_json(struct(*)) AS value"))
    outputs = [as_json.write(sinks.kafka(servers, target)), trail.write(sinks.foreach(show, name="show"))]
    ferry.start("readings", *outputs, instances=2, trigger={"availableNow": True}).wait()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
