"""A builder of a session of one's own that `ferryman.configure` has set up, and a session over Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ferryman
from ferryman._model.advised_settings import ADVISED, COMFORT, LOOPBACK
from ferryman._spark.session import builder_settings
from ferryman.errors import ConnectSession


def run(script: str, *arguments: str, **environment: str) -> str:
    """Run a script in a Python of its own, in which nothing of Spark's is there yet."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "HADOOP_"))}
    answer = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


TOLD = """
import json, sys
import ferryman
from pyspark.sql import SparkSession
from ferryman._spark.compat.start import active_gateway, options_of
builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "true")
assert ferryman.configure(builder) is builder
assert active_gateway() is None, "no JVM is started: the builder can be told of jars"
print(json.dumps(options_of(builder)))
"""


def test_what_is_said_elsewhere_comes_first_and_the_rest_is_as_in_a_session_of_ours(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.python.worker.reuse   false\nspark.x=y\n")

    told = json.loads(
        run(
            TOLD,
            SPARK_CONF_DIR=str(tmp_path),
            PYSPARK_SUBMIT_ARGS="--conf spark.shuffle.reduceLocality.enabled=true pyspark-shell",
        )
    )

    wanted = {setting.key: setting.want for setting in ADVISED} | dict(COMFORT) | dict(LOOPBACK)
    elsewhere = {"spark.python.worker.reuse", "spark.shuffle.reduceLocality.enabled"}
    assert told.pop("spark.master") == "local[3]"
    assert told.pop("spark.sql.shuffle.partitions") == "3"
    assert told == {name: value for name, value in wanted.items() if name not in elsewhere} | {
        "spark.ui.enabled": "true"
    }


def test_where_the_filesystem_is_not_known_nothing_is_set_that_only_a_local_disk_likes(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration/>")

    told = json.loads(run(TOLD, HADOOP_CONF_DIR=str(tmp_path)))

    assert {setting.key for setting in ADVISED if setting.where.startswith("local disk")}.isdisjoint(told)
    assert "spark.python.unix.domain.socket.enabled" in told


def test_a_builder_beside_a_session_that_runs_is_left_alone(spark: SparkSession) -> None:
    assert ferryman.configure(SparkSession.builder).getOrCreate().sparkContext is spark.sparkContext


@pytest.mark.slow
def test_a_session_that_was_built_so_has_all_that_is_advised() -> None:
    said = run(
        "import ferryman, json\n"
        "from pyspark.sql import SparkSession\n"
        "from ferryman._spark.session.advice import check\n"
        "spark = ferryman.configure(SparkSession.builder.appName('mine')).getOrCreate()\n"
        "print(json.dumps([len(check(spark)), spark.sparkContext.appName, spark.sparkContext.master]))\n"
        "spark.stop()\n"
        "again = ferryman.configure(SparkSession.builder.master('local[1]')).getOrCreate()\n"
        "print(len(check(again)))\n"
    )

    assert said.splitlines() == ['[0, "mine", "local[*,4]"]', "0"]


@pytest.mark.parametrize("words", ["--master yarn --conf spark.x=y=z", "--master=yarn --conf=spark.x=y=z"])
def test_both_ways_to_write_an_option_of_spark_submit_are_read(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")
    assert builder_settings._of_command() == {"spark.master": "yarn", "spark.x": "y=z"}


def test_a_builder_that_is_to_connect_is_refused() -> None:
    with pytest.raises(ConnectSession, match="start the job where Spark's driver is"):
        ferryman.configure(SparkSession.builder.remote("sc://127.0.0.1:1"))
    with pytest.raises(ConnectSession) as refused:
        ferryman.configure(SparkSession.builder.remote("sc://somebody:hush1@127.0.0.1:1/;token=hush2;user_id=me"))
    assert "sc://" in str(refused.value)
    assert "hush" not in str(refused.value), "a token is nobody else's"


CONNECTED = """
import socket, sys
import ferryman
from ferryman.errors import ConnectSession
from ferryman.testing import Harness

class Count(ferryman.Operator):
    n = ferryman.Value(int, 0)
    output = "key string"

    def process(self, key, row):
        self.n += 1
        return []

with Harness(lambda s: s.key_by("key").process(Count), "key string", checkpoint=sys.argv[1] + "/read") as harness:
    harness.epoch([("a",), ("b",), ("a",)])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": str(port),
}
spark = ferryman.session("server", "local[2]", conf=server)
from pyspark.sql.connect.session import SparkSession as Remote

remote = Remote.builder.remote(f"sc://127.0.0.1:{port}").create()
frame = remote.readStream.format("rate").load()
job = sys.argv[1] + "/job"
for refused in (lambda: ferryman.Ferry(remote, job), lambda: ferryman.Ferry(spark, job).stream(frame)):
    try:
        refused()
    except ConnectSession as error:
        print(error.message)
print(sorted(map(tuple, remote.read.format("ferryman").load(sys.argv[1] + "/read").collect())))
remote.stop()
"""


@pytest.mark.slow
def test_a_session_over_connect_is_refused_in_one_sentence_and_can_read_state(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio: make install brings it")

    session, frame, rows = run(CONNECTED, str(tmp_path)).splitlines()

    for said, what in ((session, "this is a session over"), (frame, "this is a DataFrame of a session over")):
        assert said.startswith(what)
        assert "does not run over Spark Connect yet: start the job where Spark's driver is" in said
    assert rows == "[('a', 2), ('b', 1)]"
    assert not (tmp_path / "job").exists()
