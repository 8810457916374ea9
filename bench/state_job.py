"""What is done to one type on one store, in a process of its own, and the check that its state is right."""

from __future__ import annotations

import collections
import json
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.report import Result, spread
from bench.state_kind import NOW_MS, SUBKEYS, Held, Kind, Row
from bench.state_types import TYPES, Ints, made_rows, mixed, noise
from ferryman._engine import task
from ferryman._engine.home import home
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.advance import advance
from ferryman._log.fold.fold import keys_of, rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import GROUPS, JobCard
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._routing.tokens import tokens
from ferryman._spark.api.stream import Operated, Stream
from ferryman._spark.plan.schema import declared_struct
from ferryman._state.store.contract import HASH, Store
from ferryman._state.tables import TableSpec

POINT_KEYS, MULTI_KEYS, ROUNDS = 1_000, 10_000, 3
INCREMENT = 100
# Of a state larger than memory: its values, and how many epochs of them the memory would hold.
OUTGROW_BYTES, EPOCHS_IN_LIMIT = 1_000, 512


class WrongState(Exception):
    """State that is not what plain Python makes of the same rows."""


class OneJob:
    """Run one operator on one backend, epoch by epoch, in homes that are told apart by name."""

    def __init__(self, kind: Kind, backend: str, place: Path) -> None:
        self.spec = _spec(kind.operator, backend)
        self.showing = _spec(type("Showing", (kind.operator,), {"process": _shows(kind.content)}), backend)
        self.epoch = 0
        self.checkpoint = Checkpoint(LocalDirectory(place / "checkpoint"))
        cards = {
            table.name: card_of(table.operator, table.key, table.state, table.evolution) for table in self.spec.tables
        }
        self.checkpoint.create(JobCard("bench", "bench", GROUPS, cards))
        self._place = place
        self._routing = RoutingTable.even(1, GROUPS, 1)
        self._latest: Manifest | None = None

    def timed(self, rows: pa.Table) -> tuple[float, task.Receipt]:
        """Run and commit the next epoch in the first home; give the seconds and the receipt."""
        batches = _routed(rows)
        with stopwatch() as took:
            _, receipt = task.run(self.spec, self._control("first"), 0, batches)
            self.epoch += 1
            refs = {name: (ref,) for name, ref in receipt.deltas.items()}
            self._latest = Manifest(
                epoch=self.epoch,
                batch=self.epoch,
                silent=False,
                time_ms=NOW_MS,
                routing=self._routing,
                operators={},
                tables=refs,
            )
            self.checkpoint.commit(self._latest)
        return took[0], receipt

    def shown(self, where: str, rows: pa.Table) -> pa.Table:
        """Show what the keys of some rows hold in a home; nothing is committed."""
        return task.run(self.showing, self._control(where), 0, _routed(rows))[0]

    def _control(self, where: str) -> task.Control:
        newest = self._latest.tables if self._latest else None
        return task.Control(
            epoch=self.epoch + 1,
            run_id="run",
            checkpoint=self.checkpoint.directory.uri,
            fsync=False,
            home=str(self._place / where),
            owner=self._routing.owner,
            tokens=tokens(1),
            newest=newest,
            newest_same_routing=True,
            time_ms=NOW_MS,
        )

    def bring(self, where: str, groups: Ints) -> float:
        """Bring key groups in a home to the newest epoch, all tables; give the seconds."""
        with stopwatch() as took:
            for table in self.spec.tables:
                advance(
                    self.store(where, table),
                    self.checkpoint,
                    table.name,
                    groups,
                    self.epoch,
                    key=table.key,
                    state=table.state,
                    total=GROUPS,
                    evolution=table.evolution,
                )
        return took[0]

    def store(self, where: str, table: TableSpec) -> Store:
        """Give the very store that the tasks in a home use."""
        return task._store(table, self._home(where), GROUPS)

    def disk_bytes(self, where: str) -> int:
        """Count what a home takes on disk."""
        return sum(path.stat().st_blocks * 512 for path in self._home(where).rglob("*") if path.is_file())

    def _home(self, where: str) -> Path:
        return home(self.checkpoint.directory.uri, "run", str(self._place / where))


