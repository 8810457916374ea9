"""Take hold of the network connections of other processes, and lose, tear or mute what they carry. Linux only.

A socket of another process of the same user is had by `pidfd_getfd`. A filter on it that lets nothing pass makes
packets vanish before the kernel reads them: both ends know nothing, and the sender tries again. To connect a socket to
nowhere resets its connection.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

_PIDFD_GETFD = 438
_ATTACH, _DETACH = 26, 27
_LISTENS, _CLOSED = "0A", "07"
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

# Programs of the classic packet filter: (code, jump if true, jump if false, operand).
_PASS, _DROP = (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)
NOTHING = (_DROP,)


def some(part: float) -> tuple[tuple[int, int, int, int], ...]:
    """Give a filter that loses a part of all packets."""
    # A random number of 32 bits, compared with a bound.
    return (0x20, 0, 0, 0xFFFFF038), (0x35, 0, 1, int(part * 2**32)), _PASS, _DROP


def available() -> bool:
    """Tell whether this system gives the sockets of a process to others of its user."""
    with contextlib.suppress(OSError), socket.socket() as mine:
        os.close(_taken(os.getpid(), mine.fileno()))
        return True
    return False


def _taken(process: int, fd: int) -> int:
    if _libc is None or not hasattr(os, "pidfd_open"):
        raise OSError("no pidfd_getfd")
    of = os.pidfd_open(process)
    try:
        found = int(_libc.syscall(_PIDFD_GETFD, of, fd, 0))
        if found < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return found
    finally:
        os.close(of)


def _inodes(process: int) -> Iterator[tuple[int, str]]:
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                what = os.readlink(f"/proc/{process}/fd/{fd}")
                if what.startswith("socket:["):
                    yield int(fd), what[8:-1]


def _tcp() -> dict[str, tuple[str, str, str]]:
    """List the TCP sockets of this machine by inode: own and other end by port and address, and the state."""
    found = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                # IPv4 is written as IPv6 where a JVM has it.
                mine, other = (f"{end.rpartition(':')[0][-8:]}:{end.rpartition(':')[2]}" for end in words[1:3])
                found[words[9]] = mine, other, words[3]
    return found


def _between(processes: Collection[int]) -> dict[str, tuple[int, int]]:
    """List the sockets of processes that lead to others: inode to process and descriptor."""
    tcp = _tcp()
    own = {inode: (process, fd) for process in processes for fd, inode in _inodes(process) if inode in tcp}
    ends = {tcp[inode][0] for inode in own if tcp[inode][2] != _LISTENS}
    return {inode: at for inode, at in own.items() if tcp[inode][2] != _CLOSED and tcp[inode][1] not in ends}


def tear(processes: Collection[int]) -> int:
    """Reset the connections of processes to others; tell how many there were."""
    tcp, torn = _tcp(), 0
    for inode, (process, fd) in _between(processes).items():
        if tcp.get(inode, ("", "", _LISTENS))[2] == _LISTENS:
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=_taken(process, fd)) as line:
            if _libc is not None and _libc.connect(line.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16) == 0:
                torn += 1
    return torn


class Muted:
    """Filter what comes to processes from others until `lift`; connections that are made meanwhile too.

    Parameters
    ----------
    processes
        Lists the processes; asked again and again, as new ones may come.
    program
        The filter.
    """

    def __init__(
        self, processes: Callable[[], Collection[int]], program: tuple[tuple[int, int, int, int], ...]
    ) -> None:
        self._processes = processes
        code = b"".join(struct.pack("HBBI", *step) for step in program)
        self._code = ctypes.create_string_buffer(code)
        self._program = struct.pack("@HP", len(program), ctypes.addressof(self._code))
        self._held: dict[str, socket.socket] = {}
        self._over = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._follow, name="chaos-muted", daemon=True)
        self._thread.start()

    @property
    def lines(self) -> int:
        """Count the sockets that were filtered."""
        return len(self._held)

    def _follow(self) -> None:
        while not self._over.wait(0.15):
            self._look()

    def _look(self) -> None:
        for inode, (process, fd) in _between(self._processes()).items():
            if inode not in self._held:
                with contextlib.suppress(OSError):
                    line = socket.socket(fileno=_taken(process, fd))
                    self._held[inode] = line
                    line.setsockopt(socket.SOL_SOCKET, _ATTACH, self._program)

    def lift(self) -> None:
        """Let everything pass again."""
        self._over.set()
        self._thread.join()
        for line in self._held.values():
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, _DETACH, struct.pack("i", 0))
            line.close()


def listens(process: int) -> bool:
    """Tell whether a process listens on a port."""
    tcp = _tcp()
    return any(tcp[inode][2] == _LISTENS for _, inode in _inodes(process) if inode in tcp)
