"""Compiled loops over the mains and deltas of many key groups at once.

Each takes `shapes`: for every group the address, slots, heap and rows of its main, then those of its delta (0 where it
has no file). A *place* is where a row is: twice its number, plus one in the delta. A lookup may race with a writer in
another process, so nothing read from a file is trusted: probes are bounded by the slots, rows and heap ranges are
checked against what is mapped. Calls `memory`, `file_layout` and the slot arithmetic of the key kernels.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ferryman._state.compiled import BYTES, I64, INTS, Bytes, Ints, inner, kernel, room, view
from ferryman._state.kernels import HIGH, LOW, home_slot
from ferryman._state.memory import copy_bytes, fence, load, load_byte, same_bytes, store
from ferryman._state.store.columnar.file_layout import (
    AT,
    DELTA,
    HALF,
    HASH_COLUMN,
    HEAP,
    KEY_COLUMN,
    LENGTH_COLUMN,
    MAIN,
    ROWS,
    SLOTS,
    cell_at,
    heap_at,
    index_at,
)
from ferryman._state.words import Mask

_NOWHERE = -1


@kernel()
def barrier() -> None:
    """Let everything that was written before be seen before what is written after, and read likewise."""
    fence()


_SHAPES = view(I64, 2)
_MIX = np.int64(-7046029254386353131)


@inner
def _tag(hash: int, text: int, length: int) -> int:
    """Give what an index knows a key by: entries of one key share its hash, and differ in their first bytes."""
    tag: int = (hash ^ (load(text) * _MIX)) & HIGH if length >= 8 else hash & HIGH
    return tag


@inner
def _leading(text: int) -> int:
    """Give the first eight bytes of a key as the number that they were made of: the highest first, its sign turned."""
    found = np.int64(0)
    for i in range(8):
        found = (found << 8) | load_byte(text + i)
    word: int = found ^ np.int64(-(1 << 63))
    return word


@inner
def _find_slot(
    base: int, slots: int, heap: int, rows: int, columns: int, tag: int, word: int, text: int, length: int
) -> int:
    """Give the slot of a key (a word, or `length` >= 0 bytes at `text`), else ~(the free slot for it)."""
    slot = home_slot(tag, slots)
    for _ in range(slots):
        entry = load(index_at(base, slot))
        if entry == 0:
            return ~slot
        row = (entry & LOW) - 1
        if (entry & HIGH) == tag and 0 <= row < rows:
            key = load(cell_at(base, slots, columns, row, KEY_COLUMN))
            if length < 0:
                if key == word:
                    return slot
            elif load(cell_at(base, slots, columns, row, LENGTH_COLUMN)) == length and (
                0 <= key <= heap - length and same_bytes(heap_at(base, slots, columns, rows) + key, text, length)
            ):
                return slot
        slot = (slot + 1) & (slots - 1)
    return ~slot


@inner
def _find_row(shapes: Ints, group: int, half: int, columns: int, tag: int, word: int, text: int, length: int) -> int:
    """Give the row of a key in one half of a group's file, or -1."""
    first = half * HALF
    base, slots = shapes[first + AT, group], shapes[first + SLOTS, group]
    if base == 0:
        return _NOWHERE
    rows = shapes[first + ROWS, group]
    slot = _find_slot(base, slots, shapes[first + HEAP, group], rows, columns, tag, word, text, length)
    if slot < 0:
        return _NOWHERE
    row: int = (load(index_at(base, slot)) & LOW) - 1
    return row if 0 <= row < rows else _NOWHERE


