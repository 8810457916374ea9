"""Read Arrow and Parquet that somebody else may have written: structure is checked before any of it is used.

A checksum tells that a file is the one that was named. It does not tell that who named it meant well: offsets that
point out of a buffer would have the compiled loops read foreign memory, and some bytes can stand for any number of
rows. So every array is validated, types are those that state can have, and nothing decodes to more than who named it
says. What fails is `Unsound`; who knows the file's name makes it the error that says so.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ferryman._state.earlier_columns import Evolution, names_of
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import DELETED, HASH

GROUPS_KEY = b"ferryman.groups"

# Each row of a snapshot is of another key, which no compression takes away; other columns may become nothing.
_ROWS_PER_BYTE = 64
# What a file may decode to, whoever wrote it; a larger one must have a byte for so many that it decodes to.
_DECODED_MOST = 4 << 30
_DECODED_PER_BYTE = 1024
# What is read has offsets and validity that what was written had not: for each batch, and where nothing was null.
_DECODED_MORE = 64 << 20
# Rows decoded before their bytes are counted: few, as each may be as long as the longest word of a dictionary.
_BATCH_ROWS = 1024

_MAGIC = b"ARROW1"


class Unsound(Exception):
    """Say what is wrong with a file, as the end of a sentence that begins with its name."""


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Make whatever a reader raises on bytes that are not what they should be one `Unsound`."""
    try:
        yield
    except (MemoryError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
        raise Unsound(f"cannot be read as {kind} ({first_line(error)})") from error
    except RecursionError:
        raise Unsound(f"cannot be read as {kind} (it is nested too deep)") from None


def first_line(error: BaseException) -> str:
    """Give the first line of an error's message."""
    return (str(error) or type(error).__name__).splitlines()[0]


# -- Arrow -----------------------------------------------------------------------------------------


def rows_of(data: pa.Buffer, expected: int) -> pa.Table:
    """Read the rows of an Arrow IPC file, validated."""
    with reading("Arrow"):
        _refuse_packed_file(data)
        with pa.ipc.open_file(data) as reader:
            check_schema(reader.schema)
            rows = reader.read_all()
        rows.validate(full=True)
        if rows.nbytes > data.size or rows.num_rows > data.size:
            raise ValueError("its rows share bytes, or have none")
        _refuse_endless(rows, 8 * data.size)
    if rows.num_rows != expected:
        raise Unsound(f"has {rows.num_rows} rows instead of {expected}")
    return rows


def one_row(data: pa.Buffer) -> pa.Table:
    """Read an Arrow IPC stream of one row, validated; it may have no columns at all."""
    with reading("Arrow"):
        for message in pa.ipc.MessageReader.open_stream(data):
            if message.type not in ("schema", "record batch") or _is_packed(memoryview(message.metadata), 0):
                raise ValueError("it is compressed, or has dictionaries")
        with pa.ipc.open_stream(data) as reader:
            check_schema(reader.schema)
            rows = reader.read_all()
        rows.validate(full=True)
        if (rows.num_columns and rows.num_rows != 1) or rows.nbytes > data.size:
            raise ValueError("it is not one row")
        _refuse_endless(rows, 8 * data.size)
    return rows


def check_schema(schema: pa.Schema) -> None:
    """Refuse columns that no state has: two of one name, and types whose values can stand for more than they are."""
    names = [field.name for field in schema]
    if len(set(names)) != len(names):
        raise ValueError("it has two columns of one name")
    for field in schema:
        _check_type(field.type)
        names_of(field)


def _check_type(kind: pa.DataType) -> None:
    t = pa.types
    if t.is_struct(kind) or t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_map(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        if t.is_struct(kind) and len({field.name for field in fields}) != len(fields):
            raise ValueError("it has a struct with two fields of one name")
        for field in fields:
            names = names_of(field)
            if not all(isinstance(name, str) for name in names):
                raise ValueError("it has a field whose earlier names are none")
            _check_type(field.type)
    elif isinstance(kind, pa.BaseExtensionType) or not (
        t.is_primitive(kind)
        or t.is_null(kind)
        or t.is_decimal(kind)
        or t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_fixed_size_binary(kind)
    ):
        # Dictionaries, views and runs: a few bytes of them can stand for any number of values.
        raise ValueError(f"it has values of type {str(kind)[:80]}")


def _refuse_endless(rows: pa.Table, most: int) -> None:
    """Refuse arrays inside others that are longer than their bytes: nulls, for one, need none."""
    inner: list[pa.Array] = [chunk for column in rows.columns for chunk in column.chunks]
    while inner:
        array = inner.pop()
        if len(array) > most:
            raise ValueError("it has more values than bytes")
        t = pa.types
        if t.is_struct(array.type):
            inner += [array.field(number) for number in range(array.type.num_fields)]
        elif t.is_list(array.type) or t.is_large_list(array.type) or t.is_fixed_size_list(array.type):
            inner.append(array.values)
        elif t.is_map(array.type):
            inner += [array.keys, array.items]


def _refuse_packed_file(data: pa.Buffer) -> None:
    """Refuse compressed batches and dictionaries, which deltas never have, before anybody makes room for them.

    Goes the way that Arrow's own reader goes: from the end to the footer, and from there to each batch.
    """
    view = memoryview(data)
    if len(view) < 20 or bytes(view[-6:]) != _MAGIC:
        raise ValueError("it does not end as an Arrow file")
    (size,) = struct.unpack_from("<i", view, len(view) - 10)
    if not 0 < size <= len(view) - 10:
        raise ValueError("its footer is longer than it is")
    footer = view[len(view) - 10 - size : len(view) - 10]
    root = _table(footer, 0)
    if _blocks(footer, root, 2):
        raise ValueError("it has dictionaries")
    for offset in _blocks(footer, root, 3):
        if not 0 <= offset <= len(view) - 8:
            raise ValueError("it names a batch beyond its end")
        (mark,) = struct.unpack_from("<I", view, offset)
        if _is_packed(view, offset + (8 if mark == 0xFFFFFFFF else 4)):
            raise ValueError("it is compressed")


def _table(view: memoryview, at: int) -> int:
    """Follow an offset of a flatbuffer."""
    return at + int(struct.unpack_from("<I", view, at)[0])


def _field(view: memoryview, table: int, number: int) -> int | None:
    """Find a field of a flatbuffer's table; None where it has its default."""
    if table < 0:
        raise ValueError("it points before its beginning")
    vtable = table - struct.unpack_from("<i", view, table)[0]
    if vtable < 0:
        raise ValueError("it points before its beginning")
    (size,) = struct.unpack_from("<H", view, vtable)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", view, vtable + 4 + 2 * number)
    return table + offset if offset else None


def _blocks(view: memoryview, root: int, number: int) -> list[int]:
    """Give where the blocks of a footer's list begin."""
    at = _field(view, root, number)
    if at is None:
        return []
    start = _table(view, at)
    (count,) = struct.unpack_from("<I", view, start)
    if count > len(view) // 24:
        raise ValueError("its footer names more batches than it has room for")
    return [struct.unpack_from("<q", view, start + 4 + 24 * block)[0] for block in range(count)]


def _is_packed(view: memoryview, at: int) -> bool:
    """Tell whether the message there is a batch whose body is compressed."""
    header = _field(view, message := _table(view, at), 2)
    kind = _field(view, message, 1)
    if header is None or kind is None or view[kind] != 3:
        return False
    return _field(view, _table(view, header), 3) is not None


# -- Parquet ---------------------------------------------------------------------------------------


def parquet_of(data: pa.Buffer | pa.NativeFile, size: int, total: int) -> tuple[pq.ParquetFile, list[int]]:
    """Open a file of a snapshot: the file, and the key group of each of its row groups."""
    with reading("Parquet of a snapshot"):
        file = pq.ParquetFile(pa.BufferReader(data) if isinstance(data, pa.Buffer) else data)
        check_schema(file.schema_arrow)
        held = groups_in(file.metadata, total)
        parts = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        rows = sum(part.num_rows for part in parts)
        if rows != file.metadata.num_rows or any(part.num_rows < 0 for part in parts):
            raise ValueError("its row groups do not have the rows that it has")
        if rows > _ROWS_PER_BYTE * size:
            raise ValueError(f"it would decode to {rows} rows out of {size} bytes")
    return file, held


def may_become(size: int) -> int:
    """Give how many bytes a file of a snapshot may decode to at the most."""
    return max(_DECODED_MOST, _DECODED_PER_BYTE * size)


def groups_in(metadata: pq.FileMetaData, total: int) -> list[int]:
    """Read which key group each row group of a snapshot's file is of."""
    held: Any = json.loads((metadata.metadata or {})[GROUPS_KEY])
    if not isinstance(held, list) or len(held) != metadata.num_row_groups:
        raise ValueError(f"{GROUPS_KEY.decode()} does not name one key group for each row group")
    if not all(type(group) is int and 0 <= group < total for group in held):
        raise ValueError(f"{GROUPS_KEY.decode()} names a key group that the job does not have")
    return held


def parts_of(file: pq.ParquetFile, row_groups: Iterable[int], size: int, decoded: int | None) -> Iterator[pa.Table]:
    """Read some row groups of a snapshot's file, one by one, validated.

    Reading ends where it is more than the file may become. Sizes in the file itself do not tell: they are those of
    encoded values, and whoever wrote it may have put anything there.

    Parameters
    ----------
    size
        The bytes of the file.
    decoded
        What it was made of, in bytes, as its list says; lists of earlier versions do not.
    """
    most = may_become(size)
    if decoded is not None:
        most = min(most, 2 * decoded + _DECODED_MORE)
    become = 0
    for number in row_groups:
        batches = []
        with reading("Parquet of a snapshot"):
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], use_threads=False):
                become += batch.nbytes
                if become > most:
                    raise ValueError(f"it decodes to more than {most} bytes out of {size} bytes")
                batch.validate(full=True)
                _refuse_endless(pa.Table.from_batches([batch]), 8 * most)
                batches.append(batch)
            part = pa.Table.from_batches(batches, file.schema_arrow)
        yield part


# -- rows ------------------------------------------------------------------------------------------


def fitted(rows: pa.Table, schema: pa.Schema, key: KeySchema, evolution: Evolution) -> pa.Table:
    """Give rows of a delta or a part the columns that their table has now; they must have a hash and a key."""
    needed = [name for name in (HASH, DELETED) if name in schema.names]
    for name in needed:
        if name not in rows.column_names or rows.schema.field(name).type != schema.field(name).type:
            raise Unsound(f"does not fit the job's card: columns {name}")
    try:
        fit = evolution.fit(rows, schema)
    except (pa.ArrowException, ValueError, TypeError, LookupError) as error:
        raise Unsound(f"does not fit the job's card ({first_line(error)})") from error
    for name in (*needed, *(() if key.nulls else key.fields.names)):
        if fit.column(name).null_count:
            raise Unsound(f"has rows without a value in {name}")
    return fit
