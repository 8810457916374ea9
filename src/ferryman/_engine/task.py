"""Run one instance of an operator for one epoch.

It may run twice, be retried, or outlive its epoch; it only reads the epoch before, and writes one delta
whose name is its content. What it did goes to the driver as a receipt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._engine.control import Control
from ferryman._engine.held_rows import hold, resume
from ferryman._engine.home import alone, home, host, move_out, settle, writable
from ferryman._engine.kept_mains import take_kept
from ferryman._engine.latency import sampled
from ferryman._engine.lateness import earliest, from_the_beginning, watermarks_seen, without_late
from ferryman._engine.null_keys import key_columns
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import FILE, SEQUENCE, TOKEN, width
from ferryman._engine.row_order import ordered
from ferryman._engine.windows_due import looks, next_window, rows_of, with_panes
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.advance import advance
from ferryman._log.fold.group_bytes import grown
from ferryman._model.errors import PinningLost, StaleTask
from ferryman._model.held_rows import HeldRows
from ferryman._model.key_groups import group_of
from ferryman._model.receipt import Receipt
from ferryman._operator.declare.side_outputs import LATE, sided_schema, with_sides
from ferryman._operator.run.runner import Given, Made, Time
from ferryman._routing.share import Share
from ferryman._state import store as stores
from ferryman._state.heavy_keys import heavy
from ferryman._state.keys import Keys, distinct
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

# A worker that has more than this of main copies in memory gives it back to the system after the task.
RESIDENT_BYTES = 256 << 20


_stores: dict[Path, dict[str, stores.Store]] = {}


def _store(spec: TableSpec, place: Path, groups: int) -> stores.Store:
    """Open the store of a table in a home, once per worker."""
    if place not in _stores or spec.name not in _stores[place]:
        if place not in _stores:
            for gone in [path for path in _stores if not path.exists()]:
                for store in _stores.pop(gone).values():
                    store.close()
                move_out(gone)
            settle(place)
        opened = stores.open(spec.backend, place / spec.name, spec.key, spec.state, groups)
        _stores.setdefault(place, {})[spec.name] = opened
    return _stores[place][spec.name]


def loaded(instance: int, data: bytes) -> list[bytes]:
    """Do nothing: that a worker can be asked to is what makes it warm."""
    return []


def run(spec: OperatorSpec, control: Control, instance: int, batches: list[pa.RecordBatch]) -> tuple[pa.Table, Receipt]:
    """Run an instance on what a shuffle brought: its own rows and the anchor's, in any order."""
    return run_in_order(spec, control, instance, _in_order(spec, control, instance, batches))


def run_in_order(spec: OperatorSpec, control: Control, instance: int, rows: pa.Table) -> tuple[pa.Table, Receipt]:
    """Run an instance on its rows, with their hashes, in the source's order.

    It reads the epoch before, runs the operator, and publishes the deltas.
    """
    task = _Task(spec, from_the_beginning(spec, control), instance)
    task.take(rows)
    task.hold()
    task.look_up()
    task.work()
    task.refuse_if_overtaken()
    task.publish()
    task.give_back()
    return task.output(), task.receipt()


