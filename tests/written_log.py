"""Write checkpoints without Spark, next to a plain dict that says what must be in them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import Directory, LocalDirectory
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import FerrymanError
from ferryman._model.manifest import Manifest, OperatorRecord
from ferryman._model.routing import RoutingTable
from ferryman._model.watermarks import Watermarks
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import HASH, delta_schema

KEY = KeySchema(pa.schema([("sensor", pa.string())]))
STATE = pa.schema([("n", pa.int64()), ("note", pa.string())])

# What one epoch does to one operator: new values of keys; None deletes.
Changes = Mapping[str, int | None]
State = dict[str, tuple[int, str]]


def hash_of(key: str) -> int:
    """Give a key some 64-bit hash, as Spark would."""
    return int(np.uint64(xxhash.xxh3_64_intdigest(key.encode())).astype(np.int64))


def delta_of(changes: Changes) -> pa.Table:
    rows = {
        HASH: [hash_of(key) for key in changes],
        "_deleted": [value is None for value in changes.values()],
        "sensor": list(changes),
        "n": list(changes.values()),
        "note": [None if value is None else f"{key}={value}" for key, value in changes.items()],
    }
    return pa.table(rows, schema=delta_schema(KEY, STATE))


def state_of(rows: pa.Table) -> State:
    found = {row["sensor"]: (row["n"], row["note"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key appears twice"
    return found


class WrittenLog:
    """A checkpoint under way, and the state it must have at each of its epochs."""

    def __init__(self, place: Directory, *, groups: int = 8, operators: tuple[str, ...] = ("Counts",)) -> None:
        self.checkpoint = Checkpoint(place)
        self.groups = groups
        self.operators = operators
        self.checkpoint.create(
            JobCard("0" * 32, "test", groups, {name: card_of(name, KEY, STATE) for name in operators})
        )
        self.epoch = 0
        self.routing = RoutingTable.even(1, groups, 2)
        self.states: dict[int, dict[str, State]] = {0: {name: {} for name in operators}}

    def rescale(self, instances: int) -> None:
        self.routing = RoutingTable.even(self.routing.version + 1, self.groups, instances)

    def write_deltas(self, operator: str, changes: Changes) -> tuple[DeltaRef, ...]:
        """Publish the next epoch's deltas, split over the instances as the routing table says."""
        shares: dict[int, dict[str, int | None]] = {}
        for key, value in changes.items():
            shares.setdefault(self.routing.owner[hash_of(key) % self.groups], {})[key] = value
        write = self.checkpoint.write_delta
        return tuple(
            write(self.epoch + 1, operator, instance, delta_of(shares[instance])) for instance in sorted(shares)
        )

    def commit(self, changes: Mapping[str, Changes] | None = None) -> Manifest:
        """Commit the next epoch with these changes of each operator."""
        changes = changes or {}
        records, tables = {}, {}
        state = {name: dict(rows) for name, rows in self.states[self.epoch].items()}
        for name in self.operators:
            mine = changes.get(name, {})
            records[name] = OperatorRecord(len(mine), len(mine), 0)
            tables[name] = self.write_deltas(name, mine)
            for key, value in mine.items():
                if value is None:
                    state[name].pop(key, None)
                else:
                    state[name][key] = (value, f"{key}={value}")
        self.epoch += 1
        manifest = Manifest(
            epoch=self.epoch,
            batch=self.epoch - 1,
            silent=not changes,
            time_ms=1_700_000_000_000 + self.epoch,
            routing=self.routing,
            operators=records,
            tables=tables,
            sinks={},
            watermarks=Watermarks(),
            offsets=({"offset": self.epoch},) if changes else (),
        )
        self.checkpoint.commit(manifest)
        self.states[self.epoch] = state
        return manifest

    def assert_rebuilds(self, epoch: int) -> None:
        for name in self.operators:
            assert state_of(rebuild(self.checkpoint, name, epoch)) == self.states[epoch][name]


def local_log(path: Path, **options: object) -> WrittenLog:
    return WrittenLog(LocalDirectory(path), **options)  # type: ignore[arg-type]


def files_of(root: Path) -> dict[str, bytes]:
    """Read every file below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@contextlib.contextmanager
def replaced(path: Path, data: bytes | None):
    """Alter a file for a while; None deletes it."""
    before = path.read_bytes()
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


# Two snapshots and deltas before, between and after them; operator B is silent at times.
SNAPSHOTS = (3, 6)
LAST = 8


def written(path: Path) -> WrittenLog:
    log = local_log(path, operators=("A", "B"))
    for number in range(1, LAST + 1):
        log.commit(
            {"A": {"s1": number, f"t{number}": number, f"t{number - 2}": None}, "B": {"x": 1} if number < 3 else {}}
        )
        if number in SNAPSHOTS:
            write_snapshot(log.checkpoint, number)
    log.checkpoint.intend(LAST + 1, 5)
    return log


def root(log: WrittenLog) -> Path:
    return Path(log.checkpoint.directory.uri)


def rebuildable(log: WrittenLog) -> tuple[int, ...]:
    """Find out the hard way: an epoch counts if its manifest is readable and its state comes back right."""
    found = []
    for epoch in range(1, LAST + 1):
        try:
            log.checkpoint.manifest(epoch)
            log.assert_rebuilds(epoch)
        except (FerrymanError, AssertionError):
            continue
        found.append(epoch)
    return tuple(found)
