"""End the encryption of a line: what a caller with a certificate sends comes out of a socket in the clear.

Python lets only one thread at a time use an encrypted socket, so one passes bytes on in both directions.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from ferryman._serve.certificates import paths

# What is taken off one side before the other has taken it.
_CHUNK = 256 << 10


def context(directory: str) -> ssl.SSLContext:
    """Give how to encrypt: both ends show a certificate, signed by the same authority."""
    certificate, key, authority = paths(directory)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    made.load_verify_locations(authority)
    made.verify_mode = ssl.CERT_REQUIRED
    # A caller of Flight wants to hear that this is HTTP/2.
    made.set_alpn_protocols(["h2"])
    return made


def decrypted(caller: socket.socket, how: ssl.SSLContext, until: float) -> tuple[socket.socket, threading.Thread]:
    """Shake hands with a caller; give a socket for what is in the line, and the thread that passes it on.

    OSError where he has no certificate, or is not done in time. Whoever shuts the socket has the thread end, when the
    caller has all of it; whoever shuts the caller's has it end at once.
    """
    # A second name for the line: wrapping takes the first away from whoever has it.
    secure = how.wrap_socket(caller.dup(), server_side=True, do_handshake_on_connect=False)
    try:
        secure.setblocking(False)
        _shake_hands(secure, until)
        clear, inner = socket.socketpair()
    except BaseException:
        secure.close()
        raise
    inner.setblocking(False)
    passing = threading.Thread(target=_pass_both, args=(secure, inner), name="ferryman-caller", daemon=True)
    passing.start()
    return clear, passing


def _shake_hands(secure: ssl.SSLSocket, until: float) -> None:
    ready = select.poll()
    while True:
        try:
            return secure.do_handshake()
        except ssl.SSLWantReadError:
            ready.register(secure, select.POLLIN)
        except ssl.SSLWantWriteError:
            ready.register(secure, select.POLLOUT)
        if not ready.poll(1000 * max(0.0, until - time.monotonic())):
            raise TimeoutError("the handshake is not done in time")


def _pass_both(secure: ssl.SSLSocket, inner: socket.socket) -> None:
    """Pass bytes on both ways until the caller ends, or all that the other side has said is sent."""
    with secure, inner, contextlib.suppress(OSError):
        inwards, outwards, said_all = bytearray(), bytearray(), False
        while outwards or not said_all:
            line, clear = _Turn(), _Turn()
            # It gives no more at once than was encrypted at once.
            while len(inwards) < _CHUNK and (some := line.take(secure.recv, _CHUNK)) is not None:
                if not some:
                    return
                inwards += some
            if inwards:
                del inwards[: clear.take(inner.send, inwards[:_CHUNK], waiting=select.POLLOUT) or 0]
            if len(outwards) < _CHUNK and not said_all:
                some = clear.take(inner.recv, _CHUNK)
                said_all = some == b""
                outwards += some or b""
            if outwards:
                # What was refused has to be offered again from the same byte on, and it is.
                del outwards[: line.take(secure.send, outwards[:_CHUNK], waiting=select.POLLOUT) or 0]
            if not (line.moved or clear.moved):
                ready = select.poll()
                for end, turn in ((secure, line), (inner, clear)):
                    # One that has ended, and is not asked for anything, would wake this at once.
                    if turn.waits:
                        ready.register(end, turn.waits)
                ready.poll()


class _Turn:
    """What one side of a line has done in a turn: moved bytes, or said what it waits for."""

    def __init__(self) -> None:
        self.moved = False
        self.waits = 0

    def take(self, act: Callable[[Any], Any], what: Any, waiting: int = select.POLLIN) -> Any:
        """Do something, or note what to wait for; None for the latter."""
        try:
            done = act(what)
        except ssl.SSLWantReadError:
            self.waits |= select.POLLIN
        except ssl.SSLWantWriteError:
            self.waits |= select.POLLOUT
        except BlockingIOError:
            self.waits |= waiting
        else:
            self.moved = True
            return done
        return None
