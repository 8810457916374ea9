"""What the log says: deltas, manifests, routing tables, the job's card. Frozen, JSON in and out, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

FORMAT = 2
GROUPS = 256


@dataclass(frozen=True)
class DeltaRef:
    """Name one delta: the changes of one table by one instance in one epoch."""

    file: str
    instance: int
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class OperatorRecord:
    """Record what one operator did in one epoch."""

    rows: int
    keys: int
    output: int
    late: int = 0
    heaviest: int = 0  # rows of the key that had most, where that is a considerable part of all


@dataclass(frozen=True, order=True)
class Pin:
    """Route one key to an instance, wherever its key group is.

    Attributes
    ----------
    hash
        Spark's hash of the key.
    instance
        Who owns it.
    key
        The key as people read it.
    hot
        Whether it was pinned because it was hot, and is to go back when it is not.
    """

    hash: int
    instance: int
    key: str
    hot: bool = False


@dataclass(frozen=True)
class RoutingTable:
    """Map every key group to an instance, and pinned keys to theirs; a changed map has a new version.

    State is kept by key group all the same: whoever owns a key of a group has the whole group in its home.

    Attributes
    ----------
    version
        Grows with every change.
    instances
        How many there are.
    owner
        The instance of each key group.
    pins
        The keys that are not where their group is, in the order of their hashes.

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
    pins: tuple[Pin, ...] = ()

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
        raw: dict[str, Any] = {"version": self.version, "instances": self.instances, "runs": runs}
        if self.pins:
            raw["pins"] = [asdict(pin) for pin in self.pins]
        return raw

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> RoutingTable:
        """Read a table back from JSON."""
        owner = tuple(instance for instance, length in raw["runs"] for _ in range(length))
        pins = tuple(sorted(Pin(**one) for one in raw.get("pins", ())))
        return cls(raw["version"], raw["instances"], owner, pins)

    @property
    def pinned(self) -> dict[int, int]:
        """Give the instance of every pinned key, by its hash."""
        return {pin.hash: pin.instance for pin in self.pins}

    def group(self, hash: int) -> int:
        """Give the key group of a key."""
        return hash % len(self.owner)

    def owner_of(self, hash: int) -> int:
        """Give the instance that owns a key."""
        return self.pinned.get(hash, self.owner[self.group(hash)])

    def workers(self) -> dict[int, frozenset[int]]:
        """Give, for every group that has pinned keys, the instances that own keys of it; its other keys' comes too.

        Examples
        --------
        >>> RoutingTable(1, 3, (0, 1), (Pin(4, 2, "k"),)).workers()
        {0: frozenset({0, 2})}
        """
        found: dict[int, frozenset[int]] = {}
        for pin in self.pins:
            group = self.group(pin.hash)
            found[group] = found.get(group, frozenset({self.owner[group]})) | {pin.instance}
        return found


@dataclass(frozen=True)
class Watermarks:
    """Say how far event time has come: no row older than the watermark is waited for.

    Attributes
    ----------
    inputs
        Each declared watermark: the latest time seen less the delay. By its column, and where several are declared on
        one column, by that and the first operator after it: "time@sensors".
    used_ms
        What the epoch itself went by; rows older than that are late in the next epoch.
    next_ms
        What the next epoch goes by: the least of all inputs, once each has seen a row.
    """

    inputs: Mapping[str, int] = field(default_factory=dict)
    used_ms: int | None = None
    next_ms: int | None = None

    def after(self, declared: Iterable[str], seen: Mapping[str, int], *, held: bool = False) -> Watermarks:
        """Give the watermarks after an epoch that saw these times, less their delays. They never go back.

        An epoch in which groups are held goes by the watermark of the one before, and leaves it at that: no row is late
        only because it had to wait, and nothing closes anywhere before it closes in those groups too. What was seen
        meanwhile counts as soon as none is held.

        Examples
        --------
        >>> Watermarks().after(["t"], {"t": 5000}).after(["t"], {"t": 4000})
        Watermarks(inputs={'t': 5000}, used_ms=5000, next_ms=5000)
        >>> Watermarks().after(["t"], {"t": 5000}).after(["t"], {"t": 9000}, held=True)
        Watermarks(inputs={'t': 9000}, used_ms=None, next_ms=5000)
        """
        inputs = dict(self.inputs)
        for name, time_ms in seen.items():
            inputs[name] = max(time_ms, inputs.get(name, time_ms))
        if held:
            return Watermarks(inputs, self.used_ms, self.next_ms)
        counted = [inputs.get(name) for name in declared]
        least = None if not counted or None in counted else min(one for one in counted if one is not None)
        if least is not None and self.next_ms is not None:
            least = max(least, self.next_ms)
        return Watermarks(inputs, self.next_ms, self.next_ms if least is None else least)


