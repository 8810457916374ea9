"""Look into an operator's state: from the checkpoint directory, as of a committed epoch."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.fold import rebuild
from ferryman._state.store.contract import HASH


@dataclass(frozen=True)
class StateView:
    """An operator's state at one epoch; it does not change while the stream goes on."""

    spark: SparkSession
    checkpoint: Checkpoint
    operator: str
    epoch: int

    def to_arrow(self) -> pa.Table:
        """Give the state as a pyarrow table: key columns, then state columns, ordered by key."""
        rows = rebuild(self.checkpoint, self.operator, self.epoch).drop_columns([HASH])
        card = self.checkpoint.card()
        assert card is not None, "a rebuilt state has a card"
        order = [(name, "ascending") for name, _ in card.tables[self.operator].key]
        return rows.sort_by(order)

    def df(self) -> DataFrame:
        """Give the state as a Spark DataFrame."""
        return self.spark.createDataFrame(self.to_arrow())

    def show(self, n: int = 20, truncate: bool = True) -> None:
        """Print the state as Spark prints a DataFrame."""
        self.df().show(n, truncate)
