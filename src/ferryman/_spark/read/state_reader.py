"""Read what was asked for, part by part, on any executor that reaches the path.

Spark would hand `=` and `IN` to a reader that has `pushFilters`. It has none here: up to Spark 4.3 the parts that were
chosen for one query stay with the DataFrame, and the next query on it, with another filter or none, gets them too and
lacks rows (SPARK-58551 ends that). So keys are an option, which belongs to the DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.open_checkpoint import opened
from ferryman._log.scan.changed_entries import epochs_of_parts, read_changes
from ferryman._log.scan.keys_asked import KeysAsked
from ferryman._log.scan.state_scan import parts_by_file, read_state
from ferryman._model.card import JobCard
from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.compat.conversion import arrow_schema
from ferryman._spark.read.read_options import Asked

# Spark takes a batch as a whole.
_BATCH_ROWS = 10_000


class Groups(InputPartition):
    """Some key groups of a state."""


class Epochs(InputPartition):
    """A run of epochs, by its first and last, of changes."""


class StateReader(DataSourceReader):
    """Read the state of an epoch, or the changes of several.

    Parameters
    ----------
    asked
        What is read.
    schema
        The columns as Spark wants them: those of the source, nothing else.
    """

    def __init__(self, asked: Asked, schema: StructType) -> None:
        own = asked.schema()
        if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
            raise InvalidConfiguration(
                f"the columns of {asked.table!r} are {own.simpleString()}, and another schema was given. Leave "
                ".schema() out, and select() what you need."
            )
        self._asked = asked
        self._schema = schema
        # What the parts that this reader has read itself weighed in the checkpoint.
        self.read_bytes = 0

    def partitions(self) -> Sequence[InputPartition]:
        """Cut what is asked for into parts of some size; with keys, into those that have them."""
        asked = self._asked
        with opened(asked.address) as checkpoint:
            card = checkpoint.job_card()
            if asked.first is not None:
                return [Epochs(run) for run in epochs_of_parts(checkpoint, asked.table, asked.first, asked.epoch)]
            keys = self._keys(card)
            return [Groups(run) for run in parts_by_file(checkpoint, card, asked.table, asked.epoch, keys)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part; Spark makes a part of nothing where there is none."""
        with opened(self._asked.address) as checkpoint:
            target = arrow_schema(self._schema)
            for rows in self._rows(checkpoint, partition):
                columns = rows.select(self._schema.names).cast(target, safe=False).combine_chunks()
                yield from columns.to_batches(_BATCH_ROWS)
            self.read_bytes += checkpoint.read_bytes

    def _rows(self, checkpoint: Checkpoint, partition: InputPartition) -> Iterator[pa.Table]:
        asked = self._asked
        card = checkpoint.job_card()
        keys = self._keys(card)
        if isinstance(partition, Epochs):
            first, last = partition.value
            yield from read_changes(checkpoint, card, asked.table, first, last, keys)
        elif isinstance(partition, Groups):
            yield read_state(checkpoint, asked.table, asked.epoch, partition.value, keys)

    def _keys(self, card: JobCard) -> KeysAsked | None:
        return None if self._asked.keys is None else KeysAsked.parse(self._asked.keys, card, self._asked.table)
