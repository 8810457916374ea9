"""Timers: times at which a key wants to be called."""

from __future__ import annotations

import pyarrow as pa

from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.variables import TIMERS


class TimerCell:
    """Register, list and delete the timers of the key at hand."""

    def __init__(self, state: pa.Table, focus: Focus) -> None:
        self._timers: list[set[int]] = [set(times or ()) for times in state.column(TIMERS).to_pylist()]
        self._focus = focus

    def register(self, time_ms: int) -> None:
        """Let the key be called at this time; registering twice is registering once."""
        timers = self._timers[self._focus.position]
        if time_ms not in timers:
            timers.add(time_ms)
            self._note(time_ms, there=True)

    def delete(self, time_ms: int) -> None:
        """Forget a timer, if there is one."""
        timers = self._timers[self._focus.position]
        if time_ms in timers:
            timers.remove(time_ms)
            self._note(time_ms, there=False)

    def listed(self) -> list[int]:
        """List the key's timers, earliest first."""
        return sorted(self._timers[self._focus.position])

    def has(self, position: int, time_ms: int) -> bool:
        """Tell whether a key has a timer."""
        return time_ms in self._timers[position]

    def _note(self, time_ms: int, *, there: bool) -> None:
        position = self._focus.position
        self._focus.due[time_ms, position, ""] = there
        self._focus.changed[position] = 1

    def column(self, positions: list[int]) -> pa.Array:
        """Give the column of timers in the first table, for some keys."""
        return pa.array([sorted(self._timers[position]) or None for position in positions], pa.list_(pa.int64()))
