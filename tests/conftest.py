"""What all tests share: one Spark session per test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import shared_classes
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from xdist.scheduler import LoadScopeScheduling

from ferryman import Ferry
from ferryman._spark.session.session import session

# How long an example takes says something of the machine and nothing of the code.
hypothesis.settings.register_profile("ferryman", deadline=None)
hypothesis.settings.load_profile("ferryman")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run Spark in this process on two cores."""
    # With RocksDB, so that Spark's own stateful operators run here too, beside ours.
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    conf = {
        "spark.sql.streaming.stateStore.providerClass": rocksdb,
        "spark.sql.shuffle.partitions": "2",
        # Each test has plans of its own, and compiling them well takes longer than running them.
        "spark.driver.extraJavaOptions": shared_classes.BRIEF,
    }
    spark = session("ferryman-tests", "local[2]", conf=conf)
    yield spark
    spark.stop()


# What starts clusters, or looks at all processes of the machine, must not see another one of its kind.
ALONE = ("cli", "cluster", "demo")


class ByFile(LoadScopeScheduling):
    """Where several processes share the tests, each takes whole files, and only one takes those that must be alone."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        return "alone" if file.parent.name in ALONE else str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Have the tests shared by file."""
    return ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests run another way than users' jobs do by default."""
    parser.addoption("--no-express", action="store_true", help="jobs do all epochs by a shuffle, small ones too")


def pytest_configure(config: pytest.Config) -> None:
    """Have the JVMs share their classes; only who runs many tests waits until there is a file of them."""
    if config.getoption("--no-express"):
        defaults = Ferry.__init__.__kwdefaults__
        assert defaults is not None
        defaults["express"] = False
    cache = getattr(config, "cache", None)
    if cache is None:
        return
    path = shared_classes.archive(cache.mkdir("jvm"))
    if not path.exists() and getattr(config.option, "numprocesses", None):
        print("Writing down Spark's classes, so that each JVM starts faster (half a minute)", flush=True)
        shared_classes.write(path)
    if path.exists():
        shared_classes.use(path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ship the operators that tests define by value, as the workers cannot import the tests; put long files first.

    Two processes share the files. What takes long at the end would leave one of them with nothing to do.
    """
    functions = [item for item in items if isinstance(item, pytest.Function)]
    for module in {item.module for item in functions}:
        cloudpickle.register_pickle_by_value(module)
    on_spark = {item.path for item in functions if "spark" in item.fixturenames}
    items.sort(key=lambda item: (item.path.parent.name not in (*ALONE, "faults"), item.path not in on_spark))
