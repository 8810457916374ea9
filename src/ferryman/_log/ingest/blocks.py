"""The format of an ingest log's files: a head, and blocks of rows, each written and synced at once.

    head    FERRYLOG, format, length of the schema, identity of the log, offset of the first row; checksum; schema
    block   FYBK, number of rows, offset of the first row, length of the rows, checksum of them; checksum; rows

Numbers are little endian, checksums XXH3. The schema is an Arrow schema, the rows are an Arrow record batch, each as
the message that Arrow IPC makes of it. What was torn by a crash is the last block and no other: the next one is written
when that is synced.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from ferryman._model.errors import NewerFormat

FORMAT = 1
MAGIC = b"FERRYLOG"
MARK = b"FYBK"
_HEAD = struct.Struct("<8sII16sQ")
_BLOCK = struct.Struct("<4sIQIQ")
_SUM = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size + _SUM.size
BLOCK_BYTES = _BLOCK.size + _SUM.size


class Damaged(Exception):
    """Bytes that are not what was written; the message says what is wrong with them."""


@dataclass(frozen=True)
class Head:
    """What stands at the beginning of a file."""

    log: str
    first: int
    schema_bytes: int


@dataclass(frozen=True)
class Block:
    """What stands before the rows of a block."""

    first: int
    rows: int
    length: int
    checksum: int

    @property
    def end(self) -> int:
        """Give the offset after the last row."""
        return self.first + self.rows


def pack_head(log: str, first: int, schema: pa.Schema) -> bytes:
    """Make the beginning of a file."""
    written: bytes = schema.serialize().to_pybytes()
    head = _HEAD.pack(MAGIC, FORMAT, len(written), uuid.UUID(log).bytes, first)
    return head + _SUM.pack(xxhash.xxh3_64_intdigest(head + written)) + written


def read_head(data: bytes) -> Head:
    """Read the beginning of a file, without its schema."""
    if len(data) < HEAD_BYTES or data[: len(MAGIC)] != MAGIC:
        raise Damaged("it does not begin as a file of an ingest log does")
    _, version, length, log, first = _HEAD.unpack_from(data)
    if version > FORMAT:
        raise NewerFormat(f"the ingest log has format {version}, and this Ferryman reads up to {FORMAT}. Update it.")
    return Head(str(uuid.UUID(bytes=log)), first, length)


def read_schema(data: bytes) -> pa.Schema:
    """Read the schema behind a head, of a file's beginning as long as that says."""
    head, written = data[: _HEAD.size], data[HEAD_BYTES:]
    if _SUM.unpack_from(data, _HEAD.size)[0] != xxhash.xxh3_64_intdigest(head + written):
        raise Damaged("its head is altered")
    try:
        return pa.ipc.read_schema(pa.py_buffer(written))
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"its schema cannot be read: {error}") from error


def pack_block(batch: pa.RecordBatch, first: int) -> bytes:
    """Make a block of rows."""
    rows = batch.serialize()
    head = _BLOCK.pack(MARK, batch.num_rows, first, rows.size, xxhash.xxh3_64_intdigest(rows))
    written: bytes = rows.to_pybytes()
    return head + _SUM.pack(xxhash.xxh3_64_intdigest(head)) + written


def read_block(data: bytes) -> Block:
    """Read what stands before the rows of a block."""
    if len(data) < BLOCK_BYTES:
        raise Damaged("it ends in the middle of a block")
    mark, rows, first, length, checksum = _BLOCK.unpack_from(data)
    if mark != MARK or _SUM.unpack_from(data, _BLOCK.size)[0] != xxhash.xxh3_64_intdigest(data[: _BLOCK.size]):
        raise Damaged("the head of a block is altered")
    return Block(first, rows, length, checksum)


def read_rows(block: Block, data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Read the rows of a block."""
    check_rows(block, data)
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"the rows from offset {block.first} on cannot be read: {error}") from error
    if batch.num_rows != block.rows:
        raise Damaged(f"a block from offset {block.first} on has {batch.num_rows} rows and not {block.rows}")
    return batch


def check_rows(block: Block, data: bytes) -> None:
    """Compare the rows of a block with their checksum."""
    if len(data) != block.length:
        raise Damaged("it ends in the middle of a block")
    if xxhash.xxh3_64_intdigest(data) != block.checksum:
        raise Damaged(f"the rows from offset {block.first} on are altered")