@dataclass(frozen=True)
class HeldRows:
    """Rows that were read and are not yet processed, as the state of their key groups is on its way.

    Attributes
    ----------
    file
        The file they are in.
    epoch
        The epoch that read them.
    groups
        The key groups of which it holds rows that still wait.
    rows
        How many rows each of these groups has in it; about as many where an earlier version did not count them.

    Examples
    --------
    >>> held = HeldRows(DeltaRef("held/1", 0, 5, 100, ""), 1, (3, 4), (2, 3))
    >>> held.only({4}).rows
    (3,)
    >>> HeldRows.parse(held.json()) == held
    True
    """

    file: DeltaRef
    epoch: int
    groups: tuple[int, ...]
    rows: tuple[int, ...]

    def only(self, groups: Set[int]) -> HeldRows:
        """Leave out the rows of all other groups, which do not wait any more."""
        left = [(group, rows) for group, rows in zip(self.groups, self.rows, strict=True) if group in groups]
        return replace(self, groups=tuple(group for group, _ in left), rows=tuple(rows for _, rows in left))

    def json(self) -> dict[str, Any]:
        """Write them as JSON values."""
        counted = {"groups": list(self.groups), "rows": list(self.rows)}
        return {"file": asdict(self.file), "epoch": self.epoch, **counted}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> HeldRows:
        """Read them back from JSON."""
        file, groups = DeltaRef(**raw["file"]), tuple(raw["groups"])
        rows = raw.get("rows", [file.rows // max(1, len(groups))] * len(groups))
        return cls(file, raw["epoch"], groups, tuple(rows))


class Intent(NamedTuple):
    """An epoch that was begun, and what no batch of Spark's tells of it.

    Attributes
    ----------
    epoch, time_ms
        The epoch, and its time.
    silent
        Whether it came because no data did.
    held
        The key groups whose rows wait in it.
    """

    epoch: int
    time_ms: int
    silent: bool
    held: frozenset[int]

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Intent:
        """Read it back from JSON. An earlier version only wrote silent epochs in which nothing waited."""
        return cls(
            int(raw["epoch"]), int(raw["time_ms"]), bool(raw.get("silent", True)), frozenset(raw.get("held", ()))
        )


@dataclass(frozen=True)
class SparkLog:
    """Keep what of Spark's own log an epoch rests on, so that it can be written again.

    Attributes
    ----------
    offsets
        The text of Spark's offsets files of the two newest micro-batches, by batch.
    metadata
        The text of the file with the query's id.

    Examples
    --------
    >>> log = SparkLog({7: "v1"}, "{}")
    >>> SparkLog.parse(log.json()) == log
    True
    """

    offsets: Mapping[int, str] = field(default_factory=dict)
    metadata: str = ""

    def json(self) -> dict[str, Any]:
        """Write it as JSON values."""
        return {"offsets": {str(batch): text for batch, text in self.offsets.items()}, "metadata": self.metadata}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> SparkLog:
        """Read it back from JSON; an earlier version kept nothing."""
        offsets = {int(batch): str(text) for batch, text in raw.get("offsets", {}).items()}
        return cls(offsets, str(raw.get("metadata", "")))


@dataclass(frozen=True)
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
    watermarks: Watermarks = Watermarks()
    offsets: tuple[Any, ...] = ()
    held: Mapping[str, tuple[HeldRows, ...]] = field(default_factory=dict)
    term: int = 0
    spark: SparkLog = SparkLog()

    def json(self) -> dict[str, Any]:
        """Write the manifest as JSON values."""
        raw = dict(vars(self))
        raw["held"] = {name: [one.json() for one in held] for name, held in self.held.items()}
        raw["routing"] = self.routing.json()
        raw["offsets"] = list(self.offsets)
        raw["operators"] = {name: asdict(record) for name, record in self.operators.items()}
        raw["tables"] = {name: [asdict(ref) for ref in refs] for name, refs in self.tables.items()}
        raw["watermarks"] = asdict(self.watermarks)
        raw["spark"] = self.spark.json()
        return raw

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Manifest:
        """Read a manifest back from JSON."""
        values = dict(raw)
        values["routing"] = RoutingTable.parse(raw["routing"])
        values["offsets"] = tuple(raw["offsets"])
        values["operators"] = {name: OperatorRecord(**one) for name, one in raw["operators"].items()}
        values["tables"] = {name: tuple(DeltaRef(**ref) for ref in refs) for name, refs in raw["tables"].items()}
        values["watermarks"] = Watermarks(**raw["watermarks"])
        held = raw.get("held", {})
        values["held"] = {name: tuple(HeldRows.parse(one) for one in ones) for name, ones in held.items()}
        values["spark"] = SparkLog.parse(raw.get("spark", {}))
        return cls(**values)


@dataclass(frozen=True)
class TableCard:
    """Describe a table of an operator's state to whoever reads it: key and state columns, as Arrow type names.

    The first table of an operator has its name and a row per key. The others, for lists, maps and the like,
    have more columns in their key after those of the operator's: the subkey.

    Attributes
    ----------
    entries
        Whether a key has several rows.
    nulls
        Whether a null in a key is a value like any other.
    defaults
        What columns have in files that were written before they were declared: base64 of an Arrow IPC stream with one
        row; empty for nulls.
    aliases
        The earlier names of columns, by the new one.
    earlier
        The schemas that files of earlier declarations may have.
    dropped
        Whether the operator does not declare it any more.
    settings
        What of the declaration the columns do not show, and what is kept depends on: the size of a sketch, the
        clock that timers go by.
    """

    operator: str
    key: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    schema: str  # base64 of the Arrow IPC schema: the exact types, for Ferryman itself
    entries: bool = False
    defaults: str = ""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    dropped: bool = False
    nulls: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> TableCard:
        """Read a card back from JSON."""
        pairs = {side: tuple((name, kind) for name, kind in raw[side]) for side in ("key", "state")}
        return cls(
            raw["operator"],
            pairs["key"],
            pairs["state"],
            raw["schema"],
            raw["entries"],
            raw["defaults"],
            {name: tuple(names) for name, names in raw["aliases"].items()},
            tuple(raw["earlier"]),
            raw["dropped"],
            raw.get("nulls", False),
            raw.get("settings", {}),
        )


@dataclass(frozen=True)
class JobCard:
    """Describe a job: what `ferryman.json`, the first file of a checkpoint, holds."""

    id: str
    job: str
    groups: int
    tables: Mapping[str, TableCard]
    format: int = FORMAT

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> JobCard:
        """Read a job's card back from JSON."""
        tables = {name: TableCard.parse(one) for name, one in raw["tables"].items()}
        return cls(raw["id"], raw["job"], raw["groups"], tables, raw["format"])

    @property
    def operators(self) -> tuple[str, ...]:
        """List the operators."""
        return tuple(dict.fromkeys(one.operator for one in self.tables.values()))


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
    """List the files that hold every table as of one epoch."""

    epoch: int
    tables: Mapping[str, tuple[SnapshotFile, ...]]

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Snapshot:
        """Read a snapshot's list back from JSON."""
        files = {name: tuple(SnapshotFile(**one) for one in listed) for name, listed in raw["tables"].items()}
        return cls(raw["epoch"], files)

    @property
    def bytes(self) -> int:
        """Sum up the size of all files."""
        return sum(one.bytes for listed in self.tables.values() for one in listed)
