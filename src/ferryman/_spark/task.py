"""Run one instance of an operator for one epoch: the function Spark calls in a Python worker.

It may run twice, be retried, or outlive its epoch; it only reads the epoch before, and writes one delta
whose name is its content. What it did goes to the driver as a receipt, through a Spark accumulator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext, cloudpickle

from ferryman._log.advance import advance
from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import directory
from ferryman._model.errors import FerrymanError, NullKey, OperatorFailed, PinningLost, StaleTask, to_text
from ferryman._model.records import DeltaRef, HeldRows
from ferryman._operator.run import Given, Made, Runner, Time, in_time
from ferryman._operator.sides import LATE, sided_schema, with_sides
from ferryman._spark.batches import width
from ferryman._spark.file_order import FILE
from ferryman._spark.home import alone, home, host, move_out, settle, writable
from ferryman._spark.row_order import ordered
from ferryman._spark.share import Share
from ferryman._spark.user_code import Shared
from ferryman._spark.waiting import hold, resume
from ferryman._spark.weight import grown
from ferryman._state import store as stores
from ferryman._state.heavy import Weight, heavy
from ferryman._state.keys import Keys, KeySchema, distinct
from ferryman._state.store.contract import HASH, delta_schema
from ferryman._state.tables import (
    DUE_TIME,
    DUE_WHAT,
    Changes,
    Entries,
    TableSpec,
    due,
    first_due,
    parts_of,
    unpack_broadcasts,
)
from ferryman._state.zones import in_zone

TOKEN = "_token"
SEQUENCE = "_seq"
ROUTING_COLUMNS = (HASH, SEQUENCE, TOKEN)

# A worker that has more than this of main copies in memory gives it back to the system after the task.
RESIDENT_BYTES = 256 << 20


@dataclass(frozen=True)
class TimeSpec:
    """Say what an operator has to do with time.

    Attributes
    ----------
    watermarks
        The watermarks that it reports to the driver: (name, column, delay in ms).
    late
        The column by which rows are late, if late rows are to be left out.
    due
        The table of what is due, if it has one.
    by_watermark
        Whether that is due by the watermark; else by the clock.
    since_ms
        Where the watermark stands before any row was seen, and below which it never is; None where there is none then.
    idle_ms
        After how long without a row the watermarks that it reports are not waited for; None for never.
    """

    watermarks: tuple[tuple[str, str, int], ...] = ()
    late: str | None = None
    due: str | None = None
    by_watermark: bool = False
    since_ms: int | None = None
    idle_ms: int | None = None


@dataclass(frozen=True)
class OperatorSpec:
    """All that does not change from epoch to epoch: what an operator is."""

    name: str
    key: KeySchema
    input: pa.Schema
    tables: tuple[TableSpec, ...]
    output: pa.Schema
    runner: Runner
    time: TimeSpec = TimeSpec()
    dropped: tuple[str, ...] = ()
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)

    @property
    def kept(self) -> tuple[TableSpec, ...]:
        """Give the tables that tasks keep; broadcast ones are the driver's."""
        return tuple(one for one in self.tables if not one.broadcast)

    @property
    def state(self) -> pa.Schema:
        """Give the columns of the first table: one row per key."""
        return self.tables[0].state


@dataclass(frozen=True)
class Control:
    """What an instance must know of this epoch; travels with the function, in-band with the data."""

    epoch: int
    run_id: str
    checkpoint: str
    fsync: bool
    home: str | None
    owner: tuple[int, ...]
    tokens: tuple[int, ...]
    newest: Mapping[str, tuple[DeltaRef, ...]] | None
    newest_same_routing: bool
    time_ms: int = 0
    watermark_ms: int | None = None
    late_ms: int | None = None
    broadcasts: Mapping[str, bytes] = field(default_factory=dict)
    first: bool = False
    held: frozenset[int] = frozenset()
    waiting: tuple[HeldRows, ...] = ()
    pinned: Mapping[int, int] = field(default_factory=dict)
    files: tuple[int, ...] = ()
    most_bytes: int = 64 << 20


@dataclass(frozen=True)
class Receipt:
    """Tell the driver what a task did."""

    operator: str
    epoch: int
    instance: int
    rows: int
    keys: int
    output: int
    late: int
    busy_ms: float
    deltas: Mapping[str, DeltaRef]
    watermarks: Mapping[str, int]
    next_due: int | None
    load: Mapping[int, int]
    heavy: Sequence[Weight]
    held: Mapping[str, Any] | None
    rebuilt: int
    host: str
    grown: Mapping[int, int]
    width: int


