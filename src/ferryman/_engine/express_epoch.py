"""Run several operators in one process, all instances of each, one after the other, with no shuffle in between.

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


def run_together(
    steps: Sequence[Step],
    controls: Mapping[str, Control],
    came: pa.Table,
    hashes: Mapping[str, Hashes],
    wanted: Sequence[OutputOf],
    *,
    most_bytes: int,
) -> tuple[list[pa.Table], list[Receipt]]:
    """Run operators on the rows of an epoch; `OutputTooLarge` as soon as all of them have put out too much.

    Parameters
    ----------
    steps
        The operators; who reads of another comes after it.
    controls
        What the tasks of each must know.
    came
        The rows that came, in the source's order.
    hashes
        Spark's hashes of their keys, for each operator that reads them.
    wanted
        Whose rows to give.
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
        spec = step.spec
        if step.reads is None:
            rows, keys = came.select(spec.input.names), hashes[spec.name]
        else:
            rows = rows_of(step.reads).select(spec.input.names).cast(spec.input)
            keys = spark_hash([rows.column(name) for name in spec.key.fields.names])
        whole[spec.name], some = run_instances(spec, controls[spec.name], rows, keys, run)
        receipts += some
    return [rows_of(output) for output in wanted], receipts


def run_instances(
    spec: OperatorSpec, control: Control, rows: pa.Table, hashes: Hashes, run: RunInstance = run_in_order
) -> tuple[pa.Table, list[Receipt]]:
    """Run all instances of an operator, each on its own rows; give what they put out, in the order of instances."""
    owners = routed(hashes, np.array(control.owner), control.pinned)
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(len(control.tokens)), side="right").tolist()
    by_owner = rows.append_column(HASH, pa.array(hashes)).take(pa.array(order))
    outputs, receipts, begin = [], [], 0
    for instance, end in enumerate(ends):
        output, receipt = run(spec, control, instance, by_owner.slice(begin, end - begin))
        outputs.append(output)
        receipts.append(receipt)
        begin = end
    return pa.concat_tables(outputs), receipts
