"""Receive lines over TCP. There is no acknowledgement: a sender cannot know which of its lines are in the log.

While the log is full, or the disk is slow, nothing is read, and TCP has the sender wait. Calls `GroupCommit`.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._model.errors import FerrymanError
from ferryman._serve.ingest.receiver import TIME
from ferryman._serve.ingest.receiver_address import listening
from ferryman._serve.ingest.receiver_callers import ReceiverCallers

SCHEMA = pa.schema([("value", pa.string()), ("sender", pa.string()), ("received", TIME)])
_MOST_WAITING_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class SocketOptions:
    """Say where to listen, and how long a line may be."""

    address: str
    max_line_bytes: int = 1 << 20


class SocketReceiver:
    """Take lines from whoever connects, until it is ended."""

    def __init__(self, options: SocketOptions, log: IngestLog, commit: GroupCommit) -> None:
        self._commit = commit
        self._most = min(options.max_line_bytes, log.row_bytes)
        self._ended = threading.Event()
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                receiver._read(self.rfile, "{}:{}".format(*self.client_address[:2]))

        self._server = ReceiverCallers(listening(options.address), Handler)
        self.port = self._server.port

    @property
    def error(self) -> FerrymanError | None:
        """Nothing ends it."""
        return None

    def end(self) -> None:
        """Take nothing more."""
        self._ended.set()
        self._server.end()

    def _read(self, lines: Any, sender: str) -> None:
        with contextlib.suppress(OSError):
            while not self._ended.is_set() and (line := lines.readline(self._most + 1)):
                if len(line) > self._most:
                    # Where the next line begins is not known.
                    return
                value = line.rstrip(b"\r\n").decode(errors="replace")
                row = (value, sender, datetime.now(timezone.utc))
                while self._commit.waiting_bytes > _MOST_WAITING_BYTES:
                    if self._ended.wait(0.05):
                        return
                if not self._commit.offer(row, len(line) + 60, lambda offset: None):
                    return
