"""A Mosquitto of a test's own; a test that needs one is skipped where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from bench import mosquitto
from bench.mosquitto import PASSWORD, USER, Broker, Publisher

__all__ = ["PASSWORD", "USER", "Broker", "Publisher", "broker"]


@contextlib.contextmanager
def broker(*, start: bool = True) -> Iterator[Broker]:
    """Run a broker. Skip where there is none."""
    pytest.importorskip("paho.mqtt.client", reason="make install brings it")
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(mosquitto.broker(start=start))
        except mosquitto.NotToBeHad as why:
            pytest.skip(str(why))
        yield running
