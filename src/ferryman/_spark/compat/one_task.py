"""Run a Python function in one task over the rows of a DataFrame, with few calls of the JVM and no query of its own.

`frame.coalesce(1).mapInArrow(function, schema).toArrow()` does the same, and is what a Spark gets that this was not
tried on. But for that PySpark makes some fifty calls of the JVM, and Spark analyses, optimises and plans a query. Here
the frame's rows go to Python as the Arrow batches that `toArrow` would bring to the driver. A micro-batch is planned
already, so nothing is left to plan: that takes half of the time. Calls `frame_steps` and `task_function`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from ferryman._spark.compat.frame_steps import MappedInArrow
from ferryman._spark.compat.task_function import TRIED, TaskFunctions

# Gets the batches, whose times are in whatever zone, and gives some bytes.
Function = Callable[[Iterator[pa.RecordBatch]], list[bytes]]

_MADE = pa.schema([("made", pa.binary())])
_SCHEMA = StructType([StructField("made", BinaryType())])
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


class OneTask:
    """Run functions over DataFrames that have the same columns.

    Parameters
    ----------
    columns
        What to select of them; all they have if left out.
    few_calls
        Whether to go by the few calls; by default, if this Spark is one that they were tried on. Tried on 4.3.
    """

    def __init__(self, columns: Sequence[Column] = (), *, few_calls: bool = TRIED) -> None:
        self._columns = list(columns)
        self._few_calls = few_calls
        # Objects of the JVM that stay the same, and the schema of the batches; a session has settings of its own.
        self._session: Any = None
        self._chosen: Any = None
        self._schema: pa.Schema | None = None
        self._functions: TaskFunctions | None = None
        self._query: MappedInArrow | None = None

    def run(self, frame: DataFrame, function: Function, *, direct: bool = True) -> list[bytes]:
        """Run a function; give the bytes that it gave.

        It may only be `direct` if rows are so narrow that batches need no limit in bytes: without a query, Spark minds
        none.
        """
        if self._few_calls and direct:
            data = self._run(frame, function)
            if data is not None:
                return data
        chosen = (frame.select(*self._columns) if self._columns else frame).coalesce(1)
        if self._few_calls:
            self._query = self._query or MappedInArrow(chosen.columns, _SCHEMA)
            made = self._query.of(chosen, _OfBatches(function))
        else:
            made = chosen.mapInArrow(_OfBatches(function), _SCHEMA)
        told: list[bytes] = made.toArrow().column(0).to_pylist()
        return told

    def rows(self, frame: DataFrame, most: int, most_bytes: int) -> list[pa.RecordBatch] | None:
        """Bring rows here by a task without Python, but no more than so many; None if that cannot be.

        Such a task minds no bytes. So it is only done where all columns are of a fixed width, and that many rows have
        no more than so many bytes in any case.
        """
        if not self._few_calls:
            return None
        functions, schema = self._prepared(frame)
        width = _width(schema)
        if width is None or width * most > most_bytes:
            return None
        rows = self._select(frame)
        plan = functions.limited(rows.queryExecution().executedPlan(), most)
        messages = functions.serve(rows.toArrowBatchRdd(plan))
        return [pa.ipc.read_record_batch(pa.py_buffer(data), schema) for data in messages]

    def _run(self, frame: DataFrame, function: Function) -> list[bytes] | None:
        """Run it without a query; None if the frame has no partition, as then there is no task."""
        functions, schema = self._prepared(frame)
        rows = self._select(frame)
        batches = rows.toArrowBatchRdd(rows.queryExecution().executedPlan()).toJavaRDD().coalesce(1).rdd()
        told = functions.collect(batches, _OfMessages(function, schema))
        return told if told or batches.getNumPartitions() else None

    def _select(self, frame: DataFrame) -> Any:
        rows: Any = frame._jdf
        return rows.select(self._chosen) if self._columns else rows

    def _prepared(self, frame: DataFrame) -> tuple[TaskFunctions, pa.Schema]:
        if frame.sparkSession is not self._session:
            self._prepare(frame)
        assert self._functions is not None, "it was made above"
        assert self._schema is not None, "it was made above"
        return self._functions, self._schema

    def _prepare(self, frame: DataFrame) -> None:
        from pyspark.sql.classic.column import _to_seq

        context: Any = frame.sparkSession.sparkContext
        columns: list[Any] = self._columns
        chosen = frame.select(*columns) if columns else frame
        large = frame.sparkSession.conf.get(_LARGE_TYPES, "false") == "true"
        self._chosen = _to_seq(context, [column._jc for column in columns])
        # A batch says nothing of zones; its times are the same in all of them.
        self._schema = to_arrow_schema(chosen.schema, timezone="UTC", prefers_large_types=large)
        self._functions = TaskFunctions(frame.sparkSession)
        self._session = frame.sparkSession


def _width(schema: pa.Schema) -> int | None:
    """Give how many bytes a row has, and a little more for what is null; None where that differs from row to row."""
    try:
        return sum(int(kind.bit_width) // 8 + 1 for kind in schema.types)
    except ValueError:
        return None


@dataclass(frozen=True)
class _OfMessages:
    """A function as PySpark's RDDs have it: called with the number of its partition, and Arrow's messages."""

    function: Function
    schema: pa.Schema

    def __call__(self, _: int, messages: Iterable[bytes]) -> list[bytes]:
        return self.function(pa.ipc.read_record_batch(pa.py_buffer(data), self.schema) for data in messages)


@dataclass(frozen=True)
class _OfBatches:
    """A function as `mapInArrow` has it."""

    function: Function

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(self.function(batches), pa.binary())], schema=_MADE)
