"""The files of an ingest log: which there are, and their rows by offset.

    00000000000000000000.rows    the rows from offset 0 on; the next file's name says where they end
    .lock                        held by whoever writes

May be read by other processes than the one that writes, up to an offset that this knows to be durable. Calls `blocks`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ferryman._log.ingest.blocks import (
    BLOCK_BYTES,
    HEAD_BYTES,
    Block,
    Damaged,
    Head,
    check_rows,
    read_block,
    read_head,
    read_rows,
    read_schema,
)
from ferryman._model.errors import CorruptIngestLog, SourceRowsGone

_NAME = re.compile(r"(\d{20})\.rows")
# How much of a file is looked through at once for a block behind damage.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Tail:
    """Where the last file of a log ends: the place, the offset, and how many bytes behind it are of no use."""

    at: int
    end: int
    torn: int


def name_of(first: int) -> str:
    """Name the file whose first row has an offset."""
    return f"{first:020d}.rows"


def firsts(path: Path) -> list[int]:
    """List the offsets of the first rows of all files, in rising order."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def head_of(path: Path, first: int) -> tuple[Head, pa.Schema]:
    """Read what stands at the beginning of a file."""
    with open(path / name_of(first), "rb") as file:
        try:
            head, schema, _ = _begun(file.fileno(), first)
        except Damaged as why:
            raise _corrupt(path, first, first, str(why)) from why
    return head, schema


def _begun(file: int, first: int) -> tuple[Head, pa.Schema, int]:
    """Read the head of an open file, and say where its blocks begin."""
    head = read_head(os.pread(file, HEAD_BYTES, 0))
    at = HEAD_BYTES + head.schema_bytes
    if at > os.fstat(file).st_size:
        raise Damaged("it ends in the middle of its head")
    if head.first != first:
        raise Damaged(f"it was the file from offset {head.first} on")
    return head, read_schema(os.pread(file, at, 0)), at


def tail_of(path: Path, first: int) -> Tail:
    """Find the end of the last file, and what a crash has left behind it.

    Raises
    ------
    CorruptIngestLog
        What is damaged has a whole block behind it, so it was durable once, and is no trace of a crash.
    """
    with open(path / name_of(first), "rb") as file:
        number, end = file.fileno(), first
        size = os.fstat(number).st_size
        try:
            _, _, at = _begun(number, first)
        except Damaged as why:
            raise _corrupt(path, first, first, str(why)) from why
        while at < size:
            try:
                block = _next(number, at, end)
                check_rows(block, os.pread(number, block.length, at + BLOCK_BYTES))
            except Damaged as why:
                if _has_block(number, at + 1, size):
                    raise _corrupt(path, first, end, str(why)) from why
                return Tail(at, end, size - at)
            at, end = at + BLOCK_BYTES + block.length, block.end
    return Tail(at, end, 0)


def _next(file: int, at: int, expected: int) -> Block:
    block = read_block(os.pread(file, BLOCK_BYTES, at))
    if block.first != expected or not block.rows:
        raise Damaged(f"offset {block.first} stands where offset {expected} has to")
    return block


def _has_block(file: int, at: int, size: int) -> bool:
    """Look for a whole block from a place on."""
    while at < size:
        data = os.pread(file, _AT_ONCE + BLOCK_BYTES, at)
        place = data.find(b"FYBK")
        while 0 <= place < _AT_ONCE:
            try:
                block = read_block(data[place : place + BLOCK_BYTES])
                check_rows(block, os.pread(file, block.length, at + place + BLOCK_BYTES))
                return True
            except Damaged:
                place = data.find(b"FYBK", place + 1)
        at += _AT_ONCE
    return False


def read(path: Path, begin: int, end: int, *, log: str = "") -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read the rows of a range of offsets, in order: each batch with the offset of its first row.

    Raises
    ------
    SourceRowsGone
        Some of them are not there any more, or `log` says that they are of another log.
    CorruptIngestLog
        Some of them cannot be read.
    """
    there = firsts(path)
    if begin < end and (not there or there[0] > begin):
        raise SourceRowsGone(_gone(path, begin, there[0] if there else end))
    for place, first in enumerate(there):
        last = there[place + 1] if place + 1 < len(there) else end
        if last > begin and first < end:
            yield from _read_file(path, first, max(begin, first), min(end, last), log)


def _read_file(path: Path, first: int, begin: int, end: int, log: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    try:
        file = os.open(path / name_of(first), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise SourceRowsGone(_gone(path, begin, end)) from error
    expected = first
    try:
        head, schema, at = _begun(file, first)
        if log and head.log != log:
            raise SourceRowsGone(
                f"{path} has another ingest log than the one this job has read: that was deleted or replaced. Put it "
                "back, or start with a new checkpoint."
            )
        while expected < end:
            block = _next(file, at, expected)
            if block.end > begin:
                rows = read_rows(block, os.pread(file, block.length, at + BLOCK_BYTES), schema)
                skipped = max(0, begin - block.first)
                yield block.first + skipped, rows.slice(skipped, min(end, block.end) - block.first - skipped)
            at, expected = at + BLOCK_BYTES + block.length, block.end
    except Damaged as why:
        raise _corrupt(path, first, max(expected, begin), str(why)) from why
    finally:
        os.close(file)


def _gone(path: Path, begin: int, end: int) -> str:
    return (
        f"the ingest log {path} does not have the rows from offset {begin} to {end} any more: they were trimmed, as "
        "their epochs were committed, or deleted. A checkpoint that was restored, rewound, or lost epochs to a power "
        "cut asks for such rows. Restore log and checkpoint from backups of the same time, or start with a new "
        "checkpoint; keep_bytes= keeps more of what was committed."
    )


def _corrupt(path: Path, first: int, offset: int, why: str) -> CorruptIngestLog:
    return CorruptIngestLog(
        f"{name_of(first)} in the ingest log {path} is damaged from offset {offset} on: {why}. Nothing was changed. "
        "Rows there were acknowledged and are nowhere else: restore the file from a backup. To do without them, move "
        "the whole log away and start with a new checkpoint; what comes before that offset can be read from the file."
    )
