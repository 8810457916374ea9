"""A task runs twice, late, or on a home that was torn: its delta is the same, or it is refused."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pyarrow as pa
import pytest

from ferryman import Operator, Value
from ferryman._engine.control import Control
from ferryman._engine.home import home
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.task import run
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._model.card import JobCard
from ferryman._model.errors import PinningLost, StaleTask
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._operator.run.row_runner import RowRunner
from ferryman._routing.tokens import tokens
from ferryman._state.keys import KeySchema
from ferryman._state.tables import TableSpec

INPUT = pa.schema([("key", pa.int64()), ("value", pa.float64())])
OUTPUT = pa.schema([("key", pa.int64()), ("n", pa.int64())])
STATE = pa.schema([("n", pa.int64()), ("total", pa.float64())])
GROUPS = 8


class Sum(Operator):
    n = Value(int, 0)
    total = Value(float, 0.0)

    def process(self, key, row):
        self.n += 1
        self.total += row.value
        yield key, self.n


KEY = KeySchema(pa.schema([("key", pa.int64())]))
SPEC = OperatorSpec(
    name="Sum",
    key=KEY,
    input=INPUT,
    tables=(TableSpec(name="Sum", operator="Sum", key=KEY, state=STATE, backend="columnar"),),
    output=OUTPUT,
    runner=RowRunner(Sum, ("key", "value"), STATE, OUTPUT),
)


def rows(seed: int, order=None) -> list[pa.RecordBatch]:
    """Make the rows of an epoch as Spark would bring them, in one order or another."""
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, 20, 200)
    batch = pa.record_batch(
        {
            "key": keys,
            "value": chance.random(200),
            "_hash": keys * 7919,
            "_seq": np.arange(200),
            "_token": np.full(200, tokens(1)[0], dtype=np.int32),
        }
    )
    return [batch if order is None else pa.record_batch(batch.take(pa.array(order)).columns, schema=batch.schema)]


@pytest.fixture
def place(tmp_path):
    log = Checkpoint(directory(str(tmp_path / "checkpoint")))
    log.create(JobCard("job", "test", GROUPS, {"Sum": card_of("Sum", SPEC.key, STATE)}))
    control = Control(
        epoch=1,
        run_id="run",
        checkpoint=str(tmp_path / "checkpoint"),
        fsync=False,
        home=str(tmp_path / "home"),
        owner=(0,) * GROUPS,
        tokens=tokens(1),
        newest=None,
        newest_same_routing=True,
    )
    return log, control


def commit(log: Checkpoint, epoch: int, ref) -> None:
    log.commit(
        Manifest(
            epoch=epoch,
            batch=epoch,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, GROUPS, 1),
            operators={},
            tables={"Sum": (ref,)},
        )
    )


def test_a_task_that_runs_twice_writes_the_same_delta(place):
    log, control = place
    _, first = run(SPEC, control, 0, rows(1))
    _, again = run(SPEC, control, 0, rows(1))
    assert first.deltas == again.deltas
    assert len(log.directory.list("deltas")) == 1


def test_the_order_the_shuffle_brings_rows_in_does_not_matter(place):
    _, control = place
    out, first = run(SPEC, control, 0, rows(1))
    shuffled, again = run(SPEC, control, 0, rows(1, np.random.default_rng(5).permutation(200)))
    assert first.deltas == again.deltas
    assert shuffled.equals(out)


def test_a_task_on_an_empty_home_gives_the_same_as_on_a_full_one(place):
    log, control = place
    _, receipt = run(SPEC, control, 0, rows(1))
    commit(log, 1, receipt.deltas["Sum"])
    second = dataclasses.replace(control, epoch=2, newest={"Sum": (receipt.deltas["Sum"],)})
    out, warm = run(SPEC, second, 0, rows(2))
    shutil.rmtree(home(control.checkpoint, "run", control.home))
    again, cold = run(SPEC, dataclasses.replace(second, run_id="another", newest=None), 0, rows(2))
    assert warm.deltas == cold.deltas
    assert again.equals(out)


def test_a_task_of_an_epoch_that_is_over_is_refused_and_harms_nothing(place):
    log, control = place
    _, one = run(SPEC, control, 0, rows(1))
    commit(log, 1, one.deltas["Sum"])
    second = dataclasses.replace(control, epoch=2, newest={"Sum": (one.deltas["Sum"],)})
    _, two = run(SPEC, second, 0, rows(2))
    commit(log, 2, two.deltas["Sum"])
    third = dataclasses.replace(control, epoch=3, newest={"Sum": (two.deltas["Sum"],)})
    run(SPEC, third, 0, rows(3))
    before = log.read_delta(two.deltas["Sum"])
    with pytest.raises(StaleTask):
        run(SPEC, second, 0, rows(2))
    assert log.read_delta(two.deltas["Sum"]).equals(before)
    _, again = run(SPEC, third, 0, rows(3))
    assert again.keys == 20


def test_rows_of_another_instance_are_refused(place):
    _, control = place
    with pytest.raises(PinningLost):
        run(SPEC, dataclasses.replace(control, tokens=tokens(3), owner=(0, 1, 2, 0, 1, 2, 0, 1)), 2, rows(1))
