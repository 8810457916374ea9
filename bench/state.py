"""What every type of state costs on every store that can hold it, and state that is larger than memory.

Without Spark: tasks run one after the other in a process, as the testing harness runs them, and everything below
`ferryman._spark.task.run` is what a job runs. Each type and store has a process of its own, so that its memory is its
own. In the end the state, moved to another home meanwhile, must be what plain Python makes of the same rows.
"""

from __future__ import annotations

import collections
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add, attrgetter, eq, ge
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import ferryman as fm
from bench.processes import _megabytes, _status
from bench.report import Progress, Result, _cell, _version, environment, result_of, show, spread
from ferryman._log.advance import advance
from ferryman._log.checkpoint import Checkpoint, card_of
from ferryman._log.directory import LocalDirectory
from ferryman._log.fold import keys_of, rebuild
from ferryman._log.snapshot import write_snapshot
from ferryman._model.records import GROUPS, JobCard, Manifest, RoutingTable
from ferryman._routing.tokens import tokens
from ferryman._spark import task
from ferryman._spark.home import home
from ferryman._spark.schema import declared_struct
from ferryman._spark.stream import Operated, Stream
from ferryman._state.store.contract import HASH, Store
from ferryman._state.tables import TableSpec

Ints = npt.NDArray[np.int64]

# "default" is what a job does that is given no store: each table where it is fastest.
BACKENDS = ("default", "columnar", "lmdb", "rocksdb")
PARTS = ("types", "larger")
ROOT = Path(__file__).resolve().parents[1]
# The page that quotes a result, and where its figures stand.
RESULT, PAGE = ROOT / "bench" / "results" / "state.json", ROOT / "docs" / "choosing-a-store.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
# What tells the entries, windows or values of one key apart.
SUBKEYS = 8
POINT_KEYS, MULTI_KEYS, ROUNDS = 1_000, 10_000, 3
INCREMENT = 100
# The stores whose state may be larger than memory; its values, and how many epochs of them the memory would hold.
OUTGROW = ("rocksdb",)
OUTGROW_BYTES, EPOCHS_IN_LIMIT = 1_000, 512
# A limit on data counts address space, used or not. Without these, stacks, the pools of Arrow and OpenBLAS and what
# malloc keeps for later take more of it than the state does.
SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
# What is sampled of a process; "data" is what the limit is on: address space that is its own, used or not.
WATCHED = {"rss": "VmRSS", "anon": "RssAnon", "file": "RssFile", "data": "VmData"}


class WrongState(Exception):
    """State that is not what plain Python makes of the same rows."""


# -- the types: an operator as a user writes it, and the same in plain Python ----------------------


class Row(NamedTuple):
    """An input row; `data` is there for the type that keeps it."""

    key: int
    part: int
    n: int
    data: bytes = b""


class Held(fm.Operator):
    """What all operators here share: one state, and one operation on it for every row."""

    columns: ClassVar[str] = "key long, part long, n long"
    output = "key long, content string"
    held: Any


class Total(Held):
    held: Any = fm.Value(int, 0)

    def process(self, key: Any, row: Any) -> None:
        self.held += row.n


class Newest(Held):
    columns = f"{Held.columns}, data binary"
    held: Any = fm.Value(bytes, b"")

    def process(self, key: Any, row: Any) -> None:
        self.held = row.data


class All(Held):
    held: Any = fm.List(int)

    def process(self, key: Any, row: Any) -> None:
        self.held.append(row.n)


class Last(All):
    held: Any = fm.Deque(int, 4)


class NewestOfPart(Held):
    held: Any = fm.Map(int, int)

    def process(self, key: Any, row: Any) -> None:
        self.held[row.part] = row.n


class Parts(Held):
    held: Any = fm.Set(int)

    def process(self, key: Any, row: Any) -> None:
        self.held.add(row.part)


class Counts(Held):
    held: Any = fm.Counter(int)

    def process(self, key: Any, row: Any) -> None:
        self.held[row.part] += 1


class Waiting(Held):
    held: Any = fm.Queue(int, int)

    def process(self, key: Any, row: Any) -> None:
        self.held.push(row.part, row.n)


class Most(Held):
    held: Any = fm.Reducing(int, max)

    def process(self, key: Any, row: Any) -> None:
        self.held.add(row.n)


