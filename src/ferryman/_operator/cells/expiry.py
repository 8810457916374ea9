"""Time to live: when to look again at a state for what has expired."""

from __future__ import annotations

import pyarrow as pa

from ferryman._operator.cells.declare import Variable, due_column
from ferryman._operator.cells.focus import Focus


class Expiry:
    """Keep one entry per key in the list of what is due, for one state: the first time that something may expire.

    That time is rounded up, so that many keys have it in common: what has expired is not seen in between, and an epoch
    need not come for each. A write later than that does not move it. When it comes, the state is looked at, what has
    expired is taken out, and the time of what is left is noted.
    """

    def __init__(self, name: str, ttl_ms: int, due: list[int | None], focus: Focus) -> None:
        self._name = name
        self._ttl_ms = ttl_ms
        self._grid = max(ttl_ms // 16, 1)
        self._due = due
        self._focus = focus

    @classmethod
    def of(cls, variable: Variable, state: pa.Table, focus: Focus) -> Expiry | None:
        """Give the expiry of a state; None if it lives for ever."""
        if variable.ttl_ms is None:
            return None
        return cls(variable.name, variable.ttl_ms, state.column(due_column(variable.name)).to_pylist(), focus)

    def written(self) -> int:
        """Note that the key at hand was written, and give when that expires."""
        expires = self._focus.now_ms + self._ttl_ms
        if self._due[self._focus.position] is None:
            self.next(expires)
        return expires

    def next(self, expires: int | None) -> None:
        """Come back to the key at hand at this time; None for not until it is written again."""
        focus = self._focus
        position = focus.position
        before = self._due[position]
        if before is not None:
            focus.due[before, position, self._name] = False
        look = None if expires is None else -(-expires // self._grid) * self._grid
        if look is not None:
            focus.due[look, position, self._name] = True
        self._due[position] = look
        focus.changed[position] = 1

    def columns(self, positions: list[int]) -> list[pa.Array]:
        """Give the column of what is due, for some keys."""
        return [pa.array([self._due[position] for position in positions], pa.int64())]
