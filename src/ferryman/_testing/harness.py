"""Run operators without Spark: epoch by epoch, on a clock that the test sets, with crashes, moves and time travel.

Only Spark is left out. Keys are routed, tasks run, deltas and manifests are written and main copies advanced by the
same code that a job runs, in a temporary directory. The same pipeline then runs on Spark.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ferryman._log.cards import card_of, evolution_of
from ferryman._log.checkpoint import Checkpoint, keep_all
from ferryman._log.declared import evolved
from ferryman._log.directory import LocalDirectory
from ferryman._log.fold import rebuild
from ferryman._log.snapshot import write_snapshot
from ferryman._model.clock import epoch_time
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.records import DeltaRef, JobCard, Manifest, OperatorRecord, RoutingTable
from ferryman._model.watermarks import Watermarks
from ferryman._operator.aggregate import AggregateRunner
from ferryman._operator.run import Given, Made, Runner
from ferryman._operator.sides import own_rows, rows_aside
from ferryman._routing.owners import routed
from ferryman._routing.planning import pinned
from ferryman._routing.tokens import tokens
from ferryman._spark.broadcast import BroadcastTable
from ferryman._spark.schema import declared_struct, to_arrow
from ferryman._spark.stream import Operated, Parted, Stream, Watermarked
from ferryman._spark.task import SEQUENCE, TOKEN, Control, Receipt, run
from ferryman._state.store.contract import HASH

Rows = Iterable[Any]


class Crash(Exception):
    """The crash that `Harness.epoch` was asked for."""


@dataclass(frozen=True)
class _Interrupted:
    """An epoch under way: what it was given, and what came out of it if it was committed."""

    number: int
    rows: Sequence[Any]
    broadcast: Mapping[str, Sequence[Any]]
    clock_ms: int
    output: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class _Dies:
    """Run an operator on the rows before the one it dies at, and die: nothing is written."""

    runner: Runner

    def run(self, given: Given) -> Made:
        self.runner.run(given)
        raise Crash(f"a task of epoch {given.epoch} died in the middle of its rows")


class Harness:
    """Run a pipeline of operators without Spark.

    Parameters
    ----------
    build
        What makes the pipeline of its input, as on Spark: `lambda s: s.key_by("sensor").process(RunningAverage)`.
    input
        The input's columns, as DDL, a StructType or a pyarrow schema.
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
        self._schema = declared_struct(input, "input")
        self.now_ms = now_ms
        self._groups = groups
        self._store = store
        self._hosts = hosts
        self._card: JobCard | None = None
        self._interrupted: _Interrupted | None = None
        self._broadcasts: dict[str, BroadcastTable] = {}
        self._broadcast_schemas: dict[str, pa.Schema] = {}
        self._routing = RoutingTable.even(1, groups, instances)
        self.redeclare(build)
        keep_all(self.checkpoint)
        if (latest := self._newest()) is not None:
            self._groups, self._routing = self._declared.groups, latest.routing
            if latest.routing.instances != instances:
                self.rescale(instances)

    def redeclare(self, build: Callable[[Any], Any]) -> None:
        """Go on with another pipeline on the same state, as a job does that is started with new code.

        One that is refused changes nothing.
        """
        source = Stream(None, self._schema)
        steps, reads = _steps(build(source), source)
        for step in steps:
            if self._store is not None:
                step.keep_in(self._store)
        wanted = {
            table.name: card_of(step.spec.name, table.key, table.state, table.evolution, table.settings)
            for step in steps
            for table in step.spec.tables
        }
        # One that had no epoch has changed nothing.
        card = self.checkpoint.card()
        if card is None:
            card = JobCard(uuid.uuid4().hex, "harness", self._groups, wanted)
            if not self.checkpoint.create_first(card):
                # Another one was faster, and this is the second.
                self.redeclare(build)
                return
        else:
            dropped = {step.spec.name: step.spec.dropped for step in steps}
            fixed = {step.spec.name for step in steps if isinstance(step.spec.runner, AggregateRunner)}
            card = JobCard(card.id, card.job, card.groups, evolved(card, wanted, dropped, "the harness", fixed))
        # A card that has changed is written with the next epoch, as a job does.
        self._card, self._steps, self._reads = card, steps, reads
        self._side_names = _side_names(steps)
        for step in steps:
            step.evolve({name: evolution_of(one) for name, one in card.tables.items()})
        self.restart()

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
        rows: Rows = (),
        *,
        broadcast: Mapping[str, Rows] | None = None,
        crash: bool | Literal["before-commit", "after-commit"] = False,
        crash_at_row: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """Run an epoch on some rows, tuples or dicts, and give what came out; side outputs are in `sides` after it.

        What came out are the rows of the stream that `build` gave: of the last operator, or of a side of it. In `sides`
        a side output is found by its name, or as "operator.side" if several operators have one of that name.

        Parameters
        ----------
        rows
            The input, tuples or dicts.
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
        rows = list(rows)
        given = {name: list(some) for name, some in (broadcast or {}).items()}
        if crash_at_row is not None and not 0 <= crash_at_row < len(rows):
            raise InvalidConfiguration(f"crash_at_row={crash_at_row!r}: there are {len(rows)} rows, counted from 0.")
        number = self.epochs + 1
        self._interrupted = _Interrupted(number, rows, given, self.now_ms)
        return self._tried(self._interrupted, crash, crash_at_row)

    def _tried(self, one: _Interrupted, crash: bool | str, crash_at_row: int | None) -> list[tuple[Any, ...]]:
        try:
            result = self._epoch(one, crash, crash_at_row)
        except Crash:
            self.restart()
            raise
        self._interrupted = None
        return result

    def redo(self) -> list[tuple[Any, ...]]:
        """After a crash, run the epoch again that it interrupted, unless that was committed; give what came out.

        So does a job that is started again: an epoch that is committed is not run twice, and its sink has its rows.
        """
        if (one := self._interrupted) is None:
            raise InvalidConfiguration("no epoch was interrupted. Ask for it: epoch(rows, crash='before-commit').")
        if one.number <= self.epochs:
            self._interrupted = None
            return one.output
        # At the time it was begun, whatever the clock says now.
        return self._tried(one, False, None)

    def _epoch(self, one: _Interrupted, crash: bool | str, crash_at_row: int | None) -> list[tuple[Any, ...]]:
        number, broadcast = one.number, one.broadcast
        latest = self._newest()
        self._time_ms = epoch_time(one.clock_ms, latest.time_ms if latest else None).time_ms
        result = self._table(one.rows)
        self.sides: dict[str, list[tuple[Any, ...]]] = {}
        receipts: list[Receipt] = []
        tables: dict[str, tuple[DeltaRef, ...]] = {}
        for name, table in self._broadcasts.items():
            given = self._rows(broadcast.get(name, ()), self._broadcast_schemas[name])
            ref = table.update(given, number, self._routing, self._time_ms)
            tables[name] = () if ref is None else (ref,)
        for step, side in zip(self._steps, self._reads, strict=True):
            whole, some = self._operate(step, result, number, latest, crash_at_row)
            crash_at_row = None
            receipts += some
            result = own_rows(whole, step.spec.output.names) if side is None else rows_aside(whole, side)
            for name in step.spec.sides:
                self.sides[self._side_names[step.spec.name, name]] = _listed(rows_aside(whole, name))
        if crash in (True, "before-commit"):
            raise Crash(f"epoch {number} was not committed")
        if self.checkpoint.card() != self._declared:
            self.checkpoint.create(self._declared)
        manifest = self._manifest(number, receipts, latest)
        output = _listed(result)
        self._commit(replace(manifest, tables={**manifest.tables, **tables}), output)
        for table in self._broadcasts.values():
            table.committed()
        if crash:
            self._interrupted = replace(self._interrupted, output=output) if self._interrupted else None
            raise Crash(f"epoch {number} was committed")
        return output

    def _newest(self) -> Manifest | None:
        return self.checkpoint.latest()

    def _commit(self, manifest: Manifest, output: list[tuple[Any, ...]]) -> None:
        self.checkpoint.commit(manifest)

    def tick(self, ms: int) -> list[tuple[Any, ...]]:
        """Let the clock go on, and run an epoch without rows."""
        self.now_ms += ms
        return self.epoch()

    def restart(self) -> None:
        """Forget all main copies, as a job does that is started again."""
        self._broadcasts, self._broadcast_schemas = {}, {}
        for step in self._steps:
            for one in step.spec.tables:
                if one.broadcast:
                    stream = step.broadcasts[one.name.rpartition(".")[2]]
                    self._broadcasts[one.name] = BroadcastTable(
                        self.checkpoint, self._declared, one, stream, self.epochs
                    )
                    self._broadcast_schemas[one.name] = to_arrow(stream.stream.schema)
        self._run = uuid.uuid4().hex
        shutil.rmtree(self._place / "home", ignore_errors=True)

    def rescale(self, instances: int) -> None:
        """Go on with another number of instances: key groups split and merge."""
        even = RoutingTable.even(self._routing.version + 1, self._groups, instances)
        pins = tuple(pin for pin in self._routing.pins if pin.instance < instances)
        self._routing = replace(even, pins=pins)

    def pin(self, key: Any, to: int) -> None:
        """Go on with a key on an instance of its own choice, as after `job.move(keys=key, to=to)`."""
        values = key if isinstance(key, tuple) else (key,)
        self._routing = pinned(self._routing, {int(_hashes([values])[0]): str(key)}, to)

    def snapshot(self) -> None:
        """Fold all deltas so far into a snapshot."""
        if self.epochs:
            write_snapshot(self.checkpoint, self.epochs)

    def rewind(self, epoch: int) -> None:
        """Go back to an epoch, and on from there."""
        if not 0 <= epoch <= self.epochs:
            raise InvalidConfiguration(f"there is no epoch {epoch}: the newest is {self.epochs}.")
        later = [f"manifests/{one:012d}.json" for one in self.checkpoint.epochs() if one > epoch]
        later += [f"snapshots/{one:012d}.json" for one in self.checkpoint.snapshots() if one > epoch]
        self.checkpoint.directory.delete(later)
        self._interrupted = None
        self.restart()

    def state(self, table: str | None = None, epoch: int | None = None) -> list[dict[str, Any]]:
        """Give a table of the state, by default the first operator's own, as of an epoch."""
        name = table or self._steps[0].spec.name
        rows = rebuild(self.checkpoint, name, self.epochs if epoch is None else epoch, card=self._declared)
        key = [(one, "ascending") for one, _ in self._declared.tables[name].key]
        listed: list[dict[str, Any]] = rows.drop_columns([HASH]).sort_by(key).to_pylist()
        return listed

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _declared(self) -> JobCard:
        assert self._card is not None, "a harness begins with a pipeline"
        return self._card

    def _table(self, rows: Rows) -> pa.Table:
        return self._rows(rows, to_arrow(self._schema))

    def _rows(self, rows: Rows, schema: pa.Schema) -> pa.Table:
        listed = [dict(zip(schema.names, row, strict=True)) if not isinstance(row, Mapping) else row for row in rows]
        return pa.Table.from_pylist(listed, schema=schema)

    def _operate(
        self, step: Operated, rows: pa.Table, epoch: int, latest: Manifest | None, crash_at_row: int | None
    ) -> tuple[pa.Table, list[Receipt]]:
        spec, routing = step.spec, self._routing
        keys = zip(*(rows.column(name).to_pylist() for name in spec.key.fields.names), strict=True)
        hashes = _hashes(keys)
        owners = routed(hashes, np.array(routing.owner), routing.pinned)
        marked = rows.append_column(HASH, pa.array(hashes)).append_column(SEQUENCE, pa.array(np.arange(len(hashes))))
        watermarks = latest.watermarks if latest else Watermarks()
        newest = {one.name: latest.tables.get(one.name, ()) for one in spec.tables} if latest else None
        control = Control(
            epoch,
            self._run,
            self.checkpoint.directory.address,
            self._fsync,
            None,
            routing.owner,
            tokens(routing.instances),
            newest,
            latest is not None and latest.routing.version == routing.version,
            self._time_ms,
            watermarks.next_ms,
            watermarks.used_ms,
            {one.name: self._broadcasts[one.name].packed() for one in spec.tables if one.broadcast},
            pinned=routing.pinned,
        )
        outputs, receipts = [], []
        for instance in range(routing.instances):
            mine = marked.filter(pa.array(owners == instance))
            if crash_at_row is not None and owners[crash_at_row] == instance:
                mine = mine.filter(pc.less(mine.column(SEQUENCE), crash_at_row))
                spec = replace(spec, runner=_Dies(spec.runner))
            token = pa.repeat(pa.scalar(control.tokens[instance], pa.int32()), mine.num_rows)
            here = replace(control, home=str(self._place / "home" / str(instance % self._hosts)))
            output, receipt = run(spec, here, instance, mine.append_column(TOKEN, token).to_batches())
            outputs.append(output)
            receipts.append(receipt)
        return pa.concat_tables(outputs), receipts

    def _manifest(self, epoch: int, receipts: Sequence[Receipt], latest: Manifest | None) -> Manifest:
        tables: dict[str, tuple[DeltaRef, ...]] = {}
        seen: dict[str, int] = {}
        for receipt in receipts:
            for name, ref in receipt.deltas.items():
                tables[name] = (*tables.get(name, ()), ref)
            for name, time_ms in receipt.watermarks.items():
                seen[name] = max(time_ms, seen.get(name, time_ms))
        records = {
            step.spec.name: OperatorRecord(
                *(sum(getattr(one, side) for one in receipts if one.operator == step.spec.name) for side in _COUNTED)
            )
            for step in self._steps
        }
        before = latest.watermarks if latest else Watermarks()
        declared = [name for step in self._steps for name, _, _ in step.spec.time.watermarks]
        times = [step.spec.time for step in self._steps]
        idle = {name: one.idle_ms for one in times for name, _, _ in one.watermarks if one.idle_ms is not None}
        watermarks = before.after(declared, seen, now_ms=self._time_ms, idle=idle)
        return Manifest(epoch, epoch, False, self._time_ms, self._routing, records, tables, {}, watermarks)


