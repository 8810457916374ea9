"""Many writers of one log: acknowledged is durable, in order, also when the process is killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from until import until

from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_files import read
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._os.faults import INGEST_STEPS
from ferryman.errors import IngestLogUnwritable

SCHEMA = pa.schema([("n", pa.int64()), ("payload", pa.binary())])
MIB = 1 << 20

# Acknowledges a row by a line on its output.
WRITER = """
import sys, pyarrow as pa
from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_log import IngestLog

schema = pa.schema([("n", pa.int64()), ("payload", pa.binary())])
log = IngestLog(sys.argv[1], schema)
commit = GroupCommit(log, schema)
number = log.end
print("begun", number, flush=True)
while True:
    done = []
    for _ in range(7):
        commit.offer((number, b"x" * 100), 100, lambda offset: print("ack", offset, flush=True))
        number += 1
"""


def numbers(path: Path, begin: int, end: int) -> list[int]:
    return [number for _, batch in read(path, begin, end) for number in batch.column("n").to_pylist()]


def test_rows_of_many_threads_share_syncs_and_each_is_told_its_offset(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, SCHEMA)
    commit = GroupCommit(log, SCHEMA)
    told: dict[int, int] = {}

    def write(thread: int) -> None:
        for number in range(thread * 500, thread * 500 + 500):
            assert commit.offer((number, b"x"), 9, lambda offset, number=number: told.__setitem__(number, offset))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(told) == 2000, "all rows are durable")
    commit.end()

    found = numbers(tmp_path, 0, 2000)
    assert [found[told[number]] for number in range(2000)] == list(range(2000))
    for thread in range(4):
        offsets = [told[number] for number in range(thread * 500, thread * 500 + 500)]
        assert offsets == sorted(offsets)
    log.close()


def test_rows_wait_unacknowledged_while_the_log_is_full(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, SCHEMA, max_bytes=MIB)
    commit = GroupCommit(log, SCHEMA)
    told: list[int] = []
    for number in range(30):
        commit.offer((number, bytes(100_000)), 100_000, told.append)
    until(lambda: commit.full, "the log is full")
    assert 0 < len(told) < 11
    assert log.bytes <= MIB
    assert commit.waiting_bytes > 0

    def trimmed() -> bool:
        log.trim(log.end)
        commit.trimmed()
        return len(told) == 30

    until(trimmed, "all rows are durable")
    assert told == list(range(30))
    commit.end()
    log.close()


def test_rows_of_the_largest_size_find_room_together_with_small_ones_whenever_all_is_committed(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, SCHEMA, max_bytes=MIB, keep_bytes=MIB // 4)
    commit = GroupCommit(log, SCHEMA)
    told: list[int] = []
    for number in range(60):
        size = log.row_bytes - 1000 if number % 2 else log.block_bytes - 10_000
        commit.offer((number, bytes(size)), size, told.append)

    def trimmed() -> bool:
        log.trim(log.end)
        commit.trimmed()
        return len(told) == 60

    until(trimmed, "all rows are durable", timeout=10)
    assert told == list(range(60))
    commit.end()
    log.close()


def test_rows_that_wait_are_forgotten_when_they_will_come_again(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, SCHEMA, max_bytes=MIB)
    commit = GroupCommit(log, SCHEMA)
    told: list[int] = []
    for number in range(30):
        commit.offer((number, bytes(100_000)), 100_000, told.append)
    until(lambda: commit.full, "the log is full")
    commit.forget()
    assert commit.waiting_bytes == 0
    commit.end()
    assert not commit.offer((1, b""), 1, told.append)
    log.close()


def test_rows_that_found_no_room_while_all_was_forgotten_are_forgotten_too(tmp_path: Path) -> None:
    # They come again: written twice, neither would be marked as a repeat of the other.
    begun, go_on = threading.Event(), threading.Event()

    class Slow(IngestLog):
        def append(self, batch: pa.RecordBatch) -> int:
            begun.set()
            go_on.wait()
            return super().append(batch)

    log = Slow(tmp_path, SCHEMA, max_bytes=MIB)
    commit = GroupCommit(log, SCHEMA)
    told: list[int] = []
    commit.offer((1, bytes(2 * MIB)), 2 * MIB, told.append)
    begun.wait()
    forgetting = threading.Thread(target=commit.forget)
    forgetting.start()
    # It waits for the block under way, which is refused.
    until(lambda: bool(commit._changed._waiters), "it waits")  # type: ignore[attr-defined]
    go_on.set()
    forgetting.join()
    assert (commit.waiting_bytes, len(commit._waiting)) == (0, 0)
    commit.trimmed()
    commit.end()
    assert (log.end, told) == (0, [])
    log.close()


def test_an_error_of_the_disk_ends_it_and_acknowledges_nothing_more(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, SCHEMA)
    commit = GroupCommit(log, SCHEMA)
    log.close()
    told: list[int] = []
    commit.offer((1, b""), 1, told.append)
    until(lambda: commit.error is not None, "it has failed")
    assert isinstance(commit.error, IngestLogUnwritable)
    assert told == []


@pytest.mark.faults
@pytest.mark.parametrize("step", [INGEST_STEPS[0], pytest.param(INGEST_STEPS[1], marks=pytest.mark.slow)])
def test_a_kill_between_write_sync_and_acknowledgement_loses_nothing_acknowledged(tmp_path: Path, step: str) -> None:
    acknowledged = 0
    for count in (3, 1):
        environment = {**os.environ, "FERRYMAN_FAULT": f"{step}:{count}"}
        killed = subprocess.run(
            [sys.executable, "-c", WRITER, tmp_path], env=environment, capture_output=True, text=True, timeout=60
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        lines = [line.split() for line in killed.stdout.splitlines()]
        acknowledged = max([acknowledged, *(int(offset) + 1 for said, offset in lines if said == "ack")])
        # The lock is given back by the kernel, and what was written and not synced is there or cut.
        log = IngestLog(tmp_path, SCHEMA)
        assert log.end >= acknowledged
        assert numbers(tmp_path, 0, log.end) == list(range(log.end))
        log.close()
    assert acknowledged > 0 or step == "ingest-written"


@pytest.mark.faults
@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for wait in (1, 20, 200):
        process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            said, offset = line.split()
            if said == "ack":
                acknowledged, seen = int(offset) + 1, seen + 1
            if seen == wait:
                process.kill()
                break
        for line in process.stdout.read().splitlines():
            if len(words := line.split()) == 2:
                acknowledged = max(acknowledged, int(words[1]) + 1)
        process.wait()
        log = IngestLog(tmp_path, SCHEMA)
        assert log.end >= acknowledged
        assert numbers(tmp_path, 0, log.end) == list(range(log.end))
        log.close()
    assert acknowledged >= 221
