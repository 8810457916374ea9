"""Spark's broadcast variables as they travel with pickled code. Calls `start`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark import Broadcast

from ferryman._spark.compat.start import active_context

_registering = threading.Lock()


@contextlib.contextmanager
def noting_broadcasts() -> Iterator[Iterable[Broadcast[Any]]]:
    """Give a set that gets the broadcast variables pickled meanwhile, apart from those noted before. Tried on 4.3."""
    context = active_context()
    if context is None:
        yield ()
        return
    # Each variable adds itself as it is pickled.
    noted: Any = context._pickled_broadcast_vars
    before = list(noted)
    noted.clear()
    try:
        yield noted
    finally:
        noted.clear()
        for variable in before:
            noted.add(variable)


@contextlib.contextmanager
def known_broadcasts(shared: Sequence[Broadcast[Any]]) -> Iterator[None]:
    """Have broadcast variables found by their numbers while they are unpickled on the driver. Tried on 4.3.

    A worker knows those of its task by itself, and what it has of them has no JVM behind it.
    """
    own = {variable._jbroadcast.id(): variable for variable in shared if variable._jbroadcast is not None}
    if not own:
        yield
        return
    from pyspark.core.broadcast import _broadcastRegistry as registry

    with _registering:
        registry.update(own)
        try:
            yield
        finally:
            for number in own:
                registry.pop(number, None)
