"""A job as a scheduler runs it: by spark-submit, with what is there, again and again, and told by its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.fold import rebuild

SCRIPT = """
import sys

from pyspark.sql import SparkSession

import ferryman
from ferryman import Ferry, Operator, Value, sinks


class Orders(Operator):
    n = Value(int, 0)
    output = "shop string, n long"

    def process(self, key, row):
        if row.amount < 0:
            raise ValueError("an order of less than nothing")
        self.n += row.amount
        yield key, self.n


if sys.argv[2] == "session":
    spark = ferryman.session("orders")
else:
    spark = ferryman.configure(SparkSession.builder.appName("orders")).getOrCreate()
orders = spark.readStream.schema("shop string, amount long").json(sys.argv[1] + "/orders")
stream = Ferry(spark, sys.argv[1] + "/state").stream(orders).key_by("shop").process(Orders)
job = stream.write(sinks.parquet(sys.argv[1] + "/out")).start("orders", trigger={"availableNow": True})
job.watch(timeout=0)
job.wait()
assert "orders has ended: epoch" in job._repr_html_()
locality = spark.conf.get("spark.shuffle.reduceLocality.enabled")
print("ended at epoch", job.epoch, "on", spark.sparkContext.master, locality)
"""


def submit(place: Path, made_by: str) -> subprocess.CompletedProcess[str]:
    # spark-submit is beside the Python that has pyspark.
    command = Path(sys.executable).with_name("spark-submit")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return subprocess.run(
        [
            *(str(command), "--master", "local[2]", "--conf", "spark.shuffle.reduceLocality.enabled=true"),
            *(str(place / "script.py"), str(place), made_by),
        ],
        env=inherited | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=250,
    )


def order(place: Path, number: int, shop: str, amount: int) -> Path:
    path = place / "orders" / f"{number}.json"
    path.write_text(json.dumps({"shop": shop, "amount": amount}) + "\n")
    return path


def totals(place: Path) -> dict[str, int]:
    log = Checkpoint(directory(str(place / "state")))
    return {row["shop"]: row["n"] for row in rebuild(log, "Orders", log.epochs()[-1]).to_pylist()}


@pytest.mark.slow
def test_runs_of_spark_submit_go_on_from_each_other_and_one_that_fails_says_so_by_its_code(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    order(tmp_path, 1, "north", 3)

    first = submit(tmp_path, "session")
    assert (first.returncode, first.stdout.splitlines()[-1]) == (0, "ended at epoch 1 on local[2] true"), first.stderr
    assert first.stdout.startswith("orders "), "a line of the job as it is watched"

    wrong = order(tmp_path, 2, "south", -1)
    failed = submit(tmp_path, "session")
    assert failed.returncode == 1
    assert "OperatorFailed" in failed.stderr
    assert "an order of less than nothing" in failed.stderr
    assert totals(tmp_path) == {"north": 3}

    # The same file, with what should have been in it: the epoch that failed is done again.
    order(tmp_path, 2, "south", 4)
    assert wrong.exists()
    second = submit(tmp_path, "configure")
    assert (second.returncode, second.stdout.splitlines()[-1]) == (0, "ended at epoch 2 on local[2] true"), (
        second.stderr
    )
    assert totals(tmp_path) == {"north": 3, "south": 4}
