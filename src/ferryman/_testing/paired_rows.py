"""Put the rows of two streams together without Spark, as an operator on both reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ferryman._operator.declare.two_inputs import INPUT
from ferryman._spark.api.paired import TIME, Paired, column_of
from ferryman._spark.plan.schema import to_arrow


def paired_rows(paired: Paired, tables: Sequence[pa.Table]) -> pa.Table:
    """Give the rows of the left table, then those of the right one."""
    schema = to_arrow(paired.task_columns)
    parts = []
    for number, (side, rows) in enumerate(zip(paired.keyed, tables, strict=True)):
        keys = dict(zip(paired.keyed[0].names, side.names, strict=True))
        own = {column_of(number, name): name for name in rows.column_names}
        time = side.parent.event_time
        columns = []
        for field in schema:
            name = keys.get(field.name) or own.get(field.name)
            if field.name == INPUT:
                column: pa.Array | pa.ChunkedArray = pa.repeat(pa.scalar(number, pa.int8()), rows.num_rows)
            elif field.name == TIME and time is not None:
                column = rows.column(time.column)
            else:
                column = pa.nulls(rows.num_rows, field.type) if name is None else rows.column(name)
            columns.append(column)
        parts.append(pa.Table.from_arrays(columns, schema=schema))
    rows = pa.concat_tables(parts)
    for name in paired.keyed[0].names if paired.whole_keys else ():
        rows = rows.filter(rows.column(name).is_valid())
    return rows
