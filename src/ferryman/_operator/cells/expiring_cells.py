"""What expires of one state of an operator, and when its keys are looked at again for that.

The rules of a time to live are those of `_state/expiry.py`; here they meet the keys of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.variables import Variable
from ferryman._state.expiry import expires_at, has_expired, look_at, look_column


class Expiry:
    """Keep one entry per key in the list of what is due, for one state: the first time that something may expire.

    A write later than that does not move it. When it comes, the state is looked at, what has expired is taken out, and
    the time of what is left is noted.

    Attributes
    ----------
    expires
        When that expires which is written in this epoch.
    """

    def __init__(self, name: str, ttl_ms: int, looks: list[int | None], focus: Focus) -> None:
        self._name = name
        self._ttl_ms = ttl_ms
        self._looks = looks
        self._focus = focus
        self.expires = expires_at(focus.now_ms, ttl_ms)

    @classmethod
    def of(cls, variable: Variable, state: pa.Table, focus: Focus) -> Expiry | None:
        """Give the expiry of a state; None if it lives for ever."""
        if variable.ttl_ms is None:
            return None
        return cls(variable.name, variable.ttl_ms, state.column(look_column(variable.name)).to_pylist(), focus)

    def gone(self, expires: int | None) -> bool:
        """Tell whether something has expired."""
        return has_expired(expires, self._focus.now_ms)

    def gone_of_list(self, expires: Sequence[int | None]) -> tuple[int, list[int] | None]:
        """Tell how many values have expired at the beginning of a list; and which are left, if not all that follow.

        A list is written at its end, so what expires first stands first; unless it had another time to live, or none:
        then what is left is to be written anew, and begins to live now.
        """
        left = [number for number, at in enumerate(expires) if not self.gone(at)]
        first = left[0] if left else len(expires)
        return first, left if None in expires or len(left) < len(expires) - first else None

    def written(self) -> int:
        """Note that the key at hand was written, and give when that expires."""
        if self._looks[self._focus.position] is None:
            self._look(self.expires)
        return self.expires

    def look_again(self, stored: Iterable[int], *, written: bool) -> None:
        """Come back to the key at hand, for what is left of what was stored, or if anything was written; else never."""
        self._look(min([*stored, self.expires] if written else stored, default=None))

    def _look(self, expires: int | None) -> None:
        focus = self._focus
        position = focus.position
        before = self._looks[position]
        if before is not None:
            focus.due[before, position, self._name] = False
        look = None if expires is None else look_at(expires, self._ttl_ms)
        if look is not None:
            focus.due[look, position, self._name] = True
        self._looks[position] = look
        focus.changed[position] = 1

    def looks(self, positions: list[int]) -> pa.Array:
        """Give the column of when to look again, for some keys."""
        return pa.array([self._looks[position] for position in positions], pa.int64())

    def stored(self, deleted: Iterable[bool]) -> pa.Array:
        """Give the column of when entries expire that were all written in this epoch, or deleted."""
        return pa.array([None if gone else self.expires for gone in deleted], pa.int64())
