"""Let callers in by their token before anybody reads what they send.

Arrow Flight hands a request to its middleware when it has the whole of it in memory, however large that is and whoever
sent it. So a server listens on a socket in a directory of its user's alone, and this gate on the address that others
reach. It looks at the frames of HTTP/2 until it has seen the token among the headers of a call; from then on it only
passes bytes on. Who has not shown the token may send as much as a small request takes, so that he is told what is
wrong, and is cut off then, or after a few seconds; and there are only so many of those at a time: who comes then takes
the place of the one who has stayed longest, as who has the token shows it at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path

from ferryman._serve.encryption import context, decrypted

# What one who has not shown the token may send, how long he may stay, and how many of them there may be.
STRANGER_BYTES = 64 << 10
STRANGER_S = 10.0
MOST_STRANGERS = 256
# How many of them may come from one address, so that one cannot take the places of all others.
MOST_FROM_ONE = 64
# How many callers there may be in all.
MOST_CALLERS = 512

# How long one who is shown out may take to read the last of what he was sent.
_PARTING_S = 2.0

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_PIPE_BYTES = 1 << 20
# The longest path that a socket can have.
_LONGEST_PATH = 100

# RFC 7541, appendix B, as far as tokens go.
_HUFFMAN = {
    "0": (0x0, 5), "1": (0x1, 5), "2": (0x2, 5), "3": (0x19, 6), "4": (0x1A, 6), "5": (0x1B, 6), "6": (0x1C, 6),
    "7": (0x1D, 6), "8": (0x1E, 6), "9": (0x1F, 6), "a": (0x3, 5), "b": (0x23, 6), "c": (0x4, 5), "d": (0x24, 6),
    "e": (0x5, 5), "f": (0x25, 6), "r": (0x2C, 6), "B": (0x5D, 7), " ": (0x14, 6),
}  # fmt: skip


class Gate:
    """Listen on an address and let in to a socket who shows a token.

    Parameters
    ----------
    address
        Where to listen; on any port that is free.
    inside
        The path of the socket on which the server listens.
    token
        What callers show.
    tls
        The directory of certificates, if lines are to be encrypted: callers show one before anything else.
    """

    def __init__(self, address: str, inside: str, token: str, tls: str | None = None) -> None:
        self._inside = inside
        self._encryption = None if tls is None else context(tls)
        self._shown = _shown(f"Bearer {token}")
        self._lock = threading.Lock()
        # Where each came from; who has stayed longest is the first.
        self._strangers: dict[socket.socket, str] = {}
        self._callers = 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listening = socket.create_server((address, 0), family=family, backlog=MOST_CALLERS)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, name="ferryman-gate", daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        # To close it alone would leave the thread that waits for callers waiting.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, (address, *_) = self._listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                    time.sleep(0.1)
                    continue
                return
            with self._lock:
                full = self._callers >= MOST_CALLERS
                if not full:
                    self._make_room(address)
                    self._strangers[caller] = address
                    self._callers += 1
            if full:
                caller.close()
            else:
                threading.Thread(target=self._serve, args=(caller,), name="ferryman-caller", daemon=True).start()

    def _make_room(self, address: str) -> None:
        """Cut a stranger off where there are too many, from the new one's address or in all; with the lock held."""
        count = Counter(self._strangers.values())
        if count[address] < MOST_FROM_ONE:
            if len(self._strangers) < MOST_STRANGERS:
                return
            # Who sends many does it to his own cost.
            address = count.most_common(1)[0][0]
        longest = next(stranger for stranger, where in self._strangers.items() if where == address)
        del self._strangers[longest]
        # Its thread sees that and ends.
        with contextlib.suppress(OSError):
            longest.shutdown(socket.SHUT_RDWR)

    def _serve(self, caller: socket.socket) -> None:
        server, line = socket.socket(socket.AF_UNIX), caller
        back: threading.Thread | None = None
        passing: threading.Thread | None = None
        until = time.monotonic() + STRANGER_S

        def leave() -> None:
            with self._lock:
                self._strangers.pop(caller, None)

        try:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._encryption is not None:
                line, passing = decrypted(caller, self._encryption, until)
            server.connect(self._inside)
            back = threading.Thread(target=_pass_on, args=(server, line), name="ferryman-caller", daemon=True)
            back.start()
            if self._admit(line, server, until):
                leave()
                _pass_on(line, server)
        except OSError:
            # One of the two is gone.
            pass
        finally:
            for end in (line, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            if back is not None:
                back.join()
            if passing is not None:
                # He may not have read yet what he was told.
                passing.join(_PARTING_S)
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)
            leave()
            for end in (caller, line, server):
                end.close()
            with self._lock:
                self._callers -= 1

    def _admit(self, caller: socket.socket, server: socket.socket, until: float) -> bool:
        """Pass frames on until one shows the token; False where none does in time."""
        if (preface := _read(caller, len(_PREFACE), until)) != _PREFACE:
            return False
        server.sendall(preface)
        sent = 0
        while True:
            head = _read(caller, 9, until)
            if len(head) < 9:
                return False
            size, kind = int.from_bytes(head[:3], "big"), head[3]
            # Frames without content cost the server something too.
            sent += size + len(head)
            if sent > STRANGER_BYTES:
                return False
            content = _read(caller, size, until)
            if len(content) < size:
                return False
            server.sendall(head + content)
            if kind in (_HEADERS, _CONTINUATION) and any(shown in content for shown in self._shown):
                return True


