"""What all tests share: one Spark session per test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from ferryman._spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run Spark in this process on two cores."""
    spark = session("ferryman-tests", "local[2]")
    yield spark
    spark.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ship the operators that tests define by value: the workers cannot import the tests."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        cloudpickle.register_pickle_by_value(module)
