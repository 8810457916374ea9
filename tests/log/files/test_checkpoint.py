"""The files of a checkpoint: the card, manifests, deltas, lists of snapshots, the intent."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pytest
from written_log import KEY, STATE, WrittenLog, delta_of, local_log

from ferryman._engine.restart_policy import LASTING
from ferryman._log.check.verify import verify
from ferryman._log.files.cards import card_of, schemas_of
from ferryman._log.files.checkpoint import Checkpoint, chain, checksum, keep_all
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.open_checkpoint import opened
from ferryman._log.files.remote import as_os_errors
from ferryman._log.fold.bases import bases
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._log.spark_log.log_files import bytes_of
from ferryman._model.card import FORMAT, JobCard
from ferryman._model.errors import (
    CheckpointInUse,
    CheckpointUnreachable,
    CorruptCheckpoint,
    ForeignCheckpoint,
    MissingDelta,
    NewerFormat,
)
from ferryman._model.intent import Intent
from ferryman._os.disk import Disk
from ferryman._state.keys import KeySchema
from ferryman._testing.faulty_disk import FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

obstore = pytest.importorskip("obstore.exceptions")

CARD = JobCard("0" * 32, "test", 8, {"Counts": card_of("Counts", KEY, STATE)})


def at(path: Path) -> Checkpoint:
    return Checkpoint(LocalDirectory(path))


def test_a_card_is_read_back_and_a_new_directory_has_none(tmp_path: Path) -> None:
    assert at(tmp_path / "new").card() is None
    at(tmp_path).create(CARD)

    assert at(tmp_path).card() == CARD


def test_of_two_starts_at_once_one_writes_the_card_and_the_other_is_told(tmp_path: Path) -> None:
    first, second = dataclasses.replace(CARD, id="1" * 32), dataclasses.replace(CARD, id="2" * 32)

    assert at(tmp_path).create_first(first)
    assert not at(tmp_path).create_first(second)
    assert at(tmp_path).card() == first


def test_the_exact_types_of_an_operator_survive_its_card() -> None:
    key = KeySchema(pa.schema([("room", pa.string()), pa.field("at", pa.timestamp("us", "UTC"), nullable=False)]))
    state = pa.schema(
        [("seen", pa.list_(pa.struct([("x", pa.decimal128(20, 3))]))), ("by", pa.map_(pa.string(), pa.int8()))]
    )

    back, back_state = schemas_of(card_of("A", key, state))

    assert back == key
    assert back_state.equals(state, check_metadata=True)
    assert card_of("A", key, state).key == (("room", "string"), ("at", "timestamp[us, tz=UTC]"))


def test_a_checkpoint_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    at(tmp_path).create(dataclasses.replace(CARD, format=FORMAT + 1))

    with pytest.raises(NewerFormat, match=f"written in format {FORMAT + 1}.* up to format {FORMAT}"):
        at(tmp_path).card()


@pytest.mark.parametrize("folder", ["manifests", "spark"])
def test_a_checkpoint_without_a_card_is_foreign(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "something").write_text("")

    with pytest.raises(ForeignCheckpoint, match=r"holds a checkpoint but no ferryman\.json"):
        at(tmp_path).card()


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_what_is_no_checkpoint_has_no_job_card(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ForeignCheckpoint, match="is not a checkpoint"):
        at(tmp_path / name).job_card()


def test_a_card_that_is_whole_but_no_card_is_corrupt(tmp_path: Path) -> None:
    for body in ({}, {"format": "one"}, {"format": 1, "operators": 3}, []):
        text = json.dumps(body, separators=(",", ":"))
        (tmp_path / "ferryman.json").write_text(f'{{"checksum":"{checksum(text.encode())}","body":{text}}}\n')
        with pytest.raises(CorruptCheckpoint, match=r"ferryman\.json"):
            at(tmp_path).card()


def test_manifests_are_read_back_in_order(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    assert log.checkpoint.latest() is None
    written = [log.commit({"Counts": {"a": number}}) for number in range(3)] + [log.commit()]

    assert log.checkpoint.epochs() == [1, 2, 3, 4]
    assert [log.checkpoint.manifest(epoch) for epoch in (1, 2, 3, 4)] == written
    assert log.checkpoint.latest() == written[-1]


def test_the_newest_manifest_is_found_though_its_name_is_listed_late(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    newest = [log.commit({"Counts": {"a": number}}) for number in range(3)][-1]
    late = Checkpoint(LocalDirectory(tmp_path, disk=FaultyDisk(Disk(), late=2)))

    assert late.latest() == newest
    assert late.epochs() == [1, 2], "this listing was to be late too"


def test_a_start_with_fsync_keeps_what_was_written_without(tmp_path: Path) -> None:
    for seed in range(20):
        root, journal = tmp_path / str(seed) / "disk", tmp_path / str(seed) / "journal"
        root.mkdir(parents=True)
        disk = UnsyncedDisk(root, journal)
        log = WrittenLog(LocalDirectory(root / "checkpoint", disk=disk))
        log.commit({"Counts": {"a": 1}})
        write_snapshot(log.checkpoint, 1)
        log.commit({"Counts": {"a": 2}})

        keep_all(Checkpoint(LocalDirectory(root / "checkpoint", fsync=True, disk=disk)))
        power_cut(root, journal, seed)

        assert verify(log.checkpoint).sound
        log.assert_rebuilds(2)


def test_an_epoch_is_committed_once(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    first = log.commit({"Counts": {"a": 1}})

    with pytest.raises(CheckpointInUse, match=r"epoch 1 .* was committed by another job"):
        log.checkpoint.commit(dataclasses.replace(first, time_ms=0))
    assert log.checkpoint.manifest(1) == first


def test_a_manifest_that_is_not_there_is_missing(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit()

    with pytest.raises(MissingDelta, match=r"no manifest of epoch 2: manifests/000000000002\.json"):
        log.checkpoint.manifest(2)
    with pytest.raises(MissingDelta, match=r"no snapshot of epoch 2"):
        log.checkpoint.snapshot(2)


def test_files_that_are_not_ours_are_no_epochs(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": {"a": 1}})
    write_snapshot(log.checkpoint, 1)
    for folder in ("manifests", "snapshots"):
        for name in ("copy of 1.json", "000000000001.json~", "1.json", ".000000000002.json.abc"):
            (tmp_path / folder / name).write_text("{}")

    assert log.checkpoint.epochs() == [1]
    assert log.checkpoint.snapshots() == [1]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "not utf-8", "other json"])
@pytest.mark.parametrize(
    "name", ["ferryman.json", "manifests/000000000001.json", "snapshots/000000000001.json", "intents/000000000000.json"]
)
def test_a_damaged_record_is_corrupt_and_named(tmp_path: Path, name: str, damage: str) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": {"a": 1}})
    write_snapshot(log.checkpoint, 1)
    log.checkpoint.intend(2, 3)
    data = (tmp_path / name).read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    damaged = {
        "truncated": data[:middle],
        "flipped": flipped,
        "emptied": b"",
        "not utf-8": b"\xff" + data,
        "other json": b"[1]",
    }
    (tmp_path / name).write_bytes(damaged[damage])

    read = {
        "f": log.checkpoint.card,
        "m": log.checkpoint.latest,
        "s": lambda: log.checkpoint.snapshot(1),
        "i": log.checkpoint.intent,
    }
    with pytest.raises(CorruptCheckpoint, match=name):
        read[name[0]]()


def test_the_intent_is_the_last_one_written(tmp_path: Path) -> None:
    assert at(tmp_path).intent() is None
    at(tmp_path).intend(7, 1000)
    at(tmp_path).intend(8, 2000)
    assert at(tmp_path).intent() == Intent(8, 2000, True, frozenset())

    at(tmp_path).intend(9, 3000, silent=False, held={4, 2})
    assert at(tmp_path).intent() == Intent(9, 3000, False, frozenset({2, 4}))


def test_a_delta_written_twice_is_one_file(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    refs = [log.checkpoint.write_delta(1, "Counts", 0, delta_of({"a": 1, "b": None})) for _ in range(2)]
    other = log.checkpoint.write_delta(1, "Counts", 0, delta_of({"a": 2}))

    assert refs[0] == refs[1]
    assert sorted(log.checkpoint.directory.list("deltas")) == sorted(ref.file[7:] for ref in (refs[0], other))
    assert log.checkpoint.read_delta(refs[0]).equals(delta_of({"a": 1, "b": None}))


def test_the_chain_lists_the_deltas_of_one_operator_between_two_epochs(tmp_path: Path) -> None:
    log = local_log(tmp_path, operators=("A", "B"))
    for number in range(4):
        log.commit({"A": {"x": number, "y": number}, "B": {"x": number}})

    listed = [(manifest.epoch, ref.file) for manifest, ref in chain(log.checkpoint, "A", 1, 3)]

    assert [epoch for epoch, _ in listed] == sorted(epoch for epoch, _ in listed)
    assert {epoch for epoch, _ in listed} == {2, 3}
    assert all("-A-" in file for _, file in listed)
    assert list(chain(log.checkpoint, "C", 1, 3)) == []
    with pytest.raises(MissingDelta, match="epoch 5"):
        list(chain(log.checkpoint, "A", 3, 5))


def test_the_newest_snapshot_up_to_an_epoch_is_found(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    for number in range(5):
        log.commit({"Counts": {"a": number}})
    for epoch in (2, 4):
        write_snapshot(log.checkpoint, epoch)

    found = [[snapshot.epoch for snapshot in bases(log.checkpoint, epoch)] for epoch in range(1, 6)]

    assert found == [[], [2], [2], [4, 2], [4, 2]]


class Silent(LocalDirectory):
    """A directory in an object store that does not answer."""

    silent = "no file is called that"

    def read(self, name: str) -> pa.Buffer:
        with as_os_errors():
            if name.startswith(self.silent):
                raise obstore.GenericError("no answer of s3://key:hush@bucket")
            return super().read(name)


def test_a_store_that_does_not_answer_is_not_taken_for_damaged_files(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": {"a": 1}})
    ref = log.checkpoint.manifest(1).tables["Counts"][0]
    log.checkpoint.directory.write("spark/metadata", b"{}")
    place = Silent(tmp_path)
    checkpoint = Checkpoint(place)
    place.silent = ""
    for look in (
        checkpoint.card,
        lambda: checkpoint.manifest(1),
        lambda: checkpoint.read_delta(ref),
        lambda: bytes_of(checkpoint, "spark/metadata"),
    ):
        with pytest.raises(CheckpointUnreachable, match=r"does not answer .*no answer of s3://key:\*\*\*@bucket"):
            look()
    assert CheckpointUnreachable.__name__ not in LASTING
    with pytest.raises(CheckpointUnreachable), opened(str(tmp_path)):
        raise ConnectionError("no answer")


def test_verify_calls_nothing_damaged_that_it_could_not_read_as_the_store_was_away(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": {"a": 1}})
    log.checkpoint.intend(2, 0)
    log.checkpoint.tell(1, 0)
    place = Silent(tmp_path)
    assert verify(Checkpoint(place)).sound
    for place.silent in ("ferryman.json", "intents/", "told.json", "manifests/", "deltas/"):
        with pytest.raises(CheckpointUnreachable):
            verify(Checkpoint(place))
