"""`groupBy(window(...), "shop")` as Spark writes it: declared aggregates by key and window, under Spark's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import NumericType

from ferryman._model.errors import InvalidConfiguration, NotOnStream
from ferryman._operator.run.window_runner import WINDOW
from ferryman._spark.api.column_names import grouping_name
from ferryman._state.aggregates import declared_aggregates
from ferryman._state.aggregates.declared_aggregates import Aggregate

if TYPE_CHECKING:
    from ferryman._spark.api.stream import Stream
    from ferryman._spark.api.windowed import WindowedStream

_CALL = re.compile(r"Column<'(window|session_window)\((.*)\)'>")
_ALIASED = re.compile(r"Column<'(?:window|session_window)\(.*\) AS .*'>")
# What Spark has for a column by name, by the name that Spark has for it.
_BY_NAME = {
    "sum": declared_aggregates.sum,
    "avg": declared_aggregates.avg,
    "mean": declared_aggregates.avg,
    "min": declared_aggregates.min,
    "max": declared_aggregates.max,
    "count": declared_aggregates.count,
    "stddev": declared_aggregates.stddev,
    "variance": declared_aggregates.variance,
    "first": declared_aggregates.first,
    "last": declared_aggregates.last,
    "median": declared_aggregates.median,
    "collect_list": declared_aggregates.collect_list,
    "collect_set": declared_aggregates.collect_set,
}
_SHOWN = {"mean": "avg"}
_NUMERIC = ("sum", "avg", "mean", "min", "max")


class Call(NamedTuple):
    """A window that `groupBy` got."""

    kind: str
    arguments: tuple[str, ...]


def window_of(column: Any) -> Call | None:
    """Read a column that `pyspark.sql.functions.window` or `session_window` made; None for every other."""
    if _ALIASED.fullmatch(str(column)):
        raise InvalidConfiguration(
            f"groupBy got {column!r}: a window has its own name in the output. Leave alias out, and rename the column "
            f'after the aggregates: withColumnRenamed("{WINDOW}", ...).'
        )
    found = _CALL.fullmatch(str(column))
    if found is None:
        return None
    return Call(found[1], tuple(argument.strip("'") for argument in found[2].split(", ")))


class GroupedWindows:
    """A stream grouped by a window of time and columns: what `Stream.groupBy` gives for these."""

    def __init__(self, stream: Stream, columns: Sequence[Any]) -> None:
        calls = [window_of(column) for column in columns]
        windows = [call for call in calls if call is not None]
        names = [
            None if call else grouping_name(column, stream.schema) for column, call in zip(columns, calls, strict=True)
        ]
        keys = [name for name in names if name is not None]
        if len(windows) > 1 or not keys:
            raise InvalidConfiguration(
                "groupBy got "
                + ("several windows" if len(windows) > 1 else "a window and no column")
                + ": rows are grouped by one window and a column or more, as the state of a key is in one place."
            )
        keyed = stream.key_by(*keys)
        (call,) = windows
        time, *lengths = call.arguments
        self._windows: WindowedStream = (
            keyed.session(time, *lengths) if call.kind == "session_window" else _window(keyed, time, lengths)
        )
        self._kind = call.kind
        # As Spark has the columns: in the order in which they were named.
        self._order = [name or call.kind for name in names]
        self._first = names[0] is None

    def aggregate(self, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Keep declared aggregates, as `key_by(...).window(...).aggregate` does, with the columns in Spark's order."""
        made = self._windows.aggregate(name, **aggregates)
        if self._kind != WINDOW:
            made = made.withColumnRenamed(WINDOW, self._kind)
        if self._first:
            return made
        return made.select(*(f"`{column}`" for column in (*self._order, *aggregates)))

    def agg(self, exprs: Mapping[str, str], *others: Any, name: str | None = None) -> Stream:
        """Keep aggregates given as a dict from column to function, as `GroupedData.agg` takes it.

        `name` is the operator's in the checkpoint, here and below.
        """
        if others or not isinstance(exprs, Mapping):
            raise NotOnStream(
                "agg takes a dict on a stream, {'amount': 'sum'}. For more, write aggregate(total=sum('amount')) with "
                "what ferryman.aggregates has, which has the names of Spark's functions."
            )
        made = {}
        for column, function in exprs.items():
            known = _BY_NAME.get(function := str(function).lower())
            if column == "*" and function == "count":
                made["count(1)"] = declared_aggregates.count()
                continue
            if known is None:
                raise InvalidConfiguration(
                    f"agg got the function {function!r} for {column!r}; there are {', '.join(sorted(_BY_NAME))}."
                )
            made[f"{_SHOWN.get(function, function)}({column})"] = known(column)
        return self.aggregate(name, **made)

    def count(self, *, name: str | None = None) -> Stream:
        """Count the rows of each group, in a column `count`."""
        return self.aggregate(name, count=declared_aggregates.count())

    def __getattr__(self, name: str) -> Any:
        if name in _NUMERIC:
            return partial(self._each, name)
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NotOnStream(
            f"a stream grouped by windows has no {name!r}. Write aggregate(n=count()) with what ferryman.aggregates "
            "has."
        )

    def _each(self, function: str, *columns: str, name: str | None = None) -> Stream:
        """Aggregate columns, or all that are numbers, under the names that Spark gives them."""
        schema, keyed = self._windows.keyed.parent.schema, self._windows.keyed
        numbers = [field.name for field in schema if isinstance(field.dataType, NumericType)]
        chosen = columns or tuple(column for column in numbers if column not in keyed.names)
        shown = _SHOWN.get(function, function)
        return self.aggregate(name, **{f"{shown}({column})": _BY_NAME[function](column) for column in chosen})


def _window(keyed: Any, time: str, lengths: Sequence[str]) -> WindowedStream:
    size, every, start = lengths
    windows: WindowedStream = keyed.window(time, size, every, start=start)
    return windows
