"""Many rows, one sync: whoever has a row hands it in, and is told when it is durable.

Rows keep the order in which they are handed in. When the log is full they wait here, unacknowledged; how many may do so
is up to who hands them in. Calls `IngestLog`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._model.errors import IngestLogFull

Row = Sequence[Any]
# A row, about how many bytes it has, and who is to be told of its offset.
Waiting = tuple[Row, int, Callable[[int], None]]
_MOST_ROWS = 20_000


class GroupCommit:
    """Write the rows of several threads to an ingest log.

    Parameters
    ----------
    log
        Where they go; nobody else may append.
    schema
        The columns of a row, in its order.
    """

    def __init__(self, log: IngestLog, schema: pa.Schema) -> None:
        self._log, self._schema = log, schema
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._ended = False
        self._full = False
        self._writing = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ferryman-ingest", daemon=True)
        self._thread.start()

    @property
    def error(self) -> BaseException | None:
        """Give what has ended it, if anything has: nothing is written any more then."""
        return self._error

    @property
    def full(self) -> bool:
        """Tell whether rows wait because the log has no room."""
        return self._full

    @property
    def waiting_bytes(self) -> int:
        """Give how many bytes wait to be written."""
        return self._bytes

    def offer(self, row: Row, size: int, durable: Callable[[int], None]) -> bool:
        """Hand in a row of about so many bytes; `durable` is called with its offset, on another thread.

        False where it is over: the row is not taken.
        """
        with self._changed:
            if self._ended:
                return False
            self._waiting.append((row, size, durable))
            self._bytes += size
            if len(self._waiting) == 1:
                self._changed.notify_all()
        return True

    def trimmed(self) -> None:
        """Learn that the log may have room again."""
        with self._changed:
            self._full = False
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop what waits, as it will come again; when this returns, all that was written has been told of."""
        with self._changed:
            self._waiting.clear()
            self._bytes = 0
            self._changed.wait_for(lambda: not self._writing)
            # The block under way may have found no room, and be back.
            self._waiting.clear()
            self._bytes = 0

    def end(self) -> None:
        """End when the block under way is written; what still waits is dropped, unacknowledged."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while taken := self._next():
            try:
                first = self._log.append(self._batch([row for row, _, _ in taken]))
                for offset, (_, _, durable) in enumerate(taken, start=first):
                    durable(offset)
            except IngestLogFull:
                self._put_back(taken)
            except Exception as error:
                with self._changed:
                    self._error, self._ended = error, True
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _next(self) -> list[Waiting]:
        """Wait for rows and take as many as go into a block; none where it is over."""
        taken: list[Waiting] = []
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (bool(self._waiting) and not self._full))
            size = 0
            while self._waiting and not self._ended and len(taken) < _MOST_ROWS:
                if taken and size + self._waiting[0][1] > self._log.block_bytes:
                    # A large row goes by itself: there is room for one, and may be none for one and others.
                    break
                taken.append(self._waiting.popleft())
                size += taken[-1][1]
            self._bytes -= size
            self._writing = bool(taken)
        return taken

    def _put_back(self, taken: list[Waiting]) -> None:
        with self._changed:
            self._waiting.extendleft(reversed(taken))
            self._bytes += sum(size for _, size, _ in taken)
            self._full = True

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        return pa.record_batch(columns, schema=self._schema)
