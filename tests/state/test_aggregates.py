"""Declared aggregates against a plain Python model: values, types, splits, errors, sketches."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman import aggregates as declare
from ferryman._model.errors import (
    CorruptCheckpoint,
    FerrymanError,
    InvalidConfiguration,
    OutputMismatch,
    StateSchemaChanged,
)
from ferryman._state.aggregates import Aggregation, compile_aggregates, kernels
from ferryman.testing import Harness

KEYS = 4
KINDS = ("count", "sum", "avg", "variance", "stddev", "min", "max", "first", "last")

small_ints = st.integers(-(2**40), 2**40)
calm_floats = st.floats(-1e6, 1e6, allow_nan=False)
wild_floats = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.5, 1e300])
texts = st.text(alphabet="ab\u00e9\U0001f600\ufffd\x00", max_size=3)


def rows_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[int, Any]]]:
    return st.lists(st.tuples(st.integers(0, KEYS - 1), st.none() | values), max_size=40)


cuts = st.lists(st.integers(0, 40), max_size=4)


def aggregation_of(type: pa.DataType, kinds: Sequence[str] = KINDS) -> Aggregation:
    declared = {kind: getattr(declare, kind)("v") for kind in kinds}
    return compile_aggregates({"rows": declare.count(), **declared}, pa.schema([("v", type)]))


def table_of(values: Sequence[Any], type: pa.DataType) -> pa.Table:
    return pa.table({"v": pa.array(list(values), type)})


def index_of(keys: Sequence[int]) -> np.ndarray:
    return np.array(list(keys), np.int64)


def unseen(aggregation: Aggregation, n: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(n, part.type) for part in aggregation.state], schema=aggregation.state)


def whole(aggregation: Aggregation, rows: list[tuple[int, Any]], type: pa.DataType) -> pa.Table:
    return aggregation.partial(table_of([v for _, v in rows], type), index_of([k for k, _ in rows]), KEYS)


def in_runs(
    aggregation: Aggregation, rows: list[tuple[int, Any]], type: pa.DataType, cuts: list[int], at_once: bool
) -> pa.Table:
    """Fold consecutive runs: each its own epoch, or all partials merged in one."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    partials = [whole(aggregation, rows[a:b], type) for a, b in itertools.pairwise(edges)]
    state, every = unseen(aggregation, KEYS), np.arange(KEYS)
    if at_once:
        return aggregation.merge(state, pa.concat_tables(partials), np.tile(every, len(partials)), KEYS)
    for partial in partials:
        state = aggregation.merge(state, partial, every, KEYS)
    return state


def model(kind: str, values: list[Any]) -> Any:
    """Say what an aggregate of these values must be, given in order and with nulls."""
    seen = [v for v in values if v is not None]
    if kind == "rows":
        return len(values)
    if kind == "count":
        return len(seen)
    if kind in ("variance", "stddev"):
        if len(seen) < 2:
            return None
        spread = math.nan if not all(map(math.isfinite, seen)) else statistics.variance(seen)
        return spread if kind == "variance" else math.sqrt(spread)
    if not seen:
        return None
    if kind in ("sum", "avg"):
        total = sum(seen)
        return total if kind == "sum" else total / len(seen)
    if kind in ("min", "max"):
        pick = min if kind == "min" else max
        return pick(seen, key=lambda v: (v != v, 0 if v != v else v.encode() if isinstance(v, str) else v))
    return seen[0] if kind == "first" else seen[-1]


def same(got: Any, wanted: Any, near: bool) -> bool:
    if got is None or wanted is None:
        return got is wanted
    if isinstance(wanted, float) and (math.isnan(wanted) or math.isnan(got)):
        return math.isnan(wanted) and math.isnan(got)
    # Rounding is relative to what was added, which the result may be far smaller than.
    return math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-3) if near else bool(got == wanted)


def check(result: pa.Table, rows: list[tuple[int, Any]], near: Sequence[str]) -> None:
    for key, row in enumerate(result.to_pylist()):
        mine = [v for k, v in rows if k == key]
        for kind, got in row.items():
            assert same(got, model(kind, mine), kind in near), (kind, key, mine, got, model(kind, mine))


@given(rows=rows_of(small_ints), cuts=cuts, at_once=st.booleans())
@settings(deadline=None)
def test_integers_agree_with_the_model_however_the_rows_are_split(rows: Any, cuts: Any, at_once: bool) -> None:
    exact = ("count", "sum", "avg", "min", "max", "first", "last")
    aggregation = aggregation_of(pa.int64(), exact)
    check(aggregation.result(whole(aggregation, rows, pa.int64())), rows, near=())
    split = in_runs(aggregation, rows, pa.int64(), cuts, at_once)
    check(aggregation.result(split), rows, near=())
    assert aggregation.result(split).equals(aggregation.result(whole(aggregation, rows, pa.int64())))


