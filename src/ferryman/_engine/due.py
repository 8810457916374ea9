"""What is due next in a job, by the clock and by the watermark; when an epoch comes for it says `silent_epochs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferryman._engine.executor import Layouts
from ferryman._engine.gathered_receipts import Gathered
from ferryman._engine.newest_epoch import Newest
from ferryman._engine.operator_spec import OperatorSpec

# Before all times: it may be due by now.
_UNKNOWN = -(1 << 53)


class Due:
    """Remember when something is due next in each operator's state.

    After a restart that is not known before an epoch: it may be now.

    Parameters
    ----------
    operators
        What each operator is, by name.
    newest
        The newest committed epoch, as the runner of epochs remembers it.
    layouts
        Who gives every epoch its layout, and knows whether groups are to wait in it.
    """

    def __init__(self, operators: Mapping[str, OperatorSpec], newest: Newest, layouts: Layouts[Any]) -> None:
        self._newest = newest
        self._layouts = layouts
        timed = {name: spec.time for name, spec in operators.items() if spec.time.due is not None or spec.time.panes}
        self._by_watermark = {name: time.by_watermark for name, time in timed.items()}
        self._next: dict[str, int | None] = dict.fromkeys(timed, _UNKNOWN if newest.manifest else None)

    def committed(self, gathered: Gathered) -> None:
        """Learn what the tasks of a committed epoch say of it."""
        self._next = {name: gathered.next_due(name) for name in self._next}

    def next_of(self, operator: str) -> int | None:
        """Give a time before which nothing is due in an operator's state; None if nothing is."""
        return self._next.get(operator)

    def by_watermark(self) -> bool:
        """Tell whether the watermark has come to something that is due, and the next epoch will go by it.

        What was set by what was due itself, for a time that had come already, waits for a later watermark or for rows,
        as on Spark: it may set itself again, and epochs would never end.
        """
        watermarks = self._newest.watermarks
        watermark = watermarks.next_ms
        if watermark is None or self._layouts.holding or watermark == watermarks.used_ms:
            return False
        return any(time_ms <= watermark for time_ms in self._times(by_watermark=True))

    def by_clock(self) -> int | None:
        """Give when the clock comes to something that is due; None if nothing is."""
        return min(self._times(by_watermark=False), default=None)

    def _times(self, *, by_watermark: bool) -> list[int]:
        return [
            time_ms
            for name, time_ms in self._next.items()
            if time_ms is not None and self._by_watermark[name] == by_watermark
        ]
