"""Weigh key groups by what the checkpoint says of them, without reading their state."""

from __future__ import annotations

import numpy as np

from ferryman._log.checkpoint import Checkpoint


def bytes_by_group(checkpoint: Checkpoint, epoch: int) -> list[float]:
    """Give about how many bytes each key group has after an epoch.

    Every group of a file has the same part of it: of a snapshot's file the groups it is for, of a delta those that its
    instance had.
    """
    sizes = np.zeros(checkpoint.job_card().groups)
    base = checkpoint.snapshot_before(epoch)
    for one in (one for files in (base.tables.values() if base else ()) for one in files):
        sizes[one.first : one.last + 1] += one.bytes / (one.last + 1 - one.first)
    for number in range((base.epoch if base else 0) + 1, epoch + 1):
        manifest = checkpoint.own_manifest(number)
        owner = np.asarray(manifest.routing.owner)
        for ref in (ref for refs in manifest.tables.values() for ref in refs):
            mine = owner == ref.instance
            # Of an instance that has only pinned keys it is not known which groups they are of.
            sizes[mine if mine.any() else slice(None)] += ref.bytes / max(1, mine.sum() or len(sizes))
    by_group: list[float] = sizes.tolist()
    return by_group