class TaskFailed(Exception):
    """Carries a FerrymanError as text through Spark's own exception."""


_specs: dict[str, Any] = {}
_stores: dict[Path, dict[str, stores.Store]] = {}


def unpack(packed: bytes, digest: str, *, again: bool = False) -> Any:
    """Unpack what travelled with Spark's function, once per worker and not once per epoch; or `again`."""
    if again or digest not in _specs:
        if len(_specs) > 64:
            _specs.clear()
        try:
            _specs[digest] = cloudpickle.loads(packed)
        except ImportError as error:
            raise OperatorFailed(
                f"an operator needs the module {error.name!r}, and Spark's Python workers cannot import it. Ship it "
                "with spark.addArtifacts(..., pyfile=True) or --py-files, install it on the executors, or define the "
                "operator in the script itself."
            ) from error
    return _specs[digest]


def _store(spec: TableSpec, place: Path, groups: int) -> stores.Store:
    """Open the store of a table in a home, once per worker."""
    if place not in _stores or spec.name not in _stores[place]:
        if place not in _stores:
            for gone in [one for one in _stores if not one.exists()]:
                for store in _stores.pop(gone).values():
                    store.close()
                move_out(gone)
            settle(place)
        opened = stores.open(spec.backend, place / spec.name, spec.key, spec.state, groups)
        _stores.setdefault(place, {})[spec.name] = opened
    return _stores[place][spec.name]


