"""One run of a job without Spark: what a driver does at its start and in an epoch, on the same code.

The harness's executor runs the operators, and the engine the epochs. Terms, sinks, manifests and snapshots go through
what a job uses: `take_over`, `Outputs`, `Fenced`, `EpochRunner`, `write_fenced_snapshot`. Two things stand in for
Spark: its log is written as Spark writes it, unsynced and never twice; and the rows of an attempt are written to where
a Spark job would put them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ferryman import Operator, Value
from ferryman._engine.epoch import EpochRunner
from ferryman._engine.executor import Frame
from ferryman._engine.fence import Fenced
from ferryman._engine.job_options import EpochOptions
from ferryman._engine.newest_epoch import Newest
from ferryman._engine.outputs import Outputs
from ferryman._engine.recovery import take_over
from ferryman._engine.sink import SinkStart
from ferryman._engine.source_offsets import Covered
from ferryman._log.files.checkpoint import Checkpoint, sweep_all
from ferryman._log.fold.retention import oldest_retained, prune
from ferryman._log.fold.snapshot import write_fenced_snapshot
from ferryman._log.spark_log.agreement import batch_time
from ferryman._log.spark_log.log_files import SparkLogKeeper, values_of
from ferryman._model.errors import CorruptCheckpoint
from ferryman._model.manifest import Manifest
from ferryman._spark.sinks.parquet import ATTEMPTS, ParquetSink
from ferryman._spark.sinks.sinks import FunctionSink
from ferryman._testing.local_executor import Input, LocalExecutor, LocalLayouts
from ferryman.testing import Harness

KEYS = ("a", "b", "c")
GROUPS = 2
SIDES = ("offsets", "commits")
_INPUT = pa.schema([("key", pa.string()), ("row", pa.int64())])
_COLUMNS = pa.schema([("row", pa.int64()), ("n", pa.int64())])
_SCHEMA = (
    '{"type":"struct","fields":[{"name":"row","type":"long","nullable":true,"metadata":{}},'
    '{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
)


class SparkEnds(Exception):
    """Spark ends a query that finds another one at its log."""


@dataclass(frozen=True)
class Mutant:
    """What is left out, to see that it is missed.

    Attributes
    ----------
    sync
        Which syncs: told the path below the root, the last call that was none, and whether the job is starting.
    once
        Which names can be given though they are taken: told the path below the root.
    look
        Before which steps no run looks whether it is the newest.
    newer, committed
        Whether a Parquet sink does not mind what a newer run has written, or what the checkpoint knows of.
    """

    sync: Callable[[str, str, bool], bool] = lambda path, before, starting: False
    once: Callable[[str], bool] = lambda path: False
    look: tuple[str, ...] = ()
    newer: bool = False
    committed: bool = False


class Counts(Operator):
    """Number the rows of a key."""

    n = Value(int, 0)
    output = "row long, n long"

    def process(self, key: Any, row: Any) -> Any:
        """Count one."""
        self.n += 1
        yield row.row, self.n


def rows_between(start: int, end: int) -> list[tuple[str, int]]:
    """Give the rows of the source between two offsets; the same ones always."""
    return [(KEYS[row * 7 % 5 % 3], row) for row in range(start, end)]


@dataclass(frozen=True)
class Rows:
    """What a sink gets of an epoch: its rows, computed already."""

    rows: list[Any]
    table: None = None

    def compute(self) -> None:
        """Stay: they are computed."""

    def is_empty(self) -> bool:
        """Tell whether there are none."""
        return not self.rows


class Counting(LocalExecutor):
    """Run the operators, and give both sinks what comes out."""

    def frames(self, time_ms: int) -> Sequence[Frame]:
        """Give the rows; and those of an operator with timers, which would follow the time."""
        return [Rows(self.output), Rows([*self.output, ("time", time_ms)])]


class Batches:
    """What Spark has written of an epoch's batch, read before the epoch: the driver has one thread."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._keeper = SparkLogKeeper(checkpoint, sync=True)

    def covered(self, batch: int, newest: Newest, *, silent: bool) -> Covered:
        """Read it."""
        log = None if silent else self._keeper.take(batch, newest.manifest)
        return Covered(self._checkpoint, newest, batch, None if log is None else lambda: log)

    def close(self) -> None:
        """Nothing to let go of."""


