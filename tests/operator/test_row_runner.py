"""Run an operator row by row, without Spark: its state comes back as it was declared."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from ferryman import Operator, Value
from ferryman._model.errors import OutputMismatch
from ferryman._operator.run.row_runner import RowRunner
from ferryman._operator.run.runner import Given
from ferryman.testing import Harness


@dataclasses.dataclass
class Place:
    x: float
    name: str


class Rich(Operator):
    words = Value(dict[str, int], {})
    seen = Value(set[int], set())
    place = Value(Place)
    path = Value(list[float], [])
    output = "key long, words long, seen long, x double"

    def process(self, key, row):
        self.words[row.word] = self.words.get(row.word, 0) + 1
        self.seen.add(row.number)
        self.place = Place((self.place.x if self.place else 0.0) + 1, row.word)
        self.path.append(float(row.number))
        yield key, sum(self.words.values()), len(self.seen), self.place.x


OUTPUT = pa.schema([("key", pa.int64()), ("words", pa.int64()), ("seen", pa.int64()), ("x", pa.float64())])


def given(state: pa.Table, present: bool, rows: pa.Table) -> Given:
    keys = [pa.array([7])]
    return Given(
        operator="Rich",
        epoch=1,
        rows=rows,
        index=np.zeros(rows.num_rows, np.int64),
        keys=keys,
        present=np.array([present]),
        state=state,
    )


def runner(operator: type[Operator]) -> RowRunner:
    return RowRunner(operator, ("key", "word", "number"), operator.state_schema(), OUTPUT)


def test_dicts_sets_and_dataclasses_are_themselves_again_in_the_next_epoch():
    rows = pa.table({"key": [7, 7], "word": ["a", "b"], "number": [1, 1]})
    empty = pa.Table.from_arrays([pa.nulls(1, field.type) for field in Rich.state_schema()], schema=Rich.state_schema())
    first = runner(Rich).run(given(empty, False, rows))
    second = runner(Rich).run(given(first.state, True, rows))

    assert second.output.to_pylist()[-1] == {"key": 7, "words": 4, "seen": 1, "x": 4.0}
    assert second.state.to_pylist() == [
        {"words": [("a", 2), ("b", 2)], "seen": [1], "place": {"x": 4.0, "name": "b"}, "path": [1.0, 1.0, 1.0, 1.0]}
    ]


def test_defaults_are_not_shared_between_keys_or_epochs():
    assert Rich.words.default == {}
    assert Rich.path.default == []


def test_a_value_of_another_type_is_refused_with_its_key():
    class Wrong(Operator):
        words = Value(dict[str, int], {})
        output = "key long"

        def process(self, key, row):
            self.words = 5

    state = pa.Table.from_arrays(
        [pa.nulls(1, field.type) for field in Wrong.state_schema()], schema=Wrong.state_schema()
    )
    with pytest.raises(OutputMismatch, match=r"key 7.*'words'"):
        runner(Wrong).run(given(state, False, pa.table({"key": [7], "word": ["a"], "number": [1]})))


class Signed(Operator):
    zero = Value(float, 0.0)
    output = "key string"

    def process(self, key, row):
        self.zero = row.to


@pytest.mark.parametrize("values", [(0.0, -0.0), (-0.0, 0.0), (1.0, -0.0, 0.0), (None, -0.0, 0.0)])
def test_a_zero_that_changes_its_sign_is_kept(values):
    with Harness(lambda stream: stream.key_by("key").process(Signed), "key string, to double") as harness:
        for value in values:
            harness.epoch([("a", value)])

        ((kept,),) = [[row["zero"]] for row in harness.state()]

    assert math.copysign(1, kept) == math.copysign(1, values[-1])


class Mixed(Operator):
    name = Value(str, "")
    n = Value(int, 0)
    small = Value(pa.float32(), 0.0)
    output = "key string"

    def process(self, key, row):
        self.name, self.n, self.small = row.name, row.n, row.small


def test_only_what_changed_is_in_the_delta_whatever_the_types_around_it():
    schema = "key string, name string, n long, small double"
    with Harness(lambda stream: stream.key_by("key").process(Mixed), schema) as harness:
        harness.epoch([("a", "x", 0, 0.0), ("b", "x", 0, 0.0), ("c", "x", 0, 1.5)])
        harness.epoch([("a", "x", 0, 0.0), ("b", "x", 0, -0.0), ("c", "x", 0, 1.5)])
        (refs,) = harness.checkpoint.manifest(2).tables.values()

    assert sum(ref.rows for ref in refs) == 1
