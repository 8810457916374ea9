"""The one atomic record that commits an epoch, and what it says of each operator. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ferryman._model.delta import DeltaRef
from ferryman._model.held_rows import HeldRows
from ferryman._model.json_values import MOST_TIME_MS, flag, label, listed, mapped, shallow, text, whole
from ferryman._model.lookup_version import LookupVersion, parse_versions, versions_json
from ferryman._model.routing import RoutingTable
from ferryman._model.spark_log import SparkLog
from ferryman._model.watermarks import Watermarks


@dataclass(frozen=True)
class OperatorRecord:
    """Record what one operator did in one epoch."""

    rows: int
    keys: int
    output: int
    late: int = 0
    heaviest: int = 0  # rows of the key that had most, where that is a considerable part of all

    @classmethod
    def parse(cls, raw: Any) -> OperatorRecord:
        """Read a record back from JSON."""
        record = cls(**mapped(raw, "an operator's record"))
        for name, value in vars(record).items():
            whole(value, name)
        return record


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Commit one epoch: the one atomic record that says what belongs to it.

    `batch` is the last Spark micro-batch the epoch covers. A silent epoch, one that came because no
    data did, covers no new batch and repeats the number before it (-1: none yet). `term` is the run that
    committed it.
    """

    epoch: int
    batch: int
    silent: bool
    time_ms: int
    routing: RoutingTable
    operators: Mapping[str, OperatorRecord]
    tables: Mapping[str, tuple[DeltaRef, ...]]
    sinks: Mapping[str, Any] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)
    offsets: tuple[Any, ...] = ()
    held: Mapping[str, tuple[HeldRows, ...]] = field(default_factory=dict)
    term: int = 0
    spark: SparkLog = field(default_factory=SparkLog)
    lookups: Mapping[str, LookupVersion] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Write the manifest as JSON values."""
        raw = dict(vars(self))
        raw["held"] = {name: [rows.json() for rows in held] for name, held in self.held.items()}
        raw["routing"] = self.routing.json()
        raw["offsets"] = list(self.offsets)
        raw["operators"] = {name: asdict(record) for name, record in self.operators.items()}
        raw["tables"] = {name: [asdict(ref) for ref in refs] for name, refs in self.tables.items()}
        raw["watermarks"] = self.watermarks.json()
        raw["spark"] = self.spark.json()
        raw["lookups"] = versions_json(self.lookups)
        return raw

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Manifest:
        """Read a manifest back from JSON."""
        values = dict(raw)
        whole(raw["epoch"], "epoch")
        whole(raw["batch"], "batch", low=-1)
        flag(raw["silent"], "silent")
        whole(raw["time_ms"], "time_ms", high=MOST_TIME_MS)
        values["routing"] = RoutingTable.parse(raw["routing"])
        values["offsets"] = tuple(shallow(listed(raw["offsets"], "offsets"), "offsets"))
        for record in shallow(mapped(raw.get("sinks", {}), "sinks"), "sinks").values():
            _check_sink(record)
        operators = mapped(raw["operators"], "operators")
        values["operators"] = {
            label(name, "operator"): OperatorRecord.parse(record) for name, record in operators.items()
        }
        tables = mapped(raw["tables"], "tables")
        values["tables"] = {
            label(name, "table"): tuple(DeltaRef.parse(ref) for ref in listed(refs, "deltas"))
            for name, refs in tables.items()
        }
        values["watermarks"] = Watermarks.parse(raw["watermarks"])
        held = mapped(raw.get("held", {}), "held")
        values["held"] = {
            label(name, "operator"): tuple(HeldRows.parse(rows) for rows in listed(ones, "held"))
            for name, ones in held.items()
        }
        whole(raw.get("term", 0), "term")
        values["lookups"] = parse_versions(raw.get("lookups", {}))
        values["spark"] = SparkLog.parse(mapped(raw.get("spark", {}), "spark"))
        return cls(**values)


def _check_sink(raw: Any) -> None:
    """Expect what stands of a sink: nothing where it was not called yet. What it has `written` is for it to judge."""
    record = mapped(raw, "a sink's record")
    if record:
        flag(record["told"], "told")
        text(record.get("path") or "", "path")
        mapped(record["written"], "written")
