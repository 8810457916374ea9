"""Joins of two streams against a model of ten lines: the same rows, whatever crashes, moves and comes out of order."""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from ferryman import TwoInputOperator, Value, count
from ferryman.errors import InvalidConfiguration, NothingMoves, StateSchemaChanged
from ferryman.testing import Crash, Harness

LEFT, RIGHT = "k int, at timestamp, l string", "k int, seen timestamp, r long"
HOWS = ("inner", "left", "right", "full", "semi", "anti", "as_of")
LOWER, UPPER = -2, 5
Row = tuple[Any, ...]


def at(second: float) -> Any:
    return datetime.datetime.fromtimestamp(second, datetime.timezone.utc)


def model(left: list[Row], right: list[Row], how: str) -> Counter[Row]:
    """Join two lists of (key, second, payload) as a batch would."""
    out: list[Row] = []
    pairs = [
        (n, m) for n, a in enumerate(left) for m, b in enumerate(right)
        if a[0] is not None and a[0] == b[0] and LOWER <= b[1] - a[1] <= UPPER
    ]  # fmt: skip
    lefts, rights = {n for n, _ in pairs}, {m for _, m in pairs}
    if how == "as_of":
        for row in left:
            known = [(b[1], m) for m, b in enumerate(right) if b[0] == row[0] and 0 <= row[1] - b[1] <= UPPER]
            out.append((*row, *(right[max(known)[1]][1:] if known else (None, None))))
    if how in ("inner", "left", "right", "full"):
        out += [(*left[n], *right[m][1:]) for n, m in pairs]
    if how in ("left", "full"):
        out += [(*row, None, None) for n, row in enumerate(left) if n not in lefts]
    if how in ("right", "full"):
        out += [(row[0], None, None, *row[1:]) for m, row in enumerate(right) if m not in rights]
    if how == "semi":
        out += [left[n] for n in lefts]
    if how == "anti":
        out += [row for n, row in enumerate(left) if n not in lefts]
    return Counter(out)


def joined(how: str, **options: Any) -> Any:
    if how == "as_of":
        options = {"within": f"{UPPER} seconds"}
    options = options or {"lower": f"{LOWER} seconds", "upper": f"{UPPER} seconds"}

    def build(left: Any, right: Any) -> Any:
        ours = left.with_watermark("at", "3 seconds").key_by("k")
        return ours.join(right.with_watermark("seen", "3 seconds").key_by("k"), how=how, name="join", **options)

    return build


def plain(row: Row) -> Row:
    return tuple(value.timestamp() if hasattr(value, "timestamp") else value for value in row)


KEYS = st.sampled_from([1, 2, 3])


@st.composite
def histories(draw: Any) -> list[Any]:
    """Give epochs whose rows are out of order, but never late, and what happens between them."""
    epochs, now = [], 100
    for _ in range(draw(st.integers(1, 6))):
        late = st.integers(0, 2)
        # Nothing is late: that is what is three seconds or more behind what came in the epochs before.
        rows = st.lists(st.tuples(KEYS, late), max_size=6)
        left, right = draw(rows), draw(rows)
        event = draw(st.sampled_from(["", "crash", "restart", "rescale", "pin", "snapshot"]))
        epochs.append(([(key, now - back) for key, back in left], [(key, now - back) for key, back in right], event))
        now += draw(st.integers(0, 4))
    return epochs


