"""Find the host of every instance, and start the state hosts there: by a small Spark job, pinned like an epoch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from ferryman._spark.home import home, host

if TYPE_CHECKING:
    from ferryman._serve.access import Access

_LINGER_S = 0.2

PLACES = "instance int, host string, location string"


@dataclass(frozen=True)
class Place:
    """Where an instance is.

    Attributes
    ----------
    host
        The host, as Spark knows it.
    location
        Its state host; None while that is coming up.
    """

    host: str
    location: str | None


@dataclass(frozen=True)
class FindHost:
    """Tell where this instance is, and start the state host there; what it sends can be made slow, to try that out."""

    checkpoint: str
    run_id: str
    home: str | None
    token: str
    tls: str | None = None
    bytes_per_s: float | None = None
    delay_s: float = 0.0

    @property
    def access(self) -> Access:
        """Give how to get into the state hosts."""
        from ferryman._serve.access import Access

        return Access(self.token, self.tls)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run in the place of an instance."""
        # Only here: no other task needs Arrow Flight.
        from ferryman._serve.host import Configuration
        from ferryman._serve.launch import begin

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        place = home(self.checkpoint, self.run_id, self.home)
        # A worker's parent is the executor's Python daemon, which ends with the executor.
        line = (self.tls, self.bytes_per_s, self.delay_s)
        location = begin(Configuration(host(), str(place), self.checkpoint, self.token, os.getppid(), *line))
        found = {"instance": [context.partitionId()], "host": [host()], "location": [location]}
        schema = pa.schema([("instance", pa.int32()), ("host", pa.string()), ("location", pa.string())])
        yield pa.RecordBatch.from_pydict(found, schema=schema)


@dataclass(frozen=True)
class EndHost:
    """End the state host of the host this runs on, if there is one."""

    find: FindHost

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on as many tasks as it takes to be everywhere."""
        from ferryman._serve.launch import put_down

        put_down(home(self.find.checkpoint, self.find.run_id, self.find.home))
        # So that one executor does not do them all.
        time.sleep(_LINGER_S)
        yield from batches
