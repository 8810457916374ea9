"""What the receipts of an epoch's tasks come to: for its manifest, and for the epochs after it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set

from ferryman._engine.operator_spec import OperatorSpec
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import PinningLost
from ferryman._model.held_rows import HeldRows
from ferryman._model.manifest import OperatorRecord
from ferryman._model.receipt import PartialsReceipt, Receipt


class Gathered:
    """The receipts of an epoch: one of each operator's instances, and of each task that made partials.

    However often a task ran, it counts once. An instance that has none is an error.
    """

    def __init__(
        self, found: Iterable[Receipt | PartialsReceipt], epoch: int, operators: Iterable[str], instances: int
    ) -> None:
        tasks: dict[tuple[str, int], Receipt] = {}
        partials: dict[tuple[str, int], PartialsReceipt] = {}
        for receipt in found:
            if receipt.epoch != epoch:
                continue
            if isinstance(receipt, Receipt):
                tasks[receipt.operator, receipt.instance] = receipt
            else:
                partials[receipt.operator, receipt.part] = receipt
        wanted = [(name, instance) for name in operators for instance in range(instances)]
        missing = [task for task in wanted if task not in tasks]
        if missing:
            raise PinningLost(
                f"operator {missing[0][0]!r}: no receipt of instance {missing[0][1]} in epoch {epoch}, so Spark "
                "did not run one partition per instance. Keep unions, coalesce and repartition out of `transform` "
                "between operators. The epoch was not committed."
            )
        # In the order of instances, whatever order they came in.
        self.receipts: Sequence[Receipt] = [tasks[task] for task in wanted]
        self.partials: Sequence[PartialsReceipt] = list(partials.values())

    def of(self, operator: str) -> list[Receipt]:
        """Give those of an operator's instances."""
        return [receipt for receipt in self.receipts if receipt.operator == operator]

    def records(self, operators: Iterable[str], combined: Container[str]) -> dict[str, OperatorRecord]:
        """Say what each operator did; who made partials saw the rows themselves."""
        found = {}
        for name in operators:
            mine = self.of(name)
            saw: Sequence[Receipt | PartialsReceipt] = mine
            if name in combined:
                saw = [receipt for receipt in self.partials if receipt.operator == name]
            found[name] = OperatorRecord(
                rows=sum(receipt.rows for receipt in saw),
                keys=sum(receipt.keys for receipt in mine),
                output=sum(receipt.output for receipt in mine),
                late=sum(receipt.late for receipt in mine),
                heaviest=_heaviest(saw),
            )
        return found

    def deltas(self, operators: Iterable[OperatorSpec]) -> dict[str, tuple[DeltaRef, ...]]:
        """List the deltas of every table that tasks keep."""
        found = {}
        for spec in operators:
            mine = self.of(spec.name)
            for table in spec.kept:
                written = (receipt.deltas.get(table.name) for receipt in mine)
                found[table.name] = tuple(ref for ref in written if ref)
        return found

    def waiting(self, before: Mapping[str, tuple[HeldRows, ...]], held: Set[int]) -> dict[str, tuple[HeldRows, ...]]:
        """List the rows that still wait after an epoch, given those before it: those of groups that waited in it."""
        found: dict[str, list[HeldRows]] = {}
        for name, files in before.items():
            left = (file.only(held) for file in files)
            found[name] = [file for file in left if file.groups]
        for receipt in self.receipts:
            if receipt.held is not None:
                found.setdefault(receipt.operator, []).append(receipt.held)
        return {name: tuple(files) for name, files in found.items() if files}

    def watermarks(self) -> dict[str, int]:
        """Give how far event time has come, by the name of the watermark."""
        seen: dict[str, int] = {}
        for receipt in self.receipts:
            for name, time_ms in receipt.watermarks.items():
                seen[name] = max(time_ms, seen.get(name, time_ms))
        return seen

    def next_due(self, operator: str) -> int | None:
        """Give when something is due next in an operator's state."""
        times = (receipt.next_due for receipt in self.of(operator))
        return min((time_ms for time_ms in times if time_ms is not None), default=None)


def _heaviest(receipts: Sequence[Receipt | PartialsReceipt]) -> int:
    """Give the rows of the heaviest key that tasks of an epoch saw."""
    rows: dict[int, int] = {}
    for receipt in receipts:
        for key in receipt.heavy:
            rows[key.hash] = rows.get(key.hash, 0) + key.rows
    return max(rows.values(), default=0)
