"""How an epoch went, as `job.progress()` tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ferryman._engine.express_or_shuffle import Route
from ferryman._engine.latency import Sample, merged
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import Receipt


@dataclass(frozen=True, kw_only=True)
class EpochProgress:
    """Tell how an epoch went.

    `time_ms` is the epoch's own time, the same when it is redone after a kill; `back_ms` by how much it is behind that
    of the epoch before, where the clock was far ahead then and was put right; `committed_ms` is the clock's when
    its manifest was written. Both in milliseconds since 1970. `route` tells how the rows went to their instances, by
    "express" or by a "shuffle", and `why` that way was chosen. `phases_ms` tells how long each phase of the epoch took
    on the driver, in their order; `times` is what `Job.latency` is told from.
    `damaged` names the files of the checkpoint that tasks found damaged or missing, and did without; they are written
    anew beside the epochs that follow. `lookups` tells for each table that is looked up which epoch was the first with
    the version that this one had.
    `waiting` tells how many rows each partition of Kafka still had when the epoch was begun, besides what it took, by
    source and partition: `{"orders": {"orders-0": 12}}`. It is None where no source tells that, or Spark has not yet.
    """

    epoch: int
    batch: int
    silent: bool
    rows: int
    output: int
    keys: int
    duration_ms: float
    busy_ms: float
    delta_bytes: int
    time_ms: int
    committed_ms: int
    watermark_ms: int | None
    operators: Mapping[str, Mapping[str, Any]]
    back_ms: int = 0
    route: str = ""
    why: str = ""
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    times: Sample | None = None
    damaged: tuple[str, ...] = ()
    lookups: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Mapping[str, int]] | None = None

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        receipts: Sequence[Receipt],
        *,
        duration_ms: float,
        committed_ms: int,
        back_ms: int,
        route: Route | None,
        phases_ms: Mapping[str, float],
    ) -> EpochProgress:
        """Tell of an epoch that was committed, by its manifest and the receipts of its tasks."""
        records = list(manifest.operators.values())
        return cls(
            epoch=manifest.epoch,
            batch=manifest.batch,
            silent=manifest.silent,
            # The first operator reads the source.
            rows=records[0].rows if records else 0,
            output=sum(record.output for record in records),
            keys=sum(record.keys for record in records),
            duration_ms=duration_ms,
            busy_ms=max((receipt.busy_ms for receipt in receipts), default=0.0),
            delta_bytes=sum(ref.bytes for refs in manifest.tables.values() for ref in refs),
            time_ms=manifest.time_ms,
            committed_ms=committed_ms,
            watermark_ms=manifest.watermarks.next_ms,
            operators={name: _of_operator(name, manifest, receipts) for name in manifest.operators},
            back_ms=back_ms,
            route="" if route is None else route.name,
            why="" if route is None else route.why,
            phases_ms=phases_ms,
            times=merged([(receipt.rows, receipt.times) for receipt in receipts if receipt.times]),
            damaged=tuple(sorted({file for receipt in receipts for file in receipt.damaged})),
            lookups={name: version.since for name, version in manifest.lookups.items()},
        )


def _of_operator(name: str, manifest: Manifest, receipts: Sequence[Receipt]) -> dict[str, Any]:
    record = manifest.operators[name]
    mine = sorted((receipt for receipt in receipts if receipt.operator == name), key=lambda receipt: receipt.instance)
    return {
        "rows": record.rows,
        "keys": record.keys,
        "output": record.output,
        "late": record.late,
        "heaviest": record.heaviest,
        "rebuilt": sum(receipt.rebuilt for receipt in mine),
        "rebuilt_bytes": sum(receipt.rebuilt_bytes for receipt in mine),
        "hosts": [receipt.host for receipt in mine],
        "instance_rows": [receipt.rows for receipt in mine],
        "busy_ms": [receipt.busy_ms for receipt in mine],
    }
