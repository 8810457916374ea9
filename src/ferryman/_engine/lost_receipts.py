"""Receipts that were lost: a task that failed after its rows were kept is retried from those, and tells nothing.

Its receipt is lost with the attempt. Running the operator again, once nothing is kept any more, gives the same delta,
and the receipt. Whoever runs tasks says how they are run again. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ferryman._engine.control import Control
from ferryman._model.receipt import PartialsReceipt, Receipt

Receipts = Sequence[Receipt | PartialsReceipt]


def with_lost_receipts(
    controls: Mapping[str, Control], instances: int, read: Callable[[], Receipts], run_again: Callable[[str], None]
) -> Receipts:
    """Give the receipts of an epoch, and run each operator again of which an instance has left none.

    Parameters
    ----------
    controls
        What the tasks of each operator were told, by its name.
    instances
        How many instances each has.
    read
        Gives the receipts so far.
    run_again
        Runs the tasks of an operator once more, for their receipts alone.
    """
    receipts = read()
    for name in without_receipt(receipts, controls, instances):
        run_again(name)
        receipts = read()
    return receipts


def without_receipt(receipts: Receipts, controls: Mapping[str, Control], instances: int) -> set[str]:
    """Name the operators of which a task has left no receipt."""
    tasks = (receipt for receipt in receipts if isinstance(receipt, Receipt))
    there = {(receipt.operator, receipt.epoch, receipt.instance) for receipt in tasks}
    return {
        name
        for name, control in controls.items()
        for instance in range(instances)
        if (name, control.epoch, instance) not in there
    }
