"""Change a running job from outside: the driver listens on loopback, and does what callers with its token ask for."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow.flight as flight

from ferryman._model.errors import FerrymanError, PeerFailed, from_text, to_text
from ferryman._os.user_directory import own_directory
from ferryman._serve.auth import Access
from ferryman._serve.gate import Gate, inside
from ferryman._serve.registry import Running
from ferryman._serve.wire import Token

Handler = Callable[[Mapping[str, Any]], Any]

LOOPBACK = "127.0.0.1"


class Endpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Answer requests with what a job's functions give.

    Parameters
    ----------
    handlers
        The function for each request, by its name; takes and gives JSON values.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.token = secrets.token_hex(16)
        # Everybody on the machine reaches loopback, and Flight reads a request before it asks who sent it.
        self._socket = own_directory() / f"control-{os.getpid()}-{self.token[:8]}.sock"
        path = inside(self._socket.parent, self._socket.name)
        super().__init__(flight.Location.for_grpc_unix(path), middleware={"token": Token(self.token)})
        self._handlers = handlers
        self._gate = Gate(LOOPBACK, path, self.token)
        self.location = f"grpc+tcp://{LOOPBACK}:{self._gate.port}"
        threading.Thread(target=self.serve, name="ferryman-control", daemon=True).start()

    def shutdown(self) -> None:
        """Listen no more."""
        self._gate.close()
        super().shutdown()
        self._socket.unlink(missing_ok=True)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Call the function; an error of ours travels as text."""
        handler = self._handlers.get(action.type)
        if handler is None:
            raise flight.FlightServerError(f"a job knows no {action.type!r}")
        try:
            answer = handler(json.loads(action.body.to_pybytes() or b"{}"))
        except FerrymanError as error:
            raise flight.FlightServerError(to_text(error)) from error
        yield flight.Result(json.dumps(answer).encode())


def ask(job: Running, request: str, timeout_s: float = 60.0, **values: Any) -> Any:
    """Ask a running job for something; its own errors are raised here."""
    access = Access(job.token)
    try:
        with access.connect(job.location) as peer:
            (answer,) = peer.do_action(flight.Action(request, json.dumps(values).encode()), access.options(timeout_s))
        return json.loads(answer.body.to_pybytes())
    except (flight.FlightError, ValueError, OSError) as error:
        raise from_text(str(error)) or _no_answer(job, request, error) from error


def _no_answer(job: Running, request: str, error: BaseException) -> PeerFailed:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return PeerFailed(
        f"the job {job.job!r} (process {job.pid}) did not answer {request!r}: {text}. It may have been done all the "
        "same: `ferryman history` tells, once the job answers again. If it does not, look at the driver's log."
    )
