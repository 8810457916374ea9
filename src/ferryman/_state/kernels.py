"""Compiled loops over keys: telling them apart, and laying composite ones out as bytes.

Calls `compiled` and `memory`.
"""

from __future__ import annotations

import importlib

import numpy as np
from numba import types

from ferryman._state.compiled import ALL, BYTES, I64, INTS, Bytes, Ints, inner, kernel, room, view
from ferryman._state.memory import copy_bytes, same_bytes


def warm() -> None:
    """Compile every kernel, or load it from the disk cache.

    Run once in the driver before the stream starts: compiling in every new worker costs seconds.
    """
    importlib.import_module("ferryman._state.store.columnar.kernels")
    for loop in ALL:
        loop.compile()


# An index entry is the high half of the hash with a position + 1 in the low half; 0 is a free slot.
# The slot follows from the high half alone, so that an index can be rebuilt without reading keys, and
# because the low half of all keys in one key group is alike.
HIGH = np.int64(-(1 << 32))
LOW = np.int64((1 << 32) - 1)
_GOLDEN = np.int64(2654435769)


@inner
def home_slot(tagged: int, slots: int) -> int:
    """Give the slot where the search for a hash, or for an index entry, starts."""
    spread = (((tagged >> 32) & LOW) * _GOLDEN) & LOW
    slot: int = (spread * slots) >> 32
    return slot


@inner
def _doubled(index: Ints) -> Ints:
    slots = len(index) * 2
    wider = np.zeros(slots, np.int64)
    for entry in index:
        if entry != 0:
            slot = home_slot(entry, slots)
            while wider[slot] != 0:
                slot = (slot + 1) & (slots - 1)
            wider[slot] = entry
    return wider


@kernel(INTS, INTS)
def distinct_words(hashes: Ints, words: Ints) -> tuple[Ints, Ints]:
    """Assign numbers to the distinct words in first-seen order."""
    n = len(hashes)
    position = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    seen = np.empty(n, np.int64)
    index = np.zeros(1024, np.int64)
    count = 0
    for row in range(n):
        if count * 2 >= len(index):
            index = _doubled(index)
        tag = hashes[row] & HIGH
        word = words[row]
        slot = home_slot(tag, len(index))
        while True:
            entry = index[slot]
            if entry == 0:
                first[count] = row
                seen[count] = word
                position[row] = count
                count += 1
                index[slot] = tag | count
                break
            if (entry & HIGH) == tag and seen[(entry & LOW) - 1] == word:
                position[row] = (entry & LOW) - 1
                break
            slot = (slot + 1) & (len(index) - 1)
    return position, first[:count].copy()


@kernel(INTS, INTS, BYTES)
def distinct_bytes(hashes: Ints, offsets: Ints, data: Bytes) -> tuple[Ints, Ints]:
    """Assign numbers to the distinct byte strings in first-seen order."""
    n = len(hashes)
    base = data.ctypes.data
    position = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    # Where each distinct key lies and how long it is, side by side: one cache line to compare with.
    seen = np.empty((n, 2), np.int64)
    index = np.zeros(1024, np.int64)
    count = 0
    for row in range(n):
        if count * 2 >= len(index):
            index = _doubled(index)
        tag = hashes[row] & HIGH
        start = base + offsets[row]
        length = offsets[row + 1] - offsets[row]
        slot = home_slot(tag, len(index))
        while True:
            entry = index[slot]
            if entry == 0:
                first[count] = row
                seen[count, 0] = start
                seen[count, 1] = length
                position[row] = count
                count += 1
                index[slot] = tag | count
                break
            if (entry & HIGH) == tag:
                other = (entry & LOW) - 1
                if seen[other, 1] == length and same_bytes(seen[other, 0], start, length):
                    position[row] = other
                    break
            slot = (slot + 1) & (len(index) - 1)
    return position, first[:count].copy()


@kernel(INTS, INTS, BYTES)
def mixed(hashes: Ints, offsets: Ints, data: Bytes) -> Ints:
    """Mix the bytes of each key into its hash: entries of one key share the hash, and a search must not."""
    n = len(hashes)
    out = np.empty(n, np.int64)
    for row in range(n):
        h = hashes[row]
        for at in range(offsets[row], offsets[row + 1]):
            h = (h ^ np.int64(data[at])) * np.int64(1099511628211)
        h = (h ^ ((h >> 29) & LOW)) * _GOLDEN
        out[row] = h ^ (h << 32)
    return out


@kernel(INTS, INTS, BYTES)
def take_bytes(indices: Ints, offsets: Ints, data: Bytes) -> tuple[Ints, Bytes]:
    """Copy the byte strings at the given positions."""
    n = len(indices)
    taken = np.empty(n + 1, np.int64)
    taken[0] = 0
    for i in range(n):
        taken[i + 1] = taken[i] + offsets[indices[i] + 1] - offsets[indices[i]]
    out = np.empty(taken[n], np.uint8)
    for i in range(n):
        source = data.ctypes.data + offsets[indices[i]]
        copy_bytes(out.ctypes.data + taken[i], source, taken[i + 1] - taken[i])
    return taken, out


@kernel(room(I64), view(types.uint8, 2), room(types.uint8))
def put_fixed(cursor: Ints, cells: Bytes, out: Bytes) -> None:
    """Write one fixed-width field of every key at its cursor, and move the cursors."""
    n, width = cells.shape
    for i in range(n):
        at = cursor[i]
        for j in range(width):
            out[at + j] = cells[i, j]
        cursor[i] = at + width


@kernel(room(I64), INTS, BYTES, room(types.uint8))
def put_bytes(cursor: Ints, offsets: Ints, data: Bytes, out: Bytes) -> None:
    """Write one length-prefixed field of every key at its cursor, and move the cursors."""
    for i in range(len(cursor)):
        at = cursor[i]
        start = offsets[i]
        length = offsets[i + 1] - start
        for j in range(4):
            out[at + j] = (length >> (8 * j)) & 255
        copy_bytes(out.ctypes.data + at + 4, data.ctypes.data + start, length)
        cursor[i] = at + 4 + length


@kernel(room(I64), BYTES, room(types.uint8, 2))
def get_fixed(cursor: Ints, data: Bytes, cells: Bytes) -> None:
    """Read one fixed-width field of every key at its cursor, and move the cursors."""
    n, width = cells.shape
    for i in range(n):
        at = cursor[i]
        for j in range(width):
            cells[i, j] = data[at + j]
        cursor[i] = at + width


@kernel(room(I64), BYTES)
def get_bytes(cursor: Ints, data: Bytes) -> tuple[Ints, Bytes]:
    """Read one length-prefixed field of every key at its cursor, and move the cursors."""
    n = len(cursor)
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        length = 0
        for j in range(4):
            length |= np.int64(data[cursor[i] + j]) << (8 * j)
        offsets[i + 1] = offsets[i] + length
    out = np.empty(offsets[n], np.uint8)
    for i in range(n):
        at = cursor[i] + 4
        length = offsets[i + 1] - offsets[i]
        copy_bytes(out.ctypes.data + offsets[i], data.ctypes.data + at, length)
        cursor[i] = at + length
    return offsets, out
