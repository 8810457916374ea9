"""A checkpoint is read from outside: some keys, an earlier epoch, changes; and a job that goes on meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import written_log
from written_log import WrittenLog, files_of, local_log, root, state_of

from ferryman._log.files.cards import card_of
from ferryman._log.files.open_checkpoint import opened
from ferryman._log.fold import snapshot as snapshots
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._log.scan import changed_entries
from ferryman._log.scan.changed_entries import epochs_of_parts, read_changes
from ferryman._log.scan.epochs_kept import epoch_to_read, epochs_to_read
from ferryman._log.scan.keys_asked import KeysAsked
from ferryman._log.scan.state_scan import parts_by_file, read_state
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, ForeignCheckpoint, MissingDelta, UnknownOption
from ferryman._state.keys import KeySchema
from ferryman._state.spark_hash import spark_hash

KEYS = [f"s{number}" for number in range(300)]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenLog:
    """Write six epochs of four instances, with a snapshot of the fourth in several files."""
    monkeypatch.setattr(written_log, "hash_of", lambda key: int(spark_hash([pa.array([key])])[0]))
    monkeypatch.setattr(snapshots, "FILE_BYTES", 2000)
    log = local_log(tmp_path / "log", groups=32)
    log.rescale(4)
    for number in range(1, 7):
        log.commit({"Counts": dict.fromkeys(KEYS[number * 10 :], number) | {KEYS[number * 10 - 1]: None}})
        if number == 4:
            write_snapshot(log.checkpoint, 4)
    return log


def asked(log: WrittenLog, *keys: str) -> KeysAsked:
    card = log.checkpoint.job_card()
    return KeysAsked.parse(json.dumps(keys), card, "Counts")


def read(log: WrittenLog, epoch: int, keys: KeysAsked | None = None) -> tuple[dict[str, tuple[int, str]], int]:
    """Read part by part, as several readers would; and what they have read of files."""
    before = log.checkpoint.read_bytes
    parts = parts_by_file(log.checkpoint, log.checkpoint.job_card(), "Counts", epoch, keys)
    rows = pa.concat_tables([read_state(log.checkpoint, "Counts", epoch, groups, keys) for groups in parts])
    return state_of(rows), log.checkpoint.read_bytes - before


@pytest.mark.parametrize("epoch", [3, 4, 6])
def test_the_parts_together_are_the_state(log: WrittenLog, epoch: int) -> None:
    assert read(log, epoch)[0] == log.states[epoch]["Counts"]


def test_each_file_of_a_snapshot_is_read_by_one_reader(log: WrittenLog) -> None:
    files = log.checkpoint.snapshot(4).tables["Counts"]
    assert len(files) > 3

    parts = parts_by_file(log.checkpoint, log.checkpoint.job_card(), "Counts", 6, None)

    assert [(groups[0] <= file.first, file.last <= groups[-1]) for groups, file in zip(parts, files, strict=True)] == [
        (True, True)
    ] * len(files)


def test_of_some_keys_only_their_groups_are_read(log: WrittenLog) -> None:
    state = log.states[6]["Counts"]
    keys = asked(log, "s200", "s29", "nobody")

    rows, weighed = read(log, 6, keys)
    _, whole = read(log, 6)

    assert rows == {key: state[key] for key in ("s200", "s29") if key in state}
    assert "s200" in rows
    # One of many files of the snapshot, and the deltas of one instance of four, for each of three groups at the most.
    assert weighed < 0.6 * whole
    assert {
        group for part in parts_by_file(log.checkpoint, log.checkpoint.job_card(), "Counts", 6, keys) for group in part
    } == set(keys.groups(32).tolist())


def test_files_of_other_groups_may_be_gone(log: WrittenLog) -> None:
    keys = asked(log, "s200")
    (group,) = keys.groups(32).tolist()
    for file in log.checkpoint.snapshot(4).tables["Counts"]:
        if not file.first <= group <= file.last:
            (root(log) / file.file).write_bytes(b"rubbish")
    for epoch in (5, 6):
        manifest = log.checkpoint.manifest(epoch)
        for ref in manifest.tables["Counts"]:
            if ref.instance != manifest.routing.owner[group]:
                (root(log) / ref.file).write_bytes(b"rubbish")

    assert read(log, 6, keys)[0] == {"s200": log.states[6]["Counts"]["s200"]}
    with pytest.raises(CorruptCheckpoint):
        read(log, 6)


def test_the_state_before_and_the_changes_since_are_the_state_after(log: WrittenLog) -> None:
    card = log.checkpoint.job_card()
    state = dict(log.states[2]["Counts"])
    epochs = []
    for rows in read_changes(log.checkpoint, card, "Counts", 3, 6, None):
        for row in rows.to_pylist():
            epochs.append(row["_epoch"])
            if row["_change"] == "delete":
                del state[row["sensor"]]
            else:
                state[row["sensor"]] = (row["n"], row["note"])

    assert state == log.states[6]["Counts"]
    assert sorted(set(epochs)) == [3, 4, 5, 6]
    assert epochs == sorted(epochs)


def test_changes_of_some_keys_are_those_of_all_that_are_theirs(log: WrittenLog) -> None:
    card, keys = log.checkpoint.job_card(), asked(log, "s29", "s200")
    every = [row for rows in read_changes(log.checkpoint, card, "Counts", 1, 6, None) for row in rows.to_pylist()]
    mine = [row for rows in read_changes(log.checkpoint, card, "Counts", 1, 6, keys) for row in rows.to_pylist()]

    assert len(mine) == 9
    assert {row["_change"] for row in mine} == {"upsert", "delete"}
    assert mine == [row for row in every if row["sensor"] in ("s29", "s200")]


def test_changes_are_cut_into_runs_of_epochs(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert epochs_of_parts(log.checkpoint, "Counts", 1, 6) == [(1, 6)]
    monkeypatch.setattr(changed_entries, "PART_ROWS", 500)
    assert epochs_of_parts(log.checkpoint, "Counts", 1, 6) == [(1, 2), (3, 4), (5, 6)]
    assert epochs_of_parts(log.checkpoint, "Counts", 7, 6) == []


def test_an_epoch_that_is_not_kept_is_refused_with_those_that_are(log: WrittenLog) -> None:
    write_snapshot(log.checkpoint, 6)
    prune(log.checkpoint, 4)

    assert (epoch_to_read(log.checkpoint, None), epoch_to_read(log.checkpoint, 4)) == (6, 4)
    assert epochs_to_read(log.checkpoint, 7, None) == (7, 6), "nothing is new yet"
    for epoch in (3, 7):
        with pytest.raises(MissingDelta, match="the epochs kept are 4 to 6"):
            epoch_to_read(log.checkpoint, epoch)
    for first, last in ((3, 6), (4, 7), (8, None)):
        with pytest.raises(MissingDelta, match="the epochs kept are 4 to 6"):
            epochs_to_read(log.checkpoint, first, last)


def test_a_reader_whose_epoch_goes_meanwhile_says_so(log: WrittenLog) -> None:
    card = log.checkpoint.job_card()
    parts = parts_by_file(log.checkpoint, card, "Counts", 3, None)
    write_snapshot(log.checkpoint, 6)
    prune(log.checkpoint, 6)

    for late in (
        lambda: read_state(log.checkpoint, "Counts", 3, parts[0], None),
        lambda: parts_by_file(log.checkpoint, card, "Counts", 3, None),
        lambda: list(read_changes(log.checkpoint, card, "Counts", 3, 6, None)),
        lambda: epochs_of_parts(log.checkpoint, "Counts", 3, 6),
    ):
        with pytest.raises(MissingDelta, match=r"epoch 3 .* fell out of the retention .* kept are 6 to 6"):
            late()


def test_what_is_missing_of_an_epoch_that_is_kept_is_named(log: WrittenLog) -> None:
    (root(log) / log.checkpoint.manifest(6).tables["Counts"][0].file).unlink()

    with pytest.raises(MissingDelta, match="deltas/000000000006"):
        read(log, 6)


def test_an_epoch_outlives_its_snapshot_while_it_is_read(log: WrittenLog) -> None:
    parts = parts_by_file(log.checkpoint, log.checkpoint.job_card(), "Counts", 6, None)
    write_snapshot(log.checkpoint, 6)
    prune(log.checkpoint, 6)

    rows = pa.concat_tables([read_state(log.checkpoint, "Counts", 6, groups, None) for groups in parts])

    assert state_of(rows) == log.states[6]["Counts"]


def test_reading_writes_nothing(log: WrittenLog) -> None:
    before = files_of(root(log))

    read(log, 6)

    assert files_of(root(log)) == before


@pytest.mark.parametrize("text", ["s1", '"s1"', "[7]", '[["a", "b"]]', "[" * 10_000, '[{"a": 1}]'])
def test_what_are_no_keys_is_refused_with_the_columns_there_are(log: WrittenLog, text: str) -> None:
    with pytest.raises(UnknownOption, match="keyed by sensor string"):
        KeysAsked.parse(text, log.checkpoint.job_card(), "Counts")


def test_no_keys_are_none(log: WrittenLog) -> None:
    keys = asked(log)

    assert parts_by_file(log.checkpoint, log.checkpoint.job_card(), "Counts", 6, keys) == []
    assert keys.rows_of(rebuild(log.checkpoint, "Counts", 6)).num_rows == 0


def test_a_password_in_the_address_is_in_no_error() -> None:
    for refused in (OSError(5, "no answer"), NotADirectoryError()):
        ours = pytest.raises((CorruptCheckpoint, ForeignCheckpoint), match=r"s3://key:\*\*\*@bucket")
        with ours as found, opened("s3://key:hush@bucket/jobs?region=eu"):
            raise refused
        assert "hush" not in str(found.value)


def test_a_number_that_is_none_of_the_keys_type_is_not_rounded_to_one() -> None:
    card = card_of("N", KeySchema(pa.schema([("k", pa.int32())])), pa.schema([]))
    job = JobCard("id", "job", 8, {"N": card})
    assert len(KeysAsked.parse("[1, 2.0]", job, "N").raw) == 2
    with pytest.raises(UnknownOption, match=r"keys='\[1\.5\]' are no keys of 'N'"):
        KeysAsked.parse("[1.5]", job, "N")
