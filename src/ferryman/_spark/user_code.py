"""User code on its way to Spark's workers: pickled here, with the broadcast variables of Spark that it uses.

Spark ships a broadcast variable beside the function that uses it, and pickles no more of it than its number. What is
pickled here, once per job, is bytes to Spark: so its variables are noted, and go along with Spark's function.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from pyspark import Broadcast, SparkContext, cloudpickle

Shared = tuple[Broadcast[Any], ...]

_registering = threading.Lock()


def pickled(code: Any) -> tuple[bytes, Shared]:
    """Pickle user code as Spark does, and give the broadcast variables that it uses."""
    context = SparkContext._active_spark_context
    if context is None:
        return cloudpickle.dumps(code), ()  # type: ignore[no-untyped-call]
    # Each variable adds itself as it is pickled.
    noted: Any = context._pickled_broadcast_vars
    before = list(noted)
    noted.clear()
    try:
        data: bytes = cloudpickle.dumps(code)  # type: ignore[no-untyped-call]
        return data, tuple(noted)
    finally:
        noted.clear()
        for one in before:
            noted.add(one)


def unpickled(data: bytes, shared: Sequence[Broadcast[Any]]) -> Any:
    """Give user code back. Workers have its broadcast variables by number, and the driver only as they stand here."""
    mine = {one._jbroadcast.id(): one for one in shared if one._jbroadcast is not None}
    if not mine:
        return cloudpickle.loads(data)
    from pyspark.core.broadcast import _broadcastRegistry as registry

    with _registering:
        registry.update(mine)
        try:
            return cloudpickle.loads(data)
        finally:
            for number in mine:
                registry.pop(number, None)