@dataclass(frozen=True)
class CountAndSum:
    """What a mean is made of."""

    n: int
    total: int


class Mean:
    """The accumulator of a mean."""

    type: ClassVar[Any] = CountAndSum

    def create(self) -> CountAndSum:
        return CountAndSum(0, 0)

    def add(self, kept: CountAndSum, value: int) -> CountAndSum:
        return CountAndSum(kept.n + 1, kept.total + value)

    def merge(self, one: CountAndSum, other: CountAndSum) -> CountAndSum:
        return CountAndSum(one.n + other.n, one.total + other.total)

    def result(self, kept: CountAndSum) -> float:
        return kept.total / kept.n


class Means(Most):
    held: Any = fm.Aggregating(Mean())


class Minutes(Held):
    held: Any = fm.TumblingWindow(MINUTE_MS, fm.Reducing(int, add))

    def process(self, key: Any, row: Any) -> None:
        self.held.add(NOW_MS + row.part * MINUTE_MS, row.n)


class Distinct(Most):
    held: Any = fm.HyperLogLog()


class Frequencies(Parts):
    held: Any = fm.CountMin(error=0.05, confidence=0.9)


class Quantiles(Most):
    held: Any = fm.TDigest(100)


class MayHold(Parts):
    held: Any = fm.BloomFilter(100)


class Sample(Most):
    held: Any = fm.Reservoir(int, 4)


class Rate(Held):
    held: Any = fm.DecayedRate(MINUTE_MS)

    def process(self, key: Any, row: Any) -> None:
        self.held.add(NOW_MS + row.part * 1000)


@dataclass(frozen=True)
class Kind:
    """A type of state.

    Attributes
    ----------
    operator
        An operator that keeps such state.
    content
        What it holds of a key, as JSON can write it.
    plain
        The same, computed from all rows of the key.
    agrees
        Whether a content is right, given the plain one.
    """

    operator: type[Held]
    content: Callable[[Any], Any]
    plain: Callable[[list[Row]], Any]
    agrees: Callable[[Any, Any], bool] = eq

    @property
    def wide(self) -> bool:
        """Tell whether its rows have `data`."""
        return "data" in self.operator.columns


def _values(rows: list[Row]) -> list[int]:
    return [row.n for row in rows]


def _parts(rows: list[Row]) -> list[int]:
    return [row.part for row in rows]


def _frequencies(rows: list[Row]) -> list[int]:
    counted = collections.Counter(_parts(rows))
    return [len(rows), *(counted[part] for part in range(SUBKEYS))]


