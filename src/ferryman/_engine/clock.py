"""The clock a job goes by: the machine's, or one of the user's own, which may run at any pace and jump."""

from __future__ import annotations

import time
from collections.abc import Callable

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.agreement import batch_time
from ferryman._model.epoch_time import epoch_time
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.manifest import Manifest


def system_ms() -> int:
    """Read the machine's clock."""
    return time.time_ns() // 1_000_000


class Clock:
    """Tell the time, in milliseconds since 1970."""

    def __init__(self, own: Callable[[], int] | None = None) -> None:
        self._read = own or system_ms
        self.own = own is not None

    def read(self) -> int:
        """Read the clock."""
        found = self._read()
        if isinstance(found, bool) or not isinstance(found, int):
            raise InvalidConfiguration(
                f"clock={self._read!r} gave {found!r}. Let it give a whole number: milliseconds since 1970."
            )
        return found

    def after(self, latest: Manifest | None) -> int:
        """Give the time that an epoch would have now."""
        return epoch_time(self.read(), latest.time_ms if latest else None).time_ms

    def of_batch(self, checkpoint: Checkpoint, batch: int) -> int:
        """Give when a micro-batch began: what Spark wrote down, so that a redo has the same.

        A clock of the user's own is not Spark's; its time is written down with the intent.
        """
        noted = None if self.own else batch_time(checkpoint, batch)
        return self.read() if noted is None else noted