@hypothesis.settings(max_examples=15, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(history=histories(), how=st.sampled_from(HOWS), narrow=st.booleans())
def test_a_join_gives_the_rows_that_a_batch_gives_and_keeps_none(history: Any, how: str, narrow: bool) -> None:
    left: list[Row] = []
    right: list[Row] = []
    out: list[Row] = []
    ours = LEFT.replace("string", "long") if narrow else LEFT
    with Harness(joined(how), {"left": ours, "right": RIGHT}, instances=2, groups=4) as harness:
        for lefts, rights, event in history:
            new = [
                (key, second, len(left) + n if narrow else f"l{len(left) + n}") for n, (key, second) in enumerate(lefts)
            ]
            other = [(key, second, len(right) + n) for n, (key, second) in enumerate(rights)]
            left += new
            right += other
            rows = {"left": [(k, at(t), p) for k, t, p in new], "right": [(k, at(t), p) for k, t, p in other]}
            if event == "crash":
                with pytest.raises(Crash):
                    harness.epoch(rows, crash=True)
                out += harness.redo()
            else:
                out += harness.epoch(rows)
            if event == "restart":
                harness.restart()
            elif event == "rescale":
                harness.rescale(3)
            elif event == "pin":
                with contextlib.suppress(NothingMoves):
                    harness.pin(1, to=1)
            elif event == "snapshot":
                harness.snapshot()
        # Rows of a key that joins nothing move the watermark beyond all others; they are late themselves in the end.
        end = {"left": [(9, at(10_000), (left and left[0][2]) or None)], "right": [(9, at(10_000 + 600), None)]}
        for _ in range(3):
            out += harness.epoch(end)
            end = {"left": [], "right": []}
        made = Counter(map(plain, out))
        assert Counter({row: n for row, n in made.items() if row[0] != 9}) == model(left, right, how)
        for table in ("join.left", "join.right"):
            assert [row for row in harness.state(table) if row["k"] != 9] == []
        for table in ("join", "join._time"):
            assert [row["k"] for row in harness.state(table)] in ([], [9])


@pytest.mark.parametrize(("how", "seconds"), [("inner", (61.5, 62, 61.8)), ("semi", (10, 20, 19))])
def test_a_key_without_rows_is_not_looked_at_again(how: str, seconds: tuple[float, float, float]) -> None:
    def build(left: Any, right: Any) -> Any:
        ours, other = left.with_watermark("at", "0 seconds"), right.with_watermark("seen", "0 seconds")
        bounds = {"lower": "0 seconds", "upper": "1 minute"}
        return ours.key_by("k").join(other.key_by("k"), how=how, name="join", **bounds)

    with Harness(build, {"left": LEFT, "right": RIGHT}) as harness:
        harness.epoch({"left": [(1, at(1), "a")], "right": [(9, at(0), 0)]})
        for second in seconds[:2]:
            harness.epoch({"left": [(9, at(second), "")], "right": [(9, at(second), 0)]})
        # The row on the left has gone by now, or goes with this one; and this one goes at once.
        harness.epoch({"right": [(1, at(seconds[2]), 1)]})
        assert 1 not in [row["k"] for table in ("join", "join._time") for row in harness.state(table)]


def test_null_keys_join_nothing_and_are_put_out_where_rows_without_a_partner_are() -> None:
    rows = {"left": [(None, at(1), "a"), (1, at(1), "b")], "right": [(None, at(1), 1), (1, at(2), 2)]}
    with Harness(joined("inner"), {"left": LEFT, "right": RIGHT}) as harness:
        assert [plain(row) for row in harness.epoch(rows)] == [(1, 1, "b", 2, 2)]
    with Harness(joined("full"), {"left": LEFT, "right": RIGHT}) as harness:
        out = harness.epoch(rows)
        out += harness.epoch({"left": [(2, at(100), "z")], "right": [(2, at(100), 9)]})
        out += harness.epoch()
        assert {plain(row) for row in out} == {
            (1, 1, "b", 2, 2), (None, 1, "a", None, None), (None, None, None, 1, 1), (2, 100, "z", 100, 9)
        }  # fmt: skip


def test_a_hot_key_keeps_only_what_can_still_be_joined() -> None:
    with Harness(joined("inner"), {"left": LEFT, "right": RIGHT}) as harness:
        for second in range(0, 600, 20):
            harness.epoch({"left": [(1, at(second + n), "a") for n in range(20)], "right": [(1, at(second), 1)]})
        # Twenty rows a second apart come in an epoch; those of the last ones are there, and not all of them.
        assert len(harness.state("join.left")) < 100
        state = harness.state("join")[0]
        assert state["left_next"] - state["left_first"] < 120


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs a bound"),
        ({"lower": "1 second"}, "needs a bound"),
        ({"within": "1 second", "lower": "1 second", "upper": "2 seconds"}, "needs a bound"),
        ({"lower": "5 seconds", "upper": "1 second"}, "Let lower be the lesser"),
        ({"within": "soon"}, "is not an interval"),
        ({"within": "1 second", "how": "cross"}, "inner, left, right, full, semi, anti or as_of"),
    ],
)
def test_what_no_join_can_be_is_refused(options: Any, says: str) -> None:
    def build(left: Any, right: Any) -> Any:
        ours = left.with_watermark("at", "3 seconds").key_by("k")
        return ours.join(right.with_watermark("seen", "3 seconds").key_by("k"), **options)

    with pytest.raises(InvalidConfiguration, match=says):
        Harness(build, {"left": LEFT, "right": RIGHT})


