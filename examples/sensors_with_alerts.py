"""Sensors that are too hot for three readings in a row, or silent for half a minute, raise an alert.

One operator, row by row: it keeps two values for each sensor, and asks to be called at a time.
Run it with `python examples/sensors_with_alerts.py`. It prints:

    12:00:30 attic: 91.0 degrees, the third time in a row
    12:00:50 cellar: silent for 30 s
"""

import datetime
import json
import os
import tempfile
from pathlib import Path

import ferryman
from ferryman import Ferry, Operator, Value, sinks

SILENT_MS = 30_000


class Alerts(Operator):
    by_event_time = True
    hot = Value(int, 0)
    latest = Value(int, 0)
    output = "time timestamp, sensor string, what string"

    def process(self, key, row):
        self.hot = self.hot + 1 if row.value > 80 else 0
        if self.hot == 3:
            yield row.time, key, f"{row.value} degrees, the third time in a row"
        at = int(row.time.timestamp() * 1000)
        if at > self.latest:
            self.cancel(self.latest + SILENT_MS)
            self.latest = at
            self.call_at(at + SILENT_MS)

    def due(self, key, at):
        yield (
            datetime.datetime.fromtimestamp(at / 1000, datetime.timezone.utc),
            key,
            f"silent for {SILENT_MS // 1000} s",
        )


def put(folder, number, *readings):
    """Write a file of readings, as a gateway would that sends some every ten seconds."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    rows = [{"sensor": sensor, "time": f"2026-01-01T{clock}Z", "value": value} for sensor, clock, value in readings]
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (number, number))


def main(place):
    put(place / "readings", 1, ("attic", "12:00:10", 85.0), ("cellar", "12:00:10", 12.0))
    put(place / "readings", 2, ("attic", "12:00:20", 88.0), ("cellar", "12:00:20", 12.5))
    put(place / "readings", 3, ("attic", "12:00:30", 91.0))
    put(place / "readings", 4, ("attic", "12:00:55", 70.0))
    put(place / "readings", 5, ("attic", "12:01:10", 70.0))

    spark = ferryman.session()
    reader = spark.readStream.schema("sensor string, time timestamp, value double").option("maxFilesPerTrigger", 1)
    stream = Ferry(spark, place / "checkpoint").stream(reader.json(str(place / "readings")))
    alerts = stream.with_watermark("time", "5 seconds").key_by("sensor").process(Alerts)
    memory = sinks.memory()
    alerts.write(memory).start("alerts", instances=2, trigger={"availableNow": True}).wait()
    for alert in sorted(memory.rows(), key=lambda row: row["time"]):
        print(f"{alert['time']:%H:%M:%S} {alert['sensor']}: {alert['what']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
