"""The driver that is killed: it gets ready, waits for a line that says at which step it is to die, and runs the job.

    python -m bench.connectors_driver SERVERS FROM TO CHECKPOINT

The line is a step and a count, `after-sink:2`; `-` for no step; `end` to go on until there are no rows left.
"""

from __future__ import annotations

import sys

import ferryman
from bench.connectors_kafka import broker_module
from ferryman import Ferry, Operator, Value, sinks
from ferryman._os import faults

PER_EPOCH = 200
# Compiling well takes these short-lived JVMs longer than they live.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Numbered(Operator):
    """Give each row of a key its number."""

    n = Value(int, 0)
    output = "key string, id long, n long"

    def process(self, key, row):
        self.n += 1
        yield key, row.id, self.n


def main(servers: str, source: str, target: str, checkpoint: str) -> None:
    jars = ",".join(map(str, broker_module().connector()))
    conf = {"spark.driver.extraJavaOptions": BRIEF, "spark.jars": jars, "spark.ui.enabled": "false"}
    spark = ferryman.session("ferryman bench kills", "local[2]", conf=conf)
    print("ready", flush=True)
    order = sys.stdin.readline().strip()
    if ":" in order:
        faults._asked = order
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_EPOCH)
        .load()
        .selectExpr("CAST(key AS STRING) AS key", "CAST(CAST(value AS STRING) AS LONG) AS id")
    )
    numbered = Ferry(spark, checkpoint, groups=16, idle=None, snapshot_every=5).stream(raw).key_by("key")
    records = numbered.process(Numbered).transform(
        lambda rows: rows.selectExpr("key", "to_json(struct(id, n)) AS value")
    )
    trigger = {"availableNow": True} if order == "end" else None
    records.write(sinks.kafka(servers, target)).start("kills", instances=2, trigger=trigger).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
