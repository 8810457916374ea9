"""Hash keys as Spark's `xxhash64` does, where rows go from one operator to the next without Spark in between.

Every column is hashed with the hash of those before it as its seed; a null leaves it as it is. Calls xxhash only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

Words = npt.NDArray[np.uint64]

# Spark's, for a hash of no column yet.
_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
# A decimal of up to so many digits is hashed as a number, a longer one as bytes.
_DIGITS_OF_A_LONG = 18


def spark_hash(columns: Sequence[pa.Array | pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Hash rows, given the columns of their keys, of any types that a key may have.

    Examples
    --------
    >>> spark_hash([pa.array([1, 2]), pa.array(["a", None])])
    array([-8527884376001292090, -3341702809300393011])
    """
    hashes = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        found = _hashed(array, hashes)
        hashes = found if not array.null_count else np.where(array.is_null().to_numpy(False), hashes, found)
    return hashes.view(np.int64)


def _hashed(array: pa.Array, seeds: Words) -> Words:
    t, kind = pa.types, array.type
    if t.is_floating(kind):
        # As routing does: 0.0 and -0.0 are one key, and so are all that are not numbers.
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy(False) + 0.0
        return _of_long(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64), seeds)
    if t.is_decimal(kind) and kind.precision <= _DIGITS_OF_A_LONG:
        return _of_long(_low_words(array), seeds)
    if t.is_decimal(kind):
        return _of_bytes(_unscaled(array), seeds, _big_endian)
    if t.is_timestamp(kind) or t.is_int64(kind):
        whole = array.cast(pa.timestamp("us", kind.tz)) if t.is_timestamp(kind) else array
        return _of_long(whole.cast(pa.int64()).fill_null(0).to_numpy(False).view(np.uint64), seeds)
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_date32(kind):
        return _of_int(array.cast(pa.int32()).fill_null(0).to_numpy(False).astype(np.uint32), seeds)
    if t.is_string(kind) or t.is_large_string(kind):
        # Spark's strings may be any bytes.
        return _of_bytes(array.cast(pa.large_binary() if t.is_large_string(kind) else pa.binary()), seeds, bytes)
    return _of_bytes(array, seeds, lambda value: value)


def _of_long(words: Words, seeds: Words) -> Words:
    hashes = seeds + _P5 + np.uint64(8)
    hashes ^= _rotated(words * _P2, 31) * _P1
    return _mixed(_rotated(hashes, 27) * _P1 + _P4)


def _of_int(words: npt.NDArray[np.uint32], seeds: Words) -> Words:
    hashes = seeds + _P5 + np.uint64(4)
    hashes ^= words.astype(np.uint64) * _P1
    return _mixed(_rotated(hashes, 23) * _P2 + _P3)


def _unscaled(array: pa.Array) -> pa.Array:
    """Give the unscaled numbers of decimals, 16 bytes each."""
    buffers = array.buffers()
    return pa.Array.from_buffers(pa.binary(16), len(array), buffers, offset=array.offset)


def _of_bytes(array: pa.Array, seeds: Words, data: Callable[..., bytes]) -> Words:
    pairs = zip(array.to_pylist(), seeds.tolist(), strict=True)
    found = (seed if value is None else xxhash.xxh64_intdigest(data(value), seed=seed) for value, seed in pairs)
    return np.fromiter(found, np.uint64, len(array))


def _rotated(words: Words, by: int) -> Words:
    rotated: Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return rotated


def _mixed(hashes: Words) -> Words:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _low_words(array: pa.Array) -> Words:
    """Give the unscaled numbers of decimals that fit into 64 bits; whatever stands where there is a null."""
    words = np.frombuffer(array.buffers()[1], np.uint64)[::2]
    return np.ascontiguousarray(words[array.offset : array.offset + len(array)])


def _big_endian(unscaled: bytes) -> bytes:
    """Write a number as Java's BigInteger does, in as few bytes as hold it with its sign."""
    number = int.from_bytes(unscaled, "little", signed=True)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
