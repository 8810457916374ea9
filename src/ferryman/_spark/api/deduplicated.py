"""`dropDuplicates` and `dropDuplicatesWithinWatermark` on a stream: an operator that passes on what it has not seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from ferryman._engine.operator_spec import OperatorSpec, TimeSpec
from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.cells.variables import due_table
from ferryman._operator.run.deduplicate_runner import STATE, DeduplicateRunner
from ferryman._spark.plan.schema import to_arrow
from ferryman._state import store as stores
from ferryman._state.keys import KeySchema
from ferryman._state.tables import DUE_TIME, DUE_WHAT, TableSpec

if TYPE_CHECKING:
    from ferryman._spark.api.stream import Stream


def deduplicated(
    stream: Stream, subset: Sequence[str] | None, *, within_watermark: bool, name: str | None = None
) -> Stream:
    """Leave out the rows that are like an earlier one in some columns, or in all."""
    what = "dropDuplicatesWithinWatermark" if within_watermark else "dropDuplicates"
    if isinstance(subset, str) or (subset is not None and not all(isinstance(column, str) for column in subset)):
        raise InvalidConfiguration(f'{what}({subset!r}): give a list of names, for example ["id"].')
    keyed = stream.key_by(*(stream.schema.names if subset is None else dict.fromkeys(subset)))
    given = stream.event_time
    if within_watermark and given is None:
        raise InvalidConfiguration(
            "dropDuplicatesWithinWatermark goes by event time, and the stream has no watermark. Add "
            'with_watermark("time", "10 seconds") before it.'
        )
    kind = "deduplicate_within" if within_watermark else "deduplicate"
    label = name or "_".join([kind, *(re.sub(r"\W", "_", column) for column in (subset or ()))])
    delays = [report.delay_ms for report, _ in stream.watermarks_reported()]
    # Where the time is of the key, rows that are like the first one are late once the watermark is there.
    forgets = given is not None and (within_watermark or given.column in keyed.names)
    time = given.column if given is not None and forgets else None
    lasts_ms = max([given.delay_ms, *delays]) if given is not None and within_watermark else 0
    runner = DeduplicateRunner(output=to_arrow(stream.schema), time=time, lasts_us=lasts_ms * 1000)
    key = KeySchema(keyed.key, nulls=True)
    keyed.check(label, STATE)
    table = TableSpec(
        name=label,
        operator=label,
        key=key,
        state=STATE,
        backend=stores.choose(key, STATE),
        settings={"duplicates": "within the watermark" if within_watermark else "by time" if time else "for ever"},
    )
    tables = [table]
    if time is not None:
        listed = KeySchema(
            pa.schema([(DUE_TIME, pa.int64()), *keyed.key, (DUE_WHAT, pa.string())]), entries=True, nulls=True
        )
        tables.append(
            TableSpec(name=due_table(label), operator=label, key=listed, state=pa.schema([]), backend=stores.GENERAL[0])
        )
    spec = OperatorSpec(
        name=label,
        key=key,
        input=to_arrow(stream.schema),
        tables=tuple(tables),
        output=runner.output,
        runner=runner,
        time=TimeSpec(
            late=None if given is None else given.column,
            due=due_table(label) if time is not None else None,
            by_watermark=time is not None,
        ),
    )
    output = StructType(list(stream.schema.fields))
    return keyed.operated(spec, output, event_time=None if given is None else given.column)