@given(rows=rows_of(calm_floats), cuts=cuts, at_once=st.booleans())
@settings(deadline=None)
def test_floats_agree_with_the_model_within_rounding(rows: Any, cuts: Any, at_once: bool) -> None:
    aggregation = aggregation_of(pa.float64())
    near = ("sum", "avg", "variance", "stddev")
    # Deviations of 1e6 have squares of 1e12, of which doubles keep sixteen digits: hence abs_tol.
    check(aggregation.result(whole(aggregation, rows, pa.float64())), rows, near)
    check(aggregation.result(in_runs(aggregation, rows, pa.float64(), cuts, at_once)), rows, near)


@given(rows=rows_of(wild_floats), cuts=cuts, at_once=st.booleans())
@settings(deadline=None)
def test_nan_and_infinity_behave_as_in_spark(rows: Any, cuts: Any, at_once: bool) -> None:
    aggregation = aggregation_of(pa.float64(), ("count", "sum", "avg", "min", "max", "first", "last"))
    near = ("sum", "avg")
    check(aggregation.result(whole(aggregation, rows, pa.float64())), rows, near)
    check(aggregation.result(in_runs(aggregation, rows, pa.float64(), cuts, at_once)), rows, near)


@given(rows=rows_of(texts), cuts=cuts, at_once=st.booleans())
@settings(deadline=None)
def test_strings_are_picked_in_the_order_of_code_points(rows: Any, cuts: Any, at_once: bool) -> None:
    for type in (pa.string(), pa.large_string()):
        aggregation = aggregation_of(type, ("count", "min", "max", "first", "last"))
        check(aggregation.result(whole(aggregation, rows, type)), rows, near=())
        check(aggregation.result(in_runs(aggregation, rows, type, cuts, at_once)), rows, near=())


@given(rows=rows_of(wild_floats), cuts=cuts, at_once=st.booleans())
@settings(deadline=None)
def test_a_merge_gives_the_same_bytes_every_time(rows: Any, cuts: Any, at_once: bool) -> None:
    aggregation = aggregation_of(pa.float64())

    def written() -> bytes:
        state = in_runs(aggregation, rows, pa.float64(), cuts, at_once)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, state.schema) as writer:
            writer.write_table(state)
        return bytes(sink.getvalue())

    assert written() == written()


def test_variance_of_infinity_is_nan_and_of_one_value_is_null() -> None:
    aggregation = aggregation_of(pa.float64(), ("variance", "stddev"))
    rows = [(0, math.inf), (0, 1.0), (1, 5.0), (2, 1.0), (2, 2.0), (2, 4.0), (3, None)]
    result = aggregation.result(in_runs(aggregation, rows, pa.float64(), [1], at_once=False))
    variance, stddev = result["variance"].to_pylist(), result["stddev"].to_pylist()
    assert math.isnan(variance[0])
    assert math.isnan(stddev[0])
    assert (variance[1], stddev[1], variance[3], stddev[3]) == (None,) * 4
    assert variance[2] == pytest.approx(7 / 3)
    assert stddev[2] == pytest.approx(math.sqrt(7 / 3))


def test_variance_survives_a_mean_far_from_zero() -> None:
    aggregation = aggregation_of(pa.float64(), ("variance",))
    rows = [(0, 1e9 + v) for v in (4.0, 7.0, 13.0, 16.0)]
    state = in_runs(aggregation, rows, pa.float64(), [1, 3], at_once=False)
    assert aggregation.result(state)["variance"][0].as_py() == pytest.approx(30.0)


def test_two_epochs_of_a_key_unseen_and_a_key_untouched() -> None:
    aggregation = aggregation_of(pa.int64(), ("sum", "last"))
    state = aggregation.merge(
        unseen(aggregation, 2),
        aggregation.partial(table_of([5], pa.int64()), index_of([0]), 1),
        index_of([0]),
        2,
    )
    assert aggregation.result(state).to_pylist() == [
        {"rows": 1, "sum": 5, "last": 5},
        {"rows": 0, "sum": None, "last": None},
    ]
    later = aggregation.partial(table_of([None, 7], pa.int64()), index_of([0, 1]), 2)
    assert aggregation.result(aggregation.merge(state, later, index_of([0, 1]), 2)).to_pylist() == [
        {"rows": 2, "sum": 5, "last": 5},
        {"rows": 1, "sum": 7, "last": 7},
    ]


