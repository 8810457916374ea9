"""An operator that keeps more than values: lists, maps, windows, timers, broadcast states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import StructType

from ferryman._engine.broadcast import Broadcast
from ferryman._engine.operator_spec import OperatorSpec, TimeSpec
from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.cells import group_table, tables_of
from ferryman._operator.declare.operator import Operator
from ferryman._operator.run.stateful_runner import StatefulRunner
from ferryman._operator.types.collections import PerInstance
from ferryman._operator.types.windows import Window
from ferryman._spark.plan.schema import to_arrow
from ferryman._state.keys import KeySchema
from ferryman._state.tables import TableSpec


def stateful_spec(
    operator: type[Operator],
    label: str,
    inputs: StructType,
    key: pa.Schema,
    values: pa.Schema,
    output: pa.Schema,
    sides: Mapping[str, pa.Schema],
    broadcasts: Mapping[str, Broadcast],
) -> OperatorSpec:
    """Say what an operator is, from its class and the stream it is on; refuse states whose names cannot be."""
    _check_names(operator, label, broadcasts)
    (first, *others), due = _tables(operator, label, key, values)
    others += [state.table(label, name, to_arrow(state.stream.schema)) for name, state in broadcasts.items()]
    settings = operator._settings()
    if due is not None:
        settings["by_event_time"] = str(operator.by_event_time)
    first = replace(first, evolution=operator.evolution(), settings=settings)
    runner = StatefulRunner(
        operator=operator,
        input=tuple(inputs.names),
        values=tuple(values.names),
        states=tuple(operator.states()),
        state=first.state,
        output=output,
        sides=sides,
        broadcasts={table.name: len(table.key.fields) for table in others if table.broadcast},
    )
    time = TimeSpec(due=due, by_watermark=operator.by_event_time)
    tables = (first, *others)
    return OperatorSpec(
        name=label,
        key=KeySchema(key),
        input=to_arrow(inputs),
        tables=tables,
        output=output,
        runner=runner,
        time=time,
        dropped=operator.dropped,
        sides=sides,
    )


def _tables(
    operator: type[Operator], label: str, key: pa.Schema, values: pa.Schema
) -> tuple[tuple[TableSpec, ...], str | None]:
    """Give the tables of an operator, its own first, and which of them has what is due."""
    states = operator.states().values()
    tables, due = tables_of(
        label,
        key,
        [state.variable() for state in states if not isinstance(state, PerInstance)],
        timers=operator.due is not Operator.due,
        values=values,
        windows=any(isinstance(state, Window) for state in states),
    )
    per_group = [
        group_table(label, state.stored_as, state.record()) for state in states if isinstance(state, PerInstance)
    ]
    return (*tables, *per_group), due


def _check_names(operator: type[Operator], label: str, broadcasts: Collection[str]) -> None:
    kept = [state.stored_as for state in operator.states().values()]
    hidden = [name for name in (*operator.states(), *kept, *broadcasts) if name.startswith("_")]
    if hidden:
        raise InvalidConfiguration(
            f"operator {label!r} declares state {hidden[0]!r}; names with a leading '_' are Ferryman's."
        )
    shared = repeated([*kept, *operator.values()], exactly=True)
    if shared:
        raise InvalidConfiguration(
            f"operator {label!r} keeps two states as {shared[0]!r}: one has that name, and one has it as its "
            "alias. Give the new one another name."
        )
    taken = [name for name in broadcasts if name in (*operator.states(), *operator.values(), *kept)]
    if taken:
        raise InvalidConfiguration(
            f"operator {label!r} declares state {taken[0]!r} and gets a broadcast state of that name. Rename one."
        )


def repeated(names: Sequence[str], *, exactly: bool) -> list[str]:
    """List the names that stand more than once; Spark by itself takes no note of upper and lower case.

    Examples
    --------
    >>> repeated(["a", "A", "b"], exactly=False), repeated(["a", "A", "b"], exactly=True)
    (['a', 'A'], [])
    """
    counts = Counter(name if exactly else name.lower() for name in names)
    return [name for name in names if counts[name if exactly else name.lower()] > 1]
