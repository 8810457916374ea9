"""The main copies in this machine's home, where all instances of a job run on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ferryman._engine.home import make
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._state import store as stores
from ferryman._state.store import Store


@dataclass(frozen=True)
class HomeMains:
    """Open the stores of a home beside the tasks that work on it, as a state host does.

    Attributes
    ----------
    place
        The home.
    specs
        The operators of the job.
    groups
        How many key groups it has.
    driver
        Gives the tables that the driver has whole, each with its epoch.
    """

    place: Path
    specs: Sequence[OperatorSpec]
    groups: int
    driver: Callable[[], Mapping[str, tuple[pa.Table, int]]] = dict

    def whole(self) -> Mapping[str, tuple[pa.Table, int]]:
        """Give the tables that are in no home."""
        return self.driver()

    def scratch(self) -> Path:
        """Give the home itself."""
        make(self.place)
        return self.place

    @contextlib.contextmanager
    def stores(self) -> Iterator[dict[str, Store]]:
        """Open those that tasks have made."""
        tables = [table for spec in self.specs for table in spec.kept if (self.place / table.name).exists()]
        with contextlib.ExitStack() as opened:
            yield {
                table.name: opened.enter_context(
                    contextlib.closing(
                        stores.open(table.backend, self.place / table.name, table.key, table.state, self.groups)
                    )
                )
                for table in tables
            }