def _routed(rows: pa.Table) -> list[pa.RecordBatch]:
    """Give rows as the shuffle brings them to the only instance."""
    hashes = mixed(rows.column("key").to_numpy())
    token = np.full(len(hashes), tokens(1)[0], np.int32)
    columns = {HASH: hashes, task.SEQUENCE: np.arange(len(hashes)), task.TOKEN: token}
    for name, column in columns.items():
        rows = rows.append_column(name, pa.array(column))
    batches: list[pa.RecordBatch] = rows.to_batches()
    return batches


def _shows(content: Callable[[Any], Any]) -> Callable[[Held, Any, Any], Iterator[tuple[int, str]]]:
    def process(self: Held, key: Any, row: Any) -> Iterator[tuple[int, str]]:
        yield key, json.dumps(content(self.held))

    return process


def _spec(operator: type[Held], backend: str) -> task.OperatorSpec:
    source = Stream(None, declared_struct(operator.columns, "input"))
    made = source.key_by("key").process(operator, "state")
    assert isinstance(made, Operated), "process gives an operator's output"
    if backend != "default":
        made.keep_in(backend)
    return made.spec


def default_stores(kind: Kind) -> set[str]:
    """Name the stores that the tables of a type are in if a job is given none."""
    return {table.backend for table in _spec(kind.operator, "default").tables}


