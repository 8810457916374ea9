"""Keys: typed columns with the hash Spark gave them, in the one canonical form all stores use.

A key of a single narrow column is a 64-bit word; any other key is a byte string. Spark's hash travels
with the key and is never recomputed; it may collide, so equality is always decided on the key itself.
Calls the kernels and `words`; no I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._model.errors import KeysTooLarge, NullKey, UnhashableKey
from ferryman._model.key_groups import group_of
from ferryman._state import kernels
from ferryman._state.compiled import Bytes, Ints
from ferryman._state.words import from_words, one_array, to_words

Columns = Sequence[pa.Array | pa.ChunkedArray]

_SIGN = np.int64(-(1 << 63))
# Arrow's text has offsets of 32 bits.
_MOST_TEXT = 1 << 31
_NO_WORDS: Ints = np.empty(0, np.int64)
_NO_BYTES: Bytes = np.empty(0, np.uint8)


def _is_narrow(dtype: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_boolean(dtype)
        or t.is_signed_integer(dtype)
        or t.is_date32(dtype)
        or t.is_timestamp(dtype)
        or t.is_float32(dtype)
        or t.is_float64(dtype)
    )


def _is_text(dtype: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(dtype) or t.is_binary(dtype) or t.is_large_string(dtype) or t.is_large_binary(dtype))


@dataclass(frozen=True)
class KeySchema:
    """Describe the columns of a key.

    Parameters
    ----------
    fields
        The key's columns, in order. `UnhashableKey` lists every column that cannot be part of a key.
    entries
        Whether a key has several rows, told apart by columns that Spark's hash does not cover.
    nulls
        Whether a null is a value like any other. Each column then has a byte in front that says whether it is there.
    """

    fields: pa.Schema
    entries: bool = False
    nulls: bool = False
    kind: Literal["word", "bytes"] = field(init=False)

    def __post_init__(self) -> None:
        if len(self.fields) == 0:
            raise UnhashableKey("The key has no columns, so nothing tells its rows apart. Name at least one.")
        wrong = [
            f"{field.name} ({field.type})"
            for field in self.fields
            if not (_is_narrow(field.type) or _is_text(field.type) or pa.types.is_decimal128(field.type))
        ]
        if wrong:
            raise UnhashableKey(
                f"Cannot use {', '.join(wrong)} as a key: such values have no single canonical form. "
                "Use booleans, signed integers, floats, decimals, dates, timestamps, strings or binary."
            )
        narrow = not (self.entries or self.nulls) and len(self.fields) == 1 and _is_narrow(self.fields.types[0])
        object.__setattr__(self, "kind", "word" if narrow else "bytes")


@dataclass(frozen=True, eq=False)
class Keys:
    """Hold n keys in canonical form.

    Attributes
    ----------
    schema
        The columns the keys are made of.
    hash
        Spark's hash of each key.
    words
        The keys, if the schema's kind is "word"; else empty.
    offsets, data
        The keys as byte strings, key i being `data[offsets[i]:offsets[i + 1]]`, if the kind is "bytes";
        else empty.
    """

    schema: KeySchema
    hash: Ints
    words: Ints = field(default_factory=lambda: _NO_WORDS)
    offsets: Ints = field(default_factory=lambda: _NO_WORDS)
    data: Bytes = field(default_factory=lambda: _NO_BYTES)

    @classmethod
    def of(cls, schema: KeySchema, hash: npt.NDArray[np.int64], columns: Columns) -> Keys:
        """Make keys from their hashes and typed columns; a null raises `NullKey` where the schema has none."""
        hashes = np.require(hash, np.int64, ["C", "A"])
        arrays = [one_array(column, dtype) for column, dtype in zip(columns, schema.fields.types, strict=True)]
        for name, array in zip(schema.fields.names, arrays, strict=True):
            if array.null_count and not schema.nulls:
                raise NullKey(
                    f"{array.null_count} of {len(array)} rows have no value in key column {name}, and a row "
                    "without a key belongs to no state. Filter such rows out, or give them a value."
                )
        if schema.kind == "word":
            return cls(schema, hashes, words=_canonical_words(arrays[0]))
        if len(arrays) == 1 and _is_text(schema.fields.types[0]) and not schema.nulls:
            offsets, data = _text(arrays[0])
        else:
            offsets, data = _encode(arrays, schema.nulls)
        return cls(schema, hashes, offsets=offsets, data=data)

    @classmethod
    def of_raw(cls, schema: KeySchema, hash: npt.NDArray[np.int64], raw: Sequence[bytes]) -> Keys:
        """Make keys from their hashes and what `raw` gave for each of them."""
        data = np.frombuffer(b"".join(raw), np.uint8)
        if schema.kind == "word":
            return cls(schema, hash, words=data.view(np.int64))
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)), out=offsets[1:])
        return cls(schema, hash, offsets=offsets, data=data)

    def __len__(self) -> int:
        return len(self.hash)

    def take(self, indices: npt.NDArray[np.integer]) -> Keys:
        """Give the keys at the given positions."""
        if self.schema.kind == "word":
            return Keys(self.schema, self.hash[indices], words=self.words[indices])
        chosen = np.require(indices, np.int64, ["C", "A"])
        offsets, data = kernels.take_bytes(chosen, self.offsets, self.data)
        return Keys(self.schema, self.hash[chosen], offsets=offsets, data=data)

    def groups(self, groups: int) -> npt.NDArray[np.int32]:
        """Give the key group of each key, of as many groups as given."""
        if groups & (groups - 1) == 0:
            # Same as the modulus for a power of two, without a division per row.
            return (self.hash & (groups - 1)).astype(np.int32)
        return group_of(self.hash, groups).astype(np.int32)

    def raw(self, i: int) -> bytes:
        """Give the canonical bytes of one key."""
        if self.schema.kind == "word":
            return bytes(self.words[i].tobytes())
        return bytes(self.data[self.offsets[i] : self.offsets[i + 1]])

    def columns(self) -> list[pa.Array]:
        """Decode the keys back to their typed columns."""
        types = self.schema.fields.types
        if self.schema.kind == "word":
            return [from_words(self.words, types[0])]
        if len(types) == 1 and _is_text(types[0]) and not self.schema.nulls:
            return [_untext(self.offsets, self.data, types[0])]
        cursor = self.offsets[:-1].copy()
        return [(_decode_null if self.schema.nulls else _decode)(dtype, cursor, self.data) for dtype in types]


def joined(several: Sequence[Keys]) -> Keys:
    """Put keys of one schema behind one another."""
    if len(several) == 1:
        return several[0]
    hashes = np.concatenate([keys.hash for keys in several])
    if several[0].schema.kind == "word":
        return Keys(several[0].schema, hashes, words=np.concatenate([keys.words for keys in several]))
    offsets = np.zeros(len(hashes) + 1, np.int64)
    np.cumsum(np.concatenate([np.diff(keys.offsets) for keys in several]), out=offsets[1:])
    data = np.concatenate([keys.data[keys.offsets[0] : keys.offsets[-1]] for keys in several])
    return Keys(several[0].schema, hashes, offsets=offsets, data=data)


def distinct(keys: Keys) -> tuple[Ints, Ints]:
    """Assign numbers to the distinct keys, or entries of keys, in the order they are first seen.

    Returns
    -------
    index
        For each row, the number of its key.
    first
        For each distinct key, the row where it is first seen.
    """
    if keys.schema.kind == "word":
        return kernels.distinct_words(keys.hash, keys.words)
    hashes = kernels.mixed(keys.hash, keys.offsets, keys.data) if keys.schema.entries else keys.hash
    return kernels.distinct_bytes(hashes, keys.offsets, keys.data)


def last(keys: Keys) -> Ints:
    """Give the last row of each distinct key, the keys in the order they are first seen."""
    index, first = distinct(keys)
    rows = np.empty(len(first), np.int64)
    rows[index] = np.arange(len(index))
    return rows


def _canonical_words(array: pa.Array) -> Ints:
    words = to_words(array)
    if not pa.types.is_floating(array.type):
        return words
    # Spark's hash takes -0.0 for 0.0 and all NaNs for one, so equality must as well.
    floats = words.astype(f"i{array.type.bit_width // 8}").view(f"f{array.type.bit_width // 8}")
    with np.errstate(invalid="ignore"):
        floats = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats + floats.dtype.type(0))
    canonical: Ints = floats.view(f"i{floats.itemsize}").astype(np.int64)
    return canonical


def _text(array: pa.Array) -> tuple[Ints, Bytes]:
    width = 8 if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else 4
    _, starts, data = array.buffers()
    if starts is None or starts.size == 0:
        return np.zeros(len(array) + 1, np.int64), _NO_BYTES
    offsets = np.frombuffer(starts, f"i{width}")[array.offset : array.offset + len(array) + 1]
    text = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    return np.require(offsets, np.int64, ["C", "A"]), text


def _untext(offsets: Ints, data: Bytes, dtype: pa.DataType) -> pa.Array:
    wide = pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype)
    if not wide and offsets[-1] - offsets[0] >= _MOST_TEXT:
        raise KeysTooLarge(
            f"the keys of one task in one epoch have {offsets[-1] - offsets[0]} bytes, and Arrow has room for "
            f"{_MOST_TEXT - 1} in a column of type {dtype}. Have more instances, fewer rows in an epoch (as with "
            "maxFilesPerTrigger or maxOffsetsPerTrigger), or shorter keys: a hash of what is long."
        )
    starts = (offsets - offsets[0]).astype(np.int64 if wide else np.int32)
    text = np.ascontiguousarray(data[offsets[0] : offsets[-1]])
    return pa.Array.from_buffers(dtype, len(offsets) - 1, [None, pa.py_buffer(starts), pa.py_buffer(text)])


def _fixed_cells(array: pa.Array) -> Bytes:
    if pa.types.is_decimal128(array.type):
        cells = np.frombuffer(array.buffers()[1], np.uint8)
        return cells[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)
    # Big-endian and with the sign turned, bytes compare as the numbers do: ranges of keys are ranges of bytes.
    cells = _ordered(_canonical_words(array), array.type).byteswap().view(np.uint8)
    laid: Bytes = cells.reshape(-1, 8)
    return laid


def _ordered(words: Ints, dtype: pa.DataType) -> Ints:
    """Turn words so that, taken as unsigned, they compare as their values do."""
    # A negative float is larger the smaller its bits are.
    turned: Ints = np.where(words < 0, ~words, words ^ _SIGN) if pa.types.is_floating(dtype) else words ^ _SIGN
    return turned


def _unordered(words: Ints, dtype: pa.DataType) -> Ints:
    turned: Ints = np.where(words < 0, words ^ _SIGN, ~words) if pa.types.is_floating(dtype) else words ^ _SIGN
    return turned


def prefixes(columns: Columns, types: Sequence[pa.DataType], *, nulls: bool) -> list[bytes]:
    """Give what the canonical bytes of keys begin with whose first columns are these."""
    offsets, data = _encode([one_array(column, dtype) for column, dtype in zip(columns, types, strict=True)], nulls)
    whole, bounds = data.tobytes(), offsets.tolist()
    return [whole[a:b] for a, b in itertools.pairwise(bounds)]


def _encode(arrays: list[pa.Array], nulls: bool) -> tuple[Ints, Bytes]:
    """Lay the fields of each key one after the other: fixed ones as they are, others after their length."""
    rows = len(arrays[0])
    fields: list[tuple[Ints, Bytes] | Bytes] = []
    for array in arrays:
        fields += _flagged(array) if nulls else [_text(array) if _is_text(array.type) else _fixed_cells(array)]
    sizes = np.zeros(rows, np.int64)
    for cells in fields:
        sizes += 4 + np.diff(cells[0]) if isinstance(cells, tuple) else cells.shape[1]
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    cursor = offsets[:-1].copy()
    for cells in fields:
        if isinstance(cells, tuple):
            kernels.put_bytes(cursor, cells[0], cells[1], out)
        else:
            kernels.put_fixed(cursor, cells, out)
    return offsets, out


def _flagged(array: pa.Array) -> list[tuple[Ints, Bytes] | Bytes]:
    """Lay a byte before a field that says whether it is there; of a field that is not, the rest is always the same."""
    there: Bytes = array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8).reshape(-1, 1)
    if _is_text(array.type):
        return [there, _text(array.fill_null(pa.scalar(b"").cast(array.type)) if array.null_count else array)]
    cells = _fixed_cells(array)
    return [there, cells * there if array.null_count else cells]


def _decode_null(dtype: pa.DataType, cursor: Ints, data: Bytes) -> pa.Array:
    there = np.empty((len(cursor), 1), np.uint8)
    kernels.get_fixed(cursor, data, there)
    values = _decode(dtype, cursor, data)
    if there.all():
        return values
    return pc.if_else(pa.array(there.reshape(-1) != 0), values, pa.scalar(None, dtype))


def _decode(dtype: pa.DataType, cursor: Ints, data: Bytes) -> pa.Array:
    if _is_text(dtype):
        return _untext(*kernels.get_bytes(cursor, data), dtype)
    wide = pa.types.is_decimal128(dtype)
    cells = np.empty((len(cursor), 16 if wide else 8), np.uint8)
    kernels.get_fixed(cursor, data, cells)
    if wide:
        return pa.Array.from_buffers(dtype, len(cursor), [None, pa.py_buffer(cells)])
    return from_words(_unordered(cells.reshape(-1).view(np.int64).byteswap(), dtype), dtype)
