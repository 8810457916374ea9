"""Find the host of every instance, and start the state hosts there: by a small Spark job, pinned like an epoch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from ferryman._engine.home import home, host
from ferryman._migrate.layout import Launch

_LINGER_S = 0.2

PLACES = "instance int, host string, location string"


@dataclass(frozen=True)
class FindHost:
    """Tell where this instance is, and start the state host there."""

    launch: Launch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run in the place of an instance."""
        # Only here: no other task needs Arrow Flight.
        from ferryman._serve.launch import begin
        from ferryman._serve.state_host import Configuration

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        launch = self.launch
        place = home(launch.checkpoint, launch.run_id, launch.home)
        # A worker's parent is the executor's Python daemon, which ends with the executor.
        configuration = Configuration(
            address=host(),
            home=str(place),
            checkpoint=launch.checkpoint,
            token=launch.token,
            watched=os.getppid(),
            tls=launch.tls,
            bytes_per_s=launch.bytes_per_s,
            delay_s=launch.delay_s,
            card=launch.card,
        )
        location = begin(configuration)
        found = {"instance": [context.partitionId()], "host": [host()], "location": [location]}
        schema = pa.schema([("instance", pa.int32()), ("host", pa.string()), ("location", pa.string())])
        yield pa.RecordBatch.from_pydict(found, schema=schema)


@dataclass(frozen=True)
class EndHost:
    """End the state host of the host this runs on, if there is one."""

    launch: Launch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on as many tasks as it takes to be everywhere."""
        from ferryman._serve.launch import put_down

        put_down(home(self.launch.checkpoint, self.launch.run_id, self.launch.home))
        # So that one executor does not do them all.
        time.sleep(_LINGER_S)
        yield from batches
