"""Check declared aggregates against a schema and compile them into an `Aggregation`.

Every fault is found before any is reported. Calls `declared_aggregates`, `numpy_columns` and the folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._model.errors import FerrymanError, InvalidConfiguration, OutputMismatch, StateSchemaChanged
from ferryman._state.aggregates.aggregate_fold import Fold
from ferryman._state.aggregates.collected import KINDS as COLLECTING
from ferryman._state.aggregates.collected import Collected
from ferryman._state.aggregates.declared_aggregates import DEFAULT_LG_K, Aggregate
from ferryman._state.aggregates.input_types import ADDING, type_fault
from ferryman._state.aggregates.kernels import Ints, frozen, is_outside
from ferryman._state.aggregates.picks import Pick, PickBy
from ferryman._state.aggregates.sketches import GREATEST_LG_K, LEAST_LG_K, ApproxDistinct, datasketches
from ferryman._state.aggregates.totals import Average, Count, Spread, Sum

# Those whose result depends on the order of rows.
BY_PLACE = ("first", "last", "collect_list", "collect_set")
_PICKING = ("min", "max", "first", "last")
_PICKING_BY = ("max_by", "min_by")
_KINDS = ("count", *ADDING, *_PICKING, *_PICKING_BY, *COLLECTING, "approx_distinct")


@dataclass(frozen=True)
class Aggregation:
    """Hold compiled aggregates: from rows to partials, to state, to results.

    Parameters
    ----------
    inputs : tuple of str
        The input columns that `partial` reads.
    state : pyarrow.Schema
        The columns of the state, and of a partial. A key not seen before has null in all of them.
    output : pyarrow.Schema
        The columns of the result, in declared order.
    """

    inputs: tuple[str, ...]
    state: pa.Schema
    output: pa.Schema
    folds: tuple[Fold, ...] = field(repr=False)
    types: tuple[pa.DataType, ...] = field(repr=False)

    @property
    def picks_by_place(self) -> bool:
        """Tell whether the order of rows matters: the first or last value is taken, or values are listed."""
        return any(
            isinstance(fold, PickBy) or (isinstance(fold, (Pick, Collected)) and fold.kind in BY_PLACE)
            for fold in self.folds
        )

    def adding(self, column: str, type: pa.DataType, *folds: Fold) -> Aggregation:
        """Give the same with more folds, all of one column or of none."""
        types = dict(zip(self.inputs, self.types, strict=True)) | {column: type}
        return Aggregation(
            inputs=tuple(types),
            state=pa.schema([*self.state, *(part for fold in folds for part in fold.state)]),
            output=pa.schema([*self.output, *(fold.output for fold in folds)]),
            folds=(*self.folds, *folds),
            types=tuple(types.values()),
        )

    def counting(self, name: str) -> Aggregation:
        """Give the same, and the number of rows under a name."""
        count = Count.of(name, None)
        return replace(
            self,
            state=pa.schema([*self.state, *count.state]),
            output=pa.schema([*self.output, count.output]),
            folds=(*self.folds, count),
        )

    def partial(self, rows: pa.Table, index: npt.NDArray[np.integer], n: int) -> pa.Table:
        """Fold rows, in the source's order, into n partials; row i belongs to key `index[i]`."""
        places = _places(index, rows.num_rows if self.inputs else len(index), n)
        columns = {name: _input(rows, name, kind) for name, kind in zip(self.inputs, self.types, strict=True)}
        parts: list[pa.Array] = []
        for fold in self.folds:
            parts += fold.partial(_rows_of(fold, columns), places, n)
        return pa.Table.from_arrays(parts, schema=self.state)

    def merge(self, state: pa.Table, partials: pa.Table, index: npt.NDArray[np.integer], n: int) -> pa.Table:
        """Fold partials, in order, into the state of n keys; partial j belongs to key `index[j]`."""
        places = _places(index, partials.num_rows, n)
        if state.num_rows != n:
            raise FerrymanError(f"{state.num_rows} rows of state for {n} keys. This is a fault in Ferryman.")
        parts: list[pa.Array] = []
        for fold in self.folds:
            parts += fold.merge(_states(state, fold), _states(partials, fold), places, n)
        return pa.Table.from_arrays(parts, schema=self.state)

    def result(self, state: pa.Table) -> pa.Table:
        """Give one row of results per row of state."""
        return pa.Table.from_arrays([fold.result(_states(state, fold)) for fold in self.folds], schema=self.output)


