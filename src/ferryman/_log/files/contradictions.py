"""Tell whether a manifest or a list of a snapshot's files makes sense: by itself, by its name, and beside the card."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from ferryman._model.manifest import Manifest
from ferryman._model.snapshot import Snapshot


def manifest_contradiction(
    manifest: Manifest, epoch: int, groups: int | None = None, tables: Collection[str] | None = None
) -> str | None:
    """Tell what makes a manifest contradict itself, its name, or the card; None if nothing does.

    Parameters
    ----------
    groups, tables
        What the card says, where it is known.
    """
    routing = manifest.routing
    if manifest.epoch != epoch:
        return f"is the manifest of another epoch, {manifest.epoch}"
    if not all(0 <= owner < routing.instances for owner in routing.owner):
        return f"has a routing table that names instances beyond its {routing.instances}"
    if not all(0 <= pin.instance < routing.instances for pin in routing.pins):
        return f"pins a key to an instance beyond its {routing.instances}"
    if len(routing.pinned) != len(routing.pins):
        return "pins one key twice"
    for table, refs in manifest.tables.items():
        instances = [ref.instance for ref in refs]
        if len(set(instances)) != len(instances):
            return f"names two deltas of one instance of table {table!r}"
        if not all(instance < routing.instances for instance in instances):
            return f"names a delta of an instance beyond its {routing.instances}"
    if tables is not None and (unknown := set(manifest.tables) - set(tables)):
        return f"names tables that the job does not have: {_names(unknown)}"
    if groups is not None and len(routing.owner) != groups:
        return f"has a routing table of {len(routing.owner)} key groups, and the job has {groups}"
    waiting = {group for instances in manifest.held.values() for rows in instances for group in rows.groups}
    if waiting and max(waiting) >= len(routing.owner):
        return "holds rows of key groups that the job does not have"
    return None


def snapshot_contradiction(
    snapshot: Snapshot, epoch: int, groups: int | None = None, tables: Collection[str] | None = None
) -> str | None:
    """Tell what makes the list of a snapshot's files contradict itself, its name, or the card."""
    runs = [[(file.first, file.last) for file in files] for files in snapshot.tables.values()]
    if snapshot.epoch != epoch:
        return f"is the list of another snapshot, of epoch {snapshot.epoch}"
    if tables is not None and (unknown := set(snapshot.tables) - set(tables)):
        return f"names tables that the job does not have: {_names(unknown)}"
    if any(low > high for run in runs for low, high in run) or any(
        before[1] >= after[0] for run in runs for before, after in itertools.pairwise(run)
    ):
        return "names files whose runs of key groups overlap"
    if groups is not None and any(high >= groups for run in runs for _, high in run):
        return f"names key groups beyond the {groups} that the job has"
    return None


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names))
