"""What every store does, on every backend and kind of key: compared with a dictionary."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._model.errors import StaleTask, UnknownOption
from ferryman._state import store
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.store import store_identity
from ferryman._state.store.rocksdb import options
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

GROUPS = 4
IDS = range(48)
STATE = pa.schema([("n", pa.int64()), ("x", pa.float32()), ("b", pa.bool_())])
KINDS = {
    "word": KeySchema(pa.schema([("k", pa.int64())])),
    "string": KeySchema(pa.schema([("k", pa.string())])),
    "composite": KeySchema(pa.schema([("k", pa.string()), ("d", pa.decimal128(9, 2))])),
    "panes": KeySchema(pa.schema([("t", pa.timestamp("us", "UTC")), ("k", pa.string())]), entries=True),
    "panes, nulls": KeySchema(pa.schema([("t", pa.timestamp("us")), ("k", pa.int64())]), entries=True, nulls=True),
    "entries": KeySchema(pa.schema([("k", pa.int32()), ("place", pa.int64())]), entries=True),
}
TIMES = range(-10_000_000, 10_000_001, 2_500_000)
# Forged hashes make most keys of a group collide, which a good hash would hide for years.
HASHES = {"spread": 0x61C8864680B583EB, "forged": 0}

Row = tuple[int | None, float | None, bool | None]


@dataclass
class Case:
    backend: str
    kind: str
    hashing: str
    state: pa.Schema = field(default_factory=lambda: STATE)

    def hash(self, i: int) -> int:
        spread = (i * HASHES[self.hashing]) % 2**63 - 2**62
        return spread if self.hashing == "spread" else i % (GROUPS + 1)

    def columns(self, ids: list[int]) -> list[pa.Array]:
        text = pa.array(["t" * (i % 5) + str(i) for i in ids], pa.string())
        decimals = pa.array([Decimal(i) / 4 for i in ids], pa.decimal128(9, 2))
        words = pa.array(ids, pa.int64())
        if self.kind.startswith("panes"):
            times = pa.array([self.time(i) for i in ids], self.key.fields.types[0])
            return [times, words if self.key.nulls else text]
        some = pa.array([i % 3 for i in ids], pa.int32())
        return {"word": [words], "string": [text], "composite": [text, decimals], "entries": [some, words]}[self.kind]

    def time(self, i: int) -> int:
        return TIMES[i % len(TIMES)]

    @property
    def key(self) -> KeySchema:
        return KINDS[self.kind]

    def keys(self, ids: list[int]) -> Keys:
        return Keys.of(self.key, np.array([self.hash(i) for i in ids], np.int64), self.columns(ids))

    def group(self, i: int) -> int:
        return self.hash(i) % GROUPS

    def open(self, directory: Path) -> store.Store:
        return store.open(self.backend, directory, self.key, self.state, GROUPS)

    def part(self, rows: dict[int, Row]) -> pa.Table:
        return self._table(rows, store.part_schema(self.key, self.state), [])

    def delta(self, rows: dict[int, Row | None]) -> pa.Table:
        gone = [pa.array([row is None for row in rows.values()], pa.bool_())]
        return self._table(rows, store.delta_schema(self.key, self.state), gone)

    def _table(self, rows: dict[int, Row | None], schema: pa.Schema, extra: list[pa.Array]) -> pa.Table:
        ids = list(rows)
        blank = (None,) * len(self.state)
        state = [
            pa.array([(row or blank)[i] for row in rows.values()], dtype) for i, dtype in enumerate(self.state.types)
        ]
        hashes = pa.array([self.hash(i) for i in ids], pa.int64())
        return pa.Table.from_arrays([hashes, *extra, *self.columns(ids), *state], schema=schema)


@pytest.fixture(params=["columnar", "lmdb", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(HASHES))
def hashing(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def case(backend: str, kind: str) -> Case:
    return Case(backend, kind, "spread")


@pytest.fixture
def opened(case: Case, tmp_path: Path) -> Iterator[store.Store]:
    opened = case.open(tmp_path / "home")
    yield opened
    opened.close()


ALL = np.arange(GROUPS)
VALUE = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(width=32, allow_nan=False),
    st.none() | st.booleans(),
)
SOME = st.sets(st.integers(0, GROUPS - 1))
STEP = st.one_of(
    st.tuples(st.just("apply"), SOME, st.dictionaries(st.sampled_from(IDS), st.none() | VALUE, max_size=30)),
    st.tuples(st.just("ingest"), SOME, st.dictionaries(st.sampled_from(IDS), VALUE, max_size=30)),
    st.tuples(st.just("drop"), SOME, st.just({})),
    st.tuples(st.sampled_from(["reopen", "release"]), st.just(set()), st.just({})),
)


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True))


def check(case: Case, opened: store.Store, epochs: list[int], model: dict[int, Row]) -> None:
    assert opened.epochs().tolist() == epochs
    ids = [i for i in IDS if epochs[case.group(i)] >= 0]
    found = opened.lookup(case.keys(ids))
    assert found.present.tolist() == [i in model for i in ids]
    assert rows_of(found.state) == [model.get(i, (None, None, None)) for i in ids]
    for group in range(GROUPS):
        if epochs[group] < 0:
            with pytest.raises(StaleTask):
                opened.scan(group, 0)
            continue
        part = opened.scan(group, epochs[group])
        mine = {i: row for i, row in model.items() if case.group(i) == group}
        assert part.schema == store.part_schema(case.key, case.state)
        assert sorted(rows_of(part), key=repr) == sorted(rows_of(case.part(mine)), key=repr)
    if case.kind.startswith("panes"):
        check_before(case, opened, np.flatnonzero(np.array(epochs) >= 0), model)


def check_before(case: Case, opened: store.Store, groups: np.ndarray, model: dict[int, Row]) -> None:
    for bound in (TIMES[0], -1, 0, TIMES[5], TIMES[-1] + 1):
        mine = {i: row for i, row in model.items() if case.group(i) in groups and case.time(i) < bound}
        part = opened.before(groups, pa.scalar(bound, case.key.fields.types[0]))
        assert part.schema == store.part_schema(case.key, case.state)
        assert sorted(rows_of(part), key=repr) == sorted(rows_of(case.part(mine)), key=repr)


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(STEP, max_size=10))
def check_history(backend: str, kind: str, hashing: str, steps: list[tuple[str, set[int], dict]]) -> None:
    case = Case(backend, kind, hashing)
    epochs = [-1] * GROUPS
    model: dict[int, Row] = {}
    with tempfile.TemporaryDirectory() as directory:
        opened = case.open(Path(directory))
        try:
            for epoch, (what, groups, rows) in enumerate(steps):
                some = np.array(sorted(groups), np.int64)
                if what == "reopen":
                    opened.close()
                    opened = case.open(Path(directory))
                elif what == "release":
                    opened.release()
                elif what == "drop":
                    opened.drop(some)
                elif what == "ingest":
                    opened.ingest(case.part(rows), some, epoch)
                elif any(epochs[group] < 0 for group in groups) and epoch > 0:
                    with pytest.raises(StaleTask):
                        opened.apply(case.delta(rows), some, epoch)
                    groups = set()
                else:
                    opened.apply(case.delta(rows), some, epoch)
                if what in ("drop", "ingest"):
                    model = {i: row for i, row in model.items() if case.group(i) not in groups}
                for group in groups:
                    epochs[group] = -1 if what == "drop" else epoch
                for i, row in rows.items():
                    if case.group(i) in groups:
                        model.pop(i, None)
                        if row is not None:
                            model[i] = row
                check(case, opened, epochs, model)
        finally:
            opened.close()


def test_any_history_leaves_what_a_dictionary_would_hold(backend: str, kind: str, hashing: str) -> None:
    check_history(backend, kind, hashing)


def test_a_new_store_has_no_mains(opened: store.Store) -> None:
    assert opened.epochs().tolist() == [-1] * GROUPS


def test_an_empty_part_makes_empty_mains(case: Case, opened: store.Store) -> None:
    opened.ingest(case.part({}), ALL, 7)
    check(case, opened, [7] * GROUPS, {})


def test_a_group_without_rows_only_moves_its_epoch(case: Case, opened: store.Store) -> None:
    rows = {i: (i, None, True) for i in IDS}
    opened.ingest(case.part(rows), ALL, 1)
    opened.apply(case.delta({}), ALL[1:], 2)
    check(case, opened, [1, 2, 2, 2], rows)


def test_a_delta_applied_twice_counts_once(case: Case, opened: store.Store) -> None:
    opened.ingest(case.part({}), ALL, 1)
    opened.apply(case.delta({1: (1, 1.0, True)}), ALL, 2)
    # Not the same bytes, to see that the second is left alone.
    opened.apply(case.delta({1: (9, 9.0, False), 2: (2, 2.0, None)}), ALL, 2)
    check(case, opened, [2] * GROUPS, {1: (1, 1.0, True)})


def test_a_task_that_comes_too_late_is_told_so_and_changes_nothing(case: Case, opened: store.Store) -> None:
    opened.ingest(case.part({}), ALL[:2], 1)
    opened.ingest(case.part({}), ALL[2:], 5)
    with pytest.raises(StaleTask, match="beyond epoch 3"):
        opened.apply(case.delta(dict.fromkeys(IDS, (1, 1.0, True))), ALL, 3)
    check(case, opened, [1, 1, 5, 5], {})


def test_a_main_never_goes_back(case: Case, opened: store.Store) -> None:
    opened.ingest(case.part({1: (1, 1.0, True)}), ALL, 5)
    with pytest.raises(StaleTask, match="beyond epoch 3"):
        opened.ingest(case.part({}), ALL, 3)
    check(case, opened, [5] * GROUPS, {1: (1, 1.0, True)})
    # Not the same rows, to see that it is left alone, as whoever reads it may not notice that it was gone meanwhile.
    opened.ingest(case.part({2: (2, 2.0, None)}), ALL, 5)
    check(case, opened, [5] * GROUPS, {1: (1, 1.0, True)})


def test_a_main_that_is_not_there_cannot_be_advanced(case: Case, opened: store.Store) -> None:
    opened.ingest(case.part({}), ALL, 1)
    opened.drop(ALL[:1])
    with pytest.raises(StaleTask, match="no main"):
        opened.apply(case.delta({}), ALL, 2)
    check(case, opened, [-1, 1, 1, 1], {})


def test_a_scan_of_another_epoch_is_refused(case: Case, opened: store.Store) -> None:
    opened.ingest(case.part({}), ALL, 4)
    with pytest.raises(StaleTask, match=r"epoch 4.*epoch 3"):
        opened.scan(0, 3)


def test_mains_grow_far_beyond_their_first_size_and_survive_mass_deletes(case: Case, opened: store.Store) -> None:
    ids = list(range(20_000))
    opened.ingest(case.part({}), ALL, 0)
    for epoch, start in enumerate(range(0, len(ids), 2_000), start=1):
        opened.apply(case.delta({i: (i, 0.5, None) for i in ids[start : start + 2_000]}), ALL, epoch)
    found = opened.lookup(case.keys(ids))
    assert found.present.all()
    assert found.state.column("n").to_pylist() == ids
    opened.apply(case.delta({i: None for i in ids if i % 10}), ALL, 20)
    found = opened.lookup(case.keys(ids))
    assert found.present.tolist() == [i % 10 == 0 for i in ids]
    opened.apply(case.delta({i: (-i, None, True) for i in ids if i % 10 == 3}), ALL, 21)
    parts = pa.concat_tables([opened.scan(group, 21) for group in range(GROUPS)])
    wanted = [i for i in ids if i % 10 == 0] + [-i for i in ids if i % 10 == 3]
    assert sorted(parts.column("n").to_pylist()) == sorted(wanted)


def test_keys_that_come_and_go_do_not_add_up_on_disk(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "rocksdb":
        # What it may keep in memory it also keeps in its log; with the usual budget no file would be tidied up here.
        monkeypatch.setattr(options, "MEMTABLE_BYTES", 64 << 10)
        options.options.cache_clear()
    case = Case(backend, "string", "spread")
    opened = case.open(tmp_path)
    opened.ingest(case.part({}), ALL, 0)
    sizes = []
    for epoch in range(1, 301):
        alive, gone = range(epoch * 50, epoch * 50 + 50), range(epoch * 50 - 50, epoch * 50)
        rows: dict[int, Row | None] = {i: (i, None, None) for i in alive}
        opened.apply(case.delta({**rows, **dict.fromkeys(gone)}), ALL, epoch)
        # RocksDB's LOG is a diary for people, of a limited length.
        files = [each for each in tmp_path.rglob("*") if each.name != "LOG"]
        sizes.append(sum(size_of(each) for each in files))
    assert max(sizes) <= 2 * max(sizes[:100])
    assert sum(opened.scan(group, 300).num_rows for group in range(GROUPS)) == 50
    opened.close()
    options.options.cache_clear()


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        # RocksDB tidies up in the background.
        return 0


def test_two_stores_of_one_process_see_each_others_changes(case: Case, tmp_path: Path) -> None:
    one, two = case.open(tmp_path), case.open(tmp_path)
    model: dict[int, Row] = {}
    one.ingest(case.part({}), ALL, 0)
    for epoch in range(1, 30):
        writer, reader = (one, two) if epoch % 2 else (two, one)
        rows = {epoch * 100 + i: (epoch, None, None) for i in range(100)}
        writer.apply(case.delta(rows), ALL, epoch)
        model |= rows
        found = reader.lookup(case.keys(list(model)))
        assert found.state.column("n").to_pylist() == [row[0] for row in model.values()]
    one.close()
    check_ids = list(model)
    assert two.lookup(case.keys(check_ids)).present.all()
    two.close()


def test_released_memory_is_mapped_again_when_needed(case: Case, opened: store.Store) -> None:
    rows = {i: (i, None, None) for i in IDS}
    opened.ingest(case.part(rows), ALL, 1)
    if case.backend == "columnar":
        assert opened.mapped_bytes() > 0
    opened.release()
    assert opened.mapped_bytes() == 0
    check(case, opened, [1] * GROUPS, rows)


NARROW = [
    (pa.bool_(), True), (pa.int8(), -128), (pa.int16(), 2**15 - 1), (pa.int32(), -(2**31)),
    (pa.int64(), -(2**63)), (pa.uint8(), 255), (pa.uint16(), 2**16 - 1), (pa.uint32(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1), (pa.float32(), 0.5), (pa.float64(), -0.0), (pa.float16(), np.float16(1.5)),
    (pa.date32(), datetime.date(1, 1, 1)), (pa.date64(), datetime.date(2024, 2, 29)),
    (pa.time32("ms"), datetime.time(23, 59, 59, 999000)), (pa.time64("ns"), 86_399_999_999_999),
    (pa.timestamp("s"), datetime.datetime(1900, 1, 1)), (pa.timestamp("ns"), 2**62 + 1),
    (pa.timestamp("us", "Europe/Berlin"), 1), (pa.duration("ns"), -(2**62) - 1),
    (pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.bool_())]))]), {"a": None, "b": {"c": True}}),
]  # fmt: skip
WIDE = [
    (pa.string(), "grüß\0"), (pa.large_string(), ""), (pa.binary(), b"\xff\0"), (pa.binary(3), b"abc"),
    (pa.decimal128(38, 10), Decimal("-1.0000000001")), (pa.decimal256(70, 1), Decimal("1" * 60)),
    (pa.list_(pa.timestamp("ns", "UTC")), [1, None, 2**62 + 1]),
    (pa.large_list(pa.string()), ["a", None]), (pa.list_(pa.date32(), 2), [datetime.date(2000, 1, 1), None]),
    (pa.struct([("d", pa.decimal128(9, 2)), ("l", pa.list_(pa.duration("us")))]), {"d": None, "l": [5, None]}),
    (pa.map_(pa.string(), pa.timestamp("ns")), [("a", 2**62 + 1), ("b", None)]),
    (pa.map_(pa.date32(), pa.map_(pa.int8(), pa.bool_())), [(datetime.date(1970, 1, 2), [(1, True)])]),
    (pa.null(), None),
]  # fmt: skip


def state_of(kinds: list[tuple[pa.DataType, object]]) -> tuple[pa.Schema, list[pa.Array]]:
    schema = pa.schema([(f"c{i}", dtype) for i, (dtype, _) in enumerate(kinds)])
    return schema, [pa.array([value, None, value], dtype) for dtype, value in kinds]


@pytest.mark.parametrize(
    ("backend", "kinds"),
    [("columnar", NARROW), ("lmdb", NARROW + WIDE), ("rocksdb", NARROW + WIDE), ("columnar", NARROW * 4)],
)
def test_values_of_every_type_come_back_exactly(
    backend: str, kinds: list[tuple[pa.DataType, object]], tmp_path: Path
) -> None:
    schema, columns = state_of(kinds)
    case = Case(backend, "word", "spread", schema)
    assert backend in (store.choose(case.key, schema), "rocksdb")
    opened = case.open(tmp_path)
    head = [pa.array([case.hash(i) for i in range(3)]), *case.columns([0, 1, 2])]
    part = pa.Table.from_arrays([*head, *columns], schema=store.part_schema(case.key, schema))
    opened.ingest(part, ALL, 1)
    found = opened.lookup(case.keys([0, 1, 2, 3])).state
    for name, column in zip(schema.names, columns, strict=True):
        wanted = pa.concat_arrays([column, pa.nulls(1, column.type)])
        assert found.column(name).combine_chunks().equals(wanted), name
    scanned = pa.concat_tables([opened.scan(group, 1) for group in range(GROUPS)]).sort_by("k")
    assert scanned.drop_columns(["_hash", "k"]).equals(part.drop_columns(["_hash", "k"]))
    opened.close()


@pytest.mark.parametrize("length", [0, 1, 507, 508, 509, 510, 511, 512, 5000])
def test_keys_of_any_length_are_told_apart(backend: str, length: int, tmp_path: Path) -> None:
    case = Case(backend, "string", "forged")
    names = ["a" * length, "a" * length + "b", "a" * length + "c", "d" + "a" * length]
    keys = Keys.of(case.key, np.zeros(4, np.int64), [pa.array(names)])
    state = [pa.array([0, 1, 2]), pa.nulls(3, pa.float32()), pa.nulls(3, pa.bool_())]
    columns = [pa.array([0, 0, 0]), pa.array(names[:3]), *state]
    opened = case.open(tmp_path)
    opened.ingest(pa.Table.from_arrays(columns, schema=store.part_schema(case.key, STATE)), ALL, 1)
    assert opened.lookup(keys).state.column("n").to_pylist() == [0, 1, 2, None]
    assert sorted(opened.scan(0, 1).column("k").to_pylist()) == names[:3]
    opened.close()


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize(("ordered", "long"), [("lmdb", 470), ("rocksdb", 470), ("rocksdb", 520)])
def test_ranges_come_in_the_order_of_canonical_bytes(ordered: str, long: int, limit: int, tmp_path: Path) -> None:
    case = Case(ordered, "string", "forged")
    names = [head + tail for head in ("", "a", "b" * long, "c" * long) for tail in ("", "\0", "x", "y", "\U0010ffff")]
    hashes = np.arange(len(names)) % 2
    rows = range(len(names))
    columns = [pa.array(hashes), pa.array(names), pa.array(rows), *(pa.nulls(len(names), t) for t in STATE.types[1:])]
    part = pa.Table.from_arrays(columns, schema=store.part_schema(case.key, STATE))
    opened = case.open(tmp_path)
    opened.ingest(part, ALL[:1], 1)
    opened.ingest(part, ALL[1:], 1)
    bounds = [b"", b"a", b"ay", b"b" * long, b"b" * long + b"x", b"c" * (long + 1), b"\xff"]
    asked = [(group, low, high) for group in (1, 0) for low in bounds for high in bounds]
    wanted = []
    for number, (group, low, high) in enumerate(asked):
        mine = sorted((names[i].encode(), i) for i in rows if hashes[i] == group)
        wanted += [(number, i) for key, i in mine if low <= key < high][:limit]
    found = opened.ranges(*zip(*asked, strict=True), limit)
    assert list(zip(found.index.tolist(), found.part.column("n").to_pylist(), strict=True)) == wanted
    assert found.part.column("k").to_pylist() == [names[i] for _, i in wanted]
    opened.close()


def test_a_state_without_columns_still_knows_its_keys(backend: str, tmp_path: Path) -> None:
    case = Case(backend, "word", "spread", pa.schema([]))
    opened = case.open(tmp_path)
    opened.ingest(case.part({1: (), 2: ()}), ALL, 1)
    assert opened.lookup(case.keys([1, 2, 3])).present.tolist() == [True, True, False]
    opened.close()


@pytest.mark.parametrize("change", ["state", "key", "groups", "boot"])
def test_a_store_of_another_shape_or_boot_starts_empty(backend: str, change: str, tmp_path: Path) -> None:
    case = Case(backend, "word", "spread")
    opened = case.open(tmp_path)
    opened.ingest(case.part({1: (1, None, None)}), ALL, 3)
    opened.close()
    again = case.open(tmp_path)
    assert again.epochs().tolist() == [3] * GROUPS
    again.close()
    key, state, groups = case.key, STATE, GROUPS
    if change == "state":
        state = pa.schema([("n", pa.int32()), *list(STATE)[1:]])
    elif change == "key":
        key = KINDS["string"]
    elif change == "groups":
        groups = GROUPS * 2
    else:
        record = tmp_path / "identity.json"
        record.write_text(record.read_text().replace('"boot": "', '"boot": "another-'))
    fresh = store.open(backend, tmp_path, key, state, groups)
    assert fresh.epochs().tolist() == [-1] * groups
    fresh.close()


def test_a_home_that_a_power_cut_has_torn_starts_empty_and_works(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(backend, "word", "spread")
    rows: dict[int, Row] = {i: (i, None, None) for i in IDS}
    boot = tmp_path / "boot"
    monkeypatch.setattr(store_identity, "_BOOT", boot)
    for seed in range(6):
        boot.write_text(f"{seed}")
        place, journal = tmp_path / str(seed), tmp_path / "journal"
        place.mkdir()
        UnsyncedDisk(place, journal).close()
        opened = case.open(place)
        opened.ingest(case.part(rows), ALL, 3)
        opened.close()
        # A store syncs nothing, so anything may be left; only the boot tells.
        power_cut(place, journal, seed)
        boot.write_text("another")

        again = case.open(place)

        assert again.epochs().tolist() == [-1] * GROUPS
        again.ingest(case.part(rows), ALL, 3)
        check(case, again, [3] * GROUPS, rows)
        again.close()


def test_a_task_of_a_replaced_store_cannot_write_into_its_successor(backend: str, tmp_path: Path) -> None:
    old, new = Case(backend, "word", "spread"), Case(backend, "string", "spread")
    zombie = old.open(tmp_path)
    zombie.ingest(old.part({}), ALL, 0)
    successor = new.open(tmp_path)
    successor.ingest(new.part({}), ALL, 0)
    rows = {i: (i, None, None) for i in IDS}
    if backend != "lmdb":
        with pytest.raises(StaleTask):
            zombie.apply(old.delta(rows), ALL, 1)
    else:
        zombie.apply(old.delta(rows), ALL, 1)
    check(new, successor, [0] * GROUPS, {})
    zombie.close()
    successor.close()


def test_an_unknown_backend_and_one_that_cannot_hold_the_state_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownOption, match="'oracle'"):
        store.open("oracle", tmp_path, KINDS["word"], STATE, GROUPS)
    with pytest.raises(UnknownOption, match=r"s .string.*lmdb"):
        store.open("columnar", tmp_path, KINDS["word"], pa.schema([("s", pa.string())]), GROUPS)
