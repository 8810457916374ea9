"""Ferryman's own sinks pass the checks that a user's have to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferryman import sinks
from ferryman.testing import SINK_CHECKS, check_sink


def parquet_rows(spark, place: Path) -> list[tuple]:
    if not list(place.glob("_ferryman/*-*.json")):
        return []
    return [tuple(row) for row in sinks.read_parquet(spark, place).collect()]


@pytest.mark.slow
@pytest.mark.parametrize("check", SINK_CHECKS)
def test_the_parquet_sink_passes(check: str, spark, tmp_path):
    place = tmp_path / "rows"
    check_sink(check, lambda: sinks.parquet(place), lambda: parquet_rows(spark, place), spark=spark, kills=12)


def test_the_memory_sink_shows_whole_epochs():
    sink = sinks.memory()
    check_sink("whole epochs", lambda: sink, sink.rows)


@pytest.mark.parametrize("check", ["written and not committed", pytest.param("whole epochs", marks=pytest.mark.slow)])
def test_a_function_that_is_idempotent_by_its_number_passes(check: str, spark):
    called: dict[int, list[dict]] = {}

    def function(rows, number: int) -> None:
        called[number] = rows.toArrow().to_pylist()

    def shown() -> list[dict]:
        return [row for rows in called.values() for row in rows]

    check_sink(check, lambda: sinks.foreach(function), shown, spark=spark)