def can_hold(kind: Kind, backend: str) -> bool:
    """Tell whether a backend can hold all tables of a type, and is not another one by the name of default."""
    chosen = default_stores(kind)
    return len(chosen) > 1 if backend == "default" else backend != "columnar" or chosen == {"columnar"}


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Take the time of a block; the list has the seconds after it."""
    took: list[float] = []
    began = time.perf_counter()
    yield took
    took.append(time.perf_counter() - began)


def measure(
    say: Callable[..., None], place: Path, *, kind: str, backend: str, keys: int, rows: int, epochs: int, size: int
) -> Result:
    """Measure a type on a store; `say` tells the parent which phase begins."""
    chosen = TYPES[kind]
    job = OneJob(chosen, backend, place)
    given = size if chosen.wide else None
    chance = np.random.default_rng(0)
    # What is run is made again for the check: rows that are kept would count as memory of the store.
    log = [chance.permutation(keys), *(chance.integers(0, keys, rows) for _ in range(epochs + 1))]
    log.append(chance.choice(keys, max(1, keys // INCREMENT), replace=False))

    say("updates")
    fill_s, _ = job.timed(made_rows(log[0], 0, given))
    times = [job.timed(made_rows(each, number, given))[0] for number, each in enumerate(log[1:-1], 1)]
    all_groups = np.arange(GROUPS)
    job.bring("first", all_groups)
    home_bytes = job.disk_bytes("first")

    say("reads")
    table, held = _largest(job)
    reads = _reads(job, table, held, chance)
    table_rows = held.num_rows
    del held

    say("moves")
    half = all_groups[GROUPS // 2 :]
    from_deltas_s = job.bring("deltas", half)

    say("checkpoint")
    with stopwatch() as full:
        snapshot = write_snapshot(job.checkpoint, job.epoch)
    increment_s, receipt = job.timed(made_rows(log[-1], len(log) - 1, given))

    say("moves")
    moves = {
        "from_deltas_s": from_deltas_s,
        "from_snapshot_s": job.bring("second", half),
        "merge_s": job.bring("second", all_groups[: GROUPS // 2]),
        "return_s": job.bring("first", half),
    }

    say("check")
    job.bring("first", all_groups)
    _check_homes(job)
    made = [made_rows(each, seed, given) for seed, each in enumerate(log)]
    _check_contents(job, chosen, made, made_rows(np.arange(keys), 0, given))
    warm = times[1:]
    return {
        "backends": {table.name: table.backend for table in job.spec.tables},
        "updates": {
            "rows_per_s": round(rows / statistics.median(warm)),
            "epoch_s": spread(warm),
            "fill_rows_per_s": round(keys / fill_s),
        },
        "reads": {"table": table.name, "rows": table_rows, **reads},
        "moves": {name: round(value, 4) for name, value in moves.items()},
        "checkpoint": {
            "full_s": round(full[0], 4),
            "full_bytes": sum(file.bytes for files in snapshot.tables.values() for file in files),
            "incremental_s": round(increment_s, 4),
            "incremental_bytes": sum(ref.bytes for ref in receipt.deltas.values()),
            "incremental_keys": len(log[-1]),
        },
        "home_bytes": home_bytes,
        "results": "equal to plain Python",
    }


def _largest(job: OneJob) -> tuple[TableSpec, pa.Table]:
    """Give the largest table of a job, and its rows as the checkpoint has them."""
    parts = [(table, rebuild(job.checkpoint, table.name, job.epoch)) for table in job.spec.tables]
    return max(parts, key=lambda pair: int(pair[1].nbytes))


def _reads(job: OneJob, table: TableSpec, held: pa.Table, chance: np.random.Generator) -> Result:
    """Time lookups and scans of a table in the first home, which must give what the checkpoint holds."""
    store, keys = job.store("first", table), keys_of(held, table.key)
    chosen = chance.choice(len(keys), min(MULTI_KEYS, len(keys)), replace=False)
    many = keys.take(chosen)
    singles = [keys.take(chosen[i : i + 1]) for i in range(min(POINT_KEYS, len(chosen)))]
    wanted = held.select(table.state.names).take(pa.array(chosen))
    point, multi, scan = [], [], []
    for _ in range(ROUNDS):
        with stopwatch() as took:
            answers = [store.lookup(each) for each in singles]
        point.append(len(singles) / took[0])
        with stopwatch() as took:
            found = store.lookup(many)
        multi.append(len(chosen) / took[0])
        with stopwatch() as took:
            scanned = [store.scan(group, job.epoch) for group in range(GROUPS)]
        scan.append(held.num_rows / took[0])
        one_by_one = pa.concat_tables([each.state for each in answers])
        if not (found.present.all() and all(each.present.all() for each in answers)):
            raise WrongState(f"a lookup in {table.name} did not find a key that the checkpoint has")
        _must_equal(wanted, found.state, f"a lookup in {table.name}")
        _must_equal(wanted.slice(0, len(singles)), one_by_one, f"a lookup of single keys in {table.name}")
        _must_equal(_sorted(held, table), _sorted(pa.concat_tables(scanned), table), f"a scan of {table.name}")
    return {
        "point_rows_per_s": round(statistics.median(point)),
        "multi_rows_per_s": round(statistics.median(multi)),
        "multi_keys": len(chosen),
        "scan_rows_per_s": round(statistics.median(scan)),
    }


def _sorted(rows: pa.Table, table: TableSpec) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in table.key.fields.names])


def _must_equal(wanted: pa.Table, found: pa.Table, what: str) -> None:
    if not found.combine_chunks().equals(wanted.cast(found.schema).combine_chunks()):
        raise WrongState(f"{what} gave other rows than the checkpoint holds")


def _check_homes(job: OneJob) -> None:
    """Compare the first home, and the one that got all key groups from the checkpoint, with the checkpoint."""
    for table in job.spec.tables:
        held = _sorted(rebuild(job.checkpoint, table.name, job.epoch), table)
        for name in ("first", "second"):
            store = job.store(name, table)
            found = pa.concat_tables([store.scan(group, job.epoch) for group in range(GROUPS)])
            _must_equal(held, _sorted(found, table), f"the {name} home of {table.name}")


def _check_contents(job: OneJob, kind: Kind, log: list[pa.Table], last: pa.Table) -> None:
    """Let the operator show the state of every key in the second home, and compare with plain Python."""
    by_key: dict[int, list[Row]] = collections.defaultdict(list)
    for rows in log:
        for row in map(Row, *(column.to_pylist() for column in rows.columns)):
            by_key[row.key].append(row)
    shown = job.shown("second", last)
    found = dict(zip(shown.column("key").to_pylist(), shown.column("content").to_pylist(), strict=True))
    if found.keys() != by_key.keys():
        raise WrongState(f"{len(by_key):,} keys had rows and {len(found):,} have state")
    of_all = kind.plain([row for some in by_key.values() for row in some]) if kind.per_instance else None
    for key, rows_of_key in by_key.items():
        plain = json.loads(json.dumps(kind.plain(rows_of_key) if of_all is None else of_all))
        content = json.loads(found[key])
        if not kind.agrees(content, plain):
            raise WrongState(f"key {key}: its state is {content!r}, and plain Python gives {plain!r}")


def close_stores() -> None:
    """Close all stores that tasks have open in this process."""
    for opened in task._stores.values():
        for store in opened.values():
            store.close()
    task._stores.clear()


def _wide_rows(keys: Ints, n: Ints, size: int) -> pa.Table:
    return pa.table({"key": keys, "part": keys % SUBKEYS, "n": n, "data": noise(n, size)})


def outgrow(
    say: Callable[..., None], place: Path, *, backend: str, limit_mb: int, larger: float, size: int, touches: int
) -> Result:
    """Fill a store with more than the process may have in memory, touch keys all over it, and read it all again."""
    limit = limit_mb << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    keys = math.ceil(larger * limit / (size + 8))
    rows = max(1, limit // EPOCHS_IN_LIMIT // size)
    job = OneJob(TYPES["bytes"], backend, place)
    chance = np.random.default_rng(0)
    starts = range(0, keys, rows)
    # In which epoch each key was written last: with that, what it holds can be told.
    newest = np.zeros(keys, np.min_scalar_type(len(starts) + touches))
    seconds: dict[str, float] = {}
    for phase, epochs in (("fill", len(starts)), ("touch", touches)):
        say(phase)
        seconds[phase] = 0.0
        for number in range(1, epochs + 1):
            start = (number - 1) * rows
            chosen = np.arange(start, min(start + rows, keys)) if phase == "fill" else chance.integers(0, keys, rows)
            newest[chosen] = job.epoch
            seconds[phase] += job.timed(_wide_rows(chosen, chosen + keys * job.epoch, size))[0]
            if number % max(1, epochs // 4) == 0:
                say(phase, f"{number:,} of {epochs:,} epochs")
    say("check")
    with stopwatch() as took:
        for start in starts:
            chosen = np.arange(start, min(start + rows, keys))
            wanted = _wide_rows(chosen, chosen + keys * newest[chosen].astype(np.int64), size)
            shown = job.shown("first", wanted)
            contents = [json.dumps(each.hex()) for each in wanted.column("data").to_pylist()]
            if shown.column("key").to_pylist() != chosen.tolist() or shown.column("content").to_pylist() != contents:
                raise WrongState(f"the state of a key from {start:,} on is not what its last row had")
    home_bytes = job.disk_bytes("first")
    return {
        "allowed_bytes": limit,
        "state_bytes": keys * (size + 8),
        "times_larger": round(keys * (size + 8) / limit, 2),
        "keys": keys,
        "bytes_per_key": size,
        "rows_per_epoch": rows,
        "epochs": {"fill": len(starts), "touch": touches},
        "seconds": {**{name: round(spent, 2) for name, spent in seconds.items()}, "check": round(took[0], 2)},
        "rows_per_s": {
            "fill": round(keys / seconds["fill"]),
            "touch": round(touches * rows / seconds["touch"]),
            "check": round(keys / took[0]),
        },
        "home_bytes": home_bytes,
        "results": "equal to plain Python",
    }
