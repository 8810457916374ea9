"""What all tests share: one Spark session per test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ferryman._spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run Spark in this process on two cores."""
    spark = session("ferryman-tests", "local[2]")
    yield spark
    spark.stop()
