"""User code on its way to Spark's workers: pickled here, with the broadcast variables of Spark that it uses.

Spark ships a broadcast variable beside the function that uses it, and pickles no more of it than its number. What is
pickled here, once per job, is bytes to Spark: so its variables are noted, and go along with Spark's function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import Broadcast, cloudpickle

from ferryman._spark.compat.broadcasts import known_broadcasts, noting_broadcasts

Shared = tuple[Broadcast[Any], ...]


def pickled(code: Any) -> tuple[bytes, Shared]:
    """Pickle user code as Spark does, and give the broadcast variables that it uses."""
    with noting_broadcasts() as noted:
        data: bytes = cloudpickle.dumps(code)  # type: ignore[no-untyped-call]
        return data, tuple(noted)


def unpickled(data: bytes, shared: Sequence[Broadcast[Any]]) -> Any:
    """Give user code back. Workers have its broadcast variables by number, and the driver only as they stand here."""
    with known_broadcasts(shared):
        return cloudpickle.loads(data)
