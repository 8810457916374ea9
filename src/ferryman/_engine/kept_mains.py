"""Take main copies that are not at home from a host that keeps them, before they would be rebuilt.

Calls state hosts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ferryman._engine.control import Control
from ferryman._engine.home import host
from ferryman._model.errors import PeerFailed, StaleTask
from ferryman._state.store.contract import Store, part_schema
from ferryman._state.tables import TableSpec


def take_kept(
    opened: Mapping[str, Store], tables: Mapping[str, TableSpec], groups: npt.NDArray[np.int64], control: Control,
    instance: int,
) -> None:  # fmt: skip
    """Take the main copies of an instance's groups that are not here; what nobody has is left to the checkpoint.

    Parameters
    ----------
    opened, tables
        The stores of the operator's tables, and what these are.
    groups
        The groups.
    control
        What the task was told.
    instance
        Whose groups they are.
    """
    keepers = () if control.keepers is None else control.keepers.at.get(instance, ())
    for name, location in keepers:
        missing = _missing(opened, groups)
        if not len(missing):
            return
        if name == host():
            continue
        # Whatever a host cannot give, or gives wrong, another one has, or the checkpoint.
        with contextlib.suppress(PeerFailed):
            _take(opened, tables, missing, control, location)


def _take(
    opened: Mapping[str, Store],
    tables: Mapping[str, TableSpec],
    groups: npt.NDArray[np.int64],
    control: Control,
    location: str,
) -> None:
    # Only here: no other task needs Arrow Flight.
    from ferryman._serve import client
    from ferryman._serve.auth import Access
    from ferryman._serve.wire import Take

    assert control.keepers is not None, "one of them is asked"
    access = Access(control.keepers.token, control.keepers.tls)
    take = Take({name: tables[name].backend for name in opened}, tuple(groups.tolist()))
    schemas = {name: part_schema(tables[name].key, tables[name].state) for name in opened}
    for group, mains in client.take(location, access, take, schemas):
        for name, (part, epoch) in mains.items():
            # One that is further than the epoch before is none of a committed epoch.
            if epoch < control.epoch:
                # The state host here may have brought it in meanwhile.
                with contextlib.suppress(StaleTask):
                    opened[name].ingest(part, np.array([group]), epoch)


def _missing(opened: Mapping[str, Store], groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give the groups of which some table has no main here."""
    none = [store.epochs()[groups] < 0 for store in opened.values()]
    return groups[np.any(none, axis=0)] if none else groups[:0]
