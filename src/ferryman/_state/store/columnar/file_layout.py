"""Where things are in the file of one key group: its main, and the delta that has come since.

    header | main: index, pages, heap | delta: index, pages, heap

Both halves are laid out alike. An index has one entry per slot; a page holds each column of its 64 rows
contiguously (PAX); a heap holds the bytes of keys that are not one word. The columns are the hash, the key (its
word, or where its bytes are in the heap and how many), then the cells of `codec`; a row of the delta also
says whether it deletes its key. Pure arithmetic, for kernels and for Python alike.
"""

from __future__ import annotations

from ferryman._state.compiled import inner

HEADER = 64
PAGE_ROWS = 64
_PAGE_SHIFT = 6
_FEWEST_SLOTS = 16

# The columns that every row has.
HASH_COLUMN = 0
KEY_COLUMN = 1
LENGTH_COLUMN = 2

# What a file's shape consists of: four numbers for each half, the main's first.
AT = 0
SLOTS = 1
HEAP = 2
ROWS = 3
HALF = 4
MAIN = 0
DELTA = 1


def key_columns(wide: bool) -> int:
    """Give how many columns of a row come before the cells."""
    return 3 if wide else 2


@inner
def index_at(base: int, slot: int) -> int:
    """Give the address of an index entry of a half."""
    return base + 8 * slot


@inner
def cell_at(base: int, slots: int, columns: int, row: int, column: int) -> int:
    """Give the address of one column of one row."""
    page = (row >> _PAGE_SHIFT) * columns + column
    return base + 8 * (slots + (page << _PAGE_SHIFT) + (row & (PAGE_ROWS - 1)))


@inner
def heap_at(base: int, slots: int, columns: int, rows: int) -> int:
    """Give the address of the heap of a half that has room for so many rows."""
    pages = (rows + PAGE_ROWS - 1) >> _PAGE_SHIFT
    return base + 8 * (slots + pages * columns * PAGE_ROWS)


def half_size(slots: int, columns: int, rows: int, heap: int) -> int:
    """Give the size of a half, in whole words."""
    return heap_at(0, slots, columns, rows) + -(-heap // 8) * 8


def slots_for(rows: int) -> int:
    """Give the fewest slots, a power of two, in which so many rows take 0.6 at the most: beyond, probes get long."""
    slots = _FEWEST_SLOTS
    while slots * 3 // 5 < rows:
        slots *= 2
    return slots
