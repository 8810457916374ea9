"""What is done with two keyed streams: `connect` gives them one operator, `join` makes pairs of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from ferryman._engine.broadcast import Broadcast
from ferryman._engine.operator_spec import OperatorSpec, TimeSpec
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.interval import seconds
from ferryman._operator.cells.variables import due_table
from ferryman._operator.declare.two_inputs import INPUT, TwoInputOperator
from ferryman._operator.run.join_runner import LEFT, MATCHED, RIGHT, STATE, JoinRunner, JoinSide
from ferryman._spark.api.paired import TIME, Paired, column_of
from ferryman._spark.api.stateful_spec import repeated
from ferryman._spark.plan.schema import to_arrow
from ferryman._state import flat_structs
from ferryman._state import store as stores
from ferryman._state.keys import KeySchema
from ferryman._state.tables import DUE_TIME, DUE_WHAT, POSITION, TableSpec
from ferryman._state.words import fits_word

if TYPE_CHECKING:
    from ferryman._spark.api.keyed import KeyedStream
    from ferryman._spark.api.stream import Stream

_HOW = {
    "inner": "inner", "left": "left", "leftouter": "left", "right": "right", "rightouter": "right", "full": "full",
    "outer": "full", "fullouter": "full", "semi": "semi", "leftsemi": "semi", "anti": "anti", "leftanti": "anti",
    "asof": "as_of",
}  # fmt: skip
# A join that puts nothing out when rows go lets them go in so many steps of the time that they are kept.
_STEPS = 16


class ConnectedStreams:
    """Two keyed streams that one operator is to process; `KeyedStream.connect` makes it."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        self._paired = Paired(left, right)

    def process(
        self,
        operator: type[TwoInputOperator],
        name: str | None = None,
        *,
        broadcast: Mapping[str, Broadcast] | None = None,
    ) -> Stream:
        """Run an operator on both streams: `process_left` and `process_right`, with state that they share.

        Parameters
        ----------
        operator
            A class derived from `TwoInputOperator`.
        name, broadcast
            As for `KeyedStream.process`.
        """
        from ferryman._spark.api.keyed import KeyedStream

        if not (isinstance(operator, type) and issubclass(operator, TwoInputOperator)):
            raise InvalidConfiguration(
                f"connect needs a class derived from TwoInputOperator, and got {operator!r}. Derive it from that, with "
                "process_left(self, key, row) and process_right(self, key, row)."
            )
        base = TwoInputOperator
        if base.process_left is operator.process_left or base.process_right is operator.process_right:
            raise InvalidConfiguration(
                f"operator {operator.__name__!r} needs both process_left(self, key, row) and process_right(self, key, "
                "row): one for the rows of each stream."
            )
        keyed = KeyedStream(self._paired, self._paired.keyed[0].names)
        return keyed.process(operator, name, broadcast=broadcast)


def join(
    left: KeyedStream,
    right: KeyedStream,
    *,
    within: str | float | None,
    lower: str | float | None,
    upper: str | float | None,
    how: str,
    name: str | None,
) -> Stream:
    """Join two keyed streams; see `KeyedStream.join`."""
    from ferryman._spark.api.keyed import KeyedStream

    kind = _HOW.get(str(how).replace("_", "").lower())
    if kind is None:
        raise InvalidConfiguration(f"join(how={how!r}): give inner, left, right, full, semi, anti or as_of.")
    bounds = _bounds(within, lower, upper)
    if kind == "as_of":
        if within is None:
            raise InvalidConfiguration(
                'join(how="as_of") takes the newest right row that is not later than the left one: give within=, how '
                "old it may be."
            )
        bounds = (bounds[0], 0)
    # A null joins nothing; a row with one is only kept where it is put out alone.
    paired = Paired(left, right, whole_keys=kind in ("inner", "semi"))
    _refuse_timeless(paired)
    keyed = KeyedStream(paired, left.names)
    label = name or "join_" + "_".join(left.names)
    spec, output = _spec(paired, label, kind, bounds)
    keyed.check(label, spec.state)
    return keyed.operated(spec, output)


def _bounds(within: str | float | None, lower: str | float | None, upper: str | float | None) -> tuple[int, int]:
    """Give by how many microseconds the right row may be later than the left one, from the least to the most."""
    if (within is None) == (lower is None and upper is None) or (lower is None) != (upper is None):
        raise InvalidConfiguration(
            'a join of two streams needs a bound, or it would keep all rows for ever: join(..., within="10 minutes"), '
            'or by how much the right row is later than the left one, join(..., lower="-5 minutes", upper="1 hour").'
        )
    if within is not None:
        most = _microseconds("within", within)
        if most < 0:
            raise InvalidConfiguration(f"join(within={within!r}): give a time that is not negative.")
        return -most, most
    least, most = _microseconds("lower", lower), _microseconds("upper", upper)
    if least > most:
        raise InvalidConfiguration(
            f"join(lower={lower!r}, upper={upper!r}): no row of the right is in between. Let lower be the lesser: it "
            "is by how much the right row is later than the left one, negative where it is earlier."
        )
    return least, most


def _microseconds(option: str, value: str | float | None) -> int:
    text = value.strip() if isinstance(value, str) else value
    negative = isinstance(text, str) and text.startswith("-")
    plain = text[1:].strip() if negative and isinstance(text, str) else text
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        return round(plain * 1_000_000)
    try:
        found = seconds(plain)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"join({option}={value!r}): {error.message}") from error
    if found is None:
        raise InvalidConfiguration(f"join({option}={value!r}): give a time, for example '10 minutes'.")
    return round(found * 1_000_000) * (-1 if negative else 1)


