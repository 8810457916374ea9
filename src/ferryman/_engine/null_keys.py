"""What becomes of rows that have no value in their key."""

from __future__ import annotations

import pyarrow as pa

from ferryman._engine.operator_spec import OperatorSpec
from ferryman._model.errors import NullKey
from ferryman._state.compiled import Ints
from ferryman._state.store.contract import HASH


def key_columns(spec: OperatorSpec, epoch: int, rows: pa.Table, counts: Ints | None = None) -> list[pa.ChunkedArray]:
    """Take the key columns out of rows; a null among them is an error, unless it is a key of its own.

    With `counts`, each stands for so many rows.
    """
    columns = [rows.column(name) for name in spec.key.fields.names]
    for name, column in zip(spec.key.fields.names, columns, strict=True):
        if column.null_count and not spec.key.nulls:
            without = column.null_count if counts is None else counts[column.is_null().to_numpy()].sum()
            bad = rows.filter(column.is_null()).slice(0, 1).drop_columns([HASH]).to_pylist()[0]
            raise NullKey(
                f"operator {spec.name!r}, epoch {epoch}: {without} rows have no value in the key "
                f"column {name!r}, for example {bad!r}. A row without a key belongs to no instance. Filter such rows "
                "out or give them a key (F.coalesce) before key_by. The epoch was not committed; no row is lost."
            )
    return columns
