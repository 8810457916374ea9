"""Rows come out in the source's order, however a shuffle has cut and mixed them."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman._engine import row_order
from ferryman._engine.row_order import ordered

FILES = (70, 10, 40)
# Of a file that nobody knows, as the anchor's row is.
NO_FILE = 0

numbers = st.integers(0, 12)
row = st.tuples(numbers, st.sampled_from([*FILES, NO_FILE]))
# As a shuffle brings them: a few runs in order; and as none ever does.
runs = st.lists(st.lists(row, max_size=6).map(sorted), max_size=5).map(lambda each: list(chain(*each)))
mixed = st.lists(row, max_size=20)


def by_age(row: tuple[int, int, int]) -> tuple[int, int]:
    number, file, _ = row
    return (FILES.index(file) if file in FILES else -1, number)


@given(st.one_of(runs, mixed), st.booleans())
def test_rows_are_in_the_order_of_their_files_age_and_then_of_their_number(found, with_files):
    rows = [(number, file if with_files else NO_FILE, place) for place, (number, file) in enumerate(found)]
    sequence = np.array([number for number, _, _ in rows], np.int64)
    file = np.array([file for _, file, _ in rows], np.int64)
    table = pa.table({"place": pa.array([place for _, _, place in rows], pa.int64())})
    moved, numbers = ordered(table, sequence, file if with_files else None, FILES)
    # Python's sort keeps equals in order, and so must this one.
    expected = sorted(rows, key=by_age)
    assert moved["place"].to_pylist() == [place for _, _, place in expected]
    assert numbers.tolist() == [number for number, _, _ in expected]


def test_rows_that_come_in_many_runs_are_put_in_order_too(monkeypatch):
    monkeypatch.setattr(row_order, "_MOST_RUNS", 3)
    rows = pa.table({"a": [6, 7, 4, 5, 2, 3, 0, 1]})
    moved, numbers = ordered(rows, np.array([6, 7, 4, 5, 2, 3, 0, 1]))
    assert moved["a"].to_pylist() == numbers.tolist() == list(range(8))


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_runs_are_moved_and_no_row_is_copied(pieces):
    whole = pa.table({"a": np.arange(700)})
    chunks = np.array_split(np.arange(700), pieces)
    table = pa.concat_tables([whole.slice(chunk[0], len(chunk)) for chunk in reversed(chunks)])
    moved, _ = ordered(table, table["a"].to_numpy())
    assert moved.equals(whole)
    inside = whole["a"].chunk(0).buffers()[1]
    for chunk in moved["a"].chunks:
        assert inside.address <= chunk.buffers()[1].address < inside.address + inside.size
