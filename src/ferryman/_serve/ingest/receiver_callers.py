"""A thread for each caller, and only so many callers at a time: a connection costs whoever makes it less than us.

Where callers have to show something first, who comes when all places are taken takes that of the one who has shown
nothing for longest; else he is turned away. When it ends, callers are told so.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from typing import Any

# How many callers there may be.
MOST_CALLERS = 512


class ReceiverCallers(socketserver.ThreadingTCPServer):
    """Serve callers on a socket that listens.

    Parameters
    ----------
    listening
        The socket.
    handler
        Makes what serves one.
    strangers
        Whether callers are strangers until they are let in.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: Any, *, strangers: bool = False) -> None:
        super().__init__(listening.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()[:2]
        self._strangers = strangers
        self.ended = False
        # Guards who is there, in the order in which they came, and whether each is a stranger.
        self._lock = threading.Lock()
        self._there: dict[Any, bool] = {}
        self._thread = threading.Thread(target=self.serve_forever, name="ferryman-receiver", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Give the port that it listens on."""
        return int(self.server_address[1])

    def end(self) -> None:
        """Take no callers any more, and nothing more of those who are there; what they wait for they are still told."""
        self.ended = True
        self.shutdown()
        self.server_close()
        self._thread.join()
        with self._lock:
            for caller in self._there:
                with contextlib.suppress(OSError):
                    caller.shutdown(socket.SHUT_RD)

    def let_in(self, caller: Any) -> None:
        """Learn that a caller is no stranger."""
        with self._lock:
            if caller in self._there:
                self._there[caller] = False

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Find a place for a caller; False where there is none."""
        with self._lock:
            if len(self._there) >= MOST_CALLERS:
                longest = next((caller for caller, stranger in self._there.items() if stranger), None)
                if longest is None:
                    return False
                del self._there[longest]
                # Its thread sees that and ends.
                with contextlib.suppress(OSError):
                    longest.shutdown(socket.SHUT_RDWR)
            self._there[request] = self._strangers
        return True

    def close_request(self, request: Any) -> None:
        """Let go of a caller."""
        with self._lock:
            self._there.pop(request, None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever went away in the middle has got no answer, and knows."""