@pytest.mark.parametrize(
    ("right", "says"),
    [
        ("k long, seen timestamp, r long", "of type int on the left, and 'k' of type bigint"),
        ("k int, seen timestamp, l long", "both streams have a column 'l'"),
        ("k int, seen timestamp_ntz, r long", "are of the types timestamp and timestamp_ntz"),
    ],
)
def test_streams_that_do_not_fit_each_other_are_refused(right: str, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        Harness(joined("inner"), {"left": LEFT, "right": right})


@pytest.mark.parametrize(
    ("left", "row", "says"),
    [
        ("k int, at timestamp, l string, more double", (2, at(101), "c", 1.5), None),
        ("k int, at timestamp, l int", (2, at(101), 3), "state 'left.l': string -> int32"),
        ("k int, at timestamp", (2, at(101)), "state 'left.l': string -> not there"),
        ("k int, at timestamp, renamed string", (2, at(101), "c"), "state 'left.l': string -> not there"),
    ],
)
def test_a_stream_that_has_other_columns_at_the_next_start_is_joined_or_refused_whole(
    tmp_path: Any, left: str, row: Row, says: str | None
) -> None:
    with Harness(joined("left"), {"left": LEFT, "right": RIGHT}, checkpoint=tmp_path) as harness:
        harness.epoch({"left": [(1, at(100), "a")], "right": [(2, at(100), 5)]})
    later = {"left": [row], "right": [(1, at(101), 6)]}
    if says is None:
        with Harness(joined("left"), {"left": left, "right": RIGHT}, checkpoint=tmp_path) as harness:
            made = sorted(harness.epoch(later))
            assert [(out[0], out[2], out[3], out[-1]) for out in made] == [(1, "a", None, 6), (2, "c", 1.5, 5)]
        return
    with pytest.raises(StateSchemaChanged, match=says):
        Harness(joined("left"), {"left": left, "right": RIGHT}, checkpoint=tmp_path)
    # Nothing was changed: as it was, the job goes on.
    with Harness(joined("left"), {"left": LEFT, "right": RIGHT}, checkpoint=tmp_path) as harness:
        assert [plain(out)[::4] for out in harness.epoch({"right": [(1, at(101), 6)]})] == [(1, 6)]


def test_windows_over_a_join_are_refused_with_what_can_be_done() -> None:
    def build(left: Any, right: Any) -> Any:
        return joined("inner")(left, right).key_by("k").window("at", "1 minute").aggregate(n=count())

    with pytest.raises(InvalidConfiguration, match="aggregates and joins do not: take windows before those"):
        Harness(build, {"left": LEFT, "right": RIGHT})


def test_a_stream_without_a_watermark_is_not_joined() -> None:
    with pytest.raises(InvalidConfiguration, match="the right stream has no watermark"):
        Harness(
            lambda a, b: a.with_watermark("at", "1 second").key_by("k").join(b.key_by("k"), within="1 second"),
            {"left": LEFT, "right": RIGHT},
        )


class Priced(TwoInputOperator):
    price = Value(float, 0.0)
    output = "item string, cost double"

    def process_left(self, key: Any, row: Any) -> Iterator[Any]:
        assert row._fields == ("item", "pieces")
        yield row.item, row.pieces * self.price

    def process_right(self, key: Any, row: Any) -> None:
        assert row._fields == ("product", "price")
        self.price = row.price


def test_two_streams_share_the_state_of_their_key() -> None:
    inputs = {"orders": "item string, pieces int", "prices": "product string, price double"}
    with Harness(
        lambda o, p: o.key_by("item").connect(p.key_by("product")).process(Priced), inputs, instances=2
    ) as harness:
        assert harness.epoch({"prices": [("tea", 2.0), ("ink", 5.0)], "orders": [("tea", 1)]}) == [("tea", 0.0)]
        harness.rescale(3)
        assert sorted(harness.epoch({"orders": [("tea", 3), ("ink", 1)]})) == [("ink", 5.0), ("tea", 6.0)]


def test_an_operator_on_two_streams_is_given_two() -> None:
    class Half(TwoInputOperator):
        output = "k int"

        def process_left(self, key: Any, row: Any) -> None:
            pass

    with pytest.raises(InvalidConfiguration, match="is given one"):
        Harness(lambda s: s.key_by("item").process(Priced), "item string")
    with pytest.raises(InvalidConfiguration, match="needs both process_left"):
        Harness(lambda a, b: a.key_by("k").connect(b.key_by("k")).process(Half), {"a": "k int", "b": "k int"})
