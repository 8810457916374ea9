"""Orders get the town of their shop from a table, and the turnover of each town goes to a SQLite database.

`lookup` has one version of the table for each epoch. The database has whole epochs, each once, however the job ends.
Run it with `python examples/orders_to_a_database.py`. It prints:

    Bern: 2 orders, 30.0
    Genf: 1 orders, 5.0
    a shop has opened, and the job goes on
    Bern: 3 orders, 60.0
    Genf: 1 orders, 5.0
    Lyon: 1 orders, 40.0
"""

import contextlib
import json
import os
import sqlite3
import tempfile
from pathlib import Path

import ferryman
from ferryman import Ferry, sinks
from ferryman.aggregates import count, sum


def put(folder, number, *orders):
    """Write a file of orders."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("\n".join(json.dumps({"shop": shop, "amount": amount}) for shop, amount in orders))
    os.utime(path, (number, number))


def run(spark, place, shops):
    """Start the job, or go on with it, until all files are read."""
    reader = spark.readStream.schema("shop string, amount double").option("maxFilesPerTrigger", 1)
    orders = Ferry(spark, place / "checkpoint").stream(reader.json(str(place / "orders")))
    table = spark.createDataFrame(shops, "shop string, town string")
    # A table that changes while the job runs is given as a function that reads it, with refresh="10 minutes".
    towns = orders.lookup(table, on="shop").key_by("town").aggregate("towns", orders=count(), turnover=sum("amount"))
    sink = sinks.database(lambda: sqlite3.connect(place / "towns.db"), "towns", key="town")
    towns.write(sink).start("orders", instances=2, trigger={"availableNow": True}).wait()
    with contextlib.closing(sqlite3.connect(place / "towns.db")) as database:
        for town, n, turnover in database.execute("SELECT town, orders, turnover FROM towns ORDER BY town"):
            print(f"{town}: {n} orders, {turnover}")


def main(place):
    with contextlib.closing(sqlite3.connect(place / "towns.db")) as database:
        database.execute("CREATE TABLE towns (town TEXT PRIMARY KEY, orders INTEGER, turnover REAL)")
    spark = ferryman.session()
    put(place / "orders", 1, ("at the bridge", 10.0), ("by the lake", 5.0))
    put(place / "orders", 2, ("at the bridge", 20.0), ("no such shop", 99.0))
    shops = [("at the bridge", "Bern"), ("by the lake", "Genf")]
    run(spark, place, shops)
    print("a shop has opened, and the job goes on")
    put(place / "orders", 3, ("at the bridge", 30.0), ("on the hill", 40.0))
    run(spark, place, [*shops, ("on the hill", "Lyon")])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
