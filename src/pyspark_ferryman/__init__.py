"""What makes `spark.read.format("ferryman")` known to Spark, which looks for packages named `pyspark_...` by itself.

Spark imports this with every session that reads from a source written in Python, whoever's. So it is light: Ferryman
is loaded when its format is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The state in a checkpoint of Ferryman's as a table: docs/reading-state.md has the options.

    Examples
    --------
    >>> spark.read.format("ferryman").option("table", "Count").load("/tmp/checkpoint")  # doctest: +SKIP
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        from ferryman._spark.read.read_options import Asked

        self._asked = Asked.of(options)

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "ferryman"

    def schema(self) -> StructType:
        """Give the columns of the table."""
        return self._asked.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Give what reads it."""
        from ferryman._spark.read.state_reader import StateReader

        return StateReader(self._asked, schema)
