"""Forget what no kept epoch needs: manifests, deltas and snapshots older than the retention."""

from __future__ import annotations

from collections.abc import Sequence

from ferryman._log.files.checkpoint import Checkpoint, is_number
from ferryman._log.fold.bases import bases, files_of
from ferryman._os.faults import reach


def oldest_retained(newest: int, retain: int) -> int:
    """Give the oldest epoch that must stay rebuildable when the newest one has a snapshot."""
    return newest - retain


def base_retained(snapshots: Sequence[int], oldest: int) -> int | None:
    """Give the newest snapshot that the oldest epoch can be rebuilt from: what is before it is not needed."""
    return max((epoch for epoch in snapshots if epoch <= oldest), default=None)


def prune(checkpoint: Checkpoint, oldest: int) -> int:
    """Keep every epoch from `oldest` on rebuildable, delete the rest, and count the files deleted.

    Manifests go first: an epoch that can no longer be asked for needs no deltas. A kill in between
    leaves files that nobody names; the next run deletes them. The deltas of the oldest epoch stay, though
    its snapshot holds them too: every file that a kept manifest names is there.
    """
    snapshots = checkpoint.snapshots()
    base = base_retained(snapshots, oldest)
    if base is None:
        return 0
    directory = checkpoint.directory
    manifests = [f"manifests/{epoch:012d}.json" for epoch in checkpoint.epochs() if epoch < base]
    for name in manifests:
        # One after the other, the oldest first, also for a power cut: what is left of them has no gap.
        directory.delete([name])
    reach("retention")
    kept = [snapshot for snapshot in bases(checkpoint, snapshots[-1]) if snapshot.epoch >= base]
    needed = {file for snapshot in kept for file in files_of(snapshot)}
    # Which files a list names that cannot be read, nobody knows; whoever mends it has them deleted.
    all_known = len(kept) == sum(epoch >= base for epoch in snapshots)
    lists = [f"snapshots/{epoch:012d}.json" for epoch in snapshots if epoch < base]
    directory.delete(lists)
    reach("retention")
    deltas = [f"deltas/{name}" for name in directory.list("deltas") if _epoch(name) < base]
    newest = snapshots[-1]
    files = [
        f"snapshots/{name}"
        for name in directory.list("snapshots")
        if all_known and name.endswith(".parquet") and _epoch(name) <= newest and f"snapshots/{name}" not in needed
    ]
    others = [*_held_no_more(checkpoint, base), *_looked_up_no_more(checkpoint, base)]
    directory.delete([*deltas, *files, *others])
    return len(manifests) + len(lists) + len(deltas) + len(files) + len(others)


def _held_no_more(checkpoint: Checkpoint, base: int) -> list[str]:
    """List the files of held rows that no kept manifest names; nearly always there are no files at all."""
    old = [f"held/{name}" for name in checkpoint.directory.list("held") if _epoch(name) < base]
    if not old:
        return []
    needed = {
        rows.file.file
        for epoch in checkpoint.epochs()
        for instances in checkpoint.manifest(epoch).held.values()
        for rows in instances
    }
    return [name for name in old if name not in needed]


def _looked_up_no_more(checkpoint: Checkpoint, base: int) -> list[str]:
    """List the versions of tables that are looked up which no kept epoch has: what is replaced does not come back."""
    old = [f"lookups/{name}" for name in checkpoint.directory.list("lookups") if _epoch(name) < base]
    if not old:
        return []
    needed = {version.file.file for version in checkpoint.manifest(base).lookups.values()}
    return [name for name in old if name not in needed]


def _epoch(name: str) -> float:
    """Read the epoch off a file's name; a file that is not ours is of no epoch, and stays."""
    number = name.split("-", 1)[0]
    return int(number) if is_number(number) else float("inf")