@kernel(INTS, INTS, INTS, BYTES, INTS, _SHAPES, INTS, I64)
def find(
    hashes: Ints, words: Ints, offsets: Ints, data: Bytes, groups: Ints, shapes: Ints, fresh: Ints, columns: int
) -> Ints:
    """Give the place of each key, or -1; `fresh` says how many rows each delta has."""
    n = len(hashes)
    wide = len(offsets) > 0
    places = np.empty(n, np.int64)
    for i in range(n):
        group = groups[i]
        word, text, length = 0, 0, -1
        if wide:
            text = data.ctypes.data + offsets[i]
            length = offsets[i + 1] - offsets[i]
        else:
            word = words[i]
        tag = _tag(hashes[i], text, length)
        row = _NOWHERE
        if fresh[group] > 0:
            row = _find_row(shapes, group, DELTA, columns + 1, tag, word, text, length)
        if row >= 0:
            base, slots = shapes[HALF + AT, group], shapes[HALF + SLOTS, group]
            gone = load(cell_at(base, slots, columns + 1, row, columns)) != 0
            places[i] = _NOWHERE if gone else 2 * row + 1
        else:
            row = _find_row(shapes, group, MAIN, columns, tag, word, text, length)
            places[i] = _NOWHERE if row < 0 else 2 * row
    return places


@kernel(INTS, INTS, _SHAPES, I64, I64)
def gather(places: Ints, groups: Ints, shapes: Ints, columns: int, skip: int) -> Ints:
    """Read the cells at places, one line per column after the first `skip`; zeros for place -1."""
    n = len(places)
    out = np.empty((columns - skip, n), np.int64)
    for i in range(n):
        place = places[i]
        if place < 0:
            for column in range(columns - skip):
                out[column, i] = 0
            continue
        half = place & 1
        base, slots = shapes[half * HALF + AT, groups[i]], shapes[half * HALF + SLOTS, groups[i]]
        for column in range(columns - skip):
            out[column, i] = load(cell_at(base, slots, columns + half, place >> 1, column + skip))
    return out


@kernel(
    INTS, INTS, INTS, BYTES, INTS, view(types.boolean), view(I64, 2), _SHAPES, I64, I64, room(I64), room(I64),
)  # fmt: skip
def append(
    hashes: Ints,
    words: Ints,
    offsets: Ints,
    data: Bytes,
    groups: Ints,
    deleted: Mask,
    cells: Ints,
    shapes: Ints,
    half: int,
    columns: int,
    rows: Ints,
    text_used: Ints,
) -> None:
    """Put rows behind those that are there, in halves that have room for them; advances `rows` and `text_used`."""
    wide = len(offsets) > 0
    skip = columns - cells.shape[0]
    first, width = half * HALF, columns + half
    for i in range(len(hashes)):
        group = groups[i]
        base, slots = shapes[first + AT, group], shapes[first + SLOTS, group]
        limit = shapes[first + ROWS, group]
        word, text, length = 0, 0, -1
        if wide:
            text = data.ctypes.data + offsets[i]
            length = offsets[i + 1] - offsets[i]
        else:
            word = words[i]
        tag = _tag(hashes[i], text, length)
        slot = _find_slot(base, slots, shapes[first + HEAP, group], limit, width, tag, word, text, length)
        row = rows[group]
        if not wide:
            store(cell_at(base, slots, width, row, KEY_COLUMN), word)
        else:
            start = text_used[group]
            if slot >= 0:
                # The bytes of the version before: a heap is only ever appended to.
                before = (load(index_at(base, slot)) & LOW) - 1
                start = load(cell_at(base, slots, width, before, KEY_COLUMN))
            else:
                copy_bytes(heap_at(base, slots, width, limit) + start, text, length)
                text_used[group] = start + length
            store(cell_at(base, slots, width, row, KEY_COLUMN), start)
            store(cell_at(base, slots, width, row, LENGTH_COLUMN), length)
        store(cell_at(base, slots, width, row, HASH_COLUMN), hashes[i])
        for column in range(columns - skip):
            store(cell_at(base, slots, width, row, column + skip), cells[column, i])
        if half == DELTA:
            store(cell_at(base, slots, width, row, columns), np.int64(deleted[i]))
        store(index_at(base, slot if slot >= 0 else ~slot), tag | (row + 1))
        rows[group] = row + 1