def _minutes(rows: list[Row]) -> list[tuple[int, int]]:
    totals: collections.Counter[int] = collections.Counter()
    for row in rows:
        totals[(NOW_MS + row.part * MINUTE_MS) // MINUTE_MS * MINUTE_MS] += row.n
    return sorted(totals.items())


def _rate(rows: list[Row]) -> float:
    left = sum(math.pow(0.5, (MINUTE_MS - row.part * 1000) / MINUTE_MS) for row in rows)
    return left * math.log(2) / MINUTE_MS * 1000


def _sampled(found: Any, plain: Any) -> bool:
    return found[0] == len(plain) and len(found[1]) == min(len(plain), 4) and set(found[1]) <= set(plain)


TYPES: Mapping[str, Kind] = {
    "value": Kind(Total, lambda held: held, lambda rows: sum(_values(rows))),
    "bytes": Kind(Newest, bytes.hex, lambda rows: rows[-1].data.hex()),
    "list": Kind(All, list, _values),
    "deque": Kind(Last, list, lambda rows: _values(rows)[-4:]),
    "map": Kind(
        NewestOfPart, lambda held: sorted(held.items()), lambda rows: sorted({row.part: row.n for row in rows}.items())
    ),
    "set": Kind(Parts, sorted, lambda rows: sorted(set(_parts(rows)))),
    "counter": Kind(
        Counts, lambda held: sorted(held.items()), lambda rows: sorted(collections.Counter(_parts(rows)).items())
    ),
    "queue": Kind(Waiting, list, lambda rows: [(row.part, row.n) for row in sorted(rows, key=attrgetter("part"))]),
    "reducing": Kind(Most, lambda held: held.result, lambda rows: max(_values(rows))),
    "aggregating": Kind(Means, lambda held: held.result, lambda rows: sum(_values(rows)) / len(rows)),
    "tumbling": Kind(Minutes, lambda held: [(span.start, total) for span, total in held.spans()], _minutes),
    "hyperloglog": Kind(
        Distinct,
        lambda held: held.estimate(),
        lambda rows: len(set(_values(rows))),
        # Four times the standard error of 4096 registers.
        lambda found, plain: abs(found - plain) <= 0.5 + 0.065 * plain,
    ),
    "countmin": Kind(
        Frequencies,
        lambda held: [held.total(), *map(held.estimate, range(SUBKEYS))],
        _frequencies,
        lambda found, plain: found[0] == plain[0] and all(map(ge, found, plain)),
    ),
    "tdigest": Kind(
        Quantiles,
        lambda held: [held.count(), held.quantile(0.0), held.quantile(1.0)],
        lambda rows: [len(rows), min(_values(rows)), max(_values(rows))],
    ),
    "bloom": Kind(
        MayHold,
        lambda held: [part for part in range(SUBKEYS) if part in held],
        _parts,
        lambda found, plain: set(found) >= set(plain),
    ),
    "reservoir": Kind(Sample, lambda held: [held.count(), held.sample()], _values, _sampled),
    "rate": Kind(
        Rate,
        lambda held: held.rate(NOW_MS + MINUTE_MS),
        _rate,
        lambda found, plain: math.isclose(found, plain, rel_tol=1e-9),
    ),
}


# -- rows ----------------------------------------------------------------------------------------


def mixed(words: Ints) -> Ints:
    """Spread numbers over all 64 bits, each number always the same way."""
    z = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread_out: Ints = (z ^ (z >> np.uint64(31))).view(np.int64)
    return spread_out


def noise(n: Ints, size: int) -> pa.Array:
    """Make of each number so many bytes that no compression makes smaller."""
    words = -(-size // 8)
    cells = mixed((n[:, None] * words + np.arange(words)).reshape(-1)).view(np.uint8).reshape(len(n), words * 8)
    data = np.ascontiguousarray(cells[:, :size])
    offsets = np.arange(0, (len(n) + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(n), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def made_rows(keys: Ints, seed: int, size: int | None) -> pa.Table:
    """Make rows of some keys; with `data` of a size where one is given. The same again for the same seed."""
    chance = np.random.default_rng(seed)
    n = chance.integers(0, 1 << 40, len(keys))
    part = chance.integers(0, SUBKEYS, len(keys))
    more = {} if size is None else {"data": noise(n, size)}
    return pa.table({"key": keys, "part": part, "n": n, **more})


# -- a job of one operator -----------------------------------------------------------------------


class OneJob:
    """Run one operator on one backend, epoch by epoch, in homes that are told apart by name."""

    def __init__(self, kind: Kind, backend: str, place: Path) -> None:
        self.spec = _spec(kind.operator, backend)
        self.showing = _spec(type("Showing", (kind.operator,), {"process": _shows(kind.content)}), backend)
        self.epoch = 0
        self.checkpoint = Checkpoint(LocalDirectory(place / "checkpoint"))
        cards = {one.name: card_of(one.operator, one.key, one.state, one.evolution) for one in self.spec.tables}
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
            self._latest = Manifest(self.epoch, self.epoch, False, NOW_MS, self._routing, {}, refs)
            self.checkpoint.commit(self._latest)
        return took[0], receipt

    def shown(self, where: str, rows: pa.Table) -> pa.Table:
        """Show what the keys of some rows hold in a home; nothing is committed."""
        return task.run(self.showing, self._control(where), 0, _routed(rows))[0]

    def _control(self, where: str) -> task.Control:
        newest = self._latest.tables if self._latest else None
        return task.Control(
            self.epoch + 1, "run", self.checkpoint.directory.uri, False, str(self._place / where),
            self._routing.owner, tokens(1), newest, True, NOW_MS,
        )  # fmt: skip

    def bring(self, where: str, groups: Ints) -> float:
        """Bring key groups in a home to the newest epoch, all tables; give the seconds."""
        with stopwatch() as took:
            for one in self.spec.tables:
                advance(
                    self.store(where, one), self.checkpoint, one.name, groups, self.epoch,
                    key=one.key, state=one.state, total=GROUPS, evolution=one.evolution,
                )  # fmt: skip
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
    return {one.backend for one in _spec(kind.operator, "default").tables}


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


# -- one type on one store, in a process of its own ----------------------------------------------


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
        "backends": {one.name: one.backend for one in job.spec.tables},
        "updates": {
            "rows_per_s": round(rows / statistics.median(warm)),
            "epoch_s": spread(warm),
            "fill_rows_per_s": round(keys / fill_s),
        },
        "reads": {"table": table.name, "rows": table_rows, **reads},
        "moves": {name: round(value, 4) for name, value in moves.items()},
        "checkpoint": {
            "full_s": round(full[0], 4),
            "full_bytes": sum(one.bytes for files in snapshot.tables.values() for one in files),
            "incremental_s": round(increment_s, 4),
            "incremental_bytes": sum(ref.bytes for ref in receipt.deltas.values()),
            "incremental_keys": len(log[-1]),
        },
        "home_bytes": home_bytes,
        "results": "equal to plain Python",
    }


def _largest(job: OneJob) -> tuple[TableSpec, pa.Table]:
    """Give the largest table of a job, and its rows as the checkpoint has them."""
    parts = [(one, rebuild(job.checkpoint, one.name, job.epoch)) for one in job.spec.tables]
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
    for one in job.spec.tables:
        held = _sorted(rebuild(job.checkpoint, one.name, job.epoch), one)
        for name in ("first", "second"):
            store = job.store(name, one)
            found = pa.concat_tables([store.scan(group, job.epoch) for group in range(GROUPS)])
            _must_equal(held, _sorted(found, one), f"the {name} home of {one.name}")


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
    for key, rows_of_key in by_key.items():
        content, plain = json.loads(found[key]), json.loads(json.dumps(kind.plain(rows_of_key)))
        if not kind.agrees(content, plain):
            raise WrongState(f"key {key}: its state is {content!r}, and plain Python gives {plain!r}")


def close_stores() -> None:
    """Close all stores that tasks have open in this process."""
    for opened in task._stores.values():
        for store in opened.values():
            store.close()
    task._stores.clear()


# -- state that is larger than memory ------------------------------------------------------------


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
        "seconds": {**{name: round(one, 2) for name, one in seconds.items()}, "check": round(took[0], 2)},
        "rows_per_s": {
            "fill": round(keys / seconds["fill"]),
            "touch": round(touches * rows / seconds["touch"]),
            "check": round(keys / took[0]),
        },
        "home_bytes": home_bytes,
        "results": "equal to plain Python",
    }


# -- the parent ----------------------------------------------------------------------------------


def run(
    *,
    keys: int = 100_000,
    rows: int = 100_000,
    epochs: int = 3,
    size: int = 100,
    types: Sequence[str] = tuple(TYPES),
    backends: Sequence[str] = BACKENDS,
    parts: Sequence[str] = PARTS,
    limit_mb: int = 256,
    larger: float = 5,
    touches: int = 20,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure every type on every store that can hold it, then a state larger than memory.

    Parameters
    ----------
    keys
        Keys with state.
    rows, epochs
        Rows of an epoch that updates them, and how many such epochs are measured after one to warm up.
    size
        Bytes of a value of the type `bytes`.
    types, backends
        Which to measure.
    parts
        `types`, `larger`, or both.
    limit_mb, larger, touches
        What a process may have in memory, how many times larger the state is, and how many epochs touch it after it
        was filled.
    scratch, progress
        As in `throughput`.
    """
    progress = progress or Progress()
    facts = environment()
    facts["versions"].update({name: _version(name) for name in ("lmdb", "rocksdict", "datasketches")})
    parameters = {
        "keys": keys, "rows": rows, "epochs": epochs, "bytes": size, "types": ",".join(types),
        "backends": ",".join(backends), "parts": ",".join(parts), "limit_mb": limit_mb, "larger": larger,
        "touches": touches,
    }  # fmt: skip
    result = result_of("state", parameters, facts)
    pairs = [(kind, one) for kind in types for one in backends if can_hold(TYPES[kind], one)]
    by_type: dict[str, Result] = {kind: {} for kind in types} if "types" in parts else {}
    for number, (kind, backend) in enumerate(pairs if by_type else (), 1):
        label = f"{kind} on {backend} ({number} of {len(pairs)})"
        with progress.step(label):
            by_type[kind][backend] = _alone(
                "measure", scratch, progress, label,
                kind=kind, backend=backend, keys=keys, rows=rows, epochs=epochs, size=size,
            )  # fmt: skip
    outgrown: dict[str, Result] = {}
    for backend in [one for one in OUTGROW if one in backends and "larger" in parts]:
        label = f"{larger} times {limit_mb} MB on {backend}"
        with progress.step(label):
            outgrown[backend] = _alone(
                "outgrow", scratch, progress, label,
                backend=backend, limit_mb=limit_mb, larger=larger, size=OUTGROW_BYTES, touches=touches,
            )  # fmt: skip
    return {**result, "types": by_type, "larger": outgrown}


def _alone(function: str, scratch: Path | None, progress: Progress, label: str, **options: Any) -> Result:
    """Run a function of this module in a process of its own, and watch its memory."""
    place = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    order = json.dumps({"function": function, "place": str(place), "options": options})
    command = [sys.executable, "-m", "bench.state", order]
    if function == "outgrow":
        command = ["sh", "-c", 'ulimit -s 1024 && exec "$@"', "sh", *command]
    settings = {**os.environ, **(SPARING if function == "outgrow" else {})}
    result: Result | None = None
    with open(place / "errors", "w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=errors, text=True
        )  # fmt: skip
        try:
            assert process.stdout is not None, "it was asked for"
            with Watch(process.pid) as watch:
                for line in process.stdout:
                    said = json.loads(line)
                    watch.phase = said.get("phase", watch.phase)
                    result = said.get("result", result)
                    if said.get("note"):
                        progress.say(f"{label}: {watch.phase}, {said['note']}")
            if process.wait() != 0 or result is None:
                errors.seek(0)
                raise RuntimeError(f"{label} ended with code {process.returncode}:\n{errors.read()[-4000:]}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            shutil.rmtree(place, ignore_errors=True)
    return {**result, "memory": watch.peaks(without=("check",) if function == "measure" else ())}


class Watch:
    """Sample the memory of one process, phase by phase."""

    def __init__(self, pid: int, interval_s: float = 0.01) -> None:
        self.phase = "start"
        self._pid = pid
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._peaks: dict[str, dict[str, float]] = {}
        self._highest: dict[str, float] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(self._interval_s):
            phase, status = self.phase, _status(self._pid)
            # What ends has no memory any more.
            if "VmRSS" in status:
                peak = self._peaks.setdefault(phase, collections.defaultdict(float))
                for name, field in WATCHED.items():
                    peak[name] = max(peak[name], _megabytes(status, field))
                # The kernel's own peak, of all phases so far.
                self._highest[phase] = _megabytes(status, "VmHWM")

    def peaks(self, without: Sequence[str]) -> Result:
        """Give the peaks in megabytes, of each phase and of all but some."""
        counted = [peak for phase, peak in self._peaks.items() if phase not in without]
        whole = {f"peak_{name}_mb": max((peak[name] for peak in counted), default=0.0) for name in WATCHED}
        whole["peak_rss_mb"] = max((mb for phase, mb in self._highest.items() if phase not in without), default=0.0)
        phases = {
            phase: {f"{name}_mb": round(mb, 1) for name, mb in peak.items()} for phase, peak in self._peaks.items()
        }
        return {**{name: round(mb, 1) for name, mb in whole.items()}, "phases": phases}


# -- what is shown -------------------------------------------------------------------------------


def tables(result: Result) -> Iterator[tuple[str, list[Result]]]:
    """Give a result as tables, each with its title."""
    given = result["parameters"]
    if result["types"]:
        yield (
            f"updates, rows/s; {given['keys']:,} keys, {given['rows']:,} rows an epoch",
            [
                {"type": kind, **{store: _rate_of(kind, by_store, store) for store in BACKENDS}}
                for kind, by_store in result["types"].items()
            ],
        )
        measured = [
            ({"type": kind, "store": store}, one)
            for kind, by_store in result["types"].items()
            for store, one in by_store.items()
        ]
        reads = {"one key": "point_rows_per_s", "many keys": "multi_rows_per_s", "scan": "scan_rows_per_s"}
        yield (
            "reads of the largest table, rows/s",
            [
                {**name, **{title: one["reads"][field] for title, field in reads.items()}, "rows": one["reads"]["rows"]}
                for name, one in measured
            ],
        )
        yield (
            "half of the key groups to another home, and checkpoints: seconds and MB",
            [
                {
                    **name,
                    "from deltas": one["moves"]["from_deltas_s"],
                    "from snapshot": one["moves"]["from_snapshot_s"],
                    "merge": one["moves"]["merge_s"],
                    "return": one["moves"]["return_s"],
                    "full": one["checkpoint"]["full_s"],
                    "full MB": one["checkpoint"]["full_bytes"] / 2**20,
                    "1 %": one["checkpoint"]["incremental_s"],
                    "1 % MB": one["checkpoint"]["incremental_bytes"] / 2**20,
                }
                for name, one in measured
            ],
        )
        yield (
            "memory of the process and disk of the home, MB",
            [
                {
                    **name,
                    "anonymous at start": _phase(one, "start", "anon"),
                    "anonymous, updates": _phase(one, "updates", "anon"),
                    "resident, updates": _phase(one, "updates", "rss"),
                    "peak anonymous": one["memory"]["peak_anon_mb"],
                    "peak resident": one["memory"]["peak_rss_mb"],
                    "home": one["home_bytes"] / 2**20,
                }
                for name, one in measured
            ],
        )
    if result["larger"]:
        yield (
            "state larger than memory, MB and rows/s",
            [
                {
                    "store": store,
                    "allowed": one["allowed_bytes"] / 2**20,
                    "state": one["state_bytes"] / 2**20,
                    "peak of what is limited": one["memory"]["peak_data_mb"],
                    "peak anonymous": one["memory"]["peak_anon_mb"],
                    "peak resident": one["memory"]["peak_rss_mb"],
                    "home": one["home_bytes"] / 2**20,
                    "fill": one["rows_per_s"]["fill"],
                    "touch": one["rows_per_s"]["touch"],
                }
                for store, one in result["larger"].items()
            ],
        )


def _rate_of(kind: str, by_store: Result, store: str) -> object:
    if store in by_store:
        return by_store[store]["updates"]["rows_per_s"]
    same = default_stores(TYPES[kind])
    return f"= {same.pop()}" if store == "default" and len(same) == 1 else None


def _phase(figures: Result, phase: str, what: str) -> float | None:
    found: float | None = figures["memory"]["phases"].get(phase, {}).get(f"{what}_mb")
    return found


def show_result(result: Result) -> None:
    """Print a result as tables."""
    for title, rows in tables(result):
        show(title, rows)


def filled(page: str, result: Result) -> str:
    """Put the tables of a result into a page, in the place of those it has."""
    facts = result["environment"]
    about = (
        f"`{result['command']}`\n\nOn {facts['cores']} cores, Python {facts['python']}, {facts['at'][:10]}; the load "
        f"before was {facts['load_before'][0]}.\n"
    )
    parts = [about, *(f"### {title[0].upper()}{title[1:]}\n\n{_markdown(rows)}" for title, rows in tables(result))]
    before, rest = page.split(BEGIN)
    return "".join([before, BEGIN, "\n", "\n".join(parts), "\n", END, rest.split(END)[1]])


def _markdown(rows: list[Result]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_cell(one) for one in row.values()] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Do what the parent asks, and answer line by line; asked nothing, renew the figures of the page."""
    if len(sys.argv) == 1:
        PAGE.write_text(filled(PAGE.read_text(), json.loads(RESULT.read_text())))
        return
    order = json.loads(sys.argv[1])

    def say(phase: str, note: str = "") -> None:
        print(json.dumps({"phase": phase, "note": note}), flush=True)

    functions: dict[str, Callable[..., Result]] = {"measure": measure, "outgrow": outgrow}
    try:
        result = functions[order["function"]](say, Path(order["place"]), **order["options"])
    finally:
        close_stores()
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()
