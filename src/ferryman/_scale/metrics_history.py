"""The metrics of epochs of late: one record per epoch, bounded, and tolerant of whatever is missing or wrong. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ferryman._scale.epoch_metrics import EpochMetrics
from ferryman._scale.metrics_window import MetricsWindow, trend
from ferryman._scale.scalability import Gain, Scalability

# What a change is taken to have made wait is done after so long at the most.
_OWN_S = 60.0
# So many epochs are remembered, so often the source has told its backlog, and so many changes.
_MOST_EPOCHS = 2000
_MOST_TOLD = 200
_MOST_GAINS = 8


@dataclass(frozen=True)
class Backlog:
    """How many rows the source had that no epoch has taken yet, and when it said so."""

    at_s: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class MetricsHistory:
    """What is known of a job when it is decided how many instances it should have.

    Attributes
    ----------
    epochs
        The epochs since the last hole: they follow one another, in number and in time.
    now_s
        Until when this tells: when the last epoch ended, or later, if it is known that none has begun since.
    time_ms
        The same by the clock on the wall, in milliseconds since 1970.
    backlog
        What the source has told of its backlog; nothing where it does not.
    gains
        What the last changes have brought.
    settled_s
        Since when the number of instances has been what it is, without a change under way.
    made
        How many rows that change has made wait.
    """

    epochs: tuple[EpochMetrics, ...] = ()
    now_s: float = 0.0
    time_ms: int = 0
    backlog: tuple[Backlog, ...] = ()
    gains: tuple[Gain, ...] = ()
    settled_s: float = float("-inf")
    made: int = 0

    @classmethod
    def of(cls, epochs: Iterable[EpochMetrics]) -> MetricsHistory:
        """Take in epochs that were recorded."""
        history = cls()
        for epoch in epochs:
            history = history.add(epoch)
        return history

    def add(self, epoch: EpochMetrics) -> MetricsHistory:
        """Take in an epoch; what was before a hole, or before a clock that went back, is forgotten.

        Examples
        --------
        >>> epochs = [EpochMetrics(epoch=number, began_s=number, ended_s=number + 0.5) for number in (1, 2, 4, 5)]
        >>> [epoch.epoch for epoch in MetricsHistory.of(epochs).epochs]
        [4, 5]
        """
        if epoch.faulty:
            return self
        last = self.epochs[-1] if self.epochs else None
        if last is not None and (epoch.epoch != last.epoch + 1 or epoch.began_s < last.began_s):
            since = min(self.settled_s, epoch.began_s)
            later = tuple(told for told in self.backlog if told.at_s <= epoch.ended_s)
            return replace(self, epochs=(epoch,), now_s=epoch.ended_s, settled_s=since, backlog=later)
        kept = (*self.epochs[1 - _MOST_EPOCHS :], epoch)
        return replace(self, epochs=kept, now_s=epoch.ended_s, time_ms=epoch.time_ms)

    def quiet(self, now_s: float, time_ms: int) -> MetricsHistory:
        """Learn that no epoch has begun since the last one."""
        return replace(self, now_s=max(now_s, self.now_s), time_ms=time_ms)

    def behind(self, at_s: float, rows: int) -> MetricsHistory:
        """Learn how many rows the source has that no epoch has taken yet."""
        earlier = tuple(told for told in self.backlog[1 - _MOST_TOLD :] if told.at_s < at_s)
        return replace(self, backlog=(*earlier, Backlog(at_s, max(0, rows))))

    def settled(self, at_s: float, made: int = 0) -> MetricsHistory:
        """Learn that the number of instances is what it is from now on, and how many rows the change made wait."""
        return replace(self, settled_s=at_s, made=made)

    def gained(self, gain: Gain) -> MetricsHistory:
        """Learn what the last change has brought."""
        return replace(self, gains=(*self.gains[1 - _MOST_GAINS :], gain))

    @property
    def instances(self) -> int:
        """Give how many instances the newest epoch had."""
        return self.epochs[-1].instances if self.epochs else 1

    @property
    def scalability(self) -> Scalability:
        """Give what more instances bring, as changes have shown it."""
        return Scalability.learned(self.gains)

    def window(self, seconds: float, *, least: int = 1) -> MetricsWindow | None:
        """Look at the newest epochs with the present number of instances, and none from before that was settled.

        Parameters
        ----------
        seconds
            How far to look back.
        least
            How many epochs that shall be at the least, besides the one it begins with, if these take longer.

        Returns
        -------
        MetricsWindow or None
            None while there is too little to tell.
        """
        chosen = self._newest(seconds, least)
        # Where nothing comes there are no epochs, and that tells enough.
        quiet = bool(self.epochs) and self.now_s - max(self.settled_s, self.epochs[-1].ended_s) >= seconds
        if quiet:
            chosen = chosen or self.epochs[-1:]
        elif len(chosen) <= least or self.now_s - chosen[0].began_s < seconds:
            return None
        elif all(epoch.disturbed for epoch in chosen[1:] or chosen):
            # What rows cost is not known, which is not nothing.
            return None
        fresh = max(0.0, 1 - (self.now_s - self.settled_s) / _OWN_S) if self.made else 0.0
        return MetricsWindow.of(chosen, self.now_s, self.backlog, round(self.made * fresh))

    def trend(self, seconds: float) -> float:
        """Give by how much the rows that come in per second grow in a second; 0 unless that is certain.

        How many instances there were makes no difference to that, so it is looked for through changes.
        """
        first = bisect_right(self.epochs, self.now_s - seconds, key=lambda epoch: epoch.began_s)
        chosen = self.epochs[max(0, first - 1) :]
        return trend(chosen) if chosen and self.now_s - chosen[0].began_s >= seconds else 0.0

    def _newest(self, seconds: float, least: int) -> tuple[EpochMetrics, ...]:
        first = len(self.epochs)
        for place in range(len(self.epochs) - 1, -1, -1):
            epoch = self.epochs[place]
            if epoch.instances != self.instances or epoch.began_s < self.settled_s:
                break
            first = place
            if epoch.began_s <= self.now_s - seconds and len(self.epochs) - place > least:
                break
        return self.epochs[first:]