@kernel(I64, _SHAPES, I64, I64, types.boolean)
def live(group: int, shapes: Ints, fresh: int, columns: int, wide: bool) -> Ints:
    """Give the places of a group's rows: those of the main that no later one replaces, then the latest of the delta."""
    base, slots, rows = shapes[AT, group], shapes[SLOTS, group], shapes[ROWS, group]
    heap = heap_at(base, slots, columns, rows)
    new, new_slots = shapes[HALF + AT, group], shapes[HALF + SLOTS, group]
    places = np.empty(rows + fresh, np.int64)
    count = 0
    for row in range(rows):
        if fresh > 0:
            word, text, length = load(cell_at(base, slots, columns, row, KEY_COLUMN)), 0, -1
            if wide:
                length = load(cell_at(base, slots, columns, row, LENGTH_COLUMN))
                if not 0 <= length <= shapes[HEAP, group] or not 0 <= word <= shapes[HEAP, group] - length:
                    continue
                text = heap + word
            tag = _tag(load(cell_at(base, slots, columns, row, HASH_COLUMN)), text, length)
            if _find_row(shapes, group, DELTA, columns + 1, tag, word, text, length) >= 0:
                continue
        places[count] = 2 * row
        count += 1
    if fresh > 0:
        known = min(fresh, shapes[HALF + ROWS, group])
        for slot in range(new_slots):
            # More than there can be: this index is being written by another process.
            if count == len(places):
                break
            row = (load(index_at(new, slot)) & LOW) - 1
            if 0 <= row < known and load(cell_at(new, new_slots, columns + 1, row, columns)) == 0:
                places[count] = 2 * row + 1
                count += 1
    return places[:count]


@kernel(INTS, _SHAPES, INTS, I64, I64, I64)
def early(groups: Ints, shapes: Ints, fresh: Ints, columns: int, skip: int, limit: int) -> tuple[Ints, Ints]:
    """Give the places, and groups, of live rows whose key has a word less than `limit` after its first `skip` bytes."""
    most = 0
    for group in groups:
        most += shapes[ROWS, group] + min(fresh[group], shapes[HALF + ROWS, group])
    places = np.empty(most, np.int64)
    owners = np.empty(most, np.int64)
    count = 0
    for group in groups:
        for half in range(2):
            first, width = half * HALF, columns + half
            base, slots, rows = shapes[first + AT, group], shapes[first + SLOTS, group], shapes[first + ROWS, group]
            if base == 0:
                continue
            heap, texts = shapes[first + HEAP, group], heap_at(base, slots, width, rows)
            for row in range(min(fresh[group], rows) if half == DELTA else rows):
                start = load(cell_at(base, slots, width, row, KEY_COLUMN))
                length = load(cell_at(base, slots, width, row, LENGTH_COLUMN))
                if not skip + 8 <= length <= heap or not 0 <= start <= heap - length:
                    continue
                if _leading(texts + start + skip) >= limit:
                    continue
                tag = _tag(load(cell_at(base, slots, width, row, HASH_COLUMN)), texts + start, length)
                if fresh[group] > 0:
                    latest = _find_row(shapes, group, DELTA, columns + 1, tag, 0, texts + start, length)
                    if half == MAIN and latest >= 0:
                        continue
                    if half == DELTA and (latest != row or load(cell_at(base, slots, width, row, columns)) != 0):
                        continue
                places[count] = 2 * row + half
                owners[count] = group
                count += 1
    return places[:count].copy(), owners[:count].copy()


@kernel(I64, _SHAPES)
def clear(group: int, shapes: Ints) -> None:
    """Empty both indexes of a file."""
    for half in range(2):
        for slot in range(shapes[half * HALF + SLOTS, group]):
            store(index_at(shapes[half * HALF + AT, group], slot), 0)


