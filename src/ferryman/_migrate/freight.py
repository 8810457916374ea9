"""What is known of the key groups that are to be copied: how large they are, and what waits for them.

Pure but for what it remembers. The backlog of a group is what epochs have really held back for it, and what the next
epoch is likely to add; both are known where the epochs are, so nobody has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ferryman._migrate.orders import Cargo
from ferryman._model.records import Manifest

# How fast work of long ago is forgotten: after an epoch with rows this part of it is left.
_KEPT = 0.9
# What a line and an instance are taken to do in a second before anybody has seen them work.
_BYTES_PER_S = 200e6
_ROWS_PER_S = 200e3
# What takes no time to carry tells nothing of how fast a line is.
_TELLING = 1 << 20


def busy_s(receipts: Iterable[Mapping[str, Any]]) -> float:
    """Give for how long an epoch's instances were at work: operators one after the other, their instances at once.

    Examples
    --------
    >>> some = [("A", 10.0), ("A", 30.0), ("B", 20.0)]
    >>> busy_s([{"operator": name, "busy_ms": busy_ms} for name, busy_ms in some])
    0.05
    """
    longest: dict[str, float] = {}
    for one in receipts:
        longest[one["operator"]] = max(one["busy_ms"] / 1000, longest.get(one["operator"], 0.0))
    return sum(longest.values())


class Freight:
    """Remember what waits for each key group, how large it is, how fast lines are and what a row costs."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._since: dict[int, float] = {}
        self._sizes: Sequence[float] = ()
        self._rows = self._busy_s = 0.0
        self._bytes_per_s = _BYTES_PER_S

    @property
    def waiting(self) -> frozenset[int]:
        """List the groups that have rows held."""
        return frozenset(self._held)

    def note(self, latest: Manifest | None) -> None:
        """Learn which rows wait after an epoch."""
        held: dict[int, int] = {}
        for one in (one for ones in (latest.held.values() if latest else ()) for one in ones):
            for group, rows in zip(one.groups, one.rows, strict=True):
                held[group] = held.get(group, 0) + rows
        now = latest.time_ms / 1000 if latest else 0.0
        # Whoever looks meanwhile has what the epoch before left.
        self._since = {group: self._since.get(group, now) for group in held}
        self._held = held

    def count(self, receipts: Sequence[Mapping[str, Any]]) -> None:
        """Learn from an epoch's tasks what a row costs."""
        told = [(one["rows"], one["busy_ms"] / 1000) for one in receipts if one["rows"]]
        if told:
            self._rows = self._rows * _KEPT + sum(rows for rows, _ in told)
            self._busy_s = self._busy_s * _KEPT + sum(busy_s for _, busy_s in told)

    def weigh(self, sizes: Sequence[float]) -> None:
        """Learn how many bytes each group has."""
        self._sizes = sizes

    def carried(self, size: int, took_s: float) -> None:
        """Learn how long it took to bring so many bytes from one host to another."""
        if size >= _TELLING and took_s > 0:
            self._bytes_per_s = size / took_s

    def size(self, group: int) -> float:
        """Give about how many bytes a group has."""
        return max(1.0, self._sizes[group]) if len(self._sizes) else 1.0

    def cargo(self, groups: Iterable[int], ahead: Sequence[float], bytes_per_s: float | None = None) -> list[Cargo]:
        """Say what is known now of groups that are to be copied.

        Parameters
        ----------
        groups
            The groups.
        ahead
            The rows that an epoch brings each group of late: the next has not been read yet.
        bytes_per_s
            How fast the line is, if that is known; else as fast as the last one was.
        """
        row_s = self._busy_s / self._rows if self._rows else 1 / _ROWS_PER_S
        found = []
        for group in groups:
            rows = self._held.get(group, 0) + ahead[group]
            since = self._since.get(group, float("inf"))
            copy_s = self.size(group) / (bytes_per_s or self._bytes_per_s)
            found.append(Cargo(group, int(self.size(group)), round(rows), since, since, copy_s, rows * row_s))
        return found
