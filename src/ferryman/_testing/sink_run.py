"""One run of a job that has nothing but a sink: what a driver does with it at its start and in its epochs.

Taking over, the fence, manifests and terms are those of a job. Spark's log is written as far as a start looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ferryman._engine.declaration import declare
from ferryman._engine.executor import one_after_the_other
from ferryman._engine.fence import Fenced
from ferryman._engine.outputs import Outputs
from ferryman._engine.recovery import take_over
from ferryman._engine.sink import Sink
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._model.manifest import Manifest

# Which rows an epoch has.
RowsOf = Callable[[int], pa.Table]


class SinkRun:
    """Begin a run of a job on a checkpoint, and do its epochs.

    Parameters
    ----------
    root
        The checkpoint; a copy of it is the same job.
    rows
        The rows of each epoch.
    spark
        A session, if the sink is to get DataFrames.
    begun
        Whether the sink is told that the run begins; else that is still to come.
    """

    def __init__(self, root: Path, sink: Sink, rows: RowsOf, *, spark: Any = None, begun: bool = True) -> None:
        self.sink = sink
        self.checkpoint = Checkpoint(directory(str(root)))
        self._rows, self._spark = rows, spark
        card = declare(self.checkpoint, [], job="checked", groups=1)
        self._takeover = take_over(self.checkpoint, card, [sink], instances=1, reading={}, locked=False)
        self.latest = self._takeover.latest
        self.outputs = Outputs([sink], self.checkpoint, self.latest, term=self._takeover.term, fsync=False)
        self.fenced = Fenced(self.checkpoint, card, self.outputs, self._takeover.term)
        if begun:
            self.fenced.begin()

    def epoch(self) -> int:
        """Do the next epoch, or again the one that was begun; give its number."""
        manifest = self.written()
        self.fenced.commit(manifest)
        self.fenced.tell(manifest)
        self.done(manifest)
        return manifest.epoch

    def written(self, *, fenced: bool = True) -> Manifest:
        """Have the sink write the next epoch; give the manifest that would commit it. Not `fenced`: without a look."""
        before = self.latest
        epoch, batch = (before.epoch + 1, before.batch) if before else (1, -1)
        silent = is_silent(epoch)
        if not silent:
            batch += 1
            self.checkpoint.directory.write(f"spark/offsets/{batch}", b"v1\n{}\n1")
        frames = [_Rows(self._rows(epoch), self._spark)]
        if fenced:
            sinks = self.fenced.write(frames, epoch, silent=silent, side_by_side=one_after_the_other)
        else:
            sinks = self.outputs.write(frames, epoch, silent=silent)
        return Manifest(
            epoch=epoch,
            batch=batch,
            silent=silent,
            time_ms=0,
            routing=self._takeover.routing,
            operators={},
            tables={},
            sinks=sinks,
            term=self._takeover.term.number,
        )

    def done(self, manifest: Manifest) -> None:
        """Write down as Spark does that a micro-batch is over."""
        self.latest = manifest
        if not manifest.silent:
            self.checkpoint.directory.write(f"spark/commits/{manifest.batch}", b"v1\n{}")


def is_silent(epoch: int) -> bool:
    """Tell whether an epoch is one that came because no data did."""
    return epoch % 7 == 0


class _Rows:
    """The rows of an epoch, as a table or as a DataFrame."""

    def __init__(self, table: pa.Table, spark: Any) -> None:
        self._table, self._spark = table, spark

    @property
    def rows(self) -> Any:
        assert self._spark is not None, "this sink has no write_table, so it needs check_sink(spark=...)"
        return self._spark.createDataFrame(self._table)

    def compute(self) -> None:
        """They are."""

    def is_empty(self) -> bool:
        return not self._table.num_rows

    @property
    def table(self) -> pa.Table | None:
        return self._table if self._spark is None else None