@dataclass(frozen=True)
class InstanceTask:
    """One operator's function for one epoch; Spark calls it once per instance."""

    packed: bytes
    digest: str
    control: Control
    receipts: Accumulator[list[bytes]]
    shared: Shared = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the instance on its rows and give its output."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        try:
            # A broadcast variable is good for a task: Spark may have taken its file away since the one before.
            spec = unpack(self.packed, self.digest, again=bool(self.shared))
            output, receipt = run(spec, self.control, context.partitionId(), list(batches))
        except FerrymanError as error:
            raise TaskFailed(to_text(error)) from error
        self.receipts.add([json.dumps(asdict(receipt)).encode()])
        # What goes back is no larger at once than what came.
        yield from output.to_batches(max(1, self.control.most_bytes // max(1, width(output))))


def run(spec: OperatorSpec, control: Control, instance: int, batches: list[pa.RecordBatch]) -> tuple[pa.Table, Receipt]:
    """Read the epoch before, run the operator, publish the deltas."""
    began = time.perf_counter()
    control = _from_the_beginning(spec, control)
    rows = _in_order(spec, control, instance, batches)
    wide = width(rows)
    seen = _watermarks(spec, rows)
    rows, late = _without_late(spec, control, rows)
    aside = {LATE: late.drop_columns([HASH])} if LATE in spec.sides else {}
    total = len(control.owner)
    share = Share.of(instance, control.owner, control.pinned, control.held)
    before = control.epoch - 1
    checkpoint = Checkpoint(directory(control.checkpoint, fsync=control.fsync))
    held = None
    if control.held or control.waiting:
        # Groups whose state is on its way do nothing in this epoch but collect rows.
        written = partial(checkpoint.write_held, control.epoch, spec.name, instance)
        rows, held = hold(rows, control.held, len(control.owner), control.epoch, written)
        rows = resume(rows, control.waiting, share, len(control.owner), checkpoint.read_delta)
    keys = Keys.of(spec.key, rows.column(HASH).to_numpy(), key_columns(spec, control.epoch, rows))
    place = home(control.checkpoint, control.run_id, control.home)
    with writable(place), alone(place, spec.name, instance):
        opened, rebuilt = {}, 0
        for table in spec.kept:
            opened[table.name] = _store(table, place, total)
            rebuilt += _advance(opened[table.name], checkpoint, table, share.unshared, control, {instance})
        if len(share.shared):
            # Others on this host may need these groups as well, and one of us may have to rebuild them.
            with alone(place, spec.name, "shared"):
                for table in spec.kept:
                    rebuilt += _advance(opened[table.name], checkpoint, table, share.shared, control, share.workers)
        keys, due = _with_due(spec, control, keys, opened, share)
        index, first = distinct(keys)
        touched = keys.take(first)
        found = opened[spec.name].lookup(touched)
    given = Given(
        spec.name,
        control.epoch,
        rows,
        index[: rows.num_rows],
        touched.columns(),
        found.present,
        found.state,
        {one.name: Entries(one, opened[one.name], touched, total) for one in spec.kept[1:] if not one.per_group},
        Time(
            control.time_ms,
            control.watermark_ms,
            _earliest(spec, control, rows),
            control.late_ms,
            _due(due, index[rows.num_rows :]),
        ),
        share.mine,
        {one.name: parts_of(opened[one.name], share.mine) for one in spec.kept if one.per_group},
        unpack_broadcasts(control.broadcasts),
    )
    made = spec.runner.run(given)
    if any((store.epochs()[share.kept] != before).any() for store in opened.values()):
        raise StaleTask(
            f"operator {spec.name!r}: a later epoch overtook this task of epoch {control.epoch}. Its result is not "
            "wanted any more; nothing to do."
        )
    deltas = {spec.name: _delta(spec, touched, made)}
    deltas.update(
        {one.name: made.changes[one.name].delta(one, touched) for one in spec.tables if one.name in made.changes}
    )
    refs = {
        name: checkpoint.write_delta(control.epoch, name, instance, delta)
        for name, delta in deltas.items()
        if delta.num_rows
    }
    for store in opened.values():
        if store.mapped_bytes() > RESIDENT_BYTES:
            store.release()
    busy = (time.perf_counter() - began) * 1000
    receipt = Receipt(
        spec.name,
        control.epoch,
        instance,
        rows.num_rows,
        len(first),
        made.output.num_rows,
        late.num_rows,
        busy,
        refs,
        seen,
        _next_due(spec, opened, share.mine, made, _until(spec, control)),
        _load(rows, total),
        heavy(touched, index[: rows.num_rows], control.pinned),
        None if held is None else held.json(),
        rebuilt,
        host(),
        grown(
            {one.name: deltas[one.name] for one in spec.kept if one.name in deltas and not one.per_group},
            spec.name,
            found.present if made.positions is None else found.present[made.positions],
            total,
        ),
        wide,
    )
    return with_sides(made.output, {**made.sides, **aside}, sided_schema(spec.output, spec.sides)), receipt


def _load(rows: pa.Table, total: int) -> dict[int, int]:
    """Count the rows of each key group."""
    counts = np.bincount(rows.column(HASH).to_numpy() % total, minlength=total)
    return {int(group): int(counts[group]) for group in np.flatnonzero(counts)}


def _watermarks(spec: OperatorSpec, rows: pa.Table) -> dict[str, int]:
    """Find how far event time has come in these rows, for each watermark that is to be reported."""
    found = {}
    for name, column, delay_ms in spec.time.watermarks:
        latest = pc.max(rows.column(column)).cast(pa.timestamp("us", "UTC")).value if rows.num_rows else None
        if latest is not None:
            found[name] = latest // 1000 - delay_ms
    return found


def _from_the_beginning(spec: OperatorSpec, control: Control) -> Control:
    """Let the watermark be at the beginning of time, for an operator that has one, while no row has moved it."""
    since = spec.time.since_ms
    if since is None:
        return control
    watermark_ms, late_ms = (
        since if one is None else max(one, since) for one in (control.watermark_ms, control.late_ms)
    )
    return replace(control, watermark_ms=watermark_ms, late_ms=late_ms)


def _earliest(spec: OperatorSpec, control: Control, rows: pa.Table) -> int | None:
    """Find where event time begins, for an operator that goes by it before there is a watermark."""
    if control.watermark_ms is not None or spec.time.late is None or not rows.num_rows:
        return None
    earliest = pc.min(rows.column(spec.time.late)).cast(pa.timestamp("us", "UTC")).value
    return None if earliest is None else int(earliest // 1000)


def _without_late(spec: OperatorSpec, control: Control, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Part the rows into those to work on and those that are not waited for any more."""
    if spec.time.late is None or control.late_ms is None or not rows.num_rows:
        return rows, rows.slice(0, 0)
    timely = in_time(rows.column(spec.time.late), control.late_ms)
    return rows.filter(timely), rows.filter(pc.invert(timely))


def _with_due(
    spec: OperatorSpec, control: Control, keys: Keys, opened: Mapping[str, stores.Store], share: Share
) -> tuple[Keys, pa.Table | None]:
    """Add the keys that have something due to those that have rows."""
    until = _until(spec, control)
    if spec.time.due is None or until is None:
        return keys, None
    rows = due(opened[spec.time.due], share.kept, until, nulls=spec.key.nulls)
    if len(share.shared):
        rows = rows.filter(pa.array(share.owns(rows.column(HASH).to_numpy())))
    if not rows.num_rows:
        return keys, None
    rows = rows.sort_by([(DUE_TIME, "ascending")])
    names = spec.key.fields.names
    more = Keys.of(spec.key, rows.column(HASH).to_numpy(), [rows.column(name) for name in names])
    columns = [pa.concat_arrays([a, b]) for a, b in zip(keys.columns(), more.columns(), strict=True)]
    return Keys.of(spec.key, np.concatenate([keys.hash, more.hash]), columns), rows


def _until(spec: OperatorSpec, control: Control) -> int | None:
    return control.watermark_ms if spec.time.by_watermark else control.time_ms


def _next_due(
    spec: OperatorSpec,
    opened: Mapping[str, stores.Store],
    mine: npt.NDArray[np.int64],
    made: Made,
    until: int | None,
) -> int | None:
    """Find when something is due next: then, or a little later if it was taken back, an epoch has to come."""
    if spec.time.due is None:
        return None
    times = [first_due(opened[spec.time.due], mine, until, nulls=spec.key.nulls)]
    changes = made.changes.get(spec.time.due)
    if isinstance(changes, Changes):
        times += changes.subkey[DUE_TIME].filter(pa.array(~changes.deleted)).to_pylist()
    return min((one for one in times if one is not None), default=None)


def _due(rows: pa.Table | None, positions: npt.NDArray[np.int64]) -> tuple[tuple[int, int, str], ...]:
    if rows is None:
        return ()
    return tuple(
        zip(rows.column(DUE_TIME).to_pylist(), positions.tolist(), rows.column(DUE_WHAT).to_pylist(), strict=True)
    )


def _advance(
    store: stores.Store,
    checkpoint: Checkpoint,
    table: TableSpec,
    groups: npt.NDArray[np.int64],
    control: Control,
    workers: Set[int],
) -> int:
    """Bring key groups to the epoch before; only these instances own keys of them. Count those made anew."""
    newest = None
    if control.newest is not None:
        refs = control.newest.get(table.name, ())
        newest = [ref for ref in refs if ref.instance in workers or not control.newest_same_routing]
    return advance(
        store,
        checkpoint,
        table.name,
        groups,
        control.epoch - 1,
        key=table.key,
        state=table.state,
        total=len(control.owner),
        newest=newest,
        evolution=table.evolution,
    )


def _in_order(spec: OperatorSpec, control: Control, instance: int, batches: list[pa.RecordBatch]) -> pa.Table:
    """Put the rows into the source's order, whatever order the shuffle brought them in; drop the anchor row."""
    if not batches:
        return pa.schema([*spec.input, (HASH, pa.int64())]).empty_table()
    rows = in_zone(pa.Table.from_batches(batches))
    if instance >= len(control.tokens) or (rows.num_rows and rows.column(TOKEN)[0].as_py() != control.tokens[instance]):
        raise PinningLost(
            f"operator {spec.name!r}: partition {instance} got rows that are not of instance {instance}, so Spark ran "
            "the epoch with another layout than one partition per instance. Keep unions, coalesce and repartition "
            "out of `transform` between operators, and adaptive execution off for the job."
        )
    sequence, file = rows.column(SEQUENCE).to_numpy(), None
    if FILE in rows.column_names:
        file = rows.column(FILE).to_numpy()
        rows = rows.drop_columns([FILE])
    rows, sequence = ordered(rows, sequence, file, control.files)
    # The anchor's row has the sequence -1 and is of no file, so it is the first now.
    anchors = int((sequence[:2] < 0).sum())
    return rows.slice(anchors).drop_columns([TOKEN, SEQUENCE])


def key_columns(spec: OperatorSpec, epoch: int, rows: pa.Table) -> list[pa.ChunkedArray]:
    """Take the key columns out of rows; a null among them is an error, unless it is a key of its own."""
    columns = [rows.column(name) for name in spec.key.fields.names]
    for name, column in zip(spec.key.fields.names, columns, strict=True):
        if column.null_count and not spec.key.nulls:
            bad = rows.filter(column.is_null()).slice(0, 1).drop_columns([HASH]).to_pylist()[0]
            raise NullKey(
                f"operator {spec.name!r}, epoch {epoch}: {column.null_count} rows have no value in the key "
                f"column {name!r}, for example {bad!r}. A row without a key belongs to no instance. Filter such rows "
                "out or give them a key (F.coalesce) before key_by. The epoch was not committed; no row is lost."
            )
    return columns


def _delta(spec: OperatorSpec, touched: Keys, made: Made) -> pa.Table:
    keys = touched if made.positions is None else touched.take(made.positions)
    deleted = pa.repeat(False, len(keys)) if made.deleted is None else pa.array(made.deleted)
    arrays = [pa.array(keys.hash), deleted, *keys.columns(), *(_one(column) for column in made.state.columns)]
    return pa.Table.from_arrays(arrays, schema=delta_schema(spec.key, spec.state))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
