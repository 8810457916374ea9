"""What a broker of MQTT 5 may do that is slow or too much: a socket that answers packets as a test says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE = 1, 3, 8, 10
CONNACK = b"\x20\x03\x00\x00\x00"


def packet(kind: int, content: bytes) -> bytes:
    """Make a packet, of a kind with its flags."""
    size, length = len(content), bytearray()
    while True:
        size, low = divmod(size, 128)
        length.append(low | (128 if size else 0))
        if not size:
            return bytes([kind]) + bytes(length) + content


def published(number: int, topic: str, payload: bytes) -> bytes:
    """Make a message of QoS 1; of QoS 0 where it has no number."""
    name = topic.encode()
    begun = struct.pack(">H", len(name)) + name + (struct.pack(">H", number) if number else b"")
    return packet(0x32 if number else 0x30, begun + b"\x00" + payload)


def acknowledged(content: bytes) -> bytes:
    """Acknowledge a message."""
    (size,) = struct.unpack_from(">H", content)
    return packet(0x40, content[2 + size : 4 + size])


def echoed(content: bytes) -> bytes:
    """Send a message to whoever has published it."""
    (size,) = struct.unpack_from(">H", content)
    return packet(0x30, content[: 2 + size] + content[4 + size :])


def subscribed(content: bytes, topics: int = 1) -> bytes:
    """Accept a subscription to some topics."""
    return packet(0x90, content[:2] + b"\x00" + b"\x01" * topics)


@contextlib.contextmanager
def raw_broker(answer: Callable[[int, bytes], bytes | None]) -> Iterator[str]:
    """Give the address of a broker that answers each packet, by its kind and content; None ends the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(caller: socket.socket) -> None:
        with contextlib.suppress(OSError), caller, caller.makefile("rb") as read:
            while head := read.read(1):
                size = shift = 0
                while True:
                    low = read.read(1)[0]
                    size, shift = size | (low & 127) << shift, shift + 7
                    if low < 128:
                        break
                content = read.read(size)
                kind = head[0] >> 4
                said = CONNACK if kind == CONNECT else answer(kind, content)
                if said is None:
                    return
                caller.sendall(said)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
