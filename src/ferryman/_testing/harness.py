"""Run operators without Spark: epoch by epoch, on a clock that the test sets, with crashes, moves and time travel.

Only Spark is left out. Keys are routed, tasks run, deltas and manifests are written and main copies advanced by the
same code that a job runs, in a temporary directory. The same pipeline then runs on Spark.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ferryman._engine.declaration import declare
from ferryman._engine.epoch import EpochRunner
from ferryman._engine.fence import Fenced
from ferryman._engine.job_options import EpochOptions
from ferryman._engine.newest_epoch import Newest
from ferryman._engine.outputs import Outputs
from ferryman._engine.recovery import Takeover
from ferryman._engine.source_offsets import Covered
from ferryman._log.files.cards import evolution_of
from ferryman._log.files.checkpoint import Checkpoint, keep_all
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.term import Redo
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._migrate.planning import pinned
from ferryman._model.card import JobCard
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.intent import Intent
from ferryman._model.lookup_version import LookupVersion
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._model.spark_log import SparkLog
from ferryman._spark.api.pipeline import operators_of
from ferryman._spark.api.stream import Stream
from ferryman._spark.api.watermark_names import name_watermarks
from ferryman._spark.plan.schema import declared_struct, to_arrow
from ferryman._state.store.contract import HASH
from ferryman._testing.crash_at_row import Crash
from ferryman._testing.local_executor import Input, Listed, LocalExecutor, LocalLayout, LocalLayouts, hashes_of

Rows = Iterable[Any]


@dataclass(frozen=True)
class _Interrupted:
    """An epoch under way: what it was given, and what came out of it if it was committed."""

    number: int
    rows: Mapping[str, Sequence[Any]]
    broadcast: Mapping[str, Sequence[Any]]
    clock_ms: int
    output: Listed = field(default_factory=list)
    lookups: Mapping[str, LookupVersion] = field(default_factory=dict)


class _Fence(Fenced):
    """What a run in a harness writes: nobody else runs on its checkpoint, and a test may have it crash."""

    crash: Literal["", "before-commit", "after-commit"] = ""
    # What was written down of what the epoch under way looks up.
    lookups: Mapping[str, LookupVersion] | None = None

    def look(self, before: str) -> None:
        """Nobody takes over."""

    def intend(self, epoch: int, time_ms: int, **about: Any) -> None:
        """Remember what is looked up; the harness itself knows what else it has begun."""
        self.lookups = about["lookups"]

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch, unless it is to crash before that."""
        if self.crash == "before-commit":
            raise Crash(f"epoch {manifest.epoch} was not committed")
        super().commit(manifest)

    def tell(self, manifest: Manifest) -> None:
        """Crash, if that is to be after the commit."""
        super().tell(manifest)
        if self.crash:
            raise Crash(f"epoch {manifest.epoch} was committed")