def test_the_result_of_a_key_never_seen_is_zero_or_null() -> None:
    aggregation = aggregation_of(pa.float64(), ("count", "sum", "avg", "variance", "min"))
    row = aggregation.result(unseen(aggregation, 1)).to_pylist()[0]
    assert row == {"rows": 0, "count": 0, "sum": None, "avg": None, "variance": None, "min": None}


def test_nothing_in_gives_nothing_out() -> None:
    for type in (pa.int32(), pa.float64(), pa.bool_(), pa.string()):
        kinds = KINDS if type in (pa.int32(), pa.float64()) else ("min", "max", "first", "last")
        aggregation = aggregation_of(type, kinds)
        none = aggregation.partial(pa.schema([("v", type)]).empty_table(), index_of([]), 0)
        assert none.num_rows == 0
        assert none.schema == aggregation.state
        assert aggregation.result(aggregation.merge(none, none, index_of([]), 0)).num_rows == 0
        # Keys without a row: a partial of nothing, and a merge of nothing into it.
        idle = aggregation.partial(pa.schema([("v", type)]).empty_table(), index_of([]), 2)
        kept = aggregation.merge(unseen(aggregation, 2), none, index_of([]), 2)
        assert aggregation.result(idle).to_pylist() == aggregation.result(kept).to_pylist()
        assert set(aggregation.result(idle).to_pylist()[0].values()) <= {0, None}


PICKED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [3, -1, 2]),
    (pa.int16(), [3, -1, 2]),
    (pa.int32(), [3, -1, 2]),
    (pa.int64(), [3, -(2**63), 2**63 - 1]),
    (pa.uint8(), [3, 255, 2]),
    (pa.uint32(), [3, 2**32 - 1, 2]),
    (pa.uint64(), [3, 2**64 - 1, 2]),
    (pa.float32(), [3.5, -1.5, 2.5]),
    (pa.float64(), [3.5, -1.5, 2.5]),
    (pa.bool_(), [True, False, True]),
    (pa.date32(), [dt.date(2024, 5, 1), dt.date(1960, 1, 1), dt.date(2023, 1, 1)]),
    (pa.timestamp("us"), [dt.datetime(2024, 5, 1), dt.datetime(1960, 1, 1), dt.datetime(2023, 1, 1)]),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc), dt.datetime(1960, 1, 1, tzinfo=dt.timezone.utc)],
    ),
    (pa.duration("us"), [dt.timedelta(3), dt.timedelta(-1)]),
    (pa.time64("us"), [dt.time(3), dt.time(1)]),
    (pa.string(), ["b", "", "abc"]),
    (pa.binary(), [b"b", b"\xff", b"\x00", b""]),
]


@pytest.mark.parametrize(("type", "values"), PICKED, ids=[str(type) for type, _ in PICKED])
def test_picks_keep_the_type_of_their_input(type: pa.DataType, values: list[Any]) -> None:
    aggregation = aggregation_of(type, ("min", "max", "first", "last"))
    # Bitmaps must be read from their middle: the offset is no multiple of eight.
    column = pa.array([None] * 11 + [None, *values, None], type).slice(11)
    sliced = pa.table({"v": column})
    chunked = pa.table({"v": pa.chunked_array([column.slice(0, 2), column.slice(2)])})
    state = aggregation.partial(sliced, np.zeros(len(column), np.int32), 2)
    from_chunks = aggregation.partial(chunked, np.zeros(len(column), np.int32), 2)
    for got in (state, from_chunks, aggregation.merge(unseen(aggregation, 2), state, index_of([0, 1]), 2)):
        result = aggregation.result(got)
        assert {result.schema.field(kind).type for kind in ("min", "max", "first", "last")} == {type}
        assert result.to_pylist() == [
            {
                "rows": len(values) + 2,
                "min": min(values),
                "max": max(values),
                "first": values[0],
                "last": values[-1],
            },
            {"rows": 0, "min": None, "max": None, "first": None, "last": None},
        ]
        result.validate(full=True)


@pytest.mark.parametrize("type", [pa.int8(), pa.int32(), pa.uint16(), pa.float32()], ids=str)
def test_narrow_numbers_add_up_as_long_or_double(type: pa.DataType) -> None:
    aggregation = aggregation_of(type, ("sum", "avg", "variance"))
    assert aggregation.output.field("sum").type == (pa.float64() if type == pa.float32() else pa.int64())
    rows = pa.concat_tables([table_of([None, 100], type), table_of([100, 100], type)])
    result = aggregation.result(aggregation.partial(rows, index_of([0] * 4), 1)).to_pylist()
    assert result == [{"rows": 4, "sum": 300, "avg": 100.0, "variance": 0.0}]


