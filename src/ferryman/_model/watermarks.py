"""How far event time has come, as manifests say it. Frozen, JSON in and out, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ferryman._model.json_values import long, mapped


@dataclass(frozen=True)
class Watermarks:
    """Say how far event time has come: no row whose time is not after the watermark is waited for.

    Attributes
    ----------
    inputs
        Each declared watermark: the latest time seen less the delay. By its column, and where several are declared on
        one column, by that and the first operator after it: "time@sensors".
    used_ms
        What the epoch itself went by; rows that are not after that are late in the next epoch.
    next_ms
        What the next epoch goes by: the least of all inputs, once each has seen a row or has been silent for too long.
    heard_ms
        When each input that is not waited for for ever last saw a row, was declared, or began to be read again after
        the job was away: the time of that epoch.
    """

    inputs: Mapping[str, int] = field(default_factory=dict)
    used_ms: int | None = None
    next_ms: int | None = None
    heard_ms: Mapping[str, int] = field(default_factory=dict)

    def after(
        self,
        declared: Iterable[str],
        seen: Mapping[str, int],
        *,
        held: bool = False,
        now_ms: int = 0,
        idle: Mapping[str, int] | None = None,
        resumed: bool = False,
    ) -> Watermarks:
        """Give the watermarks after an epoch that saw these times, less their delays. They never go back.

        An epoch in which groups are held goes by the watermark of the one before, and leaves it at that: no row is late
        only because it had to wait, and nothing closes anywhere before it closes in those groups too. What was seen
        meanwhile counts as soon as none is held.

        Inputs in `idle` are not waited for once they have seen no row for so many milliseconds, by the times of epochs:
        what is redone comes to the same. While all are silent, time stands still. Before an epoch that is `resumed` the
        job was away: nobody could be heard then, so that time does not count.

        Examples
        --------
        >>> Watermarks().after(["t"], {"t": 5000}).after(["t"], {"t": 4000})
        Watermarks(inputs={'t': 5000}, used_ms=5000, next_ms=5000, heard_ms={})
        >>> Watermarks().after(["t"], {"t": 5000}).after(["t"], {"t": 9000}, held=True)
        Watermarks(inputs={'t': 9000}, used_ms=None, next_ms=5000, heard_ms={})
        >>> first = Watermarks().after(["t", "u"], {"t": 5000}, now_ms=100, idle={"u": 60})
        >>> first.next_ms, first.after(["t", "u"], {}, now_ms=160, idle={"u": 60}).next_ms
        (None, 5000)
        >>> first.after(["t", "u"], {}, now_ms=160, idle={"u": 60}, resumed=True).next_ms is None
        True
        >>> ahead = Watermarks().after(["t", "u"], {"t": 5000}, now_ms=10**9, idle={"u": 60})
        >>> back = ahead.after(["t", "u"], {}, now_ms=100, idle={"u": 60})
        >>> back.after(["t", "u"], {}, now_ms=160, idle={"u": 60}).next_ms
        5000
        """
        inputs = dict(self.inputs)
        for name, time_ms in seen.items():
            inputs[name] = max(time_ms, inputs.get(name, time_ms))
        names, idle = list(declared), idle or {}
        last = {} if resumed else self.heard_ms
        # A clock that was ahead for a moment must not have an input waited for until it comes there again.
        heard = {
            name: now_ms if name in seen else min(now_ms, last.get(name, now_ms)) for name in names if name in idle
        }
        if held:
            return Watermarks(inputs, self.used_ms, self.next_ms, heard)
        counted = [inputs.get(name) for name in names if name not in heard or now_ms - heard[name] < idle[name]]
        least = (
            None if not counted or None in counted else min(input_ms for input_ms in counted if input_ms is not None)
        )
        if least is not None and self.next_ms is not None:
            least = max(least, self.next_ms)
        return Watermarks(inputs, self.next_ms, self.next_ms if least is None else least, heard)

    def json(self) -> dict[str, Any]:
        """Write them as JSON values; what only some jobs have is left out elsewhere."""
        raw = {"inputs": dict(self.inputs), "used_ms": self.used_ms, "next_ms": self.next_ms}
        return {**raw, "heard_ms": dict(self.heard_ms)} if self.heard_ms else raw

    @classmethod
    def parse(cls, raw: Any) -> Watermarks:
        """Read them back from JSON."""
        watermarks = cls(**mapped(raw, "watermarks"))
        for name, value in mapped(watermarks.inputs, "inputs").items():
            long(value, name)
        for name, value in mapped(watermarks.heard_ms, "heard_ms").items():
            long(value, name)
        for value in (watermarks.used_ms, watermarks.next_ms):
            if value is not None:
                long(value, "a watermark")
        return watermarks