def _refuse_timeless(paired: Paired) -> None:
    for side, part in zip((LEFT, RIGHT), paired.parts, strict=True):
        if part.event_time is None:
            raise InvalidConfiguration(
                f"a join goes by event time, and the {side} stream has no watermark, by which rows would ever go. Add "
                'with_watermark("time", "10 seconds") to it before key_by.'
            )


def _spec(paired: Paired, label: str, kind: str, bounds: tuple[int, int]) -> tuple[OperatorSpec, StructType]:
    left, _right = paired.keyed
    nulls = not paired.whole_keys
    sides = [_side(paired, number, kind, bounds) for number in (0, 1)]
    output, columns = _output(paired, kind)
    key = to_arrow(StructType([paired.schema[column] for column in left.names]))
    keyed = KeySchema(key, nulls=nulls)
    needed = [*left.names, INPUT, *sides[0].columns, *sides[1].columns, TIME]
    needed += [report.column for report, _ in paired.watermarks_reported()]
    inputs = to_arrow(StructType([paired.schema[column] for column in dict.fromkeys(needed)]))
    grid_ms = 1 if any(side.alone for side in sides) else max(1, (bounds[1] - bounds[0]) // 1000 // _STEPS)
    settings = {"join": f"{kind}, {bounds[0]} to {bounds[1]} us"}
    tables = [_table(label, label, keyed, STATE, settings)]
    for side in sides:
        kept = [inputs.field(column) for column in side.columns]
        flag = [pa.field(MATCHED, pa.bool_())] if side.flagged else []
        entries = KeySchema(pa.schema([*key, (POSITION, pa.int64())]), entries=True, nulls=nulls)
        tables.append(_table(f"{label}.{side.name}", label, entries, pa.schema([*kept, *flag])))
    due = pa.schema([(DUE_TIME, pa.int64()), *key, (DUE_WHAT, pa.string())])
    listed = KeySchema(due, entries=True, nulls=nulls)
    tables.append(
        TableSpec(name=due_table(label), operator=label, key=listed, state=pa.schema([]), backend=stores.GENERAL[0])
    )
    runner = JoinRunner(
        left=sides[0],
        right=sides[1],
        lower_us=bounds[0],
        upper_us=bounds[1],
        pairs=kind in ("inner", "left", "right", "full", "as_of"),
        semi=kind == "semi",
        newest=kind == "as_of",
        columns=columns,
        output=to_arrow(output),
        grid_ms=grid_ms,
    )
    time = TimeSpec(due=due_table(label), by_watermark=True)
    spec = OperatorSpec(
        name=label, key=keyed, input=inputs, tables=tuple(tables), output=runner.output, runner=runner, time=time
    )
    return spec, output


def _table(
    name: str, label: str, key: KeySchema, state: pa.Schema, settings: Mapping[str, str] | None = None
) -> TableSpec:
    # The rows of a key are found by their numbers, so no order is needed.
    narrow = all(fits_word(kind) for kind in flat_structs.schema(state).types)
    backend = "columnar" if narrow else stores.GENERAL[0]
    return TableSpec(name=name, operator=label, key=key, state=state, backend=backend, settings=settings or {})


def _side(paired: Paired, number: int, kind: str, bounds: tuple[int, int]) -> JoinSide:
    side = paired.keyed[number]
    time = side.parent.event_time
    assert time is not None, "a stream without is refused"
    shown = number == 0 or kind not in ("semi", "anti")
    names = [name for name in side.parent.schema.names if name not in side.names] if shown else []
    if time.column not in names:
        names.append(time.column)
    return JoinSide(
        name=(LEFT, RIGHT)[number],
        columns=tuple(column_of(number, name) for name in names),
        time=column_of(number, time.column),
        lasts_us=bounds[1] if number == 0 else -bounds[0],
        alone=kind in (("left", "full", "anti", "as_of") if number == 0 else ("right", "full")),
        once=number == 0 and kind in ("semi", "anti"),
    )


def _output(paired: Paired, kind: str) -> tuple[StructType, tuple[tuple[str | None, int | str], ...]]:
    """Give the columns that a join puts out, named as Spark's, and what each of them is of."""
    left, right = paired.keyed
    both = kind not in ("semi", "anti")
    same = left.names == right.names
    fields: list[StructField] = []
    columns: list[tuple[str | None, int | str]] = []
    listed: list[Any] = [(None, 0, name) for name in left.names] if same else []
    for number, side in enumerate((left, right)[: 2 if both else 1]):
        listed += [(number, number, name) for name in side.parent.schema.names if not same or name not in side.names]
    for of, number, name in listed:
        side = (left, right)[number]
        fields.append(StructField(name, side.parent.schema[name].dataType))
        of_key = list(side.names).index(name) if name in side.names else None
        columns.append(
            (None if of is None else (LEFT, RIGHT)[of], column_of(number, name) if of_key is None else of_key)
        )
    twice = repeated([field.name for field in fields], exactly=left.parent.case_sensitive)
    if twice:
        raise InvalidConfiguration(
            f"both streams have a column {twice[0]!r}, and the rows of a join have both. Rename one before key_by: "
            f'withColumnRenamed("{twice[0]}", "other_{twice[0]}").'
        )
    return StructType(fields), tuple(columns)