class Files(ParquetSink):
    """The Parquet sink, its rows written by pyarrow."""

    def __init__(self, path: Path, name: Callable[[], str], mutant: Mutant) -> None:
        super().__init__(path)
        self._name, self._mutant = name, mutant

    def attempt(self, epoch: int) -> str:
        """Name an attempt by chance, but the same one in each run of a history: a power cut goes by names."""
        return super().attempt(epoch)[:-8] + self._name()

    def write(self, rows: Any, epoch: int) -> dict[str, Any]:
        """Write an epoch's rows to where a Spark job would."""
        attempt = self.attempt(epoch)
        folder = Path(self.path) / ATTEMPTS / attempt
        folder.mkdir(parents=True)
        half = (len(rows) + 1) // 2
        for number, some in enumerate((rows[:half], rows[half:])):
            if some or number == 0:
                columns = [list(column) for column in zip(*some, strict=True)] or [[], []]
                table = pa.table(columns, schema=_COLUMNS)
                pq.write_table(table, folder / f"part-{number:05d}.parquet", compression="none", use_dictionary=False)
        (folder / "_SUCCESS").touch()
        return self.written(attempt, _SCHEMA)

    def _refuse_early(self, later: Any, start: SinkStart) -> None:
        if self._mutant.newer:
            start = replace(start, term=1 << 60)
        if self._mutant.committed:
            start = replace(start, written_in=lambda epoch: None)
        super()._refuse_early(later, start)


