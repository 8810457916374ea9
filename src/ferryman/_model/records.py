"""What the log says: deltas, manifests, routing tables, the job's card. Frozen, JSON in and out, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from ferryman._model.shape import (
    MOST_GROUPS,
    MOST_TIME_MS,
    Misshapen,
    file_name,
    flag,
    label,
    listed,
    long,
    mapped,
    shallow,
    text,
    texts,
    whole,
)
from ferryman._model.spark_log import SparkLog
from ferryman._model.watermarks import Watermarks

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

    @classmethod
    def parse(cls, raw: Any) -> DeltaRef:
        """Read a reference back from JSON."""
        one = cls(**mapped(raw, "a delta"))
        file_name(one.file)
        whole(one.instance, "instance", high=MOST_GROUPS - 1)
        whole(one.rows, "rows")
        whole(one.bytes, "bytes")
        text(one.checksum, "checksum")
        return one


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
        one = cls(**mapped(raw, "an operator's record"))
        for name, value in vars(one).items():
            whole(value, name)
        return one


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

    @classmethod
    def parse(cls, raw: Any) -> Pin:
        """Read a pin back from JSON."""
        one = cls(**mapped(raw, "a pin"))
        long(one.hash, "hash")
        whole(one.instance, "instance", high=MOST_GROUPS - 1)
        text(one.key, "key")
        flag(one.hot, "hot")
        return one


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
        """Read a table back from JSON; its runs are bounded before they are laid out."""
        raw = mapped(raw, "routing")
        instances = whole(raw["instances"], "instances", 1, MOST_GROUPS)
        runs = [
            (whole(instance, "instance", high=MOST_GROUPS - 1), whole(length, "length", 1, MOST_GROUPS))
            for instance, length in listed(raw["runs"], "runs")
        ]
        if not 1 <= sum(length for _, length in runs) <= MOST_GROUPS:
            raise Misshapen(f"runs does not cover 1 to {MOST_GROUPS} key groups")
        owner = tuple(instance for instance, length in runs for _ in range(length))
        pins = tuple(sorted(Pin.parse(one) for one in listed(raw.get("pins", []), "pins")))
        return cls(whole(raw["version"], "version"), instances, owner, pins)

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
        raw = mapped(raw, "held rows")
        file, groups = DeltaRef.parse(raw["file"]), groups_of(raw["groups"])
        rows = listed(raw.get("rows", [file.rows // max(1, len(groups))] * len(groups)), "rows")
        if len(rows) != len(groups):
            raise Misshapen("rows and groups are not of one length")
        return cls(file, whole(raw["epoch"], "epoch"), groups, tuple(whole(one, "rows") for one in rows))


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
    routing
        The routing table that it switches to, if it does.
    """

    epoch: int
    time_ms: int
    silent: bool
    held: frozenset[int]
    routing: RoutingTable | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Intent:
        """Read it back from JSON. An earlier version only wrote silent epochs in which nothing waited."""
        return cls(
            whole(raw["epoch"], "epoch"),
            whole(raw["time_ms"], "time_ms", high=MOST_TIME_MS),
            flag(raw.get("silent", True), "silent"),
            frozenset(groups_of(raw.get("held", []))),
            RoutingTable.parse(raw["routing"]) if "routing" in raw else None,
        )