class _Task:
    """One instance's part of one epoch; its phases are called in the order in which they stand here."""

    def __init__(self, spec: OperatorSpec, control: Control, instance: int) -> None:
        self._began = time.perf_counter()
        self._spec = spec
        self._control = control
        self._instance = instance
        self._groups = len(control.owner)
        self._share = Share.of(instance, control.owner, control.pinned, control.held)
        self._checkpoint = Checkpoint(directory(control.checkpoint, fsync=control.fsync))
        self._held: HeldRows | None = None
        self._opened: dict[str, stores.Store] = {}
        self._rebuilt = self._rebuilt_bytes = 0

    def take(self, rows: pa.Table) -> None:
        """Take the rows on, but for those that are late."""
        self._width = width(rows)
        self._seen = watermarks_seen(self._spec, rows)
        # The first operator after the source knows them; others see them again.
        self._times = _sampled(self._spec, rows)
        self._rows, self._late = without_late(self._spec, self._control, rows)

    def hold(self) -> None:
        """Put aside the rows of groups whose state is on its way, and take up those that have waited."""
        control = self._control
        if control.held or control.waiting:
            written = partial(self._checkpoint.write_held, control.epoch, self._spec.name, self._instance)
            rows, self._held = hold(self._rows, control.held, self._groups, control.epoch, written)
            self._rows = resume(rows, control.waiting, self._share, self._groups, self._checkpoint.read_delta)

    def look_up(self) -> None:
        """Advance the key groups to the epoch before; find the state of the keys that came or have something due."""
        spec, control, rows = self._spec, self._control, self._rows
        keys = Keys.of(spec.key, rows.column(HASH).to_numpy(), key_columns(spec, control.epoch, rows))
        place = home(control.checkpoint, control.run_id, control.home)
        with writable(place), alone(place, spec.name, self._instance):
            self._advance(place)
            keys, self._due = _with_due(spec, control, keys, self._opened, self._share)
            if spec.time.panes is not None:
                keys = with_panes(spec, control, keys, rows, self._opened[spec.name], self._share)
            self._index, first = distinct(keys)
            self._touched = keys.take(first)
            self._found = self._opened[spec.name].lookup(self._touched)

    def _advance(self, place: Path) -> None:
        before = self._checkpoint.read_bytes
        self._advance_all(place)
        if self._rebuilt:
            self._rebuilt_bytes = self._checkpoint.read_bytes - before

    def _advance_all(self, place: Path) -> None:
        spec, control, share = self._spec, self._control, self._share
        self._opened = {table.name: _store(table, place, self._groups) for table in spec.kept}
        take_kept(self._opened, {table.name: table for table in spec.kept}, share.unshared, control, self._instance)
        for table in spec.kept:
            store = self._opened[table.name]
            self._rebuilt += _advance(store, self._checkpoint, table, share.unshared, control, {self._instance})
        if len(share.shared):
            # Others on this host may need these groups as well, and one of us may have to rebuild them.
            with alone(place, spec.name, "shared"):
                for table in spec.kept:
                    store = self._opened[table.name]
                    self._rebuilt += _advance(store, self._checkpoint, table, share.shared, control, share.workers)

    def work(self) -> None:
        """Run the operator."""
        self._made = self._spec.runner.run(self._given())

    def _given(self) -> Given:
        spec, control, rows, opened = self._spec, self._control, self._rows, self._opened
        touched, groups, mine = self._touched, self._groups, self._share.mine
        several = [table for table in spec.kept[1:] if not table.per_group]
        return Given(
            operator=spec.name,
            epoch=control.epoch,
            rows=rows,
            index=self._index[: rows.num_rows],
            keys=touched.columns(),
            present=self._found.present,
            state=self._found.state,
            entries={table.name: Entries(table, opened[table.name], touched, groups) for table in several},
            time=Time(
                control.time_ms,
                control.watermark_ms,
                earliest(spec, control, rows),
                control.late_ms,
                _due(self._due, self._index[rows.num_rows :]),
            ),
            groups=mine,
            parts={table.name: parts_of(opened[table.name], mine) for table in spec.kept if table.per_group},
            broadcasts=unpack_broadcasts(control.broadcasts),
            hashes=touched.hash,
        )

    def refuse_if_overtaken(self) -> None:
        """See that what was read is still of the epoch before."""
        before = self._control.epoch - 1
        if any((store.epochs()[self._share.kept] != before).any() for store in self._opened.values()):
            raise StaleTask(
                f"operator {self._spec.name!r}: a later epoch overtook this task of epoch {self._control.epoch}. Its "
                "result is not wanted any more; nothing to do."
            )

    def publish(self) -> None:
        """Write the deltas."""
        spec, made = self._spec, self._made
        self._deltas = {spec.name: _delta(spec, self._touched, made)}
        self._deltas.update(
            {
                table.name: made.changes[table.name].delta(table, self._touched)
                for table in spec.tables
                if table.name in made.changes
            }
        )
        self._refs = {
            name: self._checkpoint.write_delta(self._control.epoch, name, self._instance, delta)
            for name, delta in self._deltas.items()
            if delta.num_rows
        }

    def give_back(self) -> None:
        """Give back memory, if main copies have much of it."""
        for store in self._opened.values():
            if store.mapped_bytes() > RESIDENT_BYTES:
                store.release()

    def output(self) -> pa.Table:
        """Give what came out, with the rows of side outputs."""
        spec = self._spec
        aside = {LATE: self._late.select(spec.sides[LATE].names)} if LATE in spec.sides else {}
        return with_sides(self._made.output, {**self._made.sides, **aside}, sided_schema(spec.output, spec.sides))

    def receipt(self) -> Receipt:
        """Tell what was done."""
        spec, control, rows, made = self._spec, self._control, self._rows, self._made
        return Receipt(
            operator=spec.name,
            epoch=control.epoch,
            instance=self._instance,
            host=host(),
            rows=rows.num_rows,
            keys=len(self._touched),
            output=made.output.num_rows,
            late=rows_of(spec, self._late),
            busy_ms=(time.perf_counter() - self._began) * 1000,
            deltas=self._refs,
            watermarks=self._seen,
            next_due=self._next_due(),
            load=_load(rows, self._groups),
            heavy=tuple(heavy(self._touched, self._index[: rows.num_rows], control.pinned)),
            held=self._held,
            rebuilt=self._rebuilt,
            rebuilt_bytes=self._rebuilt_bytes,
            grown=self._grown(),
            width=self._width,
            times=self._times,
            damaged=self._checkpoint.damage.files,
        )

    def _next_due(self) -> int | None:
        spec, control = self._spec, self._control
        if spec.time.panes is not None:
            looked = looks(spec, control, self._rows)
            return next_window(spec, control, looked=looked, made_us=self._made.next_due)
        return _next_due(spec, self._opened, self._share.mine, self._made, _until(spec, control))

    def _grown(self) -> dict[int, int]:
        kept = [table.name for table in self._spec.kept if table.name in self._deltas and not table.per_group]
        present, positions = self._found.present, self._made.positions
        before = present if positions is None else present[positions]
        return grown({name: self._deltas[name] for name in kept}, self._spec.name, before, self._groups)


