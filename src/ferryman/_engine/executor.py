"""What the engine needs of whoever runs the tasks of an epoch: Spark, or this process in the testing harness.

Sources and rows stay with the executor: the engine only hands them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from ferryman._engine.broadcast import Broadcast
from ferryman._engine.control import Control
from ferryman._engine.express_or_shuffle import Route
from ferryman._engine.lookups import LookupTable
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.when_partials_pay import Partials
from ferryman._migrate.keepers import Keepers
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import PartialsReceipt, Receipt
from ferryman._model.routing import RoutingTable

# Makes calls that run tasks; one after the other, or at the same time.
SideBySide = Callable[[Sequence[Callable[[], object]]], None]


def one_after_the_other(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls on this thread."""
    for call in calls:
        call()


class Layout(Protocol):
    """What an epoch is run with: a routing table, laid out."""

    @property
    def routing(self) -> RoutingTable:
        """Give the table."""

    def release(self) -> None:
        """Let go of what it holds."""


L = TypeVar("L", bound=Layout)
L_contra = TypeVar("L_contra", bound=Layout, contravariant=True)


class Layouts(Protocol[L]):
    """Who gives every epoch its layout, and changes it between two epochs."""

    @property
    def layout(self) -> L:
        """Give the layout that the next epoch has, unless a plan switches in it."""

    @property
    def holding(self) -> bool:
        """Tell whether groups are to wait in the next epoch."""

    def begin(self, redone: frozenset[int] | None = None) -> tuple[L, frozenset[int]]:
        """Give the layout of the epoch that begins now, and the groups whose rows are to wait in it.

        `redone` are those that waited in it when it was begun before, by a driver that died; None if it was not. If it
        was, it has the layout that the run began with, whatever was asked for since.
        """

    def ended(self, layout: L, latest: Manifest | None, *, committed: bool, receipts: Sequence[Receipt] = ()) -> None:
        """Learn how the epoch ended that was run with a layout, and which is the newest committed one."""

    def keepers(self, layout: L) -> Keepers | None:
        """Tell who may have main copies that tasks of the epoch that begins do not find; None if nobody."""

    def relay(self, instances: int) -> None:
        """Go on with another number of instances from the next epoch on, as a start does."""

    def release(self) -> None:
        """Let go of what was held; after the last epoch."""


class Frame(Protocol):
    """The rows of an epoch that one sink gets."""

    @property
    def rows(self) -> Any:
        """Give them as the sink takes them."""

    def compute(self) -> None:
        """Compute all of them, once, and keep them for the epoch."""

    def is_empty(self) -> bool:
        """Tell whether there are none."""

    @property
    def table(self) -> pa.Table | None:
        """Give them as they are in this process; None if they are not."""


class Execution(Protocol):
    """One epoch as it is carried out.

    Attributes
    ----------
    route
        How the rows went to their instances; known when the tasks have run.
    reading_ms
        By express, the longest that one task took to read rows; known then too.
    """

    @property
    def route(self) -> Route:
        """Give it."""

    @property
    def reading_ms(self) -> float:
        """Give it."""

    def broadcast_rows(self, table: str) -> pa.Table:
        """Give the rows that came for a broadcast state; before the tasks run."""

    def run(
        self,
        controls: Mapping[str, Control],
        route: Route,
        combine: Mapping[str, Partials],
        write: Callable[[Sequence[Frame]], None],
    ) -> Sequence[Receipt | PartialsReceipt]:
        """Run the tasks of all operators.

        Parameters
        ----------
        controls
            What the tasks of each operator must know.
        route
            How the rows are to go to their instances, if that turns out to be possible.
        combine
            The operators whose rows are aggregated before they are routed, if there is a shuffle.
        write
            Has the sinks write: takes the rows of each output, in the order of outputs. Tasks may run meanwhile.
        """


class Executor(Protocol[L_contra]):
    """Runs the tasks of one job's epochs.

    Attributes
    ----------
    operators
        What each operator is, by name; whoever reads of another comes after it.
    broadcasts
        How each broadcast state is declared, by the name of its table.
    lookups
        The tables that are looked up.
    by_file
        The operators whose rows know which file they are from.
    """

    @property
    def operators(self) -> Mapping[str, OperatorSpec]:
        """Give what each operator is."""

    @property
    def broadcasts(self) -> Mapping[str, Broadcast]:
        """Give how broadcast states are declared."""

    @property
    def lookups(self) -> Sequence[LookupTable]:
        """Give the tables that are looked up."""

    @property
    def by_file(self) -> Set[str]:
        """Name the operators whose rows know their files."""

    def unfit_for_express(self, layout: L_contra, *, first: Set[str]) -> str | None:
        """Say why an epoch cannot go by express; None if it can. It is the `first` one for some operators."""

    def takes_turns(self, layout: L_contra) -> bool:
        """Tell whether instances run one after the other by express; else they run side by side, as by a shuffle."""

    def combinable(self, *, in_order: bool) -> Set[str]:
        """Name the operators whose rows may be aggregated before they are routed, if rows are to be put `in_order`."""

    def side_by_side(self, calls: Sequence[Callable[[], object]]) -> None:
        """Make calls that run tasks, at the same time where that is faster.

        None is under way any more when this ends. If some fail, what the first of them has raised is raised.
        """

    def execution(
        self, layout: L_contra, source: Any, *, silent: bool, by_file: bool
    ) -> AbstractContextManager[Execution]:
        """Begin to carry out an epoch on what the source gave; with `by_file`, its rows bring their files along."""