def compile_aggregates(declared: Mapping[str, Aggregate], inputs: pa.Schema) -> Aggregation:
    """Compile declared aggregates, named by their output columns, for rows of a schema.

    Raises
    ------
    InvalidConfiguration
        If any declaration does not fit the schema; all faults are listed.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from ferryman.aggregates import avg, count
    >>> rows = pa.table({"value": [1.0, 3.0, 5.0]})
    >>> aggregation = compile_aggregates({"n": count(), "mean": avg("value")}, rows.schema)
    >>> partials = aggregation.partial(rows, np.array([0, 0, 1]), 2)
    >>> aggregation.result(partials).to_pylist()
    [{'n': 2, 'mean': 2.0}, {'n': 1, 'mean': 5.0}]
    """
    faults = [] if declared else ["no aggregate is declared; declare at least one, such as n=count()"]
    folds: list[Fold] = []
    for name, aggregate in declared.items():
        found = _faults(name, aggregate, inputs)
        faults += found
        if not found:
            folds.append(_fold(name, aggregate, inputs))
    faults += _collisions(folds)
    if faults:
        raise InvalidConfiguration.of(faults)
    used = [column for fold in folds for column in (fold.column, fold.by.column if isinstance(fold, PickBy) else None)]
    needed = tuple(dict.fromkeys(column for column in used if column is not None))
    return Aggregation(
        inputs=needed,
        state=pa.schema([part for fold in folds for part in fold.state]),
        output=pa.schema([fold.output for fold in folds]),
        folds=tuple(folds),
        types=tuple(inputs.field(name).type for name in needed),
    )


def _faults(name: str, aggregate: object, inputs: pa.Schema) -> list[str]:
    if not isinstance(aggregate, Aggregate):
        return [f"{name}: {aggregate!r} is not an aggregate; call one of ferryman.aggregates, as in count()"]
    kind, column = aggregate.kind, aggregate.column
    if kind not in _KINDS:
        return [f"{name}: no aggregate is called {kind!r}; use one of {', '.join(_KINDS)}"]
    faults = _sketch_faults(name, aggregate) if kind == "approx_distinct" else _number_faults(name, aggregate)
    if kind == "count" and column is None:
        return faults
    for named in (column, aggregate.by) if kind in _PICKING_BY else (column,):
        faults += _column_faults(f"{name}: {kind}", kind, named, inputs)
    return faults


def _column_faults(where: str, kind: str, column: object, inputs: pa.Schema) -> list[str]:
    if not isinstance(column, str):
        return [f"{where}() needs the name of a column, not {column!r}"]
    found = inputs.get_all_field_indices(column)
    if len(found) != 1:
        why = f"the rows have {len(found)} columns of that name" if found else "the rows have no such column"
        fix = "rename all but one" if found else f"use one of {', '.join(inputs.names) or '(there are none)'}"
        return [f"{where}({column!r}): {why}; {fix}"]
    fault = type_fault(kind, inputs.field(found[0]).type)
    return [f"{where}({column!r}): {fault}"] if fault else []


def _number_faults(name: str, aggregate: Aggregate) -> list[str]:
    for parameter, number in aggregate.parameters:
        whole = isinstance(number, int) and not isinstance(number, bool)
        if parameter == "n" and not (whole and number > 0):
            return [f"{name}: {aggregate.kind}(n={number!r}): give how many to keep, a whole number above 0"]
        if parameter == "part" and not (isinstance(number, (int, float)) and 0 <= number <= 1):
            return [f"{name}: percentile(part={number!r}): give a number from 0 to 1; 0.5 for the median"]
    return []


