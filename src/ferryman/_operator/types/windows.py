"""Declare windows: aggregates per key and span of time, told when the span is over.

By the clock, or with `by_event_time = True` by the watermark. When a window is over, the operator's `closed` is called
with its span and result, and it is gone.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.cells import MapVariable, Variable
from ferryman._operator.cells.map_cell import MapCell
from ferryman._operator.types.collections import Aggregating, State, record

_BEGIN = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True, order=True)
class Span:
    """A window of time: from its start, up to but without its end, in milliseconds since 1970."""

    start: int
    end: int


class Window(State):
    """What all windows share: what is added up in them.

    Parameters
    ----------
    into
        A `Reducing` or `Aggregating`: what becomes of the values of a window.
    """

    def __init__(self, into: Any, alias: str | None = None) -> None:
        super().__init__(alias=alias)
        if not isinstance(into, Aggregating):
            raise InvalidConfiguration(f"a window adds up into a Reducing or an Aggregating, and got {into!r}.")
        if into.ttl is not None:
            raise InvalidConfiguration(
                f"a window was given a {type(into).__name__} with ttl={into.ttl!r}, and has no use for it: it is gone "
                "when it is closed. Leave the ttl out; a shorter window forgets earlier."
            )
        self.accumulator = into.accumulator

    def variable(self) -> Variable:
        return MapVariable(self.stored_as, record(kept=self.accumulator.type), None, record(start=int, end=int))

    def settings(self) -> str:
        return self._parameters()

    def view(self, cell: Any) -> WindowView:
        return WindowView(cell, self)

    def spans(self, at: int) -> list[Span]:
        """Give the windows that a time falls into."""
        raise NotImplementedError

    def merge(self, one: dict[Span, Any], other: dict[Span, Any]) -> dict[Span, Any]:
        merged = dict(one)
        for span, kept in other.items():
            merged[span] = self.accumulator.merge(merged[span], kept) if span in merged else kept
        return merged


class TumblingWindow(Window):
    """Declare windows that follow each other: `add(time, value)`, `spans()`.

    Parameters
    ----------
    size_ms
        How long a window is.
    into
        A `Reducing` or `Aggregating`.
    """

    def __init__(self, size_ms: int, into: Any, *, alias: str | None = None) -> None:
        super().__init__(into, alias)
        self.size_ms = _above_0("size_ms", size_ms)

    def spans(self, at: int) -> list[Span]:
        start = at // self.size_ms * self.size_ms
        return [Span(start, start + self.size_ms)]


class SlidingWindow(Window):
    """Declare windows that overlap: one of `size_ms` begins every `every_ms`."""

    def __init__(self, size_ms: int, every_ms: int, into: Any, *, alias: str | None = None) -> None:
        super().__init__(into, alias)
        self.size_ms, self.every_ms = _above_0("size_ms", size_ms), _above_0("every_ms", every_ms)

    def spans(self, at: int) -> list[Span]:
        last = at // self.every_ms * self.every_ms
        count = -(-(self.size_ms - (at - last)) // self.every_ms)
        return [Span(last - n * self.every_ms, last - n * self.every_ms + self.size_ms) for n in range(max(count, 0))]


class SessionWindow(Window):
    """Declare windows that last as long as values come: one ends when none has come for `gap_ms`."""

    def __init__(self, gap_ms: int, into: Any, *, alias: str | None = None) -> None:
        super().__init__(into, alias)
        self.gap_ms = _above_0("gap_ms", gap_ms)

    def spans(self, at: int) -> list[Span]:
        return [Span(at, at + self.gap_ms)]

    def merge(self, one: dict[Span, Any], other: dict[Span, Any]) -> dict[Span, Any]:
        merged: dict[Span, Any] = {}
        for span, kept in sorted([*one.items(), *other.items()]):
            last = next(reversed(merged), None)
            if last is not None and span.start <= last.end:
                whole = Span(last.start, max(last.end, span.end))
                merged[whole] = self.accumulator.merge(merged.pop(last), kept)
            else:
                merged[span] = kept
        return merged


def _above_0(name: str, value: int) -> int:
    if not isinstance(value, int) or value <= 0:
        raise InvalidConfiguration(f"{name}={value!r}: give milliseconds, a whole number above 0.")
    return value


def _ms(at: datetime.datetime) -> int:
    """Give a time in whole milliseconds, cut and not rounded, as watermarks are; without a zone it is UTC."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=datetime.timezone.utc)
    return int((aware - _BEGIN) // datetime.timedelta(milliseconds=1))


class WindowView:
    """The open windows of the key at hand."""

    def __init__(self, cell: MapCell, window: Window) -> None:
        self._cell = cell
        self._window = window
        # Up to where nothing is taken any more, by the clock or as late rows are; the task says.
        self.until: int | None = None

    def add(self, at: int | datetime.datetime, value: Any) -> bool:
        """Add a value at a time; tell whether a window was still open for it."""
        moment = _ms(at) if isinstance(at, datetime.datetime) else int(at)
        accumulator = self._window.accumulator
        taken = False
        for span in self._window.spans(moment):
            if self.until is not None and span.end <= self.until:
                continue
            taken = True
            kept = accumulator.add(accumulator.create(), value)
            if isinstance(self._window, SessionWindow):
                span, kept = self._joined(span, kept)
            else:
                before = self._cell.get((span.start, span.end))
                kept = kept if before is None else accumulator.add(before[0], value)
            self._cell.set((span.start, span.end), (kept,))
            self._note(span, there=True)
        return taken

    def _joined(self, span: Span, kept: Any) -> tuple[Span, Any]:
        """Join a new session with those it touches."""
        for (start, end), value in list(self._cell.items()):
            if start <= span.end and span.start <= end:
                self._cell.remove((start, end))
                self._note(Span(start, end), there=False)
                kept = self._window.accumulator.merge(value[0], kept)
                span = Span(min(start, span.start), max(end, span.end))
        return span, kept

    def _note(self, span: Span, *, there: bool) -> None:
        self._cell.focus.due[span.end, self._cell.focus.position, self._window.stored_as] = there

    def spans(self) -> list[tuple[Span, Any]]:
        """List the open windows with what they would give now, earliest first."""
        result = self._window.accumulator.result
        return sorted(((Span(*key), result(value[0])) for key, value in self._cell.items()), key=lambda pair: pair[0])

    def close(self, end: int) -> Iterator[tuple[Span, Any]]:
        """Take out the windows that end at a time, with their results."""
        for (start, stop), value in sorted(self._cell.items()):
            if stop == end:
                self._cell.remove((start, stop))
                self._note(Span(start, stop), there=False)
                yield Span(start, stop), self._window.accumulator.result(value[0])

    def clear(self) -> None:
        """Take all windows out, without a result."""
        for (start, end), _ in list(self._cell.items()):
            self._cell.remove((start, end))
            self._note(Span(start, end), there=False)
