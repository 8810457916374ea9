"""How fast a state host works and sends: a line that all its streams share, and work that gives way to other work."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")

# The lowest priority there is.
_LOW = 19
# How many items may be ready before somebody takes them, and how many pieces on a line at once.
_AHEAD = 2
_ON_THE_WAY = 64


class Throttle:
    """A line of a given speed and delay, for any number of streams at once.

    Parameters
    ----------
    bytes_per_s
        How much it carries; None if it does not matter.
    delay_s
        How long everything on it is on its way.
    """

    def __init__(self, bytes_per_s: float | None, delay_s: float = 0.0) -> None:
        self._bytes_per_s = bytes_per_s
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, size: int) -> None:
        """Wait until so many bytes have left."""
        time.sleep(max(0.0, self._left_at(size) - time.monotonic()))

    def sent(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give pieces as they arrive at the other end."""
        if self._bytes_per_s is None and not self._delay_s:
            yield from pieces
            return
        # The request was on its way too.
        time.sleep(self._delay_s)
        for arrives_at, piece in aside(self._leaving(pieces), low=False, ahead=_ON_THE_WAY):
            time.sleep(max(0.0, arrives_at - time.monotonic()))
            yield piece

    def _leaving(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[tuple[float, pa.RecordBatch]]:
        for piece in pieces:
            self.wait(piece.nbytes)
            yield time.monotonic() + self._delay_s, piece

    def _left_at(self, size: int) -> float:
        if self._bytes_per_s is None:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._bytes_per_s
            return self._free_at


def aside(items: Iterator[T], *, low: bool, ahead: int = _AHEAD) -> Iterator[T]:
    """Make items in a thread of their own, a few ahead; with `low` in one that gives way to other work.

    Anybody may lower a thread's priority and almost nobody raise it again, so it is not one that is used again.
    """
    made: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(ahead)
    gone = threading.Event()

    def put(more: bool, item: T | BaseException | None) -> None:
        while not gone.is_set():
            with contextlib.suppress(queue.Full):
                made.put((more, item), timeout=0.5)
                return

    def work() -> None:
        # A thread has a priority of its own on Linux; elsewhere it keeps the process's.
        with contextlib.suppress(OSError, AttributeError):
            if low:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW)
        failure: BaseException | None = None
        try:
            for item in items:
                put(True, item)
                if gone.is_set():
                    return
        except BaseException as error:
            failure = error
        finally:
            # Whoever makes them learns that nobody takes them any more.
            getattr(items, "close", lambda: None)()
        put(False, failure)

    threading.Thread(target=work, name="ferryman-aside", daemon=True).start()
    try:
        while True:
            more, item = made.get()
            if not more:
                if isinstance(item, BaseException):
                    raise item
                return
            yield item  # type: ignore[misc]
    finally:
        gone.set()
