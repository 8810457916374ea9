"""Many kinds of processors and functions, each on Spark and on Ferryman: the same rows, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from processor import kinds_function, kinds_pandas, kinds_state, kinds_time
from processor.kind import Batches, Kind, Runs, differences
from processor.page import PAGE
from pyspark import cloudpickle

TABLES = (kinds_state, kinds_time, kinds_pandas, kinds_function)
KINDS: list[Kind] = [kind for table in TABLES for kind in table.KINDS]
# Those that have several keys, and several rows for some.
SPREAD = {
    *("running stats", "orders and payments", "a map with nested values", "alarms", "sessions", "an initial state"),
    *("means", "frames and timers", "a function's state", "timeouts by event time"),
}
ALL = [*KINDS, *(kind.spread() for kind in KINDS if kind.name in SPREAD)]
# One of each family; the others come with the second tier.
FIRST = {*SPREAD, "every type in every state", "late rows by event time", "sessions, spread"}

# The workers cannot import the tests.
for module in TABLES:
    cloudpickle.register_pickle_by_value(module)

Ahead = dict[str, tuple[Runs, "Future[Batches]"]]


@pytest.fixture(scope="module")
def ahead(spark: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ahead]:
    """Let Spark's own run ahead, two at a time, as it takes longer: the kinds of the tests that were asked for."""
    asked = {item.callspec.params["one"].name for item in request.session.items if hasattr(item, "callspec")
             and isinstance(item.callspec.params.get("one"), Kind)}  # fmt: skip
    runs = {kind.name: Runs(kind, spark, tmp_path_factory.mktemp("kind")) for kind in ALL if kind.name in asked}
    with ThreadPoolExecutor(2) as threads:
        yield {name: (run, threads.submit(run.on_spark)) for name, run in runs.items()}
        threads.shutdown(cancel_futures=True)


@pytest.mark.parametrize(
    "one", [pytest.param(kind, id=kind.name, marks=() if kind.name in FIRST else pytest.mark.slow) for kind in ALL]
)
def test_the_same_rows_in_every_batch(one: Kind, ahead: Ahead) -> None:
    runs, theirs = ahead[one.name]
    ours = runs.on_ferryman()
    assert any(ours), "a kind that puts nothing out shows nothing"
    assert ours == theirs.result(), differences(ours, theirs.result())


def test_there_are_as_many_kinds_as_the_page_says() -> None:
    assert "more than fifty kinds" in PAGE.read_text()
    assert len({kind.name for kind in KINDS}) == len(KINDS) > 50
    assert len(ALL) == len(KINDS) + len(SPREAD)
    assert {kind.name for kind in ALL} >= FIRST
