"""The task of an instance as Spark calls it, in a Python worker: `_engine.task` does the work.

What it did goes to the driver as a receipt, through a Spark accumulator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, TaskContext, cloudpickle

from ferryman._engine.control import Control
from ferryman._engine.routing_columns import width
from ferryman._engine.task import run
from ferryman._model.errors import FerrymanError, OperatorFailed, to_text
from ferryman._spark.plan.user_code import Shared

_specs: dict[str, Any] = {}


class TaskFailed(Exception):
    """Carries a FerrymanError as text through Spark's own exception."""


@contextlib.contextmanager
def carried() -> Iterator[None]:
    """Have a FerrymanError come through Spark to the driver."""
    try:
        yield
    except FerrymanError as error:
        raise TaskFailed(to_text(error)) from error


def unpack(packed: bytes, digest: str, *, again: bool = False) -> Any:
    """Unpack what travelled with Spark's function, once per worker and not once per epoch; or `again`."""
    if again or digest not in _specs:
        if len(_specs) > 64:
            _specs.clear()
        try:
            _specs[digest] = cloudpickle.loads(packed)
        except ImportError as error:
            raise OperatorFailed(
                f"an operator needs the module {error.name!r}, and Spark's Python workers cannot import it. Ship it "
                "with spark.addArtifacts(..., pyfile=True) or --py-files, install it on the executors, or define the "
                "operator in the script itself."
            ) from error
    return _specs[digest]


@dataclass(frozen=True, kw_only=True)
class InstanceTask:
    """One operator's function for one epoch; Spark calls it once per instance.

    The rows of one that is `united` go into a union before the next shuffle: its tasks are part of a stage, in which
    the tasks of each such operator follow one another, as many as there are instances.
    """

    packed: bytes
    digest: str
    control: Control
    receipts: Accumulator[list[bytes]]
    shared: Shared = ()
    most_bytes: int = 64 << 20
    united: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the instance on its rows and give its output."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        with carried():
            # A broadcast variable is good for a task: Spark may have taken its file away since the one before.
            spec = unpack(self.packed, self.digest, again=bool(self.shared))
            part = context.partitionId()
            instance = part % len(self.control.tokens) if self.united else part
            output, receipt = run(spec, self.control, instance, list(batches))
        self.receipts.add([receipt.encode()])
        # What goes back is no larger at once than what came.
        yield from output.to_batches(max(1, self.most_bytes // max(1, width(output))))