class _Sourceless:
    """There is no log of the source: an epoch covers what it was given."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def covered(self, batch: int, newest: Newest, *, silent: bool) -> Covered:
        """Say nothing of the source."""
        return Covered(self._checkpoint, newest, batch, SparkLog)

    def close(self) -> None:
        """Nothing to let go of."""


class Harness:
    """Run a pipeline of operators without Spark.

    Parameters
    ----------
    build
        What makes the pipeline of its input, as on Spark: `lambda s: s.key_by("sensor").process(RunningAverage)`.
    input
        The input's columns, as DDL, a StructType or a pyarrow schema. For an operator on two streams a dict with both
        by name, in the order in which `build` takes them; rows are then given by those names as well.
    instances, groups
        Instances of every operator, and key groups.
    now_ms
        What the clock says at first.
    store
        As for `Ferry`.
    hosts
        Over how many hosts the instances are spread, each with main copies of its own.
    checkpoint
        A directory for the checkpoint, which stays when the harness is closed, and from which another one goes on. If
        left out, a temporary one.
    fsync
        As for `Ferry`.

    Examples
    --------
    >>> from ferryman import Counter, Operator
    >>> from ferryman.testing import Harness
    >>> class Words(Operator):
    ...     seen = Counter(str)
    ...     output = "user string, word string, n long"
    ...     def process(self, key, row):
    ...         self.seen[row.word] += 1
    ...         yield key, row.word, self.seen[row.word]
    >>> with Harness(lambda s: s.key_by("user").process(Words), "user string, word string") as harness:
    ...     harness.epoch([("ann", "tea"), ("bob", "tea"), ("ann", "tea")])
    [('ann', 'tea', 1), ('ann', 'tea', 2), ('bob', 'tea', 1)]
    """

    def __init__(
        self,
        build: Callable[[Any], Any],
        input: Any,
        *,
        instances: int = 1,
        groups: int = 16,
        now_ms: int = 1_700_000_000_000,
        store: str | None = None,
        hosts: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        fsync: bool = False,
    ) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="ferryman-harness-"))
        self._fsync = fsync
        place = self._place / "checkpoint" if checkpoint is None else Path(checkpoint)
        self.checkpoint = Checkpoint(LocalDirectory(place, fsync=fsync))
        named = input if isinstance(input, Mapping) else {"": input}
        self._schemas = {name: declared_struct(columns, f"input {name}".rstrip()) for name, columns in named.items()}
        self.now_ms = now_ms
        self._groups = groups
        self._store = store
        self._hosts = hosts
        self._card: JobCard | None = None
        self._interrupted: _Interrupted | None = None
        self._layouts = LocalLayouts(RoutingTable.even(1, groups, instances))
        self.redeclare(build)
        keep_all(self.checkpoint)
        if (latest := self._newest()) is not None:
            self._groups, self._layouts.layout = self._declared.groups, LocalLayout(latest.routing)
            if latest.routing.instances != instances:
                self.rescale(instances)

    def redeclare(self, build: Callable[[Any], Any]) -> None:
        """Go on with another pipeline on the same state, as a job does that is started with new code.

        One that is refused changes nothing.
        """
        sources = [Stream(None, schema) for schema in self._schemas.values()]
        for name, source in zip(self._schemas, sources, strict=True):
            # As a job knows its sources.
            source.__dict__["known_as"] = name
        executor = self._executor_of(build(*sources), sources)
        steps = executor.steps
        for step in steps:
            if self._store is not None:
                step.keep_in(self._store)
        operators = operators_of(steps)
        name_watermarks(operators)
        specs = [step.spec for step in operators.values()]
        card = declare(self.checkpoint, specs, job="harness", groups=self._groups, where="the harness")
        # A card that has changed is written with the next epoch, as a job does.
        self._card, self._executor = card, executor
        for step in steps:
            step.evolve({name: evolution_of(table) for name, table in card.tables.items()})
        self.restart()

    def _executor_of(self, pipeline: Any, sources: Sequence[Stream]) -> LocalExecutor:
        """Make what runs the operators."""
        return LocalExecutor(pipeline, sources, self._place / "home", self._hosts)

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._place, ignore_errors=True)

    # -- epochs ----------------------------------------------------------------------------------

    @property
    def epochs(self) -> int:
        """Give the newest committed epoch; 0 before the first."""
        latest = self._newest()
        return latest.epoch if latest else 0

    @property
    def watermark_ms(self) -> int | None:
        """Give how far event time has come."""
        latest = self._newest()
        return latest.watermarks.next_ms if latest else None

    def epoch(
        self,
        rows: Rows | Mapping[str, Rows] = (),
        *,
        broadcast: Mapping[str, Rows] | None = None,
        crash: bool | Literal["before-commit", "after-commit"] = False,
        crash_at_row: int | None = None,
    ) -> Listed:
        """Run an epoch on some rows, tuples or dicts, and give what came out; side outputs are in `sides` after it.

        What came out are the rows of the stream that `build` gave: of the last operator, or of a side of it. In `sides`
        a side output is found by its name, or as "operator.side" if several operators have one of that name.

        Parameters
        ----------
        rows
            The input, tuples or dicts; of two streams a dict with those of each.
        broadcast
            Rows for broadcast states by table name, "operator.state".
        crash
            "before-commit" or True: all tasks are done, and the epoch is not committed, so nothing of it counts.
            "after-commit": it is committed, and counts. Either way the main copies are gone, and `Crash` is raised;
            `redo` then does what a job does that is started again.
        crash_at_row
            Crash while the first operator is at this row, counted from 0, before the commit: the tasks of earlier
            instances are done, that of the row's is not, those of later ones have not begun.
        """
        if crash not in (False, True, "before-commit", "after-commit"):
            raise InvalidConfiguration(f"crash={crash!r}: give 'before-commit' or 'after-commit'.")
        rows = {name: list(some) for name, some in rows.items()} if isinstance(rows, Mapping) else {"": list(rows)}
        strange = [name for name, some in rows.items() if name not in self._schemas and some]
        if strange:
            inputs = ", ".join(map(repr, self._schemas))
            raise InvalidConfiguration(
                f"rows are given for {strange[0]!r}, and the inputs are {inputs}. Give a dict with the rows of each."
                if inputs != "''"
                else f"rows are given for {strange[0]!r}, and there is one input, without a name. Give its rows alone."
            )
        given = {name: list(some) for name, some in (broadcast or {}).items()}
        count = sum(map(len, rows.values()))
        if crash_at_row is not None and not 0 <= crash_at_row < count:
            raise InvalidConfiguration(f"crash_at_row={crash_at_row!r}: there are {count} rows, counted from 0.")
        number = self.epochs + 1
        self._interrupted = _Interrupted(number, rows, given, self.now_ms)
        return self._tried(self._interrupted, crash, crash_at_row)

    def _tried(self, given: _Interrupted, crash: bool | str, crash_at_row: int | None) -> Listed:
        try:
            result = self._epoch(given, crash, crash_at_row)
        except Crash:
            self._interrupted = replace(given, lookups=self._fence.lookups or given.lookups)
            self.restart()
            if given.number <= self.epochs:
                self._interrupted = replace(given, output=self._executor.output)
            raise
        self._interrupted = None
        return result

    def redo(self) -> Listed:
        """After a crash, run the epoch again that it interrupted, unless that was committed; give what came out.

        So does a job that is started again: an epoch that is committed is not run twice, and its sink has its rows.
        """
        if (interrupted := self._interrupted) is None:
            raise InvalidConfiguration("no epoch was interrupted. Ask for it: epoch(rows, crash='before-commit').")
        if interrupted.number <= self.epochs:
            self._interrupted = None
            return interrupted.output
        # At the time it was begun, whatever the clock says now.
        takeover = self._runner.takeover
        redo = Redo(interrupted.number, {}, self._routing.instances, 0)
        begun = Intent(interrupted.number, interrupted.clock_ms, False, frozenset(), lookups=interrupted.lookups)
        self._runner.takeover = replace(takeover, intent=begun, term=replace(takeover.term, redo=redo))
        return self._tried(interrupted, False, None)

    def _epoch(self, given: _Interrupted, crash: bool | str, crash_at_row: int | None) -> Listed:
        source = Input(
            [_table(given.rows.get(name, ()), to_arrow(schema)) for name, schema in self._schemas.items()],
            {
                name: _table(given.broadcast.get(name, ()), to_arrow(declared.stream.schema))
                for name, declared in self._executor.broadcasts.items()
            },
            crash_at_row,
        )
        self._fence.crash = "" if not crash else "after-commit" if crash == "after-commit" else "before-commit"
        self._runner.newest.manifest = self._newest()
        self._runner.run(source, given.number, silent=False, time_ms=given.clock_ms)
        return self._executor.output

    @property
    def sides(self) -> dict[str, Listed]:
        """Give the rows of side outputs in the newest epoch, by name."""
        return self._executor.sides

    def _newest(self) -> Manifest | None:
        return self.checkpoint.latest()

    def tick(self, ms: int) -> Listed:
        """Let the clock go on, and run an epoch without rows."""
        self.now_ms += ms
        return self.epoch()

    def restart(self) -> None:
        """Forget all main copies, as a job does that is started again."""
        shutil.rmtree(self._place / "home", ignore_errors=True)
        latest = self._newest()
        takeover = Takeover.alone("harness", latest, self._routing)
        outputs = Outputs([], self.checkpoint, latest, term=takeover.term, fsync=self._fsync)
        self._fence = _Fence(self.checkpoint, self._declared, outputs, takeover.term)
        self._runner = EpochRunner(
            self.checkpoint,
            self._declared,
            self._executor,
            self._layouts,
            self._fence,
            _Sourceless(self.checkpoint),
            takeover,
            EpochOptions(home=None, fsync=self._fsync, express=True, clock=None),
        )

    def rescale(self, instances: int) -> None:
        """Go on with another number of instances: key groups split and merge."""
        even = RoutingTable.even(self._routing.version + 1, self._groups, instances)
        pins = tuple(pin for pin in self._routing.pins if pin.instance < instances)
        self._layouts.layout = LocalLayout(replace(even, pins=pins))

    def pin(self, key: Any, to: int) -> None:
        """Go on with a key on an instance of its own choice, as after `job.move(keys=key, to=to)`."""
        values = key if isinstance(key, tuple) else (key,)
        hashed = int(hashes_of([values])[0])
        self._layouts.layout = LocalLayout(pinned(self._routing, {hashed: str(key)}, to))

    def snapshot(self) -> None:
        """Fold all deltas so far into a snapshot."""
        if self.epochs:
            write_snapshot(self.checkpoint, self.epochs)

    def rewind(self, epoch: int) -> None:
        """Go back to an epoch, and on from there."""
        if not 0 <= epoch <= self.epochs:
            raise InvalidConfiguration(f"there is no epoch {epoch}: the newest is {self.epochs}.")
        later = [f"manifests/{number:012d}.json" for number in self.checkpoint.epochs() if number > epoch]
        later += [f"snapshots/{number:012d}.json" for number in self.checkpoint.snapshots() if number > epoch]
        self.checkpoint.directory.delete(later)
        self._interrupted = None
        self.restart()

    def state(self, table: str | None = None, epoch: int | None = None) -> list[dict[str, Any]]:
        """Give a table of the state, by default the first operator's own, as of an epoch."""
        name = table or self._executor.steps[0].spec.name
        rows = rebuild(self.checkpoint, name, self.epochs if epoch is None else epoch, card=self._declared)
        key = [(column, "ascending") for column, _ in self._declared.tables[name].key]
        listed: list[dict[str, Any]] = rows.drop_columns([HASH]).sort_by(key).to_pylist()
        return listed

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _declared(self) -> JobCard:
        assert self._card is not None, "a harness begins with a pipeline"
        return self._card

    @property
    def _routing(self) -> RoutingTable:
        return self._layouts.layout.routing


def _table(rows: Rows, schema: pa.Schema) -> pa.Table:
    listed = [dict(zip(schema.names, row, strict=True)) if not isinstance(row, Mapping) else row for row in rows]
    return pa.Table.from_pylist(listed, schema=schema)
