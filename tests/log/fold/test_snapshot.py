"""Snapshots: the fold of everything before them, cut into files and row groups by key group."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written_log import hash_of, local_log, state_of

from ferryman._log.check.verify import verify
from ferryman._log.files import untrusted as sound
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.untrusted import GROUPS_KEY
from ferryman._log.fold import snapshot as snapshots
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._log.fold.snapshot_due import is_snapshot_due
from ferryman._model.card import JobCard
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import delta_schema, part_schema

KEYS = [f"s{number}" for number in range(200)]


def groups_of(path: Path) -> list[int]:
    return json.loads(pq.ParquetFile(path).metadata.metadata[GROUPS_KEY])


def test_a_snapshot_alone_gives_the_state_of_its_epoch(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    log.commit({"Counts": dict.fromkeys(KEYS[:50])})
    write_snapshot(log.checkpoint, 2)
    for name in log.checkpoint.directory.list("deltas"):
        (tmp_path / "deltas" / name).unlink()

    log.assert_rebuilds(2)


def test_every_row_group_holds_one_key_group(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    (one,) = write_snapshot(log.checkpoint, 1).tables["Counts"]

    file = pq.ParquetFile(tmp_path / one.file)
    held = [
        {hash_ % 8 for hash_ in file.read_row_group(number).column("_hash").to_pylist()}
        for number in range(file.num_row_groups)
    ]

    assert held == [{group} for group in groups_of(tmp_path / one.file)]
    assert (one.first, one.last, one.rows) == (0, 7, len(KEYS))


def test_a_group_too_large_for_one_row_group_takes_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "ROW_GROUP_ROWS", 16)
    log = local_log(tmp_path, groups=3)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    (one,) = write_snapshot(log.checkpoint, 1).tables["Counts"]

    assert max(map(groups_of(tmp_path / one.file).count, range(3))) > 1
    log.assert_rebuilds(1)
    assert verify(log.checkpoint).sound
    for group in range(3):
        mine = {key for key in KEYS if hash_of(key) % 3 == group}
        assert set(state_of(rebuild(log.checkpoint, "Counts", 1, pa.array([group]).to_numpy()))) == mine


def test_a_group_of_more_than_a_million_rows_loses_none(tmp_path: Path) -> None:
    rows = snapshots.ROW_GROUP_ROWS + 10
    key, state = KeySchema(pa.schema([("id", pa.int64())])), pa.schema([("n", pa.int8())])
    checkpoint = Checkpoint(LocalDirectory(tmp_path))
    checkpoint.create(JobCard("0" * 32, "test", 1, {"Large": card_of("Large", key, state)}))
    ids = pa.array(range(rows), pa.int64())
    hashes = pa.array(np.random.default_rng(1).integers(-(1 << 63), 1 << 63, rows))
    delta = pa.Table.from_arrays(
        [hashes, pa.repeat(False, rows), ids, pa.repeat(pa.scalar(1, pa.int8()), rows)], schema=delta_schema(key, state)
    )
    ref = checkpoint.write_delta(1, "Large", 0, delta)
    checkpoint.commit(
        Manifest(
            epoch=1,
            batch=0,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, 1, 1),
            operators={},
            tables={"Large": (ref,)},
        )
    )
    write_snapshot(checkpoint, 1)

    assert rebuild(checkpoint, "Large", 1).num_rows == rows


def of_zeros(tmp_path: Path, keys: int, width: int) -> Checkpoint:
    """Commit state of many bytes that are all alike."""
    key, state = KeySchema(pa.schema([("id", pa.int64())])), pa.schema([("frame", pa.binary())])
    checkpoint = Checkpoint(LocalDirectory(tmp_path))
    checkpoint.create(JobCard("0" * 32, "test", 1, {"Frames": card_of("Frames", key, state)}))
    hashes = pa.array(np.random.default_rng(1).integers(-(1 << 63), 1 << 63, keys))
    frames = pa.array([number.to_bytes(4, "big") + bytes(width) for number in range(keys)])
    columns = [hashes, pa.repeat(False, keys), pa.array(range(keys), pa.int64()), frames]
    ref = checkpoint.write_delta(1, "Frames", 0, pa.Table.from_arrays(columns, schema=delta_schema(key, state)))
    checkpoint.commit(
        Manifest(
            epoch=1,
            batch=0,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, 1, 1),
            operators={},
            tables={"Frames": (ref,)},
        )
    )
    return checkpoint


def test_state_that_is_mostly_zeros_comes_back_from_its_small_file(tmp_path: Path) -> None:
    checkpoint = of_zeros(tmp_path, keys=500, width=256 << 10)
    (one,) = write_snapshot(checkpoint, 1).tables["Frames"]
    assert 1000 * one.bytes < 500 * (256 << 10)

    assert rebuild(checkpoint, "Frames", 1).num_rows == 500
    assert verify(checkpoint).sound


def test_a_list_of_an_earlier_version_says_not_what_a_file_was_made_of(tmp_path: Path) -> None:
    checkpoint = of_zeros(tmp_path, keys=5, width=10)
    written = write_snapshot(checkpoint, 1)
    (one,) = written.tables["Frames"]
    assert one.decoded is not None
    checkpoint.publish_snapshot(replace(written, tables={"Frames": (replace(one, decoded=None),)}))

    assert rebuild(checkpoint, "Frames", 1).num_rows == 5
    assert verify(checkpoint).sound


def test_state_too_large_for_its_small_file_to_be_trusted_makes_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sound, "_DECODED_MOST", 1 << 20)
    monkeypatch.setattr(sound, "_DECODED_PER_BYTE", 4)
    checkpoint = of_zeros(tmp_path, keys=20, width=256 << 10)
    (one,) = write_snapshot(checkpoint, 1).tables["Frames"]

    assert one.bytes > 20 * (256 << 10)
    assert rebuild(checkpoint, "Frames", 1).num_rows == 20


def test_a_large_state_is_cut_into_files_that_later_snapshots_keep_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    monkeypatch.setattr(snapshots, "FILE_BYTES", 2000)
    first = write_snapshot(log.checkpoint, 1).tables["Counts"]
    monkeypatch.undo()
    log.commit({"Counts": {"s1": 2, "new": 1}})
    second = write_snapshot(log.checkpoint, 2).tables["Counts"]

    for files in (first, second):
        assert len(files) > 2
        assert [file.first for file in files] == sorted(file.first for file in files)
        assert all(before.last < after.first for before, after in itertools.pairwise(files))
    assert sum(file.rows for file in second) == len(KEYS) + 1
    log.assert_rebuilds(1)
    log.assert_rebuilds(2)


def test_a_run_of_groups_that_empties_and_fills_again_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FILE_BYTES", 2000)
    log = local_log(tmp_path)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    middle = write_snapshot(log.checkpoint, 1).tables["Counts"][1]
    gone = [key for key in KEYS if middle.first <= hash_of(key) % 8 <= middle.last]
    log.commit({"Counts": dict.fromkeys(gone)})
    write_snapshot(log.checkpoint, 2)
    log.commit({"Counts": dict.fromkeys(gone, 3)})
    write_snapshot(log.checkpoint, 3)

    for epoch in (1, 2, 3):
        log.assert_rebuilds(epoch)
    assert verify(log.checkpoint).sound


def test_an_operator_that_did_nothing_shares_its_files_with_the_snapshot_before_the_last(tmp_path: Path) -> None:
    log = local_log(tmp_path, operators=("A", "B"))
    log.commit({"A": {"x": 1}, "B": {"x": 1}})
    written = [write_snapshot(log.checkpoint, 1)]
    for epoch in (2, 3):
        log.commit({"A": {"x": epoch}})
        written.append(write_snapshot(log.checkpoint, epoch))

    first, second, third = (snapshot.tables["B"] for snapshot in written)
    assert third == first
    assert second != first
    assert written[1].tables["A"] != written[0].tables["A"]
    for epoch in (1, 2, 3):
        log.assert_rebuilds(epoch)


def test_state_that_is_all_deleted_makes_a_snapshot_of_no_files(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": {"a": 1}})
    log.commit({"Counts": {"a": None}})

    assert write_snapshot(log.checkpoint, 2).tables == {"Counts": ()}
    log.assert_rebuilds(2)
    log.commit({"Counts": {"a": 5}})
    write_snapshot(log.checkpoint, 3)
    log.assert_rebuilds(3)


def test_writing_a_snapshot_twice_changes_nothing(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})

    assert write_snapshot(log.checkpoint, 1) == write_snapshot(log.checkpoint, 1)
    assert len(log.checkpoint.directory.list("snapshots")) == 2


TYPES = {
    "list": (pa.list_(pa.struct([("x", pa.int64())])), [{"x": 1}, {"x": None}]),
    "map": (pa.map_(pa.string(), pa.float64()), [("a", float("nan"))]),
    "seconds": (pa.timestamp("s"), 5),
    "zoned": (pa.timestamp("us", "UTC"), 5),
    "date": (pa.date32(), 5),
    "duration": (pa.duration("us"), 5),
    "decimal": (pa.decimal128(38, 3), None),
    "wide text": (pa.large_string(), "ö"),
    "binary": (pa.binary(), b"\x00\xff"),
    "nan": (pa.float32(), float("nan")),
    "small": (pa.int8(), -5),
    "boolean": (pa.bool_(), True),
}


@pytest.mark.parametrize("name", list(TYPES))
def test_every_type_of_state_comes_back_from_a_snapshot_as_it_was(tmp_path: Path, name: str) -> None:
    dtype, value = TYPES[name]
    key, state = KeySchema(pa.schema([("id", pa.int64())])), pa.schema([("value", dtype)])
    checkpoint = Checkpoint(LocalDirectory(tmp_path))
    checkpoint.create(JobCard("0" * 32, "test", 4, {"Typed": card_of("Typed", key, state)}))
    columns = [pa.array([1, 2]), pa.array([False, False]), pa.array([1, 2]), pa.array([value, None], dtype)]
    delta = pa.Table.from_arrays(columns, schema=delta_schema(key, state))
    for epoch in (1, 2):
        ref = checkpoint.write_delta(epoch, "Typed", 0, delta)
        checkpoint.commit(
            Manifest(
                epoch=epoch,
                batch=epoch,
                silent=False,
                time_ms=0,
                routing=RoutingTable.even(1, 4, 1),
                operators={},
                tables={"Typed": (ref,)},
            )
        )
    from_delta = rebuild(checkpoint, "Typed", 1)
    write_snapshot(checkpoint, 1)

    for epoch in (1, 2):
        rows = rebuild(checkpoint, "Typed", epoch)
        assert rows.schema == part_schema(key, state)
        assert repr(rows.to_pylist()) == repr(from_delta.to_pylist())
    write_snapshot(checkpoint, 2)
    assert verify(checkpoint).faults == ()


@pytest.mark.parametrize(
    ("epochs", "delta_bytes", "due"),
    [(9, 1000, False), (10, 250, True), (10, 249, False), (99, 0, False), (100, 0, True)],
)
def test_a_snapshot_is_due_when_the_chain_is_long_and_heavy_or_very_long(epochs, delta_bytes, due) -> None:
    assert is_snapshot_due(epochs=epochs, every=10, delta_bytes=delta_bytes, snapshot_bytes=1000) is due
