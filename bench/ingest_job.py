"""The driver that is killed while messages come: python ingest_job.py ROOT SERVER USER PASSWORD."""

from __future__ import annotations

import sys
from pathlib import Path

import ferryman
from ferryman import Ferry, Operator, sinks
from ferryman.sources import mqtt

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Passed(Operator):
    output = "offset long, payload string, repeats long"

    def process(self, key, row):
        yield row.offset, bytes(row.payload).decode(), row.repeats


def main(root: str, server: str, user: str, password: str) -> None:
    spark = ferryman.session("ferryman-ingest", "local[2]", conf={"spark.driver.extraJavaOptions": BRIEF})
    path = Path(root)
    log = path / "log"
    messages = mqtt(spark, server, topics="fleet/#", log=log, username=user, password=password, max_bytes=8 << 20)
    stream = Ferry(spark, path / "checkpoint", idle=None).stream(messages).key_by("topic").process(Passed)
    stream.write(sinks.parquet(path / "out")).start("ingest", instances=2).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