class Looks(Fenced):
    """The steps of a run, some without a look; a driver may fall asleep at each."""

    blind: tuple[str, ...] = ()
    passes: Callable[[str, str], None]
    commits: Callable[[Manifest], None]
    shows: Callable[[Manifest], None]

    def look(self, before: str) -> None:
        """Look, unless that is left out."""
        self.passes("look", before)
        if before not in self.blind:
            super().look(before)

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch, and say so."""
        super().commit(manifest)
        self.commits(manifest)

    def tell(self, manifest: Manifest) -> None:
        """Tell the sinks, and say so."""
        super().tell(manifest)
        self.shows(manifest)


class Life(Harness):
    """One run of a job.

    Parameters
    ----------
    root
        Where checkpoint and sink are.
    instances
        As many as the start asks for.
    call
        What a sink of the user's own does with an epoch's rows and a number.
    name
        Gives what tells attempts apart, eight hexadecimal digits.
    commits, shows
        Told of each manifest that was committed, and when the sinks have shown its rows.
    passes
        Told of each look before it is taken: "look", and what comes next.
    """

    def __init__(
        self,
        root: Path,
        *,
        instances: int,
        locked: bool,
        now_ms: int,
        call: Callable[[Any, int], None],
        name: Callable[[], str],
        commits: Callable[[Life, Manifest], None],
        shows: Callable[[Manifest], None],
        passes: Callable[[str, str], None],
        mutant: Mutant,
    ) -> None:
        self._root = root / "checkpoint"
        self._begun: EpochRunner[LocalLayouts] | None = None
        super().__init__(
            lambda stream: stream.key_by("key").process(Counts),
            "key string, row long",
            instances=instances,
            groups=GROUPS,
            store="lmdb",
            checkpoint=self._root,
            fsync=True,
            now_ms=now_ms,
        )
        sinks = (Files(root / "out", name, mutant), FunctionSink(call))
        try:
            takeover = take_over(
                self.checkpoint,
                self._declared,
                sinks,
                instances=instances,
                reading={},
                locked=locked,
            )
            sweep_all(self.checkpoint)
            self.term = takeover.term
            outputs = Outputs(sinks, self.checkpoint, takeover.latest, term=self.term, fsync=True)
            self.fenced = Looks(self.checkpoint, self._declared, outputs, self.term)
            self.fenced.blind, self.fenced.passes = mutant.look, passes
            self.fenced.commits, self.fenced.shows = partial(commits, self), shows
            self._layouts = LocalLayouts(takeover.routing)
            self._begun = EpochRunner(
                self.checkpoint,
                self._declared,
                self._executor,
                self._layouts,
                self.fenced,
                Batches(self.checkpoint),
                takeover,
                EpochOptions(home=None, fsync=True, express=True, clock=None),
            )
            self.fenced.begin()
            if self.latest is not None:
                shows(self.latest)
            if takeover.silent_first is not None:
                self._epoch_of(rows=[], time_ms=takeover.silent_first.time_ms, batch=None)
            self._read_log()
        except BaseException:
            self.close()
            raise

    def restart(self) -> None:
        """Stay: a life is one run."""

    def _executor_of(self, pipeline: Any, sources: Any) -> LocalExecutor:
        return Counting(pipeline, sources, self._place / "home", 1)

    @property
    def latest(self) -> Manifest | None:
        """Give the newest epoch that this run knows of."""
        return self._begun.latest if self._begun is not None else None

    def _newest(self) -> Manifest | None:
        return self.latest

    # -- Spark's side ----------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Learn from Spark's log where to go on, as Spark does when a query starts, and only then."""
        names = [[int(file.name) for file in (self._root / f"spark/{side}").glob("[0-9]*")] for side in SIDES]
        begun, done = (max(batches, default=-1) for batches in names)
        pending = begun > done
        # Where the next batch begins, Spark knows from the one before; what Ferryman has read may be older.
        before = self._offsets(begun - 1 if pending else begun)
        covered = self.latest.offsets if self.latest else ()
        self._start = (before or covered or (0,))[0]
        self._batch, self._end = begun + 1, None
        if pending:
            values = self._offsets(begun)
            if not values:
                raise CorruptCheckpoint(f"Spark does not start: spark/offsets/{begun} is torn.")
            self._batch, self._end = begun, values[0]

    def _offsets(self, batch: int) -> tuple[Any, ...]:
        path = self._root / f"spark/offsets/{batch}"
        return values_of(path.read_text()) if path.exists() else ()

    def _spark_writes(self, name: str, text: str) -> None:
        # A driver may fall asleep here too.
        path = self._root / "spark" / name
        self.checkpoint.directory.list(str(path.parent.relative_to(self._root)))
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
        draft.write_text(text)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise SparkEnds(f"spark/{name} is there") from None
        finally:
            draft.unlink()

    @property
    def pending(self) -> bool:
        """Tell whether Spark has begun a batch that it has not committed."""
        return self._end is not None

    def batch(self, wanted: int) -> None:
        """Run the next micro-batch: one that was begun is done again, else so many rows are new."""
        batch = self._batch
        if self._end is None:
            self._end = self._start + wanted
            if not (self._root / "spark/metadata").exists():
                with contextlib.suppress(SparkEnds):
                    self._spark_writes("metadata", '{"id":"one"}')
            self._spark_writes(f"offsets/{batch}", f'v1\n{{"batchTimestampMs":{self.now_ms}}}\n{self._end}')
        if self.latest is None or batch > self.latest.batch:
            time_ms = batch_time(self.checkpoint, batch) or self.now_ms
            self._epoch_of(rows=rows_between(self._start, self._end), time_ms=time_ms, batch=batch)
        self._spark_writes(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
        self._batch, self._start, self._end = batch + 1, self._end, None

    # -- epochs ----------------------------------------------------------------------------------

    def silence(self) -> None:
        """Run an epoch without data."""
        self._epoch_of(rows=[], time_ms=self.now_ms, batch=None)

    def _epoch_of(self, *, rows: list[Any], time_ms: int, batch: int | None) -> None:
        assert self._begun is not None, "a life begins with what it takes over"
        covers = self._begun.newest.batch if batch is None else batch
        source = Input(pa.table([list(column) for column in zip(*rows, strict=True)] or [[], []], schema=_INPUT))
        self._begun.run(source, covers, silent=batch is None, time_ms=time_ms)

    def fold(self, retain: int) -> None:
        """Write a snapshot, and forget what is too old."""
        if self.latest is not None:
            write_fenced_snapshot(self.checkpoint, self._declared, self.latest.epoch, self.fenced.look)
            prune(self.checkpoint, oldest_retained(self.latest.epoch, retain))

    def end(self) -> None:
        """End in order."""
        self.fenced.close()
