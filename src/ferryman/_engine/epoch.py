"""Carry out epochs: have the tasks run and the sinks write, gather the receipts, commit the manifest.

The phases of an epoch, in this order; a kill between any two of its steps loses nothing and repeats nothing:

    begin       its layout is chosen; what no batch tells of it is written down
    execute     step "epoch"; the controls of its tasks are made, and these run
                step "before-sink": nothing is written yet, or by express the deltas, which nobody lists
                step "after-sink": deltas and sinks' files are written, nobody lists them
    gather      the receipts of the tasks are put together to a manifest
    commit      step "before-manifest"; then the epoch is committed
    tell        step "after-manifest": sinks are told
    end         whoever lays out epochs learns how it ended

Who runs the tasks is behind `Executor`, who chooses the layout behind `Layouts`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ferryman._engine.broadcast import BroadcastTable
from ferryman._engine.clock import Clock, system_ms
from ferryman._engine.control import Control
from ferryman._engine.due import Due
from ferryman._engine.executor import Execution, Executor, Frame, Layouts
from ferryman._engine.express_or_shuffle import EpochCost, Route, choose
from ferryman._engine.fence import Fenced
from ferryman._engine.gathered_receipts import Gathered
from ferryman._engine.job_options import EpochOptions
from ferryman._engine.lookups import Lookups
from ferryman._engine.newest_epoch import Newest
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.progress import EpochProgress
from ferryman._engine.recovery import Takeover, resumes
from ferryman._engine.source_offsets import Coverage, Covered
from ferryman._engine.when_partials_pay import Partials, worth_combining
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.epoch_time import epoch_time
from ferryman._model.lookup_version import LookupVersion
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import Receipt
from ferryman._model.routing import RoutingTable
from ferryman._model.watermarks import Watermarks
from ferryman._os.faults import reach
from ferryman._routing.tokens import tokens

log = logging.getLogger("ferryman")

C = TypeVar("C", bound=Layouts[Any])


@dataclass(kw_only=True)
class _Epoch:
    """An epoch under way, and what is known of it so far.

    Attributes
    ----------
    began
        When it was begun, by a clock that only measures.
    clock_ms, time_ms, back_ms
        What the clock said, the time that it has for that, and by how much that is behind the epoch before.
    layout, held
        What it is run with, and the groups whose rows wait in it.
    combine
        The operators whose rows were aggregated before they were routed, and how.
    route, reading_ms
        How its rows went to their instances, and by express, the longest that one task took to read rows.
    broadcasts
        What came for broadcast states.
    lookups
        The versions of the tables that it looks up.
    written
        What the sinks have written.
    gathered
        The receipts of its tasks.
    committed
        Whether it is committed.
    phases_ms
        How long its phases took so far. By a shuffle the tasks run while the sinks write.
    """

    number: int
    batch: int
    silent: bool
    began: float
    clock_ms: int
    time_ms: int
    back_ms: int
    layout: Any
    held: frozenset[int]
    covered: Covered | None = None
    combine: Mapping[str, Partials] = field(default_factory=dict)
    route: Route | None = None
    reading_ms: float = 0.0
    broadcasts: dict[str, tuple[DeltaRef, ...]] = field(default_factory=dict)
    lookups: Mapping[str, LookupVersion] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)
    gathered: Gathered | None = None
    committed: bool = False
    phases_ms: dict[str, float] = field(default_factory=dict)

    def passed(self, phase: str) -> None:
        """Learn that a phase is over, and so how long it took."""
        now_ms = (time.perf_counter() - self.began) * 1000
        self.phases_ms[phase] = now_ms - sum(self.phases_ms.values())

    @property
    def routing(self) -> RoutingTable:
        routing: RoutingTable = self.layout.routing
        return routing

    @property
    def receipts(self) -> Sequence[Receipt]:
        return self.gathered.receipts if self.gathered else ()


class EpochRunner(Generic[C]):
    """Run one epoch after the other on top of what is committed.

    Parameters
    ----------
    executor
        Who runs the tasks.
    coordinator
        Who gives every epoch its layout.
    fenced
        What only the newest run may do.
    coverage
        Who knows what of the source an epoch covers.
    takeover
        What the run has taken over from the one before.
    options
        The job's.

    Attributes
    ----------
    newest
        The newest committed epoch.
    due
        When the next one has to come.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        card: JobCard,
        executor: Executor[Any],
        coordinator: C,
        fenced: Fenced,
        coverage: Coverage,
        takeover: Takeover,
        options: EpochOptions,
    ) -> None:
        self.checkpoint = checkpoint
        self.coordinator = coordinator
        self.fenced = fenced
        self.takeover = takeover
        self.term = takeover.term
        self.run_id = takeover.term.run
        self.clock = Clock(options.clock)
        self.newest = Newest(takeover.latest)
        self.due = Due(executor.operators, self.newest, coordinator)
        self._executor = executor
        self._coverage = coverage
        self._options = options
        self._cost: EpochCost | None = None
        self._lookups = Lookups(checkpoint, executor.lookups)
        self._broadcasts = {
            table.name: BroadcastTable(checkpoint, card, table, executor.broadcasts[table.name], self.newest.epoch)
            for spec in self._operators.values()
            for table in spec.tables
            if table.broadcast
        }

    @property
    def latest(self) -> Manifest | None:
        """Give the manifest of the newest committed epoch."""
        return self.newest.manifest

    @property
    def _operators(self) -> Mapping[str, OperatorSpec]:
        return self._executor.operators

    def close(self) -> None:
        """Let go of what was held."""
        with contextlib.ExitStack() as rest:
            # What is last here comes first; and whatever fails, the rest is let go of all the same.
            rest.callback(self.coordinator.layout.release)
            rest.callback(self.coordinator.release)
            rest.callback(self._coverage.close)
            self.fenced.close()

    # -- an epoch --------------------------------------------------------------------------------

    def run(self, source: Any, batch: int, *, silent: bool, time_ms: int) -> EpochProgress:
        """Run and commit the next epoch, in the layout that is its own.

        Parameters
        ----------
        source
            What the source gave, as the executor takes it.
        batch
            The last micro-batch of Spark's that it covers.
        silent
            Whether it came because no data did.
        time_ms
            What the clock says.
        """
        epoch = self._begin(batch, silent=silent, time_ms=time_ms)
        try:
            epoch.lookups = self._lookups.of_epoch(
                epoch.number, epoch.time_ms, self.newest.lookups, self.takeover.looked_up_in(epoch.number)
            )
            self._intend(epoch)
            epoch.passed("begin")
            self._execute(epoch, source)
            manifest = self._manifest(epoch)
            epoch.passed("gather")
            self._commit(epoch, manifest)
            committed_ms = system_ms()
            epoch.passed("commit")
            self.fenced.tell(manifest)
            epoch.passed("tell")
            return EpochProgress.of(
                manifest,
                epoch.receipts,
                duration_ms=(time.perf_counter() - epoch.began) * 1000,
                committed_ms=committed_ms,
                back_ms=epoch.back_ms,
                route=epoch.route,
                phases_ms=epoch.phases_ms,
            )
        except Exception as error:
            raise self.fenced.reason(error)  # noqa: B904 - it is the error itself, or has it as its cause
        finally:
            self._end(epoch)

    def _begin(self, batch: int, *, silent: bool, time_ms: int) -> _Epoch:
        """Choose the layout of the next epoch, and its time: those it had, if it was begun before."""
        number = self.newest.next
        begun = self.takeover.begun(number)
        clock_ms = time_ms if begun is None else begun.time_ms
        layout, held = self.coordinator.begin(self.takeover.held_in(number))
        now_ms, back_ms = epoch_time(clock_ms, self.newest.time_ms)
        return _Epoch(
            number=number,
            batch=batch,
            silent=silent,
            began=time.perf_counter(),
            clock_ms=clock_ms,
            time_ms=now_ms,
            back_ms=back_ms,
            layout=layout,
            held=held,
        )

    def _intend(self, epoch: _Epoch) -> None:
        """Write down what Spark's log has not.

        That no data came, who waits, a switch, other versions of what is looked up, a time that is not Spark's.
        """
        latest, begun = self.newest.manifest, self.takeover.begun(epoch.number)
        before = self.takeover.routing if latest is None else latest.routing
        # Before the first epoch a start finds by itself what it begins with, unless that is a switch done again.
        switches = epoch.routing != before or (begun is not None and begun.routing is not None)
        lookups = epoch.lookups if epoch.lookups != self.newest.lookups else None
        if epoch.silent or epoch.held or switches or lookups or self.clock.own:
            self.fenced.intend(
                epoch.number,
                epoch.clock_ms,
                silent=epoch.silent,
                held=epoch.held,
                routing=epoch.routing if switches else None,
                lookups=lookups,
            )

    def _execute(self, epoch: _Epoch, source: Any) -> None:
        """Have the tasks run, and the sinks write what comes of it."""
        if epoch.back_ms:
            log.warning(
                "the clock is %.0f s behind the time of epoch %d: it was wrong then, and time follows it back. What "
                "was written meanwhile keeps the time it was given.",
                epoch.back_ms / 1000,
                epoch.number - 1,
            )
        reach("epoch")
        covered = epoch.covered = self._coverage.covered(epoch.batch, self.newest, silent=epoch.silent)
        files = covered.files() if self._executor.by_file else ()
        epoch.combine = self._combinable(epoch, in_order=bool(files))

        def write(frames: Sequence[Frame]) -> None:
            if self._options.fsync:
                # What a sink sees must be what is redone after a power cut.
                covered.read()
            epoch.passed("tasks")
            beside = self._executor.side_by_side
            epoch.written = self.fenced.write(frames, epoch.number, silent=epoch.silent, side_by_side=beside)
            epoch.passed("sinks")

        self._lookups.use(epoch.lookups)
        with self._executor.execution(epoch.layout, source, silent=epoch.silent, by_file=bool(files)) as execution:
            self._broadcast(epoch, execution)
            receipts = execution.run(self._controls(epoch, files), self._route(epoch), epoch.combine, write)
            epoch.route, epoch.reading_ms = execution.route, execution.reading_ms
            if epoch.route.express:
                # There was no shuffle to do it before.
                epoch.combine = {}
        epoch.gathered = Gathered(receipts, epoch.number, self._operators, epoch.routing.instances)

    def _broadcast(self, epoch: _Epoch, execution: Execution) -> None:
        """Fold the rows of the epoch into the broadcast states, before any task reads them."""
        for name, table in self._broadcasts.items():
            ref = table.update(execution.broadcast_rows(name), epoch.number, epoch.routing, epoch.time_ms)
            epoch.broadcasts[name] = () if ref is None else (ref,)

    def _controls(self, epoch: _Epoch, files: tuple[int, ...]) -> dict[str, Control]:
        """Make what the tasks of each operator must know."""
        watermarks, routing = self.newest.watermarks, epoch.routing
        latest, keepers = self.newest.manifest, self.coordinator.keepers(epoch.layout)
        return {
            name: Control(
                epoch=epoch.number,
                run_id=self.run_id,
                checkpoint=self.checkpoint.directory.address,
                fsync=self._options.fsync,
                home=self._options.home,
                owner=routing.owner,
                tokens=tokens(routing.instances),
                newest={table.name: self.newest.deltas(table.name) for table in spec.tables} if latest else None,
                newest_same_routing=latest is not None and latest.routing.version == routing.version,
                time_ms=epoch.time_ms,
                # What is due in a group that waits can only be done later, so it is done later everywhere: an operator
                # that reads from all groups would take it for late.
                watermark_ms=watermarks.used_ms if epoch.held else watermarks.next_ms,
                late_ms=watermarks.used_ms,
                due_ms=self.due.next_of(name),
                broadcasts={
                    table.name: self._broadcasts[table.name].packed() for table in spec.tables if table.broadcast
                },
                first=name not in self.newest.operators,
                held=epoch.held,
                waiting=self.newest.held.get(name, ()),
                pinned=routing.pinned,
                files=files if name in self._executor.by_file else (),
                keepers=keepers if latest else None,
            )
            for name, spec in self._operators.items()
        }

    def _route(self, epoch: _Epoch) -> Route:
        """Choose how the rows go to their instances."""
        if not self._options.express:
            return choose(None, "turned off (express=False)")
        if self._cost is None and self.newest.manifest is not None:
            return choose(None, "the first epoch of a restart: instances restore their state side by side")
        first = self._operators.keys() - self.newest.operators.keys()
        unfit = self._executor.unfit_for_express(epoch.layout, first=first)
        return choose(self._cost, unfit, in_turns=self._executor.takes_turns(epoch.layout))

    def _combinable(self, epoch: _Epoch, *, in_order: bool) -> Mapping[str, Partials]:
        """Choose the operators whose rows are aggregated before the shuffle, and whether Spark may do it.

        Where rows still have to be put in order, operators that take the first or the last of them are left out.
        """
        worth = worth_combining(self.newest.operators, held=bool(epoch.held or self.newest.held))
        able = self._executor.combinable(in_order=in_order) if worth else ()
        return {name: partials for name, partials in worth.items() if name in able}

    def _manifest(self, epoch: _Epoch) -> Manifest:
        """Put together what there is to say of the epoch."""
        gathered, covered = epoch.gathered, epoch.covered
        assert gathered is not None, "its tasks have run"
        assert covered is not None, "its tasks have run"
        offsets, spark_log = covered.read()
        return Manifest(
            epoch=epoch.number,
            batch=epoch.batch,
            silent=epoch.silent,
            time_ms=epoch.time_ms,
            routing=epoch.routing,
            operators=gathered.records(self._operators, epoch.combine),
            tables={**gathered.deltas(self._operators.values()), **epoch.broadcasts},
            sinks=epoch.written,
            watermarks=self._watermarks(gathered.watermarks(), epoch),
            offsets=offsets,
            held=gathered.waiting(self.newest.held, epoch.held),
            term=self.term.number,
            spark=spark_log,
            lookups=epoch.lookups,
        )

    def _watermarks(self, seen: Mapping[str, int], epoch: _Epoch) -> Watermarks:
        """Give the watermarks after the epoch, from what its tasks saw."""
        reported = [watermark for spec in self._operators.values() for watermark in spec.time.watermarks]
        return self.newest.watermarks.after(
            sorted({watermark.name for watermark in reported}),
            seen,
            held=bool(epoch.held),
            now_ms=epoch.time_ms,
            idle={watermark.name: watermark.idle_ms for watermark in reported if watermark.idle_ms is not None},
            resumed=resumes(self.term, self.newest.manifest),
        )

    def _commit(self, epoch: _Epoch, manifest: Manifest) -> None:
        """Commit the epoch, and take on what holds from now on."""
        self.fenced.commit(manifest)
        epoch.committed = True
        self.newest.manifest = manifest
        for table in self._broadcasts.values():
            table.committed(manifest.epoch)
        if epoch.gathered is not None:
            rows = max((record.rows for record in manifest.operators.values()), default=0)
            assert epoch.route is not None, "its tasks have run"
            self._cost = EpochCost.of(
                self._cost, epoch.number, rows, epoch.gathered.receipts, epoch.route, epoch.reading_ms
            )
            self.due.committed(epoch.gathered)

    def whole(self) -> dict[str, tuple[pa.Table, int]]:
        """Give the tables that the driver has, each as of the newest epoch that it knows to be committed."""
        return {name: table.newest for name, table in self._broadcasts.items()}

    def _end(self, epoch: _Epoch) -> None:
        """Say how the epoch ended. Was it left behind, it had its own layout; now comes the one that was asked for."""
        receipts = epoch.receipts if epoch.committed else ()
        self.coordinator.ended(epoch.layout, self.newest.manifest, committed=epoch.committed, receipts=receipts)
        if epoch.committed and (instances := self.takeover.instances_after(epoch.number)) is not None:
            self.coordinator.relay(instances)
