"""Operators in rounds, each instance by itself: the rows and deltas of one task, whatever rows stay or leave."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from ferryman import Operator, Value
from ferryman._engine.control import Control
from ferryman._engine.express_epoch import OutputOf, OutputTooLarge, RowsLeave, Step, parted, run_together
from ferryman._engine.express_rounds import Ran, Rounds
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._model.card import JobCard
from ferryman._model.receipt import RowsLeft, TooMuch
from ferryman._model.routing import RoutingTable
from ferryman._operator.run.row_runner import RowRunner
from ferryman._routing.tokens import tokens
from ferryman._state.keys import KeySchema
from ferryman._state.spark_hash import spark_hash
from ferryman._state.tables import TableSpec

COLUMNS = pa.schema([("key", pa.int64()), ("bucket", pa.int64()), ("jump", pa.int64())])
STATE = pa.schema([("n", pa.int64())])
GROUPS, INSTANCES = 16, 3
PLENTY = 1 << 24


class Counts(Operator):
    """Counts the rows of a key, and passes them on; those with a jump under another key."""

    n = Value(int, 0)

    def process(self, key, row):
        self.n += 1
        yield row.key + row.jump, self.n % 5, 0


def operator(name: str, key: str) -> OperatorSpec:
    keys = KeySchema(pa.schema([(key, pa.int64())]))
    return OperatorSpec(
        name=name,
        key=keys,
        input=COLUMNS,
        tables=(TableSpec(name=name, operator=name, key=keys, state=STATE, backend="columnar"),),
        output=COLUMNS,
        runner=RowRunner(Counts, tuple(COLUMNS.names), STATE, COLUMNS),
    )


# One after the other: two by the same key, one by another; and one beside them.
CHAIN = [
    Step(operator("First", "key")),
    Step(operator("Same", "key"), OutputOf("First")),
    Step(operator("Other", "bucket"), OutputOf("Same")),
    Step(operator("Beside", "bucket")),
]
WANTED = [OutputOf("Other"), OutputOf("First"), OutputOf("Beside")]


@pytest.fixture
def controls(tmp_path):
    log = Checkpoint(directory(str(tmp_path / "checkpoint")))
    cards = {step.spec.name: card_of(step.spec.name, step.spec.key, STATE) for step in CHAIN}
    log.create(JobCard("job", "test", GROUPS, cards))
    control = Control(
        epoch=1,
        run_id="run",
        checkpoint=str(tmp_path / "checkpoint"),
        fsync=False,
        home=str(tmp_path / "home"),
        owner=RoutingTable.even(1, GROUPS, INSTANCES).owner,
        tokens=tokens(INSTANCES),
        newest=None,
        newest_same_routing=True,
    )
    return {step.spec.name: control for step in CHAIN}


def came(seed: int, *, jump: int = 0) -> tuple[pa.Table, dict[str, np.ndarray]]:
    chance = np.random.default_rng(seed)
    columns = [pa.array(chance.integers(0, 40, 200)), pa.array(chance.integers(0, 7, 200)), pa.array([jump] * 200)]
    rows = pa.table(columns, schema=COLUMNS)
    readers = [step.spec for step in CHAIN if step.reads is None]
    return rows, {spec.name: spark_hash([rows.column(spec.key.fields.names[0])]) for spec in readers}


def in_one_task(controls, rows, hashes):
    parts = {name: parted(controls[name], rows, keys) for name, keys in hashes.items()}
    return run_together(CHAIN, controls, parts, WANTED, instances=range(INSTANCES), most_bytes=PLENTY)


class Hosts:
    """Run the tasks of a round, each instance on a host of its own."""

    def __init__(self, controls):
        self.controls = controls
        self.rounds = []

    def __call__(self, given):
        self.rounds.append(given)
        receipts, tables = [], []
        for one in range(INSTANCES):
            here = {
                name: dataclasses.replace(control, home=f"{control.home}-{one}")
                for name, control in self.controls.items()
            }
            mine = {name: {one: parts[one]} for name, parts in given.came.items()}
            try:
                found, some = run_together(
                    given.steps, here, mine, given.wanted, instances=[one], most_bytes=given.most_bytes
                )
            except RowsLeave as leave:
                return RowsLeft(operator=leave.operator)
            except OutputTooLarge as large:
                return TooMuch(rows=large.rows, size=large.size)
            receipts += some
            tables.append(found)
        return Ran(receipts, tables)

    def names(self):
        return [[step.spec.name for step in given.steps] for given in self.rounds]


def told(done):
    """Give what may not depend on where instances ran."""
    tables, receipts = done
    deltas = {(receipt.operator, receipt.instance): receipt.deltas for receipt in receipts}
    return [table.to_pylist() for table in tables], deltas


@pytest.mark.parametrize("jump", [0, 1])
def test_rounds_give_the_rows_and_the_deltas_of_one_task(controls, jump):
    rounds, hosts = Rounds(CHAIN, WANTED), Hosts(controls)
    for seed in range(3):
        rows, hashes = came(seed, jump=jump)
        found = rounds.run(controls, rows, hashes, hosts, most_bytes=PLENTY)
        assert told(found) == told(in_one_task(controls, rows, hashes))
        assert len(found[1]) == len(CHAIN) * INSTANCES


def test_an_operator_by_the_same_key_joins_the_round_once_its_rows_were_seen_to_stay(controls):
    rounds, hosts = Rounds(CHAIN, WANTED), Hosts(controls)
    for seed in range(2):
        rounds.run(controls, *came(seed), hosts, most_bytes=PLENTY)
    one_by_one = [["First", "Beside"], ["Same"], ["Other"]]
    assert hosts.names() == [*one_by_one, ["First", "Same", "Beside"], ["Other"]]


def test_an_operator_whose_rows_leave_never_joins(controls):
    rounds, hosts = Rounds(CHAIN, WANTED), Hosts(controls)
    for seed, jump in ((1, 1), (2, 0), (3, 0)):
        rounds.run(controls, *came(seed, jump=jump), hosts, most_bytes=PLENTY)
    assert hosts.names() == [["First", "Beside"], ["Same"], ["Other"]] * 3


def test_rows_that_leave_after_all_are_noticed_and_nothing_of_that_round_counts(controls):
    rounds, hosts = Rounds(CHAIN, WANTED), Hosts(controls)
    rounds.run(controls, *came(1), hosts, most_bytes=PLENTY)
    rows, hashes = came(2, jump=1)
    found = rounds.run(controls, rows, hashes, hosts, most_bytes=PLENTY)
    assert told(found) == told(in_one_task(controls, rows, hashes))
    assert hosts.names()[3:] == [["First", "Same", "Beside"], ["First", "Beside"], ["Same"], ["Other"]]


def test_no_more_comes_back_than_all_tasks_may_put_out(controls):
    rounds, hosts = Rounds(CHAIN, WANTED), Hosts(controls)
    rows, hashes = came(1)
    most = 40_000
    assert not isinstance(rounds.run(controls, rows, hashes, hosts, most_bytes=most), TooMuch)
    shares = [given.most_bytes for given in hosts.rounds]
    assert shares[0] == most // INSTANCES
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < shares[0] - 200 * 8 // INSTANCES, "what has come is not counted"
    assert isinstance(rounds.run(controls, rows, hashes, hosts, most_bytes=6_000), TooMuch)


def test_a_single_instance_needs_one_round(controls):
    alone = {
        name: dataclasses.replace(control, owner=(0,) * GROUPS, tokens=tokens(1)) for name, control in controls.items()
    }
    seen = []

    def run_round(given):
        seen.append([step.spec.name for step in given.steps])
        tables, receipts = run_together(
            given.steps, alone, given.came, given.wanted, instances=[0], most_bytes=given.most_bytes
        )
        return Ran(receipts, [tables])

    rows, hashes = came(1)
    found = Rounds(CHAIN, WANTED).run(alone, rows, hashes, run_round, most_bytes=PLENTY)
    assert seen == [[step.spec.name for step in CHAIN]]
    assert len(found[0]) == len(WANTED)
