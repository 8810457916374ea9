"""What the log says: deltas, manifests, routing tables, the job's card. Frozen, JSON in and out, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NewType

Epoch = NewType("Epoch", int)
Group = NewType("Group", int)
Instance = NewType("Instance", int)

FORMAT = 1
GROUPS = 256


@dataclass(frozen=True)
class DeltaRef:
    """Name one delta: the state changes of one instance of one operator in one epoch."""

    file: str
    instance: int
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class OperatorRecord:
    """Record what one operator did in one epoch."""

    deltas: tuple[DeltaRef, ...]
    rows: int
    keys: int
    output: int

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> OperatorRecord:
        """Read a record back from JSON."""
        deltas = tuple(DeltaRef(**ref) for ref in raw["deltas"])
        return cls(deltas, raw["rows"], raw["keys"], raw["output"])


@dataclass(frozen=True)
class RoutingTable:
    """Map every key group to an instance; a changed map has a new version.

    Examples
    --------
    >>> table = RoutingTable.even(version=1, groups=8, instances=2)
    >>> table.owner
    (0, 0, 0, 0, 1, 1, 1, 1)
    >>> RoutingTable.parse(table.json()) == table
    True
    """

    version: int
    instances: int
    owner: tuple[int, ...]

    @classmethod
    def even(cls, version: int, groups: int, instances: int) -> RoutingTable:
        """Give each instance one contiguous run of groups, all about as long."""
        return cls(version, instances, tuple(group * instances // groups for group in range(groups)))

    def json(self) -> dict[str, Any]:
        """Write the table with its runs of equal owners folded."""
        runs: list[list[int]] = []
        for owner in self.owner:
            if runs and runs[-1][0] == owner:
                runs[-1][1] += 1
            else:
                runs.append([owner, 1])
        return {"version": self.version, "instances": self.instances, "runs": runs}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> RoutingTable:
        """Read a table back from JSON."""
        owner = tuple(instance for instance, length in raw["runs"] for _ in range(length))
        return cls(raw["version"], raw["instances"], owner)


@dataclass(frozen=True)
class Manifest:
    """Commit one epoch: the one atomic record that says what belongs to it.

    `batch` is the last Spark micro-batch the epoch covers. A silent epoch, one that came because no
    data did, covers no new batch and repeats the number before it (-1: none yet).
    """

    epoch: int
    batch: int
    silent: bool
    time_ms: int
    routing: RoutingTable
    operators: Mapping[str, OperatorRecord]
    sinks: Mapping[str, Any] = field(default_factory=dict)
    watermark_ms: int | None = None
    offsets: tuple[Any, ...] = ()

    def json(self) -> dict[str, Any]:
        """Write the manifest as JSON values."""
        raw = {name: value for name, value in vars(self).items() if name != "operators"}
        raw["routing"] = self.routing.json()
        raw["offsets"] = list(self.offsets)
        raw["operators"] = {name: asdict(record) for name, record in self.operators.items()}
        return raw

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Manifest:
        """Read a manifest back from JSON."""
        values = dict(raw)
        values["routing"] = RoutingTable.parse(raw["routing"])
        values["offsets"] = tuple(raw["offsets"])
        values["operators"] = {name: OperatorRecord.parse(one) for name, one in raw["operators"].items()}
        return cls(**values)


@dataclass(frozen=True)
class OperatorCard:
    """Describe an operator to whoever reads its state: key and state columns, as Arrow type names."""

    key: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    schema: str  # base64 of the Arrow IPC schema: the exact types, for Ferryman itself

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> OperatorCard:
        """Read a card back from JSON."""
        pairs = {side: tuple((name, kind) for name, kind in raw[side]) for side in ("key", "state")}
        return cls(pairs["key"], pairs["state"], raw["schema"])


@dataclass(frozen=True)
class JobCard:
    """Describe a job: what `ferryman.json`, the first file of a checkpoint, holds."""

    id: str
    job: str
    groups: int
    operators: Mapping[str, OperatorCard]
    format: int = FORMAT

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> JobCard:
        """Read a job's card back from JSON."""
        operators = {name: OperatorCard.parse(one) for name, one in raw["operators"].items()}
        return cls(raw["id"], raw["job"], raw["groups"], operators, raw["format"])


@dataclass(frozen=True)
class SnapshotFile:
    """Name one Parquet file of a snapshot: the folded state of a run of key groups."""

    file: str
    first: int
    last: int
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Snapshot:
    """List the files that hold the state of every operator as of one epoch."""

    epoch: int
    operators: Mapping[str, tuple[SnapshotFile, ...]]

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Snapshot:
        """Read a snapshot's list back from JSON."""
        files = {name: tuple(SnapshotFile(**one) for one in listed) for name, listed in raw["operators"].items()}
        return cls(raw["epoch"], files)

    @property
    def bytes(self) -> int:
        """Sum up the size of all files."""
        return sum(one.bytes for listed in self.operators.values() for one in listed)
