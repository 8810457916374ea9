"""Which message of MQTT is a redelivered one that the ingest log has already.

A broker sends again what it has no acknowledgement of, with the same packet identifier, and says so. If the log has a
message with that identifier, of the same session, topic and payload, this is that one: marked, and not dropped. For a
broker may use an identifier again as soon as it is free, so what looks the same need not be.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import xxhash


@dataclass(frozen=True)
class _Known:
    offset: int
    digest: int


class Redelivered:
    """Remember the newest messages that are durable.

    Parameters
    ----------
    most
        How many. The broker cannot be waiting for the acknowledgement of more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def learn(self, packet: int, topic: str, payload: bytes, offset: int) -> None:
        """Remember a message that is durable."""
        self._known.pop(packet, None)
        self._known[packet] = _Known(offset, _digest(topic, payload))
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def of(self, packet: int, topic: str, payload: bytes) -> int | None:
        """Give the offset of the message that one seems to be that was sent again."""
        known = self._known.get(packet)
        return known.offset if known is not None and known.digest == _digest(topic, payload) else None

    def forget(self) -> None:
        """Forget all: a new session counts packets anew."""
        self._known.clear()


def _digest(topic: str, payload: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(payload, xxhash.xxh3_64_intdigest(topic.encode())))
