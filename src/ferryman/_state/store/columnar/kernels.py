"""Compiled loops over the mains of many key groups at once.

Each takes arrays with one entry per group: the address of its mapped file, its slots, its heap's
capacity. A lookup may race with a writer in another process, so nothing read from a file is trusted:
probes are bounded by the slots, row ids and heap ranges are checked against what is mapped.
Calls `memory`, `layout` and the slot arithmetic of the key kernels.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ferryman._state.compiled import BYTES, I64, INTS, Bytes, Ints, inner, kernel, room, view
from ferryman._state.kernels import HIGH, LOW, home_slot
from ferryman._state.memory import copy_bytes, load, same_bytes, store
from ferryman._state.store.columnar.layout import (
    HASH_COLUMN,
    KEY_COLUMN,
    LENGTH_COLUMN,
    PAGE_ROWS,
    cell_at,
    heap_at,
    index_at,
    row_limit,
)
from ferryman._state.words import Mask

_NOWHERE = -1


@inner
def _find_slot(base: int, slots: int, heap_room: int, columns: int, tag: int, word: int, text: int, length: int) -> int:
    """Give the slot of a key (a word, or `length` >= 0 bytes at `text`), else ~(the free slot for it)."""
    slot = home_slot(tag, slots)
    for _ in range(slots):
        entry = load(index_at(base, slot))
        if entry == 0:
            return ~slot
        row = (entry & LOW) - 1
        if (entry & HIGH) == tag and 0 <= row < row_limit(slots):
            key = load(cell_at(base, slots, columns, row, KEY_COLUMN))
            if length < 0:
                if key == word:
                    return slot
            elif load(cell_at(base, slots, columns, row, LENGTH_COLUMN)) == length and (
                0 <= key <= heap_room - length and same_bytes(heap_at(base, slots, columns) + key, text, length)
            ):
                return slot
        slot = (slot + 1) & (slots - 1)
    return ~slot


@inner
def _row_at(base: int, slot: int) -> int:
    row: int = (load(index_at(base, slot)) & LOW) - 1
    return row


@kernel(INTS, INTS, INTS, BYTES, INTS, INTS, INTS, INTS, I64)
def find(
    hashes: Ints,
    words: Ints,
    offsets: Ints,
    data: Bytes,
    groups: Ints,
    base: Ints,
    slots: Ints,
    heaps: Ints,
    columns: int,
) -> Ints:
    """Give the row of each key in its group's main, or -1."""
    n = len(hashes)
    wide = len(offsets) > 0
    found = np.empty(n, np.int64)
    for i in range(n):
        group = groups[i]
        found[i] = _NOWHERE
        at = base[group]
        if at == 0:
            continue
        word, text, length = 0, 0, -1
        if wide:
            text = data.ctypes.data + offsets[i]
            length = offsets[i + 1] - offsets[i]
        else:
            word = words[i]
        slot = _find_slot(at, slots[group], heaps[group], columns, hashes[i] & HIGH, word, text, length)
        if slot >= 0:
            row = _row_at(at, slot)
            if 0 <= row < row_limit(slots[group]):
                found[i] = row
    return found


@kernel(INTS, INTS, INTS, INTS, I64, I64)
def gather(rows: Ints, groups: Ints, base: Ints, slots: Ints, columns: int, skip: int) -> Ints:
    """Read the cells of rows, one line per column after the first `skip`; zeros for row -1."""
    n = len(rows)
    out = np.empty((columns - skip, n), np.int64)
    for i in range(n):
        row = rows[i]
        if row < 0:
            for column in range(columns - skip):
                out[column, i] = 0
            continue
        group = groups[i]
        for column in range(columns - skip):
            out[column, i] = load(cell_at(base[group], slots[group], columns, row, column + skip))
    return out


@inner
def _insert(base: int, slots: int, columns: int, slot: int, tagged: int, row: int) -> None:
    store(cell_at(base, slots, columns, row, HASH_COLUMN), tagged)
    store(index_at(base, slot), (tagged & HIGH) | (row + 1))


@inner
def _free_slot(base: int, slots: int, slot: int) -> None:
    """Empty a slot and move back the entries that were pushed past it, so that no probe stops early."""
    hole = slot
    at = slot
    for _ in range(slots):
        at = (at + 1) & (slots - 1)
        entry = load(index_at(base, at))
        if entry == 0:
            break
        wanted = home_slot(entry, slots)
        if ((at - wanted) & (slots - 1)) >= ((at - hole) & (slots - 1)):
            store(index_at(base, hole), entry)
            hole = at
    store(index_at(base, hole), 0)


