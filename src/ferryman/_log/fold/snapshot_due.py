"""When a snapshot is due: after enough epochs, if the deltas weigh enough beside the last one. Pure."""

from __future__ import annotations


def is_snapshot_due(*, epochs: int, every: int, delta_bytes: int, snapshot_bytes: int) -> bool:
    """Tell whether a snapshot is due, so many epochs and bytes of deltas after the last one.

    It is after `every` epochs if the deltas weigh at least a quarter of the last snapshot, so that a large state with
    small changes is not written again and again; after ten times as many epochs it is due in any case, as a chain must
    not grow without bound.

    >>> is_snapshot_due(epochs=100, every=100, delta_bytes=25, snapshot_bytes=100)
    True
    >>> is_snapshot_due(epochs=999, every=100, delta_bytes=24, snapshot_bytes=100)
    False
    >>> is_snapshot_due(epochs=1000, every=100, delta_bytes=24, snapshot_bytes=100)
    True
    """
    return epochs >= every and (4 * delta_bytes >= snapshot_bytes or epochs >= 10 * every)
