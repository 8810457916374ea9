"""Run the tasks of epochs in this process, one after the other: the engine's `Executor` without Spark."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ferryman._engine.broadcast import Broadcast
from ferryman._engine.control import Control
from ferryman._engine.executor import Frame, one_after_the_other
from ferryman._engine.express_epoch import parted, run_instances
from ferryman._engine.express_or_shuffle import Route
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import SEQUENCE
from ferryman._engine.task import run_in_order
from ferryman._engine.when_partials_pay import Partials
from ferryman._migrate.planning import rescaled
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import Receipt
from ferryman._model.routing import RoutingTable
from ferryman._operator.declare.side_outputs import own_rows, rows_aside
from ferryman._routing.owners import routed
from ferryman._spark.api.lookups import Looked, LookedUp
from ferryman._spark.api.paired import Paired
from ferryman._spark.api.pipeline import lookups_of, reachable
from ferryman._spark.api.stream import Operated, Parted, Stream, Watermarked, plain
from ferryman._spark.api.windowed import Paned
from ferryman._testing.crash_at_row import dying_at
from ferryman._testing.looked_up_rows import looked_up_rows
from ferryman._testing.paired_rows import paired_rows

Listed = list[tuple[Any, ...]]


_HERE = Route(True, "all instances run in this process")


@dataclass(frozen=True)
class LocalLayout:
    """A routing table, all in this process."""

    routing: RoutingTable

    def release(self) -> None:
        """Nothing to let go of."""


class LocalLayouts:
    """Give every epoch the layout that a test has asked for last."""

    holding = False

    def __init__(self, routing: RoutingTable) -> None:
        self.layout = LocalLayout(routing)

    def begin(self, redone: frozenset[int] | None = None) -> tuple[LocalLayout, frozenset[int]]:
        """Give the layout; no rows wait but those that did."""
        return self.layout, redone or frozenset()

    def ended(
        self, layout: LocalLayout, latest: Manifest | None, *, committed: bool, receipts: Sequence[Receipt] = ()
    ) -> None:
        """Nothing to learn."""

    def keepers(self, layout: LocalLayout) -> None:
        """Tell that nobody has any."""

    def relay(self, instances: int) -> None:
        """Go on with another number of instances."""
        if instances != self.layout.routing.instances:
            self.layout = LocalLayout(rescaled(self.layout.routing, instances))

    def release(self) -> None:
        """Nothing to let go of."""


@dataclass(frozen=True)
class Input:
    """What comes in an epoch.

    Attributes
    ----------
    rows
        The source's rows; of two sources a list with those of each.
    broadcasts
        Those for broadcast states, by table.
    crash_at_row
        The row of the source at which the first operator dies; None if it does not.
    """

    rows: pa.Table | Sequence[pa.Table]
    broadcasts: Mapping[str, pa.Table] = field(default_factory=dict)
    crash_at_row: int | None = None


class LocalExecutor:
    """Run operators in this process.

    Parameters
    ----------
    pipeline
        What `build` gave.
    sources
        The streams that it begins with: one, or two that its first operator is on.
    homes
        Where main copies are.
    hosts
        Over how many hosts the instances are spread, each with main copies of its own.

    Attributes
    ----------
    steps
        The operators, first to last.
    output, sides
        What came out of the newest epoch: the rows of the pipeline, and those of side outputs by name.
    """

    by_file: Set[str] = frozenset()

    def __init__(self, pipeline: Any, sources: Sequence[Stream], homes: Path, hosts: int) -> None:
        self.steps, self._reads, self._between = _steps(pipeline, sources)
        self.lookups: list[LookedUp] = lookups_of(reachable([pipeline]))
        self.output: Listed = []
        self.sides: dict[str, Listed] = {}
        self._side_names = _side_names(self.steps)
        self._homes = homes
        self._hosts = hosts

    @property
    def operators(self) -> Mapping[str, OperatorSpec]:
        """Give what each operator is."""
        return {step.spec.name: step.spec for step in self.steps}

    @property
    def broadcasts(self) -> Mapping[str, Broadcast]:
        """Give how broadcast states are declared."""
        return {
            table.name: step.broadcasts[table.name.rpartition(".")[2]]
            for step in self.steps
            for table in step.spec.tables
            if table.broadcast
        }

    def unfit_for_express(self, layout: LocalLayout, *, first: Set[str]) -> str | None:
        """Say nothing: here there is one way only."""
        return None

    def takes_turns(self, layout: LocalLayout) -> bool:
        """Tell that instances run one after the other."""
        return True

    def combinable(self, *, in_order: bool) -> Set[str]:
        """Name none: rows are routed as they come."""
        return frozenset()

    def side_by_side(self, calls: Sequence[Callable[[], object]]) -> None:
        """Make them on this thread: a history has no other."""
        one_after_the_other(calls)

    @contextlib.contextmanager
    def execution(self, layout: LocalLayout, source: Input, *, silent: bool, by_file: bool) -> Iterator[LocalExecution]:
        """Begin to carry out an epoch."""
        yield LocalExecution(self, layout.routing, source)

    def _joint(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Give the rows that came as the first operator reads them."""
        first = self.steps[0].parent
        if not isinstance(first, Paired):
            return tables[0]
        parts = zip(first.parts, tables, strict=True)
        return paired_rows(first, [_stepped(_lookups_on(part), rows) for part, rows in parts])

    def frames(self, time_ms: int) -> Sequence[Frame]:
        """Give what the sinks get of the newest epoch, which has this time; there are none."""
        return ()

    def run(self, source: Input, routing: RoutingTable, controls: Mapping[str, Control]) -> list[Receipt]:
        """Run the operators on what came, first to last; keep what came out."""
        rows = source.rows if isinstance(source.rows, pa.Table) else self._joint(source.rows)
        crash_at_row = source.crash_at_row
        sides: dict[str, Listed] = {}
        receipts: list[Receipt] = []
        rows = _stepped(self._between[0], rows)
        for step, side, after in zip(self.steps, self._reads, self._between[1:], strict=True):
            spec = step.spec
            whole, some = self._operate(spec, controls[spec.name], routing, rows, crash_at_row)
            crash_at_row = None
            receipts += some
            rows = own_rows(whole, spec.output.names) if side is None else rows_aside(whole, side)
            rows = _stepped(after, rows)
            for name in spec.sides:
                sides[self._side_names[spec.name, name]] = _listed(rows_aside(whole, name))
        self.output, self.sides = _listed(rows), sides
        return receipts

    def _operate(
        self, spec: OperatorSpec, control: Control, routing: RoutingTable, rows: pa.Table, crash_at_row: int | None
    ) -> tuple[pa.Table, list[Receipt]]:
        """Run the instances of an operator, one after the other."""
        keys = zip(*(rows.column(name).to_pylist() for name in spec.routed.names), strict=True)
        hashes = hashes_of(keys)
        dies = None if crash_at_row is None else routed(hashes, np.array(routing.owner), routing.pinned)[crash_at_row]
        rows = rows.append_column(SEQUENCE, pa.array(np.arange(len(hashes))))

        def run(spec: OperatorSpec, control: Control, instance: int, mine: pa.Table) -> tuple[pa.Table, Receipt]:
            if instance == dies and crash_at_row is not None:
                spec, mine = dying_at(spec, mine, crash_at_row)
            here = replace(control, home=str(self._homes / str(instance % self._hosts)))
            return run_in_order(spec, here, instance, mine.drop_columns([SEQUENCE]))

        return run_instances(spec, control, parted(control, rows, hashes), run)


