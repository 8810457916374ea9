"""The ingest log: what was appended is there after any crash, in its order, until it is trimmed."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._log.ingest.blocks import BLOCK_BYTES
from ferryman._log.ingest.ingest_files import firsts, name_of, read
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._os.disk import use_disk
from ferryman._testing.faulty_disk import Death, FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk
from ferryman.errors import (
    CorruptIngestLog,
    IngestLogFull,
    IngestLogInUse,
    IngestLogUnwritable,
    InvalidConfiguration,
    SourceRowsGone,
)

SCHEMA = pa.schema([("n", pa.int64()), ("payload", pa.binary())])
MIB = 1 << 20


def rows(begin: int, end: int, size: int = 10) -> pa.RecordBatch:
    return pa.record_batch([list(range(begin, end)), [bytes(size)] * (end - begin)], schema=SCHEMA)


def numbers(path: Path, begin: int, end: int) -> list[int]:
    found = []
    for first, batch in read(path, begin, end):
        listed = batch.column("n").to_pylist()
        assert listed == list(range(first, first + len(listed)))
        found += listed
    return found


def opened(path: Path, **options: int) -> IngestLog:
    return IngestLog(path, SCHEMA, **options)


def filled(path: Path, count: int, **options: int) -> IngestLog:
    """Make a log of blocks of ten rows of 10 kB."""
    log = opened(path, **options)
    for begin in range(0, count, 10):
        log.append(rows(begin, begin + 10, 10_000))
    return log


def append_on(log: IngestLog, size: int) -> None:
    while True:
        log.append(rows(log.end, log.end + 10, size))


def test_rows_are_found_by_their_offsets_after_it_was_opened_again(tmp_path: Path) -> None:
    log = filled(tmp_path, 300, max_bytes=8 * MIB)
    identity = log.id
    log.close()
    log = opened(tmp_path, max_bytes=8 * MIB)

    assert (log.id, log.begin, log.end) == (identity, 0, 300)
    assert log.append(rows(300, 305)) == 300
    assert len(firsts(tmp_path)) > 2
    for begin, end in ((0, 305), (7, 8), (95, 211), (300, 305), (305, 305), (0, 0)):
        assert numbers(tmp_path, begin, end) == list(range(begin, end))
    log.close()


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(IngestLogInUse, match='"pid"'):
        opened(tmp_path)
    log.close()
    opened(tmp_path).close()


def test_a_log_of_other_columns_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(InvalidConfiguration, match="other columns"):
        IngestLog(tmp_path, pa.schema([("line", pa.string())]))


def test_a_full_log_refuses_and_has_room_again_when_epochs_are_committed(tmp_path: Path) -> None:
    log = opened(tmp_path, max_bytes=MIB)
    with pytest.raises(IngestLogFull, match="raise max_bytes"):
        append_on(log, 1000)
    count = log.end
    assert MIB // 2 < log.bytes <= MIB

    log.trim(count // 2)
    assert 0 < log.begin <= count // 2
    log.append(rows(count, count + 10, 1000))
    assert numbers(tmp_path, log.begin, log.end) == list(range(log.begin, count + 10))
    log.close()


def test_what_is_committed_is_kept_as_far_as_was_asked(tmp_path: Path) -> None:
    log = filled(tmp_path, 500, max_bytes=8 * MIB, keep_bytes=2 * MIB)
    log.trim(log.end)
    assert log.bytes >= 2 * MIB
    assert log.begin > 0
    log.close()


def test_a_row_of_the_largest_size_fits_whenever_all_is_committed(tmp_path: Path) -> None:
    log = opened(tmp_path, max_bytes=MIB, keep_bytes=MIB // 4)
    for count in range(40):
        log.trim(log.end)
        log.append(rows(count, count + 1, log.row_bytes - 2000 if count % 3 else log.block_bytes))
    log.close()


def test_rows_that_were_trimmed_are_said_to_be_gone(tmp_path: Path) -> None:
    log = filled(tmp_path, 300, max_bytes=8 * MIB)
    log.trim(250)
    with pytest.raises(SourceRowsGone, match="offset 0 to"):
        numbers(tmp_path, 0, 300)
    with pytest.raises(SourceRowsGone, match="another ingest log"):
        list(read(tmp_path, log.begin, log.end, log="another"))
    log.close()


@pytest.mark.parametrize("cut", [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 50, "zeros"])
def test_a_torn_tail_is_cut_and_the_offsets_go_on(tmp_path: Path, cut: int | str) -> None:
    filled(tmp_path, 40).close()
    path = tmp_path / name_of(0)
    whole = path.read_bytes()
    log = opened(tmp_path)
    log.append(rows(40, 50))
    log.close()
    torn = path.read_bytes()[len(whole) :]
    kept = bytes(len(torn)) if cut == "zeros" else torn[: int(cut)]
    path.write_bytes(whole + kept)

    log = opened(tmp_path)
    assert log.end == 40
    assert path.stat().st_size == len(whole)
    log.append(rows(40, 45))
    log.close()
    assert numbers(tmp_path, 0, 45) == list(range(45))


@given(data=st.data())
@settings(max_examples=60)
def test_a_bit_that_flips_is_found_and_nothing_that_is_wrong_is_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("log")
    log = opened(tmp_path)
    for begin in range(0, 40, 10):
        log.append(rows(begin, begin + 10))
    last = log.bytes
    log.append(rows(40, 50))
    log.close()
    path = tmp_path / name_of(0)
    whole = bytearray(path.read_bytes())
    # The last block cannot be told from one that a crash has torn.
    place = data.draw(st.integers(0, last - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)

    with pytest.raises(CorruptIngestLog, match="restore the file"):
        opened(tmp_path)
    found: list[int] = []
    with pytest.raises(CorruptIngestLog):
        found.extend(number for _, batch in read(tmp_path, 0, 50) for number in batch.column("n").to_pylist())
    assert found == list(range(len(found)))


def test_a_file_that_is_gone_from_the_middle_is_found(tmp_path: Path) -> None:
    log = filled(tmp_path, 500, max_bytes=8 * MIB)
    middle = firsts(tmp_path)[1]
    (tmp_path / name_of(middle)).unlink()
    with pytest.raises(CorruptIngestLog):
        numbers(tmp_path, 0, 500)
    log.close()


def test_a_disk_that_is_full_ends_it_and_loses_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk(UnsyncedDisk(tmp_path / "log", tmp_path / "journal"), space=3000)
    (tmp_path / "log").mkdir()
    use_disk(disk)
    try:
        log = opened(tmp_path / "log")
        with pytest.raises(IngestLogUnwritable, match="No space left"):
            append_on(log, 10)
        written = log.end
        with pytest.raises(IngestLogUnwritable):
            log.append(rows(written, written + 10))
        log.close()
        disk.space = None
        log = opened(tmp_path / "log")
        assert log.append(rows(written, written + 10)) == written > 0
        log.close()
    finally:
        use_disk(None)
    assert numbers(tmp_path / "log", 0, written + 10) == list(range(written + 10))


def history(folder: Path, seed: int, *, deaf: bool = False) -> bool:
    """Append, trim, die at any call, and cut the power, at random; tell whether nothing durable was lost."""
    chance = random.Random(seed)
    root, journal = folder / "log", folder / "journal"
    root.mkdir()
    # What was appended, what was acknowledged, and what was committed.
    acknowledged = committed = 0
    for _ in range(4):
        unsynced = UnsyncedDisk(root, journal)
        use_disk(
            FaultyDisk(
                unsynced,
                die_at=chance.choice([None, chance.randrange(5, 60)]),
                deaf=lambda path, before: deaf and before == "append",
            )
        )
        log = None
        try:
            log = opened(root, max_bytes=MIB)
            if log.end < acknowledged:
                return False
            for _ in range(chance.randrange(15)):
                begin = log.end
                end = begin + chance.randrange(1, 6)
                log.append(rows(begin, end, chance.choice([10, 40_000])))
                acknowledged = end
                if chance.random() < 0.3:
                    committed = chance.randrange(committed, acknowledged + 1)
                    log.trim(committed)
        except (Death, IngestLogFull):
            pass
        finally:
            if log is not None:
                log.close()
            use_disk(None)
            unsynced.close()
        if chance.random() < 0.7:
            power_cut(root, journal, seed)
        begun = firsts(root)
        if acknowledged and (not begun or begun[0] > committed):
            return False
        try:
            if numbers(root, committed, acknowledged) != list(range(committed, acknowledged)):
                return False
        except (CorruptIngestLog, SourceRowsGone):
            return False
    return True


def test_no_power_cut_and_no_crash_loses_what_was_appended(tmp_path: Path) -> None:
    for seed in range(60):
        (tmp_path / str(seed)).mkdir()
        assert history(tmp_path / str(seed), seed), seed


def test_a_log_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    def kept(seed: int) -> bool:
        (tmp_path / str(seed)).mkdir()
        return history(tmp_path / str(seed), seed, deaf=True)

    assert not all(kept(seed) for seed in range(60))