def _sketch_faults(name: str, aggregate: Aggregate) -> list[str]:
    faults = []
    lg_k: object = dict(aggregate.parameters).get("lg_k", DEFAULT_LG_K)
    if not isinstance(lg_k, int) or not LEAST_LG_K <= lg_k <= GREATEST_LG_K:
        faults.append(f"{name}: lg_k is {lg_k!r}; give an integer from {LEAST_LG_K} to {GREATEST_LG_K}")
    if datasketches() is None:
        faults.append(
            f"{name}: approx_distinct() needs the package datasketches, which is not installed; "
            "install ferryman[sketches]"
        )
    return faults


def _fold(name: str, aggregate: Aggregate, inputs: pa.Schema) -> Fold:
    kind, column = aggregate.kind, aggregate.column
    if kind == "count" or column is None:
        return Count.of(name, column)
    type = inputs.field(column).type
    if kind == "sum":
        return Sum.of(name, column, whole=pa.types.is_integer(type))
    if kind == "avg":
        return Average.of(name, column)
    if kind in ("variance", "stddev"):
        return Spread.of(name, column, root=kind == "stddev")
    if kind == "approx_distinct":
        return ApproxDistinct.of(name, column, int(dict(aggregate.parameters).get("lg_k", DEFAULT_LG_K)))
    if kind in COLLECTING:
        return Collected.of(name, column, kind, type, next((number for _, number in aggregate.parameters), 0))
    if aggregate.by is not None:
        return PickBy.of(name, column, kind, type, aggregate.by, inputs.field(aggregate.by).type)
    return Pick.of(name, column, kind, type)


def _collisions(folds: list[Fold]) -> list[str]:
    owners: dict[str, list[str]] = {}
    for fold in folds:
        for part in fold.state:
            owners.setdefault(part.name, []).append(fold.name)
    return [
        f"{' and '.join(names)} would both keep a state column {column!r}; rename one of them"
        for column, names in owners.items()
        if len(names) > 1
    ]


def _places(index: npt.NDArray[np.integer], size: int, n: int) -> Ints:
    places = frozen(np.ascontiguousarray(index, dtype=np.int64))
    if len(places) != size or is_outside(places, n):
        # The kernels write where the index points: a wrong one must not get that far.
        raise FerrymanError(
            f"an index of {len(places)} positions does not fit {size} rows and {n} keys. This is a fault in "
            "Ferryman; please report it with this message."
        )
    return places


def _rows_of(fold: Fold, columns: Mapping[str, pa.Array]) -> pa.Array | None:
    if isinstance(fold, PickBy):
        return pa.StructArray.from_arrays([columns[fold.column], columns[fold.by.column]], ["value", "by"])
    return None if fold.column is None else columns[fold.column]


def _input(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    array = _whole(rows, name)
    if array is None or array.type != kind:
        raise OutputMismatch(
            f"column {name!r} is {'missing' if array is None else array.type} where the aggregates were "
            f"compiled for {kind}: the rows changed after the stream was declared. Declare it "
            "again with the new schema."
        )
    return array


def _states(table: pa.Table, fold: Fold) -> list[pa.Array]:
    arrays = []
    for part in fold.state:
        array = _whole(table, part.name)
        if array is None or array.type != part.type:
            raise StateSchemaChanged(
                f"state column {part.name!r} is {'missing' if array is None else array.type}, but aggregate "
                f"{fold.name!r} keeps {part.type}: the aggregate or its input changed since the state was "
                "written. Give the aggregate a new name, or start from a new checkpoint."
            )
        arrays.append(array)
    return arrays


def _whole(table: pa.Table, name: str) -> pa.Array | None:
    try:
        chunked = table.column(name)
    except KeyError:
        return None
    return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