def test_the_schemas_name_state_and_output_as_documented() -> None:
    declared = {"n": declare.count(), "a": declare.mean("v"), "s": declare.stddev("v"), "t": declare.sum("w")}
    aggregation = compile_aggregates(declared, pa.schema([("w", pa.int32()), ("v", pa.float64())]))
    assert aggregation.inputs == ("v", "w")
    assert aggregation.state == pa.schema(
        [
            ("n", pa.int64()),
            ("a_sum", pa.float64()),
            ("a_n", pa.int64()),
            ("s_n", pa.int64()),
            ("s_mean", pa.float64()),
            ("s_m2", pa.float64()),
            ("t", pa.int64()),
        ]
    )
    assert aggregation.output == pa.schema(
        [("n", pa.int64()), ("a", pa.float64()), ("s", pa.float64()), ("t", pa.int64())]
    )


def test_an_aggregation_can_be_copied_as_a_task_copies_it() -> None:
    aggregation = aggregation_of(pa.float64())
    shipped = copy.deepcopy(aggregation)
    assert shipped.output == aggregation.output
    rows = table_of([1.0, 2.0], pa.float64())
    assert shipped.partial(rows, index_of([0, 0]), 1) == aggregation.partial(rows, index_of([0, 0]), 1)


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1]])
def test_a_sum_that_leaves_64_bits_fails_and_names_the_aggregate(values: list[int]) -> None:
    aggregation = compile_aggregates({"total": declare.sum("v")}, pa.schema([("v", pa.int64())]))
    with pytest.raises(OutputMismatch, match=r"'total', sum\('v'\).*[Cc]ast 'v' to double"):
        aggregation.partial(table_of(values, pa.int64()), index_of([0, 0]), 1)
    parts = aggregation.partial(table_of(values, pa.int64()), index_of([0, 1]), 2)
    with pytest.raises(OutputMismatch, match="'total'"):
        aggregation.merge(unseen(aggregation, 1), parts, index_of([0, 0]), 1)
    assert aggregation.merge(unseen(aggregation, 2), parts, index_of([0, 1]), 2)["total"].to_pylist() == values


def test_rows_or_state_of_another_schema_are_refused() -> None:
    aggregation = aggregation_of(pa.int64(), ("sum",))
    with pytest.raises(OutputMismatch, match="'v' is double"):
        aggregation.partial(table_of([1.0], pa.float64()), index_of([0]), 1)
    with pytest.raises(OutputMismatch, match="'v' is missing"):
        aggregation.partial(pa.table({"w": [1]}), index_of([0]), 1)
    with pytest.raises(StateSchemaChanged, match="'sum' is double"):
        aggregation.result(pa.table({"rows": [1], "sum": [1.0]}))


@pytest.mark.parametrize(("index", "n"), [([0, 2], 2), ([-1, 0], 2), ([0], 1), ([0, 0], 0)])
def test_an_index_that_points_outside_is_refused(index: list[int], n: int) -> None:
    aggregation = aggregation_of(pa.int64(), ("sum",))
    with pytest.raises(FerrymanError, match="fault in Ferryman"):
        aggregation.partial(table_of([1, 2], pa.int64()), index_of(index), n)


def test_warm_compiles_every_variant_that_is_used() -> None:
    # In a process of its own, because other tests compile what they call.
    report = (
        "import json; from ferryman._state.aggregates import kernels, warm; warm(); "
        "found = {k: v for k, v in vars(kernels).items() if hasattr(v, 'signatures')}; "
        "print(json.dumps({k: len(v.signatures) for k, v in found.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", report], check=True, capture_output=True, text=True)
    warmed = json.loads(done.stdout)
    assert warmed
    assert all(warmed.values())
    for type, values in [*PICKED, (pa.float64(), [1.0, None]), (pa.string(), ["", None])]:
        number = pa.types.is_integer(type) or pa.types.is_floating(type)
        adding = number and type != pa.uint64()
        aggregation = aggregation_of(type, KINDS if adding else ("count", "min", "max", "first", "last"))
        index = index_of(range(len(values)))
        partial = aggregation.partial(table_of(values, type), index, len(values))
        none = unseen(aggregation, len(values))
        # Memory that Arrow owns and that numpy owns, and an index of either width, writable or not.
        for given_index in (index, index.astype(np.int32), kernels.frozen(index)):
            aggregation.result(aggregation.merge(none, partial, given_index, len(values)))
            aggregation.result(aggregation.merge(partial, none, given_index, len(values)))
    counts = {"n": declare.count(), "all": declare.collect_list("value")}
    with Harness(lambda rows: rows.key_by("key").count_window(2).aggregate(**counts), "key string, value long") as run:
        assert run.epoch([("a", 1), ("a", 2), ("b", 3)]) == [("a", 2, [1, 2])]
    used = {name: len(vars(kernels)[name].signatures) for name in warmed}
    assert {name: n for name, n in used.items() if n > warmed[name]} == {}


