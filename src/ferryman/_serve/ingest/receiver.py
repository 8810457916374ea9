"""What an ingest log and its receiver have to do with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._model.errors import FerrymanError

TIME = pa.timestamp("us", tz="UTC")
# How many bytes may wait in memory for the disk, or for a log that is full.
MOST_WAITING_BYTES = 64 << 20


class Receiver(Protocol):
    """Take rows, and acknowledge those that are durable."""

    @property
    def error(self) -> FerrymanError | None:
        """Give what has ended it, if anything has."""

    def end(self) -> None:
        """Take nothing more."""


# Begins to receive: into the log, by a group commit on it.
Begin = Callable[[IngestLog, GroupCommit], Receiver]
