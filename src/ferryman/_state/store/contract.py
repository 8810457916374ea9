"""What every store can do, and the shape of the tables that go in and out of one.

A *part* holds full rows: `_hash`, the key columns, the state columns. A *delta* is a part with
`_deleted` after `_hash`; where it is true the key is gone and the state columns are null. A key
appears at most once in either. Knows keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._model.errors import StaleTask
from ferryman._state.compiled import Ints
from ferryman._state.keys import Columns, Keys, KeySchema, prefixes
from ferryman._state.words import Mask, one_array

HASH = "_hash"
DELETED = "_deleted"


@dataclass(frozen=True, eq=False)
class Found:
    """What a lookup gave.

    Attributes
    ----------
    present
        For each key, whether it has state.
    state
        One row per key, in the order asked; nulls where it has none.
    """

    present: Mask
    state: pa.Table


@dataclass(frozen=True, eq=False)
class Ranges:
    """What a reading of ranges gave: for each row the number of its range, and the rows as a part."""

    index: Ints
    part: pa.Table


class Store(Protocol):
    """Hold the main copies of one operator's key groups in one home.

    Several processes may open a store on the same directory and keep it open, and several threads may use
    one. Each group is advanced as a whole: after a kill it is at its old epoch, at its new one, or has no
    main; it never holds a mixture. A home is a cache: whatever is missing, the caller rebuilds.
    """

    def epochs(self) -> Ints:
        """Give the epoch each group's main is at; -1 where there is no whole main."""

    def lookup(self, keys: Keys) -> Found:
        """Read the state of keys whose groups have mains.

        It does not keep writers out: read `epochs` again afterwards, and discard the answer if a group has moved.
        """

    def apply(self, delta: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        """Advance exactly these groups to an epoch.

        Rows of other groups are ignored; a group without rows only moves its epoch; a group already at
        the epoch is left alone. Before epoch 0 every main is empty, so epoch 0 needs none.

        Raises
        ------
        StaleTask
            If a group is beyond the epoch or has no main. Then nothing is changed.
        """

    def ingest(self, part: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        """Make the mains of these groups anew, of exactly the part's rows.

        As with `apply`, a group already at the epoch is left alone: somebody may be reading it.

        Raises
        ------
        StaleTask
            If a group is beyond the epoch. Then nothing is changed.
        """

    def scan(self, group: int, as_of: int) -> pa.Table:
        """Give all rows of a group as a part; `StaleTask` if its main is not at that epoch."""

    def ranges(self, groups: Sequence[int], low: Sequence[bytes], high: Sequence[bytes], limit: int) -> Ranges:
        """Read the rows of some ranges of keys, in the order of their canonical bytes; not every backend can.

        Parameters
        ----------
        groups
            The key group of each range.
        low, high
            Where each range begins, and where it has ended.
        limit
            How many rows of a range to give at the most.
        """

    def before(self, groups: npt.NDArray[np.integer], bound: pa.Scalar) -> pa.Table:
        """Give the rows of these groups whose key begins with a time before another, as a part; in no order.

        As with `lookup`, read `epochs` again afterwards.
        """

    def drop(self, groups: npt.NDArray[np.integer]) -> None:
        """Forget the mains of these groups."""

    def mapped_bytes(self) -> int:
        """Give how much of this process's address space the store can make resident, and release."""

    def release(self) -> None:
        """Give back the memory that `mapped_bytes` counts; the next call maps what it needs again."""

    def close(self) -> None:
        """Let go of everything; the mains stay."""


def part_schema(key: KeySchema, state: pa.Schema) -> pa.Schema:
    """Give the schema of a part."""
    return pa.schema([pa.field(HASH, pa.int64()), *key.fields, *state])


def delta_schema(key: KeySchema, state: pa.Schema) -> pa.Schema:
    """Give the schema of a delta."""
    return pa.schema([pa.field(HASH, pa.int64()), pa.field(DELETED, pa.bool_()), *key.fields, *state])


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a part or a delta, taken apart.

    Attributes
    ----------
    keys
        The key of each row.
    groups
        The key group of each row.
    deleted
        Whether a row deletes its key.
    state
        The state columns, each one contiguous array.
    """

    keys: Keys
    groups: Ints
    deleted: Mask
    state: list[pa.Array]

    @classmethod
    def of(cls, table: pa.Table, key: KeySchema, state: pa.Schema, within: Mask) -> Rows:
        """Take a part or a delta apart, keeping the rows whose group is marked in `within`."""
        hashes = one_array(table.column(HASH), pa.int64()).to_numpy()
        keys = Keys.of(key, hashes, _named(table, key.fields))
        groups = keys.groups(len(within)).astype(np.int64)
        columns = [one_array(column, dtype) for column, dtype in zip(_named(table, state), state.types, strict=True)]
        if DELETED in table.column_names:
            deleted = one_array(table.column(DELETED), pa.bool_()).to_numpy(zero_copy_only=False)
        else:
            deleted = np.zeros(len(keys), np.bool_)
        keep = within[groups]
        if not keep.all():
            chosen = np.flatnonzero(keep)
            keys, groups, deleted = keys.take(chosen), groups[chosen], deleted[chosen]
            columns = [column.take(pa.array(chosen)) for column in columns]
        return cls(keys, groups, deleted, columns)


def _named(table: pa.Table, schema: pa.Schema) -> Columns:
    return [table.column(name) for name in schema.names]


def mark(groups: npt.NDArray[np.integer], of: int) -> Mask:
    """Give a mask of all groups of a job that is true for the given ones."""
    marked = np.zeros(of, np.bool_)
    marked[groups] = True
    return marked


def to_advance(at: Ints, groups: Ints, epoch: int) -> Ints:
    """Give the groups that are still before an epoch.

    Parameters
    ----------
    at
        The epoch of every group of the job.
    groups
        The groups that a task wants to advance to `epoch`.
    """
    before = to_replace(at, groups, epoch)
    missing = before[at[before] < 0]
    if len(missing) and epoch > 0:
        raise StaleTask(
            f"Key group {missing[0]} has no main here, so epoch {epoch} cannot be applied to it: it was "
            "dropped, or a process was killed while writing it. Rebuild the main with ingest, then apply."
        )
    return before


def to_replace(at: Ints, groups: Ints, epoch: int) -> Ints:
    """Give the groups that are still before an epoch, with or without a main; none may be beyond it."""
    beyond = groups[at[groups] > epoch]
    if len(beyond):
        raise StaleTask(
            f"Key group {beyond[0]} is at epoch {at[beyond[0]]}, beyond epoch {epoch}: another task has "
            "taken this work over. Let this task end; its changes are not needed."
        )
    return groups[at[groups] < epoch]


def end_of(prefix: bytes) -> bytes:
    r"""Give the first byte string after all that begin with a prefix.

    Examples
    --------
    >>> end_of(b"ab"), end_of(b"a\xff")
    (b'ac', b'b')
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\xff" * (len(prefix) + 1)


def low_end(bound: pa.Scalar, *, nulls: bool) -> bytes:
    """Give the bytes before which all keys are that begin with a time before another."""
    return prefixes([pa.array([bound.value], bound.type)], [bound.type], nulls=nulls)[0]


def not_at(group: int, at: int, as_of: int) -> StaleTask:
    """Say that a group's main is not at the epoch a reader wants."""
    state = "has no main here" if at < 0 else f"is at epoch {at}"
    return StaleTask(
        f"Key group {group} {state}, but epoch {as_of} was asked for: the main has moved, or was never "
        "built. Advance it to that epoch and read again."
    )
