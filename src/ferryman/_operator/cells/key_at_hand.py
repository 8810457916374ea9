"""Which key is at hand, and what has been noted of all keys so far."""

from __future__ import annotations

from typing import Any

from ferryman._model.errors import StateMisused


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
    where
        The operator and the epoch, for messages.
    """

    __slots__ = ("changed", "due", "now_ms", "position", "where")

    def __init__(self, keys: int, now_ms: int, where: str) -> None:
        # Any: every cell indexes its lists with it.
        self.position: Any = None
        self.where = where
        self.changed = bytearray(keys)
        self.due: dict[tuple[int, int, str], bool] = {}
        self.now_ms = now_ms

    def nobody(self, state: str) -> StateMisused:
        """Say that a state was used while no key is at hand."""
        return StateMisused(
            f"{self.where}, state {state!r}: it was used while no key is at hand, and belongs to none then. Use it in "
            "the calls that get a key (`process`, `handleInputRows` and the like), not in `init` or `close`, nor "
            "after the epoch. The epoch was not committed; no state changed."
        )
