"""From keys that a reader asks for to the key groups that have them: all others need not be read.

Keys are hashed as Spark hashes them, which routes them. Of a table of entries, the hash covers the operator's own key
and not the subkey. Calls `spark_hash`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._log.files.cards import schemas_of
from ferryman._model.card import JobCard
from ferryman._model.errors import UnknownOption
from ferryman._model.key_groups import group_of
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.spark_hash import spark_hash
from ferryman._state.store.contract import HASH
from ferryman._state.tables import DUE_TIME, DUE_WHAT, PANE, POSITION

# What a subkey is made of, beside the columns of a map's own key.
_OF_SUBKEYS = {DUE_TIME, DUE_WHAT, PANE, POSITION}
_OF_MAPS = "_key."


@dataclass(frozen=True, eq=False)
class KeysAsked:
    """Some keys of an operator.

    Attributes
    ----------
    schema
        The columns of the key that Spark's hash covers.
    hashes
        The hash of each key.
    raw
        Each key in its canonical form, which tells it from another of the same hash.
    """

    schema: KeySchema
    hashes: npt.NDArray[np.int64]
    raw: frozenset[bytes]

    @classmethod
    def parse(cls, text: str, card: JobCard, table: str) -> KeysAsked:
        """Read keys as they are written in an option: a JSON list, in which a key of several columns is a list too.

        Texts stand for values of any type: dates, times, decimals.
        """
        key = _hashed(card, table)
        columns = ", ".join(f"{field.name} {field.type}" for field in key.fields)
        try:
            listed = json.loads(text)
            if not isinstance(listed, list):
                raise TypeError("no list")
            rows = [tuple(item) if isinstance(item, list) else (item,) for item in listed]
            if any(len(row) != len(key.fields) for row in rows):
                raise TypeError("another number of columns")
            arrays = [
                pa.concat_arrays([_typed(row[place], field.type) for row in rows] or [pa.array([], field.type)])
                for place, field in enumerate(key.fields)
            ]
        except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException) as error:
            raise UnknownOption(
                f"keys={text[:200]!r} are no keys of {table!r}, which is keyed by {columns} ({error}). Write them as a "
                'list in JSON, ["s-1", "s-2"]; where a key has several columns, each is a list too: [["s-1", 7]].'
            ) from error
        return cls.of(key, arrays)

    @classmethod
    def of(cls, key: KeySchema, columns: Sequence[pa.Array]) -> KeysAsked:
        """Take keys from their columns."""
        hashes = spark_hash(columns)
        keys = Keys.of(key, hashes, columns)
        return cls(key, hashes, frozenset(map(keys.raw, range(len(keys)))))

    def groups(self, total: int) -> npt.NDArray[np.int64]:
        """Give the key groups that have them."""
        return np.unique(group_of(self.hashes, total))

    def rows_of(self, rows: pa.Table) -> pa.Table:
        """Keep the rows of these keys."""
        rows = rows.filter(pc.is_in(rows.column(HASH), pa.array(self.hashes)))
        found = Keys.of(
            self.schema, rows.column(HASH).to_numpy(), [rows.column(name) for name in self.schema.fields.names]
        )
        mine = [found.raw(place) in self.raw for place in range(len(found))]
        return rows.filter(pa.array(mine, pa.bool_()))


def _typed(value: Any, kind: pa.DataType) -> pa.Array:
    # What JSON has as a fraction, Arrow would cut off where the key is a whole number.
    return pa.array([value]).cast(kind) if isinstance(value, (str, float)) else pa.array([value], kind)


def _hashed(card: JobCard, table: str) -> KeySchema:
    """Give the columns of a table's key that Spark's hash covers."""
    columns = card.tables[table]
    key, _ = schemas_of(columns)
    names = list(key.fields.names)
    if key.entries:
        own = card.tables.get(columns.operator)
        first = [name for name, _ in own.key if name != PANE] if own else []
        rest = [name for name in names if name not in first]
        of_subkey = [name for name in rest if name in _OF_SUBKEYS or name.startswith(_OF_MAPS)]
        if not first or not set(first) <= set(names) or not rest or of_subkey != rest:
            raise UnknownOption(
                f"table {table!r} has no rows of single keys: it is of instances or of key groups. Leave keys out."
            )
        names = first
    return KeySchema(pa.schema([key.fields.field(name) for name in names]), nulls=key.nulls)
