"""The tuned session, the warm workers, and the advice on a session of the user's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ferryman._model.advised_settings import ADVISED, Setting
from ferryman._model.settings_that_apply import applies
from ferryman._spark.session.advice import Advice, block, check, ferryman_importable
from ferryman._spark.session.session import session
from ferryman._spark.session.warm_workers import warm


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python, and so in a JVM, of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert answer.returncode == 0, answer.stderr
    return answer


def test_a_session_lacks_nothing_that_matters(spark: SparkSession) -> None:
    assert check(spark) == []
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


def test_a_running_session_is_returned_and_takes_sql_settings(spark: SparkSession) -> None:
    again = session("another", conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        again.conf.unset("spark.sql.session.timeZone")


def test_who_asks_for_another_master_than_that_of_the_running_session_is_told(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    session("same", spark.sparkContext.master)
    assert caplog.text == ""

    assert session("another", "spark://elsewhere:7077").sparkContext is spark.sparkContext
    assert "local[2], and not on spark://elsewhere:7077" in caplog.text


def test_a_new_worker_has_its_modules_loaded_and_no_stray_thread(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys
        import threading

        wanted = ("numba", "pandas", "lmdb", "ferryman._state.kernels")
        loaded = [name for name in wanted if name in sys.modules]
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"loaded": [",".join(loaded)], "main": [sys.argv[0]], "threads": [threading.active_count()]}
            )

    for row in spark.range(2).repartition(2).mapInArrow(look, "loaded string, main string, threads long").collect():
        assert row.loaded == "numba,pandas,lmdb,ferryman._state.kernels"
        assert row.main.endswith("warm_workers.py")
        assert row.threads == 1


def test_the_daemon_goes_on_without_a_module_that_fails() -> None:
    assert warm(("json", "no_such_module_anywhere"), compiled=("string",)) == ["json"]


def test_a_fresh_session_prints_nothing_and_runs_python_workers() -> None:
    answer = run(
        "from ferryman._spark.session.session import session\n"
        "spark = session(master='local[2]')\n"
        "print(spark.range(100).mapInArrow(lambda batches: batches, 'id long').count())\n"
        "spark.stop()\n"
    )

    assert answer.stdout == "100\n"
    assert answer.stderr == ""


def test_a_session_with_rocksdb_keeps_the_filesystem_that_rocksdb_needs() -> None:
    answer = run(
        "from ferryman._spark.session.session import check, session\n"
        "rocks = 'org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider'\n"
        "spark = session(conf={'spark.sql.streaming.stateStore.providerClass': rocks})\n"
        "print(spark.sparkContext.getConf().get('spark.hadoop.fs.file.impl'), check(spark))\n"
    )

    assert answer.stdout == "None []\n"


def test_settings_of_the_user_and_of_spark_submit_come_first() -> None:
    answer = run(
        "import json\n"
        "from ferryman._spark.session.session import session\n"
        "spark = session(conf={'spark.sql.ansi.enabled': 'false', 'spark.app.name': 'mine'})\n"
        "conf = spark.sparkContext.getConf()\n"
        "names = ['spark.master', 'spark.app.name', 'spark.python.worker.reuse', 'spark.sql.ansi.enabled']\n"
        "print(json.dumps([conf.get(name) for name in names]))\n",
        PYSPARK_SUBMIT_ARGS="--master local[3] --conf spark.python.worker.reuse=false pyspark-shell",
    )

    assert json.loads(answer.stdout) == ["local[3]", "mine", "false", "false"]


def test_a_session_of_the_users_own_is_told_once_what_to_add_and_the_lines_are_enough() -> None:
    answer = run(
        "import json, sys\n"
        "from pyspark.sql import SparkSession\n"
        "from ferryman._spark.session import advice\n"
        "plain = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "said = advice.advise(plain)\n"
        "again = advice.advise(plain)\n"
        "plain.stop()\n"
        "lines = ''.join(one.line for one in said)\n"
        "better = eval('SparkSession.builder.master(\"local[2]\")' + lines + '.getOrCreate()')\n"
        "left = advice.check(better)\n"
        "print(json.dumps([[one.setting for one in said], len(again), len(left)]))\n",
        PYSPARK_PYTHON=sys.executable,
    )

    settings, again, left = json.loads(answer.stdout)
    # The one setting of the table that Spark has right by itself.
    assert settings == [advice.key for advice in ADVISED if advice.key != "spark.python.worker.reuse"]
    assert (again, left) == (0, 0)
    assert answer.stderr.count("would run better with 4 settings") == 1
    assert '    .config("spark.python.unix.domain.socket.enabled", "true")\n' in answer.stderr


def test_advice_names_the_cost_and_ends_with_the_line_to_add() -> None:
    text = block([Advice("spark.some.key", "slow", "fast", "tasks wait", '.config("spark.some.key", "fast")')])

    assert "1 setting changed" in text
    assert "spark.some.key = slow\n      tasks wait" in text
    assert text.endswith('\n    .config("spark.some.key", "fast")\n')


@pytest.mark.parametrize(
    ("where", "master", "filesystem", "same_python", "expected"),
    [
        ("local disk", "local[2]", "file:///", True, True),
        ("local disk", "local[2]", "hdfs://name", True, False),
        ("local disk", "spark://host:7077", "file:///", True, False),
        ("same python", "local-cluster[2,1,1024]", "file:///", True, True),
        ("same python", "local[2]", "file:///", False, False),
        ("same python", "yarn", "file:///", True, False),
        ("everywhere", "yarn", "hdfs://name", False, True),
    ],
)
def test_a_setting_is_given_only_where_it_helps(
    where: str, master: str, filesystem: str, same_python: bool, expected: bool
) -> None:
    setting = Setting("key", "want", "default", "why", where=where)  # type: ignore[arg-type]

    assert applies(setting, master=master, filesystem=filesystem, same_python=same_python, store="") is expected


def test_raw_local_files_are_not_for_a_session_with_rocksdb() -> None:
    raw = next(advice for advice in ADVISED if advice.key == "spark.hadoop.fs.file.impl")
    session = {"master": "local[2]", "filesystem": "file:///", "same_python": True}

    assert applies(raw, **session, store="some.HDFSBackedStateStoreProvider")  # type: ignore[arg-type]
    assert not applies(raw, **session, store="some.RocksDBStateStoreProvider")  # type: ignore[arg-type]


def test_another_python_is_not_expected_to_have_ferryman() -> None:
    assert ferryman_importable(sys.executable)
    assert not ferryman_importable("/usr/bin/some-other-python")