@inner
def _remove(base: int, slots: int, columns: int, slot: int, last: int) -> None:
    """Delete the row of a slot by putting the last row in its place."""
    row = _row_at(base, slot)
    _free_slot(base, slots, slot)
    if row == last:
        return
    for column in range(columns):
        store(cell_at(base, slots, columns, row, column), load(cell_at(base, slots, columns, last, column)))
    moved = load(cell_at(base, slots, columns, row, HASH_COLUMN)) & HIGH
    slot = home_slot(moved, slots)
    for _ in range(slots):
        if load(index_at(base, slot)) == (moved | (last + 1)):
            store(index_at(base, slot), moved | (row + 1))
            return
        slot = (slot + 1) & (slots - 1)


@kernel(
    INTS, INTS, INTS, BYTES, INTS, view(types.boolean), view(I64, 2),
    INTS, INTS, INTS, I64, room(I64), room(I64),
)  # fmt: skip
def write(
    hashes: Ints,
    words: Ints,
    offsets: Ints,
    data: Bytes,
    groups: Ints,
    deleted: Mask,
    cells: Ints,
    base: Ints,
    slots: Ints,
    heaps: Ints,
    columns: int,
    rows: Ints,
    used: Ints,
) -> None:
    """Upsert and delete keys in mains that have room for them; keeps the ledger's `rows` and `used`."""
    n = len(hashes)
    wide = len(offsets) > 0
    skip = columns - cells.shape[0]
    # Deletes last: they move rows, and may need less room than the inserts before them, never more.
    for deleting in (False, True):
        for i in range(n):
            if deleted[i] != deleting:
                continue
            group = groups[i]
            at, width = base[group], slots[group]
            if at == 0:
                continue
            word, text, length = 0, 0, -1
            if wide:
                text = data.ctypes.data + offsets[i]
                length = offsets[i + 1] - offsets[i]
            else:
                word = words[i]
            slot = _find_slot(at, width, heaps[group], columns, hashes[i] & HIGH, word, text, length)
            if deleting:
                if slot >= 0:
                    _remove(at, width, columns, slot, rows[group] - 1)
                    rows[group] -= 1
                continue
            if slot >= 0:
                row = _row_at(at, slot)
            else:
                row = rows[group]
                if wide:
                    start = used[group]
                    copy_bytes(heap_at(at, width, columns) + start, text, length)
                    store(cell_at(at, width, columns, row, KEY_COLUMN), start)
                    store(cell_at(at, width, columns, row, LENGTH_COLUMN), length)
                    used[group] = start + length
                else:
                    store(cell_at(at, width, columns, row, KEY_COLUMN), word)
                _insert(at, width, columns, ~slot, hashes[i], row)
                rows[group] = row + 1
            for column in range(columns - skip):
                store(cell_at(at, width, columns, row, column + skip), cells[column, i])


@kernel(I64, I64, I64, I64, I64, I64, types.boolean)
def rebuild(old: int, old_slots: int, rows: int, columns: int, new: int, new_slots: int, wide: bool) -> int:
    """Copy a main into a roomier file without the key bytes of deleted rows; give the heap's size."""
    pages = (rows + PAGE_ROWS - 1) // PAGE_ROWS
    for word in range(pages * columns * PAGE_ROWS):
        store(index_at(new, new_slots + word), load(index_at(old, old_slots + word)))
    for old_slot in range(old_slots):
        entry = load(index_at(old, old_slot))
        if entry != 0:
            slot = home_slot(entry, new_slots)
            while load(index_at(new, slot)) != 0:
                slot = (slot + 1) & (new_slots - 1)
            store(index_at(new, slot), entry)
    used = 0
    if wide:
        source = heap_at(old, old_slots, columns)
        target = heap_at(new, new_slots, columns)
        for row in range(rows):
            key = cell_at(new, new_slots, columns, row, KEY_COLUMN)
            length = load(cell_at(new, new_slots, columns, row, LENGTH_COLUMN))
            copy_bytes(target + used, source + load(key), length)
            store(key, used)
            used += length
    return used


@kernel(I64, I64, I64, I64)
def live_text(base: int, slots: int, columns: int, rows: int) -> int:
    """Give how many heap bytes belong to keys that are still there."""
    total = 0
    for row in range(rows):
        total += load(cell_at(base, slots, columns, row, LENGTH_COLUMN))
    return total


@kernel(I64, I64, I64, I64, INTS, INTS)
def key_text(base: int, slots: int, columns: int, heap_room: int, starts: Ints, lengths: Ints) -> tuple[Ints, Bytes]:
    """Copy key bytes out of a heap; a range outside it, left by a racing writer, reads as empty."""
    n = len(starts)
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        whole = lengths[i] >= 0 and 0 <= starts[i] <= heap_room - lengths[i]
        offsets[i + 1] = offsets[i] + (lengths[i] if whole else 0)
    out = np.empty(offsets[n], np.uint8)
    heap = heap_at(base, slots, columns)
    for i in range(n):
        copy_bytes(out.ctypes.data + offsets[i], heap + starts[i], offsets[i + 1] - offsets[i])
    return offsets, out
