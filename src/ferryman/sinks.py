"""Sinks: where a job writes the rows of its epochs.

>>> from ferryman import sinks
>>> sinks.memory().rows()
[]
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from ferryman._spark.sinks import ConsoleSink, FunctionSink, MemorySink, NoSink, ParquetSink, Sink, read_parquet

__all__ = ["Sink", "console", "foreach", "memory", "none", "parquet", "read_parquet"]


def parquet(path: str) -> ParquetSink:
    """Write Parquet files, exactly once; read them back with `read_parquet`."""
    return ParquetSink(path)


def foreach(function: Callable[[DataFrame, int], object]) -> FunctionSink:
    """Call a function with each epoch's rows and number; it must be idempotent by epoch."""
    return FunctionSink(function)


def memory() -> MemorySink:
    """Keep the rows in the driver's memory, for trying things out."""
    return MemorySink()


def console(rows: int = 20) -> ConsoleSink:
    """Print the first rows of each epoch."""
    return ConsoleSink(rows)


def none() -> NoSink:
    """Run the operators for their state alone."""
    return NoSink()