def test_what_lies_under_a_null_does_not_depend_on_other_keys() -> None:
    aggregation = aggregation_of(pa.int64(), ("sum", "min", "first"))
    for other in (7, 8):
        state = aggregation.partial(table_of([other], pa.int64()), index_of([1]), 2)
        for kind in ("sum", "min", "first"):
            stored = np.frombuffer(state[kind].chunk(0).buffers()[1], np.int64)
            assert stored.tolist() == [0, other]


class TestApproxDistinct:
    """Sketches: accurate, independent of splits, and the same bytes for the same input."""

    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("datasketches")

    def test_ten_thousand_values_are_estimated_within_three_sigma(self) -> None:
        each, n = 10_000, 10
        rows = table_of(range(each * n), pa.int64())
        aggregation = aggregation_of(pa.int64(), ("approx_distinct",))
        state = aggregation.partial(rows, np.arange(each * n) % n, n)
        again = aggregation.merge(state, state, index_of(range(n)), n)
        sigma = each * 1.04 / math.sqrt(2**12)
        for estimate in aggregation.result(again)["approx_distinct"].to_pylist():
            assert abs(estimate - each) <= 3 * sigma

    @given(rows=rows_of(texts), cuts=cuts, at_once=st.booleans())
    @settings(deadline=None, max_examples=50)
    def test_few_values_are_counted_exactly(self, rows: Any, cuts: Any, at_once: bool) -> None:
        for type in (pa.string(), pa.binary()):
            typed = [(k, v.encode() if v is not None and type == pa.binary() else v) for k, v in rows]
            aggregation = aggregation_of(type, ("approx_distinct",))
            result = aggregation.result(in_runs(aggregation, typed, type, cuts, at_once))
            wanted = [len({v for k, v in rows if k == key and v is not None}) for key in range(KEYS)]
            assert result["approx_distinct"].to_pylist() == wanted

    @pytest.mark.parametrize(("type", "values"), PICKED, ids=[str(type) for type, _ in PICKED])
    def test_every_type_can_be_counted(self, type: pa.DataType, values: list[Any]) -> None:
        aggregation = aggregation_of(type, ("approx_distinct",))
        state = aggregation.partial(table_of([*values, None, *values], type), index_of([0] * (2 * len(values) + 1)), 1)
        assert aggregation.result(state)["approx_distinct"].to_pylist() == [len(set(values))]

    def test_the_estimate_does_not_depend_on_the_split(self) -> None:
        rows = [(i % KEYS, i * 7919) for i in range(20_000)]
        aggregation = aggregation_of(pa.int64(), ("approx_distinct",))
        wanted = aggregation.result(whole(aggregation, rows, pa.int64()))
        for cut in ([1], [30, 500, 9_000], [19_999]):
            for at_once in (True, False):
                split = in_runs(aggregation, rows, pa.int64(), cut, at_once)
                assert aggregation.result(split).equals(wanted)

    def test_the_same_input_gives_the_same_bytes(self) -> None:
        rows = [(i % KEYS, f"user-{i % 900}") for i in range(4_000)]
        aggregation = aggregation_of(pa.string(), ("approx_distinct",))
        runs = [in_runs(aggregation, rows, pa.string(), [100, 2_000], at_once=False) for _ in range(2)]
        assert runs[0].equals(runs[1])
        assert runs[0]["approx_distinct"].null_count == 0

    def test_altered_bytes_are_reported_as_corrupt(self) -> None:
        aggregation = aggregation_of(pa.int64(), ("approx_distinct",))
        state = pa.table({"rows": [1], "approx_distinct": pa.array([b"\xff" * 9], pa.binary())})
        with pytest.raises(CorruptCheckpoint, match="'approx_distinct'"):
            aggregation.result(state)


def test_without_the_extra_the_fault_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(InvalidConfiguration, match=r"install ferryman\[sketches\]"):
        compile_aggregates({"d": declare.approx_distinct("v")}, pa.schema([("v", pa.int64())]))
