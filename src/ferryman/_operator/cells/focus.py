"""Which key is at hand, and what has been noted of all keys so far."""

from __future__ import annotations

from typing import Any


class Focus:
    """The key at hand, shared by all cells of an operator in one task.

    Attributes
    ----------
    position
        The position of the key among those of the epoch; None between keys.
    changed
        For each key, whether its row in the first table changed.
    due
        What was put on or taken off the list of what is due: (time, position, what) to whether it is there.
    now_ms
        What the clock says in this epoch.
    """

    __slots__ = ("changed", "due", "now_ms", "position")

    def __init__(self, keys: int, now_ms: int) -> None:
        # Any: every cell indexes its lists with it, and outside a key the TypeError is what is wanted.
        self.position: Any = None
        self.changed = bytearray(keys)
        self.due: dict[tuple[int, int, str], bool] = {}
        self.now_ms = now_ms
