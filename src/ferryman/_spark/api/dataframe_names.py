"""What a stream has of Spark's DataFrame, by Spark's names: the steps row by row, and a word for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman._model.errors import NotOnStream

if TYPE_CHECKING:
    from ferryman._spark.api.stream import Stream

_SINK = "Write stream.write(sinks.foreach(function)).start(name), or another sink of ferryman.sinks"
_BEFORE = "Call it on the streaming DataFrame, before ferry.stream"
_AGGREGATE = 'Write stream.key_by("key").aggregate(n=count()) with what ferryman.aggregates has'
_BATCH = "A stream has no end. Look at rows in a sink: stream.write(sinks.foreach(function))"

# What to write instead, by Spark's name.
INSTEAD = {
    **dict.fromkeys(("writeStream", "foreachBatch", "writeTo", "toTable"), _SINK),
    **dict.fromkeys(("repartition", "repartitionByRange", "coalesce"), _BEFORE),
    **dict.fromkeys(("unionAll", "unionByName"), "Write stream.union(other), which goes by the names of columns"),
    **dict.fromkeys(("agg", "rollup", "cube", "count"), _AGGREGATE),
    **dict.fromkeys(("collect", "show", "toPandas", "toArrow", "take", "first", "head", "toLocalIterator"), _BATCH),
    "distinct": "Write stream.dropDuplicates(), or with_watermark(...).dropDuplicatesWithinWatermark()",
    **dict.fromkeys(("orderBy", "sort", "limit", "offset"), _BATCH),
    "join": 'Write stream.key_by("k").join(other.key_by("k"), within="10 minutes") with another stream, and '
    "stream.transform(lambda rows: rows.join(F.broadcast(other), ...)) with a batch DataFrame",
    "crossJoin": "Write stream.transform(lambda rows: rows.crossJoin(F.broadcast(other))) with a batch DataFrame",
}

# What some streams have, and others are asked for: no column is to be taken for it.
_OWN = {"parent", "spec", "frame", "function", "initial", "broadcasts", "combined", "name", "sink", "stream", "parts"}


class FrameNames:
    """Give a stream the names of DataFrame for what works row by row; each is a `transform`."""

    schema: StructType

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Apply a stateless step."""
        raise NotImplementedError

    def select(self, *columns: str | Column) -> Stream:
        """Choose or compute columns, as DataFrame.select does."""
        return self.transform(lambda frame: frame.select(*columns))

    def selectExpr(self, *expr: str) -> Stream:
        """Compute columns from SQL, as DataFrame.selectExpr does."""
        return self.transform(lambda frame: frame.selectExpr(*expr))

    def where(self, condition: str | Column) -> Stream:
        """Keep the rows that fulfil a condition, as DataFrame.where does."""
        return self.transform(lambda frame: frame.where(condition))

    def filter(self, condition: str | Column) -> Stream:
        """Keep the rows that fulfil a condition, as DataFrame.filter does."""
        return self.where(condition)

    def withColumn(self, colName: str, col: Column) -> Stream:
        """Add or replace a column, as DataFrame.withColumn does."""
        return self.transform(lambda frame: frame.withColumn(colName, col))

    def withColumns(self, colsMap: dict[str, Column]) -> Stream:
        """Add or replace columns, as DataFrame.withColumns does."""
        return self.transform(lambda frame: frame.withColumns(colsMap))

    def withColumnRenamed(self, existing: str, new: str) -> Stream:
        """Rename a column, as DataFrame.withColumnRenamed does."""
        return self.transform(lambda frame: frame.withColumnRenamed(existing, new))

    def withColumnsRenamed(self, colsMap: dict[str, str]) -> Stream:
        """Rename columns, as DataFrame.withColumnsRenamed does."""
        return self.transform(lambda frame: frame.withColumnsRenamed(colsMap))

    def drop(self, *cols: str | Column) -> Stream:
        """Leave columns out, as DataFrame.drop does."""
        return self.transform(lambda frame: frame.drop(*cols))

    def dropDuplicates(self, subset: Sequence[str] | None = None, *, name: str | None = None) -> Stream:
        """Leave out rows that are like an earlier one in some columns, as DataFrame.dropDuplicates does on a stream.

        Each is remembered for ever, unless the column of event time is among the columns: then until the watermark has
        come to it. Late rows are left out.

        Parameters
        ----------
        subset
            The columns; all of them if left out.
        name
            The operator's name in the checkpoint; `deduplicate_` and the columns if left out, with `within_` between
            them if the watermark counts.
        """
        from ferryman._spark.api.deduplicated import deduplicated

        return deduplicated(self._stream, subset, within_watermark=False, name=name)

    drop_duplicates = dropDuplicates

    def dropDuplicatesWithinWatermark(self, subset: Sequence[str] | None = None, *, name: str | None = None) -> Stream:
        """Leave out rows that are like an earlier one, as DataFrame.dropDuplicatesWithinWatermark does.

        A row is remembered until the watermark has come to its time and the watermark's delay: duplicates that are no
        further apart than the delay are left out for certain.

        Parameters
        ----------
        subset, name
            As for `dropDuplicates`.
        """
        from ferryman._spark.api.deduplicated import deduplicated

        return deduplicated(self._stream, subset, within_watermark=True, name=name)

    @property
    def _stream(self) -> Stream:
        return self  # type: ignore[return-value] # streams alone have these names

    @property
    def columns(self) -> list[str]:
        """Name the columns."""
        return list(self.schema.names)

    @property
    def isStreaming(self) -> bool:
        """Tell that rows go on coming."""
        return True

    def named(self, column: str) -> str | None:
        """Find a column as Spark does."""
        raise NotImplementedError

    def __getitem__(self, item: str | int) -> Column:
        """Give a column by name or place, for conditions: `stream.where(stream["value"] > 5)`."""
        names = self.schema.names
        if isinstance(item, int) and -len(names) <= item < len(names):
            name: str | None = names[item]
        else:
            name = self.named(item) if isinstance(item, str) else None
        if name is None:
            raise NotOnStream(
                f"the stream has no column {item!r}; it has {', '.join(map(repr, names))}. Give the name of one, or "
                "its place from 0 on."
            )
        return F.col(f"`{name.replace('`', '``')}`")

    def __getattr__(self, name: str) -> Any:
        # Python asks for names of its own, and must hear of them as it is used to.
        if name.startswith("_") or "schema" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in _OWN:
            column = f'. The column goes by stream["{name}"]' if name in self.schema.names else ""
            raise NotOnStream(f"{name!r} is a name of streams' own, and this one has no such part{column}.")
        if name in self.schema.names:
            return self[name]
        hint = INSTEAD.get(name)
        if hint is None and hasattr(DataFrame, name):
            hint = f"Where it works row by row, write stream.transform(lambda rows: rows.{name}(...))"
        if hint is None:
            columns = ", ".join(map(repr, self.schema.names))
            hint = f"Neither is it a column; there are {columns}"
        raise NotOnStream(f"a stream has no {name!r}. {hint}.")
