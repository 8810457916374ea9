"""Steps of a DataFrame that every epoch takes anew, with few calls of the JVM. Calls `task_function`.

For `mapInArrow` PySpark makes more than thirty calls, for `select` or `repartition` about ten. Each waits for the JVM.
What does not change from epoch to epoch is made once here. A Spark that this was not tried on gets PySpark's own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from ferryman._spark.compat.task_function import TRIED, TaskFunctions

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_UDF = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"


class _Sent:
    """Columns that are in the JVM already, for any DataFrame that has what they name."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns: Sequence[Any] = columns
        self._sequence: Any = None

    def to(self, frame: DataFrame) -> Any:
        if self._sequence is None:
            context: Any = frame.sparkSession.sparkContext
            sent = [column._jc for column in self._columns]
            self._sequence = context._jvm.PythonUtils.toSeq(sent)
        return self._sequence


def _named(names: Sequence[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in names]


class Selected:
    """Select columns. Tried on 4.3."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._sent = _Sent(columns)

    def of(self, frame: DataFrame) -> DataFrame:
        """Take the step."""
        if not TRIED:
            return frame.select(*self._columns)
        rows: Any = frame._jdf
        return DataFrame(rows.select(self._sent.to(frame)), frame.sparkSession)


class Repartitioned:
    """Part rows by the hash of a column. Tried on 4.3."""

    def __init__(self, partitions: int, column: str) -> None:
        self._partitions = partitions
        self._column = column
        self._sent = _Sent(_named([column]))

    def of(self, frame: DataFrame) -> DataFrame:
        """Take the step."""
        if not TRIED:
            return frame.repartition(self._partitions, self._column)
        rows: Any = frame._jdf
        return DataFrame(rows.repartition(self._partitions, self._sent.to(frame)), frame.sparkSession)


class MappedInArrow:
    """Have a function map the rows of each partition. Tried on 4.3.

    Parameters
    ----------
    names
        The columns of what comes.
    schema
        What the function gives.
    """

    def __init__(self, names: Sequence[str], schema: StructType) -> None:
        self._schema = schema
        self._sent = _Sent(_named(names))
        self._functions: TaskFunctions | None = None

    def of(self, frame: DataFrame, function: Function) -> DataFrame:
        """Take the step."""
        if not TRIED:
            return frame.mapInArrow(function, self._schema)
        if self._functions is None:
            self._prepare(frame)
        assert self._functions is not None, "it was made above"
        work = self._functions.of((function, self._schema))
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        made = self._class("instance", work, self._type, kind, True, self._none, self._none)
        rows: Any = frame._jdf
        return DataFrame(rows.mapInArrow(made.apply(self._sent.to(frame)), False, None), frame.sparkSession)

    def _prepare(self, frame: DataFrame) -> None:
        context: Any = frame.sparkSession.sparkContext
        session: Any = frame.sparkSession._jsparkSession
        self._functions = TaskFunctions(frame.sparkSession)
        self._type = session.parseDataType(self._schema.json())
        self._class = getattr(context._jvm, _UDF)
        self._none = context._jvm.java.util.ArrayList()
