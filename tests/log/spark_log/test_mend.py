"""What a power cut leaves of Spark's log is mended from the manifests; what they cannot tell is refused."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.spark_log.agreement import check_agreement
from ferryman._log.spark_log.log_files import SparkLogKeeper
from ferryman._log.spark_log.mend import mend_spark_log
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

METADATA = b'{"id":"feac7f31-bcc8-484a-adda-39e40c503123"}'


def offsets_of(batch: int) -> bytes:
    return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{1000 + batch}}}\n{{"logOffset":{batch}}}\n{batch}'.encode()


def put(log: Checkpoint, name: str, data: bytes) -> None:
    """Write a file as Spark does: nothing is synced."""
    path = Path(log.directory.uri) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def begin(log: Checkpoint, batch: int) -> None:
    """Do what Spark does before a batch of a source of files and one that counts."""
    put(log, "spark/metadata", METADATA)
    put(log, f"spark/sources/0/{batch}", f'v1\n{{"path":"{batch}","timestamp":1,"batchId":{batch}}}'.encode())
    put(log, "spark/sources/1/0", b"\0v1\n0")
    put(log, f"spark/offsets/{batch}", offsets_of(batch))


def commit(log: Checkpoint, keeper: SparkLogKeeper, batch: int) -> None:
    """Do what the driver does with it, and then Spark."""
    latest = log.latest()
    taken = keeper.take(batch, latest)
    offsets = ({"logOffset": batch}, batch)
    epoch = latest.epoch + 1 if latest else 1
    log.commit(
        Manifest(
            epoch=epoch,
            batch=batch,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, 8, 2),
            operators={},
            tables={},
            offsets=offsets,
            spark=taken,
        )
    )
    put(log, f"spark/commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def log(tmp_path: Path) -> Checkpoint:
    """Give a checkpoint of three batches; a fourth has begun."""
    log = Checkpoint(LocalDirectory(tmp_path / "checkpoint"))
    keeper = SparkLogKeeper(log, sync=False)
    for batch in range(3):
        begin(log, batch)
        commit(log, keeper, batch)
    begin(log, 3)
    return log


def files(log: Checkpoint) -> dict[str, bytes]:
    root = Path(log.directory.uri) / "spark"
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def test_a_log_that_is_whole_stays_as_it_is(log: Checkpoint) -> None:
    before = files(log)

    assert mend_spark_log(log, log.latest()) == []

    assert files(log) == before
    check_agreement(log, log.latest())


def damages(whole: bytes) -> list[bytes | None]:
    half = len(whole) // 2
    return [None, b"", whole[:half], whole[:half] + bytes(len(whole) - half), bytes(len(whole))]


@pytest.mark.parametrize("name", ["offsets/1", "offsets/2", "metadata"])
@pytest.mark.parametrize("kind", range(5))
def test_what_a_manifest_covers_is_written_again(log: Checkpoint, name: str, kind: int) -> None:
    before = files(log)
    left = damages(before[name])[kind]
    log.directory.delete([f"spark/{name}"]) if left is None else put(log, f"spark/{name}", left)

    assert mend_spark_log(log, log.latest()) == [f"spark/{name} was written again"]

    assert files(log) == before
    check_agreement(log, log.latest())


@pytest.mark.parametrize("name", ["offsets/3", "commits/2", "sources/0/3"])
@pytest.mark.parametrize("kind", range(1, 5))
def test_what_none_covers_is_taken_away(log: Checkpoint, name: str, kind: int) -> None:
    before = files(log)
    left = damages(before[name])[kind]
    assert left is not None
    put(log, f"spark/{name}", left)

    mend_spark_log(log, log.latest())

    # The batch that lists the files cannot be redone without the list.
    gone = {name, "offsets/3"} if name.startswith("sources") else {name}
    assert files(log) == {file: data for file, data in before.items() if file not in gone}
    check_agreement(log, log.latest())


def test_commits_are_taken_away_down_to_the_newest_that_is_whole(log: Checkpoint) -> None:
    put(log, "spark/commits/1", b"")
    put(log, "spark/commits/2", b"\0\0\0")

    mend_spark_log(log, log.latest())

    assert sorted(file for file in files(log) if file.startswith("commits")) == ["commits/0"]


def test_offsets_without_the_source_s_own_notes_are_taken_away(log: Checkpoint) -> None:
    log.directory.delete(["spark/sources/0/3"])

    assert mend_spark_log(log, log.latest()) == ["spark/offsets/3 was taken away"]


@pytest.mark.parametrize(
    "text",
    [b'v1\n{}\n{"logOffset":3}', b"v1\n{}", b'v1\n{}\n{"logOffset":3}\n1'],
    ids=["a source", "all sources", "back"],
)
def test_offsets_that_are_cut_off_between_or_inside_values_are_taken_away(log: Checkpoint, text: bytes) -> None:
    put(log, "spark/offsets/3", text)

    assert mend_spark_log(log, log.latest()) == ["spark/offsets/3 was taken away"]


def test_the_first_batch_is_begun_anew(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path / "checkpoint"))
    for name in ("metadata", "offsets/0", "sources/0/0"):
        put(log, f"spark/{name}", b"")

    mend_spark_log(log, None)

    assert files(log) == {}
    check_agreement(log, None)


def test_what_is_altered_and_not_torn_is_refused(log: Checkpoint) -> None:
    put(log, "spark/offsets/2", offsets_of(2).replace(b"logOffset", b"logoffset"))

    assert mend_spark_log(log, log.latest()) == []
    with pytest.raises(CorruptCheckpoint, match=r"spark/offsets/2 .* is not what epoch 3 was committed with"):
        check_agreement(log, log.latest())


def test_a_source_s_own_notes_that_a_manifest_covers_are_not_to_be_had_again(log: Checkpoint) -> None:
    put(log, "spark/sources/0/2", b"")
    mend_spark_log(log, log.latest())
    with pytest.raises(CorruptCheckpoint, match=r"spark/sources/0/2 .* truncated.* Restore the whole checkpoint"):
        check_agreement(log, log.latest())

    log.directory.delete(["spark/sources/0/2", "spark/sources/0/3"])
    mend_spark_log(log, log.latest())
    with pytest.raises(MissingDelta, match=r"spark/sources/0/2 is missing .* give them again.* Restore the whole"):
        check_agreement(log, log.latest())


def test_notes_that_were_folded_into_one_file_count_for_all_before(log: Checkpoint) -> None:
    log.directory.delete([f"spark/sources/0/{batch}" for batch in range(4)])
    put(log, "spark/sources/0/3.compact", b'v1\n{"path":"3","timestamp":1,"batchId":3}')

    assert mend_spark_log(log, log.latest()) == []
    check_agreement(log, log.latest())


def test_checksums_beside_a_file_go_if_they_are_not_of_it(log: Checkpoint) -> None:
    whole = offsets_of(2)
    put(log, "spark/offsets/.2.crc", b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(whole).to_bytes(4, "big"))
    assert mend_spark_log(log, log.latest()) == []

    put(log, "spark/offsets/.2.crc", b"")
    put(log, "spark/offsets/.1.crc", b"of what is torn")
    put(log, "spark/offsets/1", b"")
    put(log, "spark/offsets/.3.crc", b"of what is no longer there")
    mend_spark_log(log, log.latest())

    assert not [file for file in files(log) if file.endswith(".crc")]
    assert sorted(file for file in files(log) if file.startswith("offsets")) == [
        f"offsets/{batch}" for batch in range(3)
    ]


def test_a_checkpoint_of_an_earlier_version_is_not_mended_and_goes_on(log: Checkpoint) -> None:
    latest = log.latest()
    assert latest is not None
    raw = latest.json()
    del raw["spark"]
    earlier = Manifest.parse(raw)

    assert mend_spark_log(log, earlier) == []
    check_agreement(log, earlier)


@pytest.mark.parametrize("sync", [True, False])
def test_a_power_cut_at_any_step_leaves_a_log_to_go_on_from_if_it_was_synced(tmp_path: Path, sync: bool) -> None:
    stuck = 0
    for seed in range(80):
        root, journal = tmp_path / str(seed) / "root", tmp_path / str(seed) / "journal"
        root.mkdir(parents=True)
        disk = UnsyncedDisk(root, journal)
        log = Checkpoint(LocalDirectory(root / "checkpoint", fsync=True, disk=disk))
        log.directory.keep(["manifests"])
        keeper = SparkLogKeeper(log, sync=sync)
        done = seed % 4
        for batch in range(done):
            begin(log, batch)
            commit(log, keeper, batch)
        begin(log, done)
        if seen := seed % 8 < 4:
            keeper.take(done, log.latest())
        power_cut(root, journal, seed)

        latest = log.latest()
        assert (latest.epoch if latest else 0) == done
        mend_spark_log(log, latest)
        try:
            check_agreement(log, latest)
        except (CorruptCheckpoint, MissingDelta):
            assert not sync, "all that the manifest rests on was synced"
            stuck += 1
            continue
        found = files(log)
        if sync and seen:
            assert found[f"offsets/{done}"] == offsets_of(done), "a sink has seen this batch"
        for batch in range(max(0, done - 2), done):
            assert found[f"offsets/{batch}"] == offsets_of(batch)
    assert sync or stuck, "a power cut would not be noticed at all"


DEEP = b"[" * 200_000 + b"]" * 200_000


def test_a_query_whose_id_is_nested_deep_is_refused(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    put(log, "spark/metadata", DEEP)

    with pytest.raises(CorruptCheckpoint, match="spark/metadata"):
        mend_spark_log(log, None)


@pytest.mark.parametrize("name", ["offsets/3", "offsets/2", "metadata", "commits/2", "sources/0/3", "sources/0/2"])
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_plain_file_is_refused_and_left(log: Checkpoint, name: str, kind: str) -> None:
    path = Path(log.directory.uri) / "spark" / name
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to("/dev/zero")
    latest = log.latest()

    with pytest.raises(CorruptCheckpoint, match=f"spark/{name} .* cannot be read"):  # noqa: PT012
        mend_spark_log(log, latest)
        check_agreement(log, latest)
    assert path.is_dir() or path.is_symlink()


def test_a_file_in_the_place_of_a_sources_notes_is_refused(log: Checkpoint) -> None:
    put(log, "spark/sources/2", b"")

    with pytest.raises(CorruptCheckpoint, match=r"spark/sources/2 .* cannot be read"):
        mend_spark_log(log, log.latest())


def test_offsets_that_a_manifest_keeps_are_texts(log: Checkpoint) -> None:
    sound = log.manifest(3).json()
    for offsets in ({"2": 7}, {"2": "\ud800"}, {"x": "v1"}, {"-1": "v1"}, {"2": None}):
        raw = {**sound, "spark": {"offsets": offsets, "metadata": ""}}
        log.record_again("manifests/000000000003.json", raw)
        with pytest.raises(CorruptCheckpoint, match=r"manifests/000000000003\.json"):
            log.latest()