def inside(folder: Path, name: str) -> str:
    """Give a path for a socket in a folder that is for its user alone, short enough for one."""
    path = folder / name
    path.unlink(missing_ok=True)
    if len(str(path)) <= _LONGEST_PATH or not Path("/proc/self/fd").is_dir():
        return str(path)
    # By a number that only this process has for the folder. It stays open as long as the process lives.
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}/{name}"


def _read(caller: socket.socket, size: int, until: float) -> bytes:
    """Read so many bytes; fewer where there are no more, or not in time."""
    found = bytearray()
    ready = select.poll()
    ready.register(caller, select.POLLIN)
    # No limit in time on the socket itself: the other direction uses it too, and may have to wait longer.
    while len(found) < size and ready.poll(1000 * max(0.0, until - time.monotonic())):
        some = caller.recv(size - len(found))
        if not some:
            break
        found += some
    return bytes(found)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass all that comes on, until it ends; then nothing can come the other way either."""
    with contextlib.suppress(OSError):
        if hasattr(os, "splice"):
            _splice(source, target)
        else:
            _copy(source, target)
    for end in (target, source):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _splice(source: socket.socket, target: socket.socket) -> None:
    """Have the kernel pass bytes on, without a copy in Python."""
    out, into = os.pipe()
    try:
        with contextlib.suppress(OSError):
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        while left := os.splice(source.fileno(), into, _PIPE_BYTES):
            while left:
                left -= os.splice(out, target.fileno(), left)
    finally:
        os.close(out)
        os.close(into)


def _copy(source: socket.socket, target: socket.socket) -> None:
    room = memoryview(bytearray(_PIPE_BYTES))
    while size := source.recv_into(room):
        target.sendall(room[:size])


def _shown(value: str) -> tuple[bytes, ...]:
    """Give the ways in which a value may stand in a block of headers: plain, or coded, but for its last bits."""
    plain = struct.pack("B", len(value)) + value.encode() if len(value) < 127 else value.encode()
    if not all(letter in _HUFFMAN for letter in value):
        return (plain,)
    bits = "".join(f"{code:0{size}b}" for code, size in (_HUFFMAN[letter] for letter in value))
    whole = len(bits) // 8
    return plain, int(bits[: 8 * whole], 2).to_bytes(whole, "big")
