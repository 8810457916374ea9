"""Receive by HTTP: a POST is answered with 200 when its body is durable in the ingest log, and not before.

While the log is full, or the disk is slower than those who send, the answer is 503 with Retry-After. Whoever gets no
answer, or another one than 200, sends again. Calls `GroupCommit`.
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from typing import Any

import pyarrow as pa

from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._model.errors import FerrymanError, InvalidConfiguration
from ferryman._serve.ingest.receiver import MOST_WAITING_BYTES, TIME
from ferryman._serve.ingest.receiver_address import is_local, listening
from ferryman._serve.ingest.receiver_callers import ReceiverCallers

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("body", pa.binary()),
        ("content_type", pa.string()),
        ("request_id", pa.string()),
        ("received", TIME),
    ]
)
# How long a caller waits for the disk, and how long for a caller who stalls.
_PATIENCE_S, _STALL_S = 30.0, 30.0
_MOST_CALLERS = 256
# How much a row may have besides its body, and how long a number may be.
_MOST_BESIDE, _MOST_DIGITS = 8192, 18


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """Say where to listen, who may send, and how much at once."""

    address: str
    token: str = field(default="", repr=False)
    max_body_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not self.token and not is_local(self.address):
            raise InvalidConfiguration.of(
                [f"token: {self.address} can be reached by others; give a token, or listen on 127.0.0.1"]
            )


class HttpReceiver:
    """Answer POST requests until it is ended."""

    def __init__(self, options: HttpOptions, log: IngestLog, commit: GroupCommit) -> None:
        self._options, self._commit = options, commit
        self._most = min(options.max_body_bytes, log.row_bytes)
        self._callers = threading.BoundedSemaphore(_MOST_CALLERS)
        receiver = self

        class Handler(_Handler):
            def __init__(self, *given: Any) -> None:
                self.receiver = receiver
                super().__init__(*given)

        self._server = ReceiverCallers(listening(options.address), Handler, strangers=True)
        self.port = self._server.port

    @property
    def error(self) -> FerrymanError | None:
        """Nothing ends it."""
        return None

    def end(self) -> None:
        """Answer nobody any more."""
        self._server.end()

    def take(self, body: bytes, path: str, content_type: str | None, request_id: str | None) -> bool:
        """Write a body, and wait until it is durable; False where there is no room or no time for it."""
        if self._commit.full or self._commit.waiting_bytes > MOST_WAITING_BYTES:
            return False
        durable = threading.Event()
        row = (path, body, content_type, request_id, datetime.now(timezone.utc))
        size = len(body) + len(path) + len(content_type or "") + len(request_id or "") + 200
        taken = self._commit.offer(row, size, lambda offset: durable.set())
        return taken and durable.wait(_PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _STALL_S
    receiver: HttpReceiver

    def do_POST(self) -> None:
        if not self.receiver._callers.acquire(blocking=False):
            self._answer(503, "too many at once", retry=True)
            return
        try:
            self._post()
        finally:
            self.receiver._callers.release()

    def _post(self) -> None:
        options = self.receiver._options
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if options.token and not hmac.compare_digest(given.encode(), options.token.encode()):
            self._answer(401, "send the token: Authorization: Bearer TOKEN")
            return
        assert isinstance(self.server, ReceiverCallers)
        self.server.let_in(self.connection)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            self._answer(411, "say how long the body is: Content-Length")
        elif sum(len(text or "") for text in self._beside()) > _MOST_BESIDE:
            self._answer(431, f"path, Content-Type and Idempotency-Key have at most {_MOST_BESIDE} bytes")
        elif len(length) > _MOST_DIGITS or int(length) > self.receiver._most:
            self._answer(413, f"a body has at most {self.receiver._most} bytes")
        else:
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return
            if self.receiver.take(body, *self._beside()):
                self._answer(200, "durable", read=True)
            else:
                # Whoever listens here next has connections of his own.
                why = "not durable, as the ingest log is full or slow: send it again later"
                self._answer(503, why, retry=True, read=not self.server.ended)

    def _beside(self) -> tuple[str, str | None, str | None]:
        """Give what a row has besides the body."""
        return self.path, self.headers.get("Content-Type"), self.headers.get("Idempotency-Key")

    def _answer(self, code: int, text: str, *, retry: bool = False, read: bool = False) -> None:
        self.send_response(code)
        if retry:
            self.send_header("Retry-After", "1")
        if not read:
            # What of the body has not been read would be taken for the next request.
            self.close_connection = True
            self.send_header("Connection", "close")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text) + 1))
        self.end_headers()
        self.wfile.write(text.encode() + b"\n")

    def log_message(self, format: str, *given: Any) -> None:
        """Say nothing: the sender has the answer."""