def _hashes(keys: Iterable[tuple[Any, ...]]) -> npt.NDArray[np.int64]:
    return np.array([xxhash.xxh64_intdigest(repr(key).encode()) for key in keys], np.uint64).view(np.int64)


def _listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


_COUNTED = ("rows", "keys", "output", "late")


def _side_names(steps: Sequence[Operated]) -> dict[tuple[str, str], str]:
    """Say how the side outputs of some operators are told apart: by name, and by operator where that is not enough."""
    times = Counter(name for step in steps for name in step.spec.sides)
    return {
        (step.spec.name, name): name if times[name] == 1 else f"{step.spec.name}.{name}"
        for step in steps
        for name in step.spec.sides
    }


def _steps(stream: Any, source: Stream) -> tuple[list[Operated], list[str | None]]:
    """List the operators of a pipeline, first to last, and of each which side is read; None for its own rows."""
    found: list[Operated] = []
    reads: list[str | None] = []
    side: str | None = None
    while stream is not source:
        if isinstance(stream, Operated):
            found.append(stream)
            reads.append(side)
            side = None
        elif isinstance(stream, Parted):
            side = stream.name
        elif not isinstance(stream, Watermarked):
            raise InvalidConfiguration(
                f"the harness runs operators and watermarks, and got {type(stream).__name__}. Test the steps between "
                "operators on Spark."
            )
        stream = stream.parent
    if not found:
        raise InvalidConfiguration("the pipeline has no operator. Add .key_by(...).process(...).")
    return found[::-1], reads[::-1]