def groups_of(value: Any) -> tuple[int, ...]:
    """Read a list of key groups, none twice."""
    groups = tuple(whole(one, "a key group", high=MOST_GROUPS - 1) for one in listed(value, "groups"))
    if len(set(groups)) != len(groups):
        raise Misshapen("groups names a key group twice")
    return groups


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
    watermarks: Watermarks = field(default_factory=Watermarks)
    offsets: tuple[Any, ...] = ()
    held: Mapping[str, tuple[HeldRows, ...]] = field(default_factory=dict)
    term: int = 0
    spark: SparkLog = field(default_factory=SparkLog)

    def json(self) -> dict[str, Any]:
        """Write the manifest as JSON values."""
        raw = dict(vars(self))
        raw["held"] = {name: [one.json() for one in held] for name, held in self.held.items()}
        raw["routing"] = self.routing.json()
        raw["offsets"] = list(self.offsets)
        raw["operators"] = {name: asdict(record) for name, record in self.operators.items()}
        raw["tables"] = {name: [asdict(ref) for ref in refs] for name, refs in self.tables.items()}
        raw["watermarks"] = self.watermarks.json()
        raw["spark"] = self.spark.json()
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
        shallow(mapped(raw.get("sinks", {}), "sinks"), "sinks")
        operators = mapped(raw["operators"], "operators")
        values["operators"] = {label(name, "operator"): OperatorRecord.parse(one) for name, one in operators.items()}
        tables = mapped(raw["tables"], "tables")
        values["tables"] = {
            label(name, "table"): tuple(DeltaRef.parse(ref) for ref in listed(refs, "deltas"))
            for name, refs in tables.items()
        }
        values["watermarks"] = Watermarks.parse(raw["watermarks"])
        held = mapped(raw.get("held", {}), "held")
        values["held"] = {
            label(name, "operator"): tuple(HeldRows.parse(one) for one in listed(ones, "held"))
            for name, ones in held.items()
        }
        whole(raw.get("term", 0), "term")
        values["spark"] = SparkLog.parse(mapped(raw.get("spark", {}), "spark"))
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
        raw = mapped(raw, "a table")
        pairs = {
            side: tuple((text(name, "a column"), text(kind, "a type")) for name, kind in listed(raw[side], side))
            for side in ("key", "state")
        }
        settings = mapped(raw.get("settings", {}), "settings")
        return cls(
            label(raw["operator"], "operator"),
            pairs["key"],
            pairs["state"],
            text(raw["schema"], "schema"),
            flag(raw["entries"], "entries"),
            text(raw["defaults"], "defaults"),
            {name: texts(names, "aliases") for name, names in mapped(raw["aliases"], "aliases").items()},
            texts(raw["earlier"], "earlier"),
            flag(raw["dropped"], "dropped"),
            flag(raw.get("nulls", False), "nulls"),
            {name: text(value, "a setting") for name, value in settings.items()},
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
        listed_tables = mapped(raw["tables"], "tables")
        tables = {label(name, "table"): TableCard.parse(one) for name, one in listed_tables.items()}
        groups = whole(raw["groups"], "groups", 1, MOST_GROUPS)
        return cls(text(raw["id"], "id"), text(raw["job"], "job"), groups, tables, whole(raw["format"], "format"))

    @property
    def operators(self) -> tuple[str, ...]:
        """List the operators."""
        return tuple(dict.fromkeys(one.operator for one in self.tables.values()))


@dataclass(frozen=True)
class SnapshotFile:
    """Name one Parquet file of a snapshot: the folded state of a run of key groups.

    Attributes
    ----------
    decoded
        The bytes of its rows in memory; None in lists of earlier versions.
    """

    file: str
    first: int
    last: int
    rows: int
    bytes: int
    checksum: str
    decoded: int | None = None

    @classmethod
    def parse(cls, raw: Any) -> SnapshotFile:
        """Read a file's entry back from JSON."""
        one = cls(**mapped(raw, "a file"))
        file_name(one.file)
        for group in (one.first, one.last):
            whole(group, "a key group", high=MOST_GROUPS - 1)
        whole(one.rows, "rows")
        whole(one.bytes, "bytes")
        text(one.checksum, "checksum")
        if one.decoded is not None:
            whole(one.decoded, "decoded")
        return one


@dataclass(frozen=True)
class Snapshot:
    """List the files that hold every table as of one epoch."""

    epoch: int
    tables: Mapping[str, tuple[SnapshotFile, ...]]

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Snapshot:
        """Read a snapshot's list back from JSON."""
        files = {
            label(name, "table"): tuple(SnapshotFile.parse(one) for one in listed(ones, "files"))
            for name, ones in mapped(raw["tables"], "tables").items()
        }
        return cls(whole(raw["epoch"], "epoch"), files)

    @property
    def bytes(self) -> int:
        """Sum up the size of all files."""
        return sum(one.bytes for listed in self.tables.values() for one in listed)
