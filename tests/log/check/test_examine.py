"""Verify finds what was written wrong, under a right checksum."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from written_log import (
    KEY,
    LAST,
    STATE,
    WrittenLog,
    delta_of,
    hash_of,
    local_log,
    rebuildable,
    root,
    state_of,
    written,
)

from ferryman._log.check import compare
from ferryman._log.check.compare import same_state
from ferryman._log.check.verify import Report, verify
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import checksum
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.routing import Pin, RoutingTable


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return written(tmp_path / "log")


def rewritten(log: WrittenLog, rows: pa.Table, *, instance: int = 0, **manifest: object) -> Report:
    """Commit one more epoch whose only delta is this, and verify."""
    epoch = log.epoch + 1
    ref = log.checkpoint.write_delta(epoch, "A", instance, rows)
    before = log.checkpoint.manifest(log.epoch)
    changed = {"epoch": epoch, "batch": before.batch + 1, "tables": {"A": (ref,)}, **manifest}
    log.checkpoint.commit(dataclasses.replace(before, **changed))
    return verify(log.checkpoint)


def key_of_instance(log: WrittenLog, instance: int) -> str:
    return next(f"k{n}" for n in range(99) if log.routing.owner[hash_of(f"k{n}") % 8] == instance)


def only_fault(report: Report) -> str:
    (fault,) = report.faults
    assert fault.damages == (LAST + 1,)
    assert report.rebuildable == tuple(range(1, LAST + 1))
    return fault.what


def test_rows_of_another_instances_groups_are_found(log: WrittenLog) -> None:
    key = key_of_instance(log, 1)

    what = only_fault(rewritten(log, delta_of({key: 1}), instance=0))

    assert f"rows of key group {hash_of(key) % 8}," in what
    assert "instance 0" in what


def test_a_key_twice_in_one_delta_is_found(log: WrittenLog) -> None:
    key = key_of_instance(log, 0)
    rows = pa.concat_tables([delta_of({key: 1}), delta_of({key: 2})])

    assert only_fault(rewritten(log, rows)) == "holds a key twice"


def test_columns_that_do_not_fit_the_card_are_found(log: WrittenLog) -> None:
    rows = delta_of({key_of_instance(log, 0): 1})
    narrow = rows.set_column(3, "n", rows.column("n").cast(pa.int32()))

    assert only_fault(rewritten(log, narrow)) == "does not fit the job's card: columns n"


def test_rows_without_a_key_are_found(log: WrittenLog) -> None:
    rows = delta_of({key_of_instance(log, 0): 1})

    what = only_fault(rewritten(log, rows.set_column(2, "sensor", pa.array([None], pa.string()))))

    assert what == "has rows without a value in sensor"


def test_bytes_that_are_no_arrow_are_found(log: WrittenLog) -> None:
    log.commit({"A": {key_of_instance(log, 0): 1}})
    name = f"manifests/{LAST + 1:012d}.json"
    manifest = log.checkpoint.manifest(LAST + 1)
    (root(log) / name).unlink()
    log.checkpoint.directory.write("deltas/000000000009-A-0-x.arrow", b"no arrow")
    ref = DeltaRef("deltas/000000000009-A-0-x.arrow", 0, 1, 8, checksum(b"no arrow"))
    log.checkpoint.commit(dataclasses.replace(manifest, tables={"A": (ref,)}))

    assert "cannot be read as Arrow" in only_fault(verify(log.checkpoint))


def test_a_manifest_that_goes_back_in_sparks_batches_is_found(log: WrittenLog) -> None:
    report = rewritten(log, delta_of({key_of_instance(log, 0): 1}), batch=0)

    assert only_fault(report) == "covers Spark's micro-batch 0, but an earlier epoch covers 7"


def test_a_manifest_of_a_table_that_the_job_does_not_have_is_found(log: WrittenLog) -> None:
    report = rewritten(log, delta_of({key_of_instance(log, 0): 1}), tables={"C": ()})

    assert only_fault(report) == "names tables that the job does not have: C"


def test_a_routing_table_of_another_number_of_groups_is_found(log: WrittenLog) -> None:
    report = rewritten(log, delta_of({key_of_instance(log, 0): 1}), routing=RoutingTable.even(2, 16, 2))

    assert only_fault(report) == "has a routing table of 16 key groups, and the job has 8"


@pytest.mark.parametrize(
    ("pins", "what"),
    [
        ((Pin(3, 2, "k"),), "pins a key to an instance beyond its 2"),
        ((Pin(3, 0, "k"), Pin(3, 1, "k")), "pins one key twice"),
    ],
)
def test_pins_that_cannot_be_are_found(log: WrittenLog, pins: tuple[Pin, ...], what: str) -> None:
    routing = dataclasses.replace(RoutingTable.even(2, 8, 2), pins=pins)

    assert only_fault(rewritten(log, delta_of({key_of_instance(log, 0): 1}), routing=routing)) == what


def test_a_gap_before_the_newest_manifest_is_found(log: WrittenLog) -> None:
    report = rewritten(log, delta_of({key_of_instance(log, 0): 1}), epoch=LAST + 2)

    assert [(fault.file, fault.damages) for fault in report.faults] == [
        (f"manifests/{LAST + 1:012d}.json", (LAST + 1, LAST + 2))
    ]


def test_a_manifest_under_another_epochs_name_is_found(log: WrittenLog) -> None:
    shutil.copy(root(log) / f"manifests/{LAST:012d}.json", root(log) / f"manifests/{LAST + 1:012d}.json")

    assert only_fault(verify(log.checkpoint)) == f"is the manifest of another epoch, {LAST}"


def test_a_snapshot_that_is_not_the_fold_is_found(log: WrittenLog, tmp_path: Path) -> None:
    other = written(tmp_path / "other")
    other.commit({"A": {"s1": 999}})
    forged = dataclasses.replace(write_snapshot(other.checkpoint, LAST + 1), epoch=LAST)
    for file in forged.tables["A"]:
        shutil.copy(root(other) / file.file, root(log) / file.file)
    log.checkpoint.publish_snapshot(forged)

    report = verify(log.checkpoint)

    assert [(fault.file, fault.damages) for fault in report.faults] == [(f"snapshots/{LAST:012d}.json", (LAST,))]
    assert "table 'A'" in report.faults[0].what
    assert report.rebuildable == rebuildable(log) == tuple(range(1, LAST))


def test_a_snapshot_that_leaves_out_an_operator_is_found(log: WrittenLog) -> None:
    snapshot = log.checkpoint.snapshot(6)
    log.checkpoint.publish_snapshot(dataclasses.replace(snapshot, tables={"A": snapshot.tables["A"]}))

    report = verify(log.checkpoint)

    assert [fault.damages for fault in report.faults] == [(6, 7, 8)]
    assert "table 'B'" in report.faults[0].what


def test_a_snapshot_file_beyond_its_groups_is_found(log: WrittenLog) -> None:
    snapshot = log.checkpoint.snapshot(6)
    (one,) = snapshot.tables["B"]
    wrong = dataclasses.replace(one, first=one.first + 1, last=one.last + 1)
    log.checkpoint.publish_snapshot(dataclasses.replace(snapshot, tables={**snapshot.tables, "B": (wrong,)}))

    assert any("beyond its groups" in fault.what for fault in verify(log.checkpoint).faults)


def test_a_large_state_is_compared_run_by_run(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = verify(log.checkpoint)
    monkeypatch.setattr(
        compare, "runs_of_groups", lambda total, rows: compare.np.array_split(compare.np.arange(total), 3)
    )
    monkeypatch.setattr(compare, "RUN_ROWS", 1)
    assert verify(log.checkpoint) == whole

    snapshot = log.checkpoint.snapshot(6)
    log.checkpoint.publish_snapshot(dataclasses.replace(snapshot, tables={"B": snapshot.tables["B"]}))
    assert [fault.damages for fault in verify(log.checkpoint).faults] == [(6, 7, 8)]


def test_states_are_compared_whatever_their_order_and_with_nan_and_null() -> None:
    schema = pa.schema(
        [("_hash", pa.int64()), ("sensor", pa.string()), ("f", pa.float64()), ("l", pa.list_(pa.float64()))]
    )
    rows = [(1, "a", float("nan"), [float("nan")]), (1, "b", None, None), (-5, "c", 0.5, [])]

    def table(rows: list[tuple[object, ...]]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)

    assert same_state(table(rows), table(rows[::-1]), KEY)
    for at, changed in [
        (0, (1, "a", 0.0, [float("nan")])),
        (1, (1, "b", 0.0, None)),
        (2, (-5, "c", 0.5, None)),
        (2, (-5, "d", 0.5, [])),
    ]:
        assert not same_state(table(rows), table([*rows[:at], changed, *rows[at + 1 :]]), KEY)
    assert not same_state(table(rows), table(rows[:2]), KEY)


def test_an_operator_that_joined_later_is_no_fault(tmp_path: Path) -> None:
    log = local_log(tmp_path, operators=("A",))
    log.commit({"A": {"x": 1}})
    write_snapshot(log.checkpoint, 1)
    both = {name: card_of(name, KEY, STATE) for name in ("A", "B")}
    log.checkpoint.create(JobCard("0" * 32, "test", 8, both))
    log.operators = ("A", "B")
    log.states[1]["B"] = {}
    log.commit({"A": {"x": 2}, "B": {"y": 1}})
    write_snapshot(log.checkpoint, 2)
    log.commit({"B": {"y": 2}})

    assert verify(log.checkpoint).faults == ()
    log.assert_rebuilds(3)
    assert state_of(rebuild(log.checkpoint, "B", 1)) == {}
