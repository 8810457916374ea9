"""Windows of equal size as panes: spans of time that do not overlap, of which each window has several or one.

A row is added up in its pane only, however many windows have that. Where windows follow each other a pane is a window.
All times are microseconds since 1970. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Panes:
    """Windows of a size, of which one begins every so often.

    Attributes
    ----------
    size, every
        How long a window is, and how long after it the next one begins.
    start
        Where one of them begins.
    lateness
        For how long after a window's end it still takes rows.
    updates
        Whether windows are put out as they change, instead of once they are over.

    Examples
    --------
    >>> panes = Panes(size=60, every=20)
    >>> panes.length, panes.first_end(np.array([-20, 0, 20])), panes.last_end(np.array([-20, 0, 20]))
    (20, array([ 0, 20, 40]), array([40, 60, 80]))
    """

    size: int
    every: int
    start: int = 0
    lateness: int = 0
    updates: bool = False

    @property
    def length(self) -> int:
        """Give how long a pane is."""
        return math.gcd(self.size, self.every)

    @property
    def declared(self) -> str:
        """Say it in a line, for the card."""
        return f"windows of {self.size} us, every {self.every} us, from {self.start} us"

    @property
    def single(self) -> bool:
        """Tell whether a pane is a window."""
        return self.size == self.every

    def over(self, panes: Ints) -> Ints:
        """Give up to when a pane takes rows."""
        return self.last_end(panes) + self.lateness

    def reach(self, until: int) -> int:
        """Give the time before which all panes begin that a window has which is over."""
        return self.ended(until)

    @property
    def whole(self) -> bool:
        """Tell whether all panes of the windows that have changed must be at hand."""
        return not self.single and (self.updates or self.lateness > 0)

    def of(self, times: Ints) -> Ints:
        """Give the pane of each time."""
        return (times - self.start) // self.length * self.length + self.start

    def last_end(self, panes: Ints) -> Ints:
        """Give the end of the last window that has each pane."""
        return (panes - self.start) // self.every * self.every + self.start + self.size

    def first_end(self, panes: Ints) -> Ints:
        """Give the end of the first window that has each pane."""
        return self._ended(panes + self.length - 1) + self.every

    def ended(self, until: int) -> int:
        """Give the end of the last window that is over at a time."""
        return int(self._ended(np.int64(until)))

    def _ended(self, until: Ints | np.int64) -> Ints:
        ended: Ints = (until - self.size - self.start) // self.every * self.every + self.start + self.size
        return ended

    def next_event(self, until: int) -> int:
        """Give the first time after another at which windows end, or are forgotten."""
        return min(self.ended(until), self.ended(until - self.lateness) + self.lateness) + self.every

    def windows(self, panes: Ints, after: int, until: int) -> tuple[Ints, Ints]:
        """List the windows that have each pane and end after a time, up to another: the place of the pane, and the end.

        They are in the order of the panes.
        """
        first = np.maximum(self.first_end(panes), self.ended(after) + self.every)
        last = np.minimum(self.last_end(panes), self.ended(until))
        counts = np.maximum((last - first) // self.every + 1, 0)
        places = np.repeat(np.arange(len(panes)), counts)
        number = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, first[places] + number * self.every

    def beside(self, panes: Ints) -> tuple[Ints, Ints]:
        """List the panes that are in a window with each pane, and it: for each the place of the pane, and its start."""
        shifts = np.arange(self.length - self.size, self.size, self.length)
        starts: Ints = (panes[:, None] + shifts).reshape(-1)
        return np.repeat(np.arange(len(panes)), len(shifts)), starts


@dataclass(frozen=True)
class Sessions:
    """Windows that last as long as rows come: one ends when none has come for `gap`.

    A pane is as long as the gap. So the rows of one are of the same session, and it goes on at most in the next one.
    """

    gap: int
    start: ClassVar = 0

    @property
    def declared(self) -> str:
        """Say it in a line, for the card."""
        return f"sessions with gaps of {self.gap} us"

    @property
    def length(self) -> int:
        """Give how long a pane is."""
        return self.gap

    def of(self, times: Ints) -> Ints:
        """Give the pane of each time."""
        return times // self.gap * self.gap

    def over(self, times: Ints) -> Ints:
        """Give the end of a session of one row, by its time."""
        return times + self.gap

    def reach(self, until: int) -> int:
        """Give the time before which all panes begin that a session has which is over."""
        return until + 1

    def next_event(self, until: int) -> int:
        """Give the first time at which a session may end that begins after another."""
        return until + self.gap
