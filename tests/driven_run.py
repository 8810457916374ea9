"""One run of a job without Spark: what a driver does at its start and in its epochs, with plans, on the real parts.

The harness's executor runs the operators. Spark's log is written as far as a start looks at it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from one_host import OneHost

from ferryman import Operator, Value
from ferryman._engine.epoch import EpochRunner
from ferryman._engine.fence import Fenced
from ferryman._engine.job_options import EpochOptions
from ferryman._engine.outputs import Outputs
from ferryman._engine.progress import EpochProgress
from ferryman._engine.recovery import take_over
from ferryman._migrate.coordinator import Coordinator
from ferryman._migrate.layout import Launch
from ferryman._migrate.options import ChangeOptions
from ferryman._migrate.planning import rescaled
from ferryman._migrate.reconfiguration import Reconfiguration
from ferryman._model.routing import RoutingTable
from ferryman._spark.sinks.sinks import none
from ferryman._testing.harness import Harness, _Sourceless
from ferryman._testing.local_executor import Input

_INPUT = pa.schema([("key", pa.string()), ("row", pa.int64())])


class Counts(Operator):
    n = Value(int, 0)
    output = "row long, n long"

    def process(self, key, row):
        self.n += 1
        yield row.row, self.n


class Run(Harness):
    """Begin a run on a checkpoint, as a start does."""

    def __init__(
        self,
        root: Path,
        *,
        build: Callable[[Any], Any] = lambda stream: stream.key_by("key").process(Counts),
        instances: int = 2,
        clock: Callable[[], int] | None = None,
        layout: Callable[[RoutingTable], Any] = OneHost,
        replicas: int = 0,
    ) -> None:
        super().__init__(build, "key string, row long", instances=instances, groups=8, checkpoint=root)
        self.takeover = take_over(
            self.checkpoint, self._declared, [none()], instances=instances, reading={}, locked=False
        )
        term, latest = self.takeover.term, self.takeover.latest
        outputs = Outputs([], self.checkpoint, latest, term=term, fsync=False)
        self.fenced = Fenced(self.checkpoint, self._declared, outputs, term)
        self.wanted = threading.Event()
        options = ChangeOptions(replicas=replicas)
        self.coordinator: Coordinator[OneHost] = Coordinator(
            layout(self.takeover.routing),
            self.checkpoint,
            latest,
            Launch.of(str(root), term.run, self._declared, options),
            options,
            wake=self.wanted.set,
        )
        self.runner = EpochRunner(
            self.checkpoint,
            self._declared,
            self._executor,
            self.coordinator,
            self.fenced,
            _Sourceless(self.checkpoint),
            self.takeover,
            EpochOptions(home=None, fsync=False, express=True, clock=clock),
        )

    def restart(self) -> None:
        """Stay: this is one run."""

    def close(self) -> None:
        self.coordinator.release()
        super().close()

    def batch(self, *keys: str, time_ms: int = 1000) -> EpochProgress:
        """Run the next micro-batch, or the one that was begun, on one row for each of some keys."""
        batch = self.runner.newest.batch + 1
        self.checkpoint.directory.write(f"spark/offsets/{batch}", b"v1\n{}\n1")
        progress = self._run_on(keys, batch, silent=False, time_ms=time_ms)
        self.checkpoint.directory.write(f"spark/commits/{batch}", b"v1\n{}")
        return progress

    def silence(self, time_ms: int) -> EpochProgress:
        """Run an epoch without data."""
        return self._run_on((), self.runner.newest.batch, silent=True, time_ms=time_ms)

    def _run_on(self, keys: tuple[str, ...], batch: int, *, silent: bool, time_ms: int) -> EpochProgress:
        source = Input(pa.table([list(keys), list(range(len(keys)))], schema=_INPUT))
        return self.runner.run(source, batch, silent=silent, time_ms=time_ms)

    def plan(self, instances: int, how: str = "live") -> Reconfiguration:
        """Begin a plan; give it when an epoch could switch, or hold what moves."""
        change = self.coordinator.request("rescale", lambda table, at: rescaled(table, instances), how)
        journal = self.coordinator.journals()[-1]
        journal.wait_for(lambda: journal.machine.prepared and not journal.machine.to_copy())
        return change
