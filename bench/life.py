"""One run of a job without Spark: what a driver does at its start and in an epoch, on the same code.

The harness runs the operators. Terms, sinks, manifests and snapshots go through what a job uses: `take_over`,
`Outputs`, `Fenced`, `fold_all`. Two things stand in for Spark: its log is written as Spark writes it, unsynced and
never twice; and the rows of an attempt are written to where a Spark job would put them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ferryman import Operator, Value
from ferryman._log.agreement import batch_time
from ferryman._log.retention import prune
from ferryman._log.spark_log import SparkLogKeeper, values_of
from ferryman._log.term import intent_of
from ferryman._model.errors import CorruptCheckpoint
from ferryman._model.records import Manifest, SparkLog
from ferryman._spark.background import fold_all
from ferryman._spark.epoch import routing_for
from ferryman._spark.fenced import Fenced
from ferryman._spark.outputs import Outputs
from ferryman._spark.parquet_sink import ATTEMPTS, ParquetSink
from ferryman._spark.sinks import FunctionSink, SinkStart
from ferryman._spark.stream import Output
from ferryman._spark.takeover import take_over
from ferryman.testing import Harness

KEYS = ("a", "b", "c")
GROUPS = 2
SIDES = ("offsets", "commits")
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


class Rows:
    """The rows of an epoch in the place of a DataFrame."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def persist(self) -> Rows:
        """Stay: they are computed."""
        return self

    def isEmpty(self) -> bool:
        """Tell whether there are none."""
        return not self.rows

    @property
    def write(self) -> Rows:
        """Write to nowhere, as with the format "noop"."""
        return self

    format = mode = save = lambda self, *what: self


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
        half = (len(rows.rows) + 1) // 2
        for number, some in enumerate((rows.rows[:half], rows.rows[half:])):
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

    def look(self, before: str) -> None:
        """Look, unless that is left out."""
        self.passes("look", before)
        if before not in self.blind:
            super().look(before)


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
        self.latest: Manifest | None = None
        self._root = root / "checkpoint"
        self._commits, self._shows, self._passes = commits, shows, passes
        self._silent = False
        self._log: SparkLog | None = None
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
        # Not used: without Spark there is nobody to ask for their rows.
        stream: Any = None
        sinks = (Files(root / "out", name, mutant), FunctionSink(call))
        outputs = [Output(stream, sink) for sink in sinks]
        try:
            self._begin(outputs, instances, locked, mutant)
        except BaseException:
            self.close()
            raise

    def _begin(self, outputs: list[Output], instances: int, locked: bool, mutant: Mutant) -> None:
        checkpoint = self.checkpoint
        self.term, self.latest = take_over(
            checkpoint, self._declared, outputs, instances=instances, reading={}, locked=locked
        )
        for folder in ("manifests", "deltas", "snapshots", "held", "terms", ""):
            checkpoint.directory.sweep(folder)
        self._routing = routing_for(checkpoint, self.latest, GROUPS, self.term)
        self._instances: int | None = instances
        self._outputs = Outputs(outputs, checkpoint, self.latest, term=self.term, fsync=True)
        self.fenced = Looks(checkpoint, self._declared, self._outputs, self.term)
        self.fenced.blind, self.fenced.passes = mutant.look, self._passes
        self._keeper = SparkLogKeeper(checkpoint, sync=True)
        self._begun = intent_of(checkpoint, self.term)
        self._outputs.begin()
        if self.latest is not None:
            self._shows(self.latest)
        if self._begun is not None and self._begun.silent:
            self._epoch_of(rows=[], time_ms=self._begun.time_ms, batch=None)
        self._read_log()

    def _newest(self) -> Manifest | None:
        return self.latest

    # -- Spark's side ----------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Learn from Spark's log where to go on, as Spark does when a query starts, and only then."""
        names = [[int(one.name) for one in (self._root / f"spark/{side}").glob("[0-9]*")] for side in SIDES]
        begun, done = (max(one, default=-1) for one in names)
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
        self.fenced.intend(self.epochs + 1, self.now_ms)
        self._epoch_of(rows=[], time_ms=self.now_ms, batch=None)

    def _epoch_of(self, *, rows: list[Any], time_ms: int, batch: int | None) -> None:
        """Run an epoch as `EpochRunner` does: what no batch tells of it is written down first."""
        self._silent = batch is None
        if self._begun is not None and self._begun.epoch == self.epochs + 1:
            time_ms = self._begun.time_ms
        if self.latest is not None and self.latest.routing != self._routing:
            self.fenced.intend(self.epochs + 1, time_ms, silent=self._silent, routing=self._routing)
        self._covers = self.latest.batch if self.latest else -1
        self._log = None if batch is None else self._keeper.take(batch, self.latest)
        if batch is not None:
            self._covers = batch
        clock, self.now_ms = self.now_ms, time_ms
        self.epoch(rows)
        self.now_ms = clock
        if self._instances is not None and self._routing.instances != self._instances:
            self.rescale(self._instances)
        self._instances = None

    def _commit(self, manifest: Manifest, output: list[tuple[Any, ...]]) -> None:
        latest, log = self.latest, self._log
        # An operator with timers would have rows that follow the time.
        frames: Any = [Rows(output), Rows([*output, ("time", manifest.time_ms)])]
        written = self.fenced.write(frames, manifest.epoch, silent=self._silent)
        if log is not None:
            offsets = values_of(log.offsets[self._covers])
        else:
            offsets, log = (latest.offsets, latest.spark) if latest else ((), SparkLog())
        manifest = replace(
            manifest,
            batch=self._covers,
            silent=self._silent,
            offsets=offsets,
            spark=log,
            sinks=written,
            term=self.term.number,
        )
        self.fenced.commit(manifest)
        self.latest = manifest
        self._commits(self, manifest)
        self.fenced.tell(manifest)
        self._shows(manifest)

    def fold(self, retain: int) -> None:
        """Write a snapshot, and forget what is too old."""
        if self.latest is not None:
            fold_all(self.checkpoint, self.latest.epoch, self.fenced.look)
            prune(self.checkpoint, self.latest.epoch - retain)

    def end(self) -> None:
        """End in order."""
        self.fenced.close()
