"""Which views of an ad were clicked within a minute, and which were not: two sources and a join.

Each source has its own watermark. A view is kept until no click can come any more that goes with it.
Run it with `python examples/clicks_joined_with_views.py`. It prints:

    tea, viewed 09:00:00: clicked by ann after 20 s
    tea, viewed 09:00:30: not clicked
    ink, viewed 09:00:10: clicked by bob after 45 s
    cup, viewed 09:10:00: not clicked
"""

import json
import os
import tempfile
from pathlib import Path

import ferryman
from ferryman import Ferry, sinks

VIEWS, CLICKS = "ad string, viewed timestamp", "ad string, clicked timestamp, user string"


def put(folder, number, *rows):
    """Write a file of rows."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (number, number))


def view(ad, clock):
    return {"ad": ad, "viewed": f"2026-01-01T{clock}Z"}


def click(ad, clock, user):
    return {"ad": ad, "clicked": f"2026-01-01T{clock}Z", "user": user}


def main(place):
    put(place / "views", 1, view("tea", "09:00:00"), view("ink", "09:00:10"), view("tea", "09:00:30"))
    put(place / "clicks", 1, click("tea", "09:00:20", "ann"), click("ink", "09:00:55", "bob"))
    # Too late for any of these views. Time goes on, and tells that no other click can come.
    put(place / "views", 2, view("cup", "09:10:00"))
    put(place / "clicks", 2, click("tea", "09:10:00", "eve"))
    put(place / "views", 3, view("cup", "09:20:00"))
    put(place / "clicks", 3, click("cup", "09:30:00", "eve"))

    spark = ferryman.session()
    ferry = Ferry(spark, place / "checkpoint")

    def read(name, schema):
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return ferry.stream(reader.json(str(place / name)), name)

    views = read("views", VIEWS).with_watermark("viewed", "10 seconds").key_by("ad")
    clicks = read("clicks", CLICKS).with_watermark("clicked", "10 seconds").key_by("ad")
    pairs = views.join(clicks, lower="0 seconds", upper="1 minute", how="left")
    memory = sinks.memory()
    pairs.write(memory).start("clicks", instances=2, trigger={"availableNow": True}).wait()
    for row in sorted(memory.rows(), key=lambda row: (-len(row["ad"]), row["ad"] != "tea", row["viewed"])):
        if row["user"] is None:
            print(f"{row['ad']}, viewed {row['viewed']:%H:%M:%S}: not clicked")
        else:
            seconds = (row["clicked"] - row["viewed"]).total_seconds()
            print(f"{row['ad']}, viewed {row['viewed']:%H:%M:%S}: clicked by {row['user']} after {seconds:.0f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