@dataclass(frozen=True)
class LocalExecution:
    """One epoch in this process."""

    executor: LocalExecutor
    routing: RoutingTable
    source: Input
    route: Route = _HERE
    reading_ms: float = 0.0

    def broadcast_rows(self, table: str) -> pa.Table:
        """Give the rows that came for a broadcast state."""
        return self.source.broadcasts[table]

    def run(
        self,
        controls: Mapping[str, Control],
        route: Route,
        combine: Mapping[str, Partials],
        write: Callable[[Sequence[Frame]], None],
    ) -> Sequence[Receipt]:
        """Run the tasks, and then have the sinks write."""
        receipts = self.executor.run(self.source, self.routing, controls)
        write(self.executor.frames(next(iter(controls.values())).time_ms))
        return receipts


def hashes_of(keys: Iterable[tuple[Any, ...]]) -> npt.NDArray[np.int64]:
    """Hash keys; not as Spark does, but as well."""
    return np.array([xxhash.xxh64_intdigest(repr(key).encode()) for key in keys], np.uint64).view(np.int64)


def _listed(rows: pa.Table) -> Listed:
    return [tuple(row.values()) for row in rows.to_pylist()]


def _begins(stream: Stream, sources: Sequence[Stream]) -> bool:
    """Tell whether a stream is that with which a pipeline begins."""
    if len(sources) == 1:
        return stream is sources[0]
    if not isinstance(stream, Paired):
        return False
    begins = []
    for part in stream.parts:
        first = plain(part)
        while isinstance(first, Looked):
            first = plain(first.parent)
        begins.append(id(first))
    return begins == [id(source) for source in sources]


def _lookups_on(stream: Stream) -> list[Paned | Looked]:
    """List the lookups on a source, in the order in which they are done."""
    found: list[Paned | Looked] = []
    while isinstance(stream, (Watermarked, Looked)):
        found += [stream] if isinstance(stream, Looked) else []
        stream = stream.parent
    return found[::-1]


def _stepped(steps: Sequence[Paned | Looked], rows: pa.Table) -> pa.Table:
    """Take the steps between operators."""
    for step in steps:
        rows = step.rows(rows) if isinstance(step, Paned) else looked_up_rows(step, rows)
    return rows


def _side_names(steps: Sequence[Operated]) -> dict[tuple[str, str], str]:
    """Say how the side outputs of some operators are told apart: by name, and by operator where that is not enough."""
    times = Counter(name for step in steps for name in step.spec.sides)
    return {
        (step.spec.name, name): name if times[name] == 1 else f"{step.spec.name}.{name}"
        for step in steps
        for name in step.spec.sides
    }


def _steps(
    stream: Any, sources: Sequence[Stream]
) -> tuple[list[Operated], list[str | None], list[list[Paned | Looked]]]:
    """List the operators of a pipeline, first to last, and of each which side is read; None for its own rows.

    Also give the steps before the first operator, and those after each.
    """
    found: list[Operated] = []
    reads: list[str | None] = []
    between: list[list[Paned | Looked]] = [[]]
    side: str | None = None
    while not _begins(stream, sources):
        if isinstance(stream, Operated):
            found.append(stream)
            between.append([])
            reads.append(side)
            side = None
        elif isinstance(stream, Parted):
            side = stream.name
        elif isinstance(stream, (Paned, Looked)):
            between[-1].insert(0, stream)
        elif not isinstance(stream, Watermarked):
            raise InvalidConfiguration(
                f"the harness runs operators, lookups and watermarks, and got {type(stream).__name__}. Test the steps "
                "between operators on Spark."
            )
        stream = stream.parent
    if not found:
        raise InvalidConfiguration("the pipeline has no operator. Add .key_by(...).process(...).")
    return found[::-1], reads[::-1], between[::-1]