def _sampled(spec: OperatorSpec, rows: pa.Table) -> tuple[int, ...]:
    """Look at the times of some rows; where the rows are of several streams, at those that each has of its own."""
    columns = dict.fromkeys(watermark.column for watermark in spec.time.watermarks)
    times = [rows.column(column) for column in columns]
    return tuple(time for own in times for time in sampled(own.drop_null() if len(times) > 1 else own))


def _load(rows: pa.Table, total: int) -> dict[int, int]:
    """Count the rows of each key group."""
    counts = np.bincount(group_of(rows.column(HASH).to_numpy(), total), minlength=total)
    return {int(group): int(counts[group]) for group in np.flatnonzero(counts)}


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
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


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
    if instance >= len(control.tokens) or pc.any(pc.not_equal(rows.column(TOKEN), control.tokens[instance])).as_py():
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


def _delta(spec: OperatorSpec, touched: Keys, made: Made) -> pa.Table:
    keys = touched if made.positions is None else touched.take(made.positions)
    deleted = pa.repeat(False, len(keys)) if made.deleted is None else pa.array(made.deleted)
    arrays = [pa.array(keys.hash), deleted, *keys.columns(), *(_one(column) for column in made.state.columns)]
    return pa.Table.from_arrays(arrays, schema=delta_schema(spec.key, spec.state))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
