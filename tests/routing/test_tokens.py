"""Tokens: Spark puts a token's rows into the partition of its instance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ferryman._routing.tokens import murmur3, tokens

INT = st.integers(-(1 << 31), (1 << 31) - 1)


@given(st.integers(1, 200))
def test_each_instance_has_a_token_of_its_own_that_hashes_to_it(instances: int) -> None:
    chosen = tokens(instances)

    assert [murmur3(token) % instances for token in chosen] == list(range(instances))
    assert all(0 <= token < (1 << 31) for token in chosen)


@given(INT)
def test_the_hash_is_a_signed_int(value: int) -> None:
    assert -(1 << 31) <= murmur3(value) < (1 << 31)


def ints(spark: SparkSession, name: str, values: list[int]) -> DataFrame:
    """Make a DataFrame of ints inside the JVM: no Python worker needs to start for it."""
    return spark.range(1).select(F.explode(F.from_json(F.lit(str(values)), "array<int>")).alias(name))


def test_the_hash_is_sparks(spark: SparkSession) -> None:
    values = [0, 1, -1, 42, 12345, -98765, (1 << 31) - 1, -(1 << 31), *range(2, 300, 7)]
    frame = ints(spark, "value", values)

    hashed = {row[0]: row[1] for row in frame.select("value", F.hash("value")).collect()}

    assert hashed == {value: murmur3(value) for value in values}


@pytest.mark.parametrize("instances", [*range(1, 18), 64])
def test_spark_repartitions_a_token_to_its_instance(spark: SparkSession, instances: int) -> None:
    chosen = tokens(instances)
    frame = ints(spark, "token", [token for token in chosen for _ in range(2)])

    # Adaptive execution would put small partitions together; a job has it off.
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        placed = frame.repartition(instances, "token").select("token", F.spark_partition_id()).collect()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before or "true")

    assert {(row[0], row[1]) for row in placed} == {(token, number) for number, token in enumerate(chosen)}
