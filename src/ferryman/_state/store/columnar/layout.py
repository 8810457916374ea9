"""Where things are in the file of one key group's main.

    header | index: one entry per slot | pages of 256 rows | heap of key bytes

A page holds each column of its rows contiguously (PAX): the hash, the key (its word, or where its
bytes are in the heap and how many), then the cells of `codec`. The size of everything follows from
the number of slots, so a main grows by doubling those into a new file. Pure arithmetic, for kernels
and for Python alike.
"""

from __future__ import annotations

from ferryman._state.compiled import inner

HEADER = 64
PAGE_ROWS = 256
_PAGE_SHIFT = 8
FEWEST_SLOTS = 64

# The columns of a page that every main has.
HASH_COLUMN = 0
KEY_COLUMN = 1
LENGTH_COLUMN = 2


def key_columns(wide: bool) -> int:
    """Give how many columns of a page come before the cells."""
    return 3 if wide else 2


@inner
def row_limit(slots: int) -> int:
    """Give how many rows an index of that many slots may hold: above 0.6 probes get long."""
    return slots * 3 // 5


@inner
def page_count(slots: int) -> int:
    """Give how many pages the rows of a full index take."""
    return (row_limit(slots) + PAGE_ROWS - 1) >> _PAGE_SHIFT


@inner
def index_at(base: int, slot: int) -> int:
    """Give the address of an index entry."""
    return base + HEADER + 8 * slot


@inner
def cell_at(base: int, slots: int, columns: int, row: int, column: int) -> int:
    """Give the address of one column of one row."""
    page = (row >> _PAGE_SHIFT) * columns + column
    return base + HEADER + 8 * (slots + (page << _PAGE_SHIFT) + (row & (PAGE_ROWS - 1)))


@inner
def heap_at(base: int, slots: int, columns: int) -> int:
    """Give the address of the heap."""
    return base + HEADER + 8 * (slots + page_count(slots) * columns * PAGE_ROWS)


def file_size(slots: int, columns: int, heap: int) -> int:
    """Give the size of a file with so many slots, columns and heap bytes."""
    return heap_at(0, slots, columns) + heap


def slots_for(rows: int) -> int:
    """Give the fewest slots, a power of two, that hold so many rows."""
    slots = FEWEST_SLOTS
    while row_limit(slots) < rows:
        slots *= 2
    return slots
