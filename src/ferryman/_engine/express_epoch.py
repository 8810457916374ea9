"""Run several operators in one process, some or all instances of each, with no shuffle in between.

What an instance does in an epoch depends on the state before it and on its rows in order, not on how they came to it.
So this gives the rows, deltas and receipts that a task per instance gives. Calls `task`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._engine.control import Control
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.task import run_in_order
from ferryman._model.receipt import Receipt
from ferryman._operator.declare.side_outputs import own_rows, rows_aside
from ferryman._routing.owners import routed
from ferryman._state.spark_hash import spark_hash
from ferryman._state.store.contract import HASH

Hashes = npt.NDArray[np.int64]
# The rows of some instances, each with the hashes of their keys, in the source's order.
Parts = Mapping[int, pa.Table]
RunInstance = Callable[[OperatorSpec, Control, int, pa.Table], tuple[pa.Table, Receipt]]


@dataclass(frozen=True)
class OutputOf:
    """Rows that an operator gives: its own, or those of one of its side outputs."""

    operator: str
    side: str | None = None


@dataclass(frozen=True)
class Step:
    """An operator that runs together with others.

    Attributes
    ----------
    reads
        Whose rows it reads, of an operator before it; None for those that came.
    """

    spec: OperatorSpec
    reads: OutputOf | None = None


class OutputTooLarge(Exception):
    """Ends a run whose operators put out more than they may: so many rows, and bytes, so far."""

    def __init__(self, rows: int, size: int) -> None:
        super().__init__(f"{rows} rows, {size} bytes")
        self.rows = rows
        self.size = size


class RowsLeave(Exception):
    """Ends a run in which an operator would read rows of instances that are not run here."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator)
        self.operator = operator


def run_together(
    steps: Sequence[Step],
    controls: Mapping[str, Control],
    came: Mapping[str, Parts],
    wanted: Sequence[OutputOf],
    *,
    instances: Sequence[int],
    most_bytes: int,
) -> tuple[list[pa.Table], list[Receipt]]:
    """Run operators on the rows of an epoch.

    It ends with `OutputTooLarge` as soon as all of them have put out too much, and with `RowsLeave` before an operator
    that reads another's rows, if some of these are of instances that are not run here.

    Parameters
    ----------
    steps
        The operators; who reads of another comes after it.
    controls
        What the tasks of each must know.
    came
        The rows of each operator whose rows come from outside, by instance.
    wanted
        Whose rows to give.
    instances
        Those to run.
    most_bytes
        What all of them may put out together.
    """
    rows_out = size_out = 0

    def run(spec: OperatorSpec, control: Control, instance: int, rows: pa.Table) -> tuple[pa.Table, Receipt]:
        nonlocal rows_out, size_out
        output, receipt = run_in_order(spec, control, instance, rows)
        rows_out, size_out = rows_out + output.num_rows, size_out + output.nbytes
        if size_out > most_bytes:
            raise OutputTooLarge(rows_out, size_out)
        return output, receipt

    whole: dict[str, pa.Table] = {}
    specs = {step.spec.name: step.spec for step in steps}
    receipts: list[Receipt] = []

    def rows_of(output: OutputOf) -> pa.Table:
        made = whole[output.operator]
        if output.side is not None:
            return rows_aside(made, output.side)
        return own_rows(made, specs[output.operator].output.names)

    for step in steps:
        spec, control = step.spec, controls[step.spec.name]
        parts = came.get(spec.name)
        if parts is None:
            assert step.reads is not None, "what is read from outside has come"
            rows, hashes = as_read(spec, rows_of(step.reads))
            parts = parted(control, rows, hashes)
            if any(part.num_rows for instance, part in parts.items() if instance not in instances):
                raise RowsLeave(spec.name)
        whole[spec.name], some = run_instances(spec, control, {number: parts[number] for number in instances}, run)
        receipts += some
    return [rows_of(output) for output in wanted], receipts


def as_read(spec: OperatorSpec, rows: pa.Table) -> tuple[pa.Table, Hashes]:
    """Give another operator's rows as an operator reads them, and the hashes of their keys."""
    rows = rows.select(spec.input.names).cast(spec.input)
    return rows, spark_hash([rows.column(name) for name in spec.routed.names])


def owners_of(control: Control, hashes: Hashes) -> npt.NDArray[np.int64]:
    """Give the instance of each row."""
    return routed(hashes, np.array(control.owner), control.pinned)


def parted(control: Control, rows: pa.Table, hashes: Hashes) -> Parts:
    """Part an operator's rows by instance; each part keeps their order, and has their hashes."""
    owners = owners_of(control, hashes)
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(len(control.tokens)), side="right").tolist()
    by_owner = rows.append_column(HASH, pa.array(hashes)).take(pa.array(order))
    spans = zip([0, *ends[:-1]], ends, strict=True)
    return {instance: by_owner.slice(begin, end - begin) for instance, (begin, end) in enumerate(spans)}


def run_instances(
    spec: OperatorSpec, control: Control, parts: Parts, run: RunInstance = run_in_order
) -> tuple[pa.Table, list[Receipt]]:
    """Run instances of an operator, each on its own rows; give what they put out, in the order of instances."""
    made = [run(spec, control, instance, rows) for instance, rows in sorted(parts.items())]
    return pa.concat_tables([output for output, _ in made]), [receipt for _, receipt in made]