@kernel(I64, INTS, _SHAPES, I64)
def text_at(group: int, places: Ints, shapes: Ints, columns: int) -> int:
    """Give how many bytes the keys at places have."""
    total = 0
    for place in places:
        half = place & 1
        base, slots = shapes[half * HALF + AT, group], shapes[half * HALF + SLOTS, group]
        total += load(cell_at(base, slots, columns + half, place >> 1, LENGTH_COLUMN))
    return total


@kernel(I64, INTS, _SHAPES, I64, I64, I64, types.boolean)
def fold(group: int, places: Ints, shapes: Ints, columns: int, base: int, slots: int, wide: bool) -> None:
    """Write the rows at places into an empty main that has room for exactly them."""
    target, used = heap_at(base, slots, columns, len(places)), 0
    for row in range(len(places)):
        half = places[row] & 1
        old, old_slots = shapes[half * HALF + AT, group], shapes[half * HALF + SLOTS, group]
        for column in range(columns):
            cell = load(cell_at(old, old_slots, columns + half, places[row] >> 1, column))
            store(cell_at(base, slots, columns, row, column), cell)
        source, length = 0, -1
        if wide:
            start = cell_at(base, slots, columns, row, KEY_COLUMN)
            length = load(cell_at(base, slots, columns, row, LENGTH_COLUMN))
            source = heap_at(old, old_slots, columns + half, shapes[half * HALF + ROWS, group]) + load(start)
            copy_bytes(target + used, source, length)
            store(start, used)
            used += length
        tag = _tag(load(cell_at(base, slots, columns, row, HASH_COLUMN)), source, length)
        slot = home_slot(tag, slots)
        while load(index_at(base, slot)) != 0:
            slot = (slot + 1) & (slots - 1)
        store(index_at(base, slot), tag | (row + 1))


@kernel(I64, _SHAPES, I64, I64, types.boolean)
def reindex(group: int, shapes: Ints, fresh: int, columns: int, wide: bool) -> None:
    """Make the index of a delta anew from its first `fresh` rows."""
    base, slots = shapes[HALF + AT, group], shapes[HALF + SLOTS, group]
    heap, rows = shapes[HALF + HEAP, group], shapes[HALF + ROWS, group]
    for slot in range(slots):
        store(index_at(base, slot), 0)
    for row in range(fresh):
        word, text, length = load(cell_at(base, slots, columns + 1, row, KEY_COLUMN)), 0, -1
        if wide:
            length = load(cell_at(base, slots, columns + 1, row, LENGTH_COLUMN))
            text = heap_at(base, slots, columns + 1, rows) + word
        tag = _tag(load(cell_at(base, slots, columns + 1, row, HASH_COLUMN)), text, length)
        slot = _find_slot(base, slots, heap, rows, columns + 1, tag, word, text, length)
        store(index_at(base, slot if slot >= 0 else ~slot), tag | (row + 1))


@kernel(INTS, INTS, INTS, INTS, _SHAPES, I64)
def key_text(groups: Ints, places: Ints, starts: Ints, lengths: Ints, shapes: Ints, columns: int) -> tuple[Ints, Bytes]:
    """Copy key bytes out of the heaps; a range outside them, left by a racing writer, reads as empty."""
    n = len(starts)
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        heap = shapes[(places[i] & 1) * HALF + HEAP, groups[i]]
        whole = lengths[i] >= 0 and 0 <= starts[i] <= heap - lengths[i]
        offsets[i + 1] = offsets[i] + (lengths[i] if whole else 0)
    out = np.empty(offsets[n], np.uint8)
    for i in range(n):
        half = places[i] & 1
        base, slots = shapes[half * HALF + AT, groups[i]], shapes[half * HALF + SLOTS, groups[i]]
        heap = heap_at(base, slots, columns + half, shapes[half * HALF + ROWS, groups[i]])
        copy_bytes(out.ctypes.data + offsets[i], heap + starts[i], offsets[i + 1] - offsets[i])
    return offsets, out
