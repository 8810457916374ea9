"""What once went wrong without a word: each is right now, or an error that says what to do."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import (
    BloomFilter,
    Counter,
    Graph,
    List,
    Map,
    Operator,
    PerInstance,
    Queue,
    Reducing,
    Set,
    TumblingWindow,
    Value,
    count,
)
from ferryman._log.check.verify import verify
from ferryman.errors import InvalidConfiguration, OperatorFailed, OutputMismatch, StateMisused, StateSchemaChanged
from ferryman.testing import Harness

INPUT = "key string, x string"


def op(process: Any, **attributes: Any) -> type[Operator]:
    made: dict[str, Any] = {"output": "key string, found string", "process": process, **attributes}
    return type("Op", (Operator,), made)


def run(kind: type[Operator], *epochs: Any, input: str = INPUT, **options: Any) -> list[Any]:
    with Harness(lambda s: s.key_by("key").process(kind), input, **options) as harness:
        return [harness.epoch(rows) for rows in epochs]


# -- processors -------------------------------------------------------------------------------------


class Nested(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.xs = handle.getValueState("xs", "xs array<long>, by map<string, long>, at struct<a: int, b: string>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        xs, by, at = self.xs.get() or ([], {}, None)
        n = sum(1 for _ in rows)
        self.xs.update(([*xs, n], {**by, f"k{len(xs)}": n}, (len(xs), "b")))
        yield Row(key=key[0], found=repr((xs, by, None if at is None else tuple(at))))

    def close(self) -> None:
        pass


def test_a_processor_with_nested_values() -> None:
    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithState(Nested(), "key string, found string", "Update", "None")

    with Harness(build, INPUT) as harness:
        assert harness.epoch([("a", "")]) == [("a", "([], {}, None)")]
        assert harness.epoch([("a", ""), ("a", "")]) == [("a", "([1], {'k0': 1}, (0, 'b'))")]
        assert harness.epoch([("a", "")]) == [("a", "([1, 2], {'k0': 1, 'k1': 2}, (1, 'b'))")]


class Keyed(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.at = handle.getMapState("at", "t timestamp, f float", "n long")
        self.one = handle.getValueState("one", "n long, note string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        when = datetime.datetime(2024, 3, 1, tzinfo=datetime.timezone.utc)
        for _ in rows:
            before = self.at.getValue((when, 0.1))
            self.at.updateValue((when, 0.1), [before.n + 1 if before else 1])
        self.one.update([5, "x"])
        yield Row(key=key[0], found=f"{[value[0] for value in self.at.values()]} {self.one.get()[1]}")

    def close(self) -> None:
        pass


def test_keys_are_compared_as_they_are_stored_and_values_of_maps_have_names() -> None:
    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithState(Keyed(), "key string, found string", "Update", "None")

    with Harness(build, INPUT) as harness:
        assert [harness.epoch([("a", ""), ("a", "")]) for _ in range(3)][-1] == [("a", "[6] x")]


@pytest.mark.parametrize("name", ["key", "my-state", "my state", "_hidden", "1st", "a.b", "größe"])
def test_a_state_may_have_any_name_that_spark_takes(name: str) -> None:
    class Named(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState(name, "n long")
            self.all = handle.getListState(f"{name}s", "x string")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            self.all.appendList([(row.x,) for row in rows])
            self.seen.update(((self.seen.get() or (0,))[0] + 1,))
            yield Row(key=key[0], found=f"{self.seen.get()} {[text for (text,) in self.all.get()]}")

        def close(self) -> None:
            pass

    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithState(Named(), "key string, found string", "Update", "None")

    with Harness(build, INPUT) as harness:
        harness.epoch([("a", "x")])
        harness.restart()
        assert harness.epoch([("a", "y")]) == [("a", "(2,) ['x', 'y']")]


def test_pandas_frames_have_times_without_a_zone_and_dicts() -> None:
    import pandas as pd

    class Frames(Nested):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            frame = next(rows)
            assert frame["t"].dt.tz is None
            yield pd.DataFrame({"t": frame["t"], "m": [str(item) for item in frame["m"]], "n": [2**60 + 1]})

    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithStateInPandas(
            Frames(), "t timestamp, m string, n long", "Update", "None"
        )

    moment = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone.utc)
    with Harness(build, "key string, t timestamp, m map<string, int>") as harness:
        assert harness.epoch([("a", moment, {"x": 1})]) == [(moment, "{'x': 1}", 2**60 + 1)]


# -- keys of maps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Counter(str), Set(str)])
def test_a_key_that_is_null_is_refused_before_it_is_written(kind: Any) -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        if isinstance(kind, Counter):
            self.seen[row.x] += 1
        else:
            self.seen.add(row.x)

    with pytest.raises(OperatorFailed, match=r"state 'seen': None cannot be a key"):
        run(op(process, seen=kind), [("a", None)])


def test_times_without_a_zone_and_numbers_that_are_none_as_keys() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.seen[datetime.datetime(2024, 1, 1)] += 1
        yield key, repr(list(self.seen.values()))

    assert run(op(process, seen=Counter(datetime.datetime)), *[[("a", "")]] * 3)[-1] == [("a", "[3]")]

    def nan(self: Any, key: Any, row: Any) -> Any:
        self.seen[float("nan")] += 1

    with pytest.raises(OperatorFailed, match="nan cannot be a key"):
        run(op(nan, seen=Counter(float)), [("a", "")])


@pytest.mark.parametrize("store", [None, "rocksdb"])
def test_lists_of_very_long_keys_keep_their_order(store: str | None) -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.seen.append(int(row.x))
        yield key[:1], repr(list(self.seen))

    key = "k" * 700
    out = run(op(process, seen=List(int)), *[[(key, str(n))] for n in range(9)], store=store)
    assert out[-1] == [("k", repr(list(range(9))))]


# -- misuse -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "says"),
    [
        (lambda self, key, row: setattr(self, "items", []), r"assigns to self\.items"),
        (lambda self, key, row: setattr(self, "total", 5), r"assigns to self\.total.*self\.total\.value = "),
        (
            lambda self, key, row: self.deep.setdefault("a", ["x"]).append("y"),
            r"state 'deep': a value that was read was changed in place",
        ),
        (
            lambda self, key, row: [item.append("y") for item in self.lists] or self.lists.append(["x"]),
            r"state 'lists': a value that was read was changed in place",
        ),
    ],
)
def test_what_would_be_lost_is_an_error(process: Any, says: str) -> None:
    kind = op(
        process,
        items=List(int),
        total=PerInstance(int, int, merge=operator.add),
        deep=Map(str, list[str]),
        lists=List(list[str]),
    )
    with pytest.raises(StateMisused, match=says):
        run(kind, [("a", "")], [("a", "")], [("a", "")])


def test_a_buffer_that_is_used_again_is_not_shared() -> None:
    buffer: list[str] = []

    def process(self: Any, key: Any, row: Any) -> Any:
        buffer[:] = [key]
        self.deep["k"] = buffer
        yield key, ""

    with Harness(lambda s: s.key_by("key").process(op(process, deep=Map(str, list[str]))), INPUT) as harness:
        harness.epoch([("a", ""), ("b", "")])
        assert [row["_value"]["item"] for row in harness.state("Op.deep")] == [["a"], ["b"]]


def test_a_value_of_the_instance_that_is_changed_in_place_is_kept() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.all.value.append(row.x)
        yield key, repr(self.all.value)

    kind = op(process, all=PerInstance(list[str], list, merge=operator.add))
    assert run(kind, [("a", "1")], [("a", "2")], [("a", "3")])[-1] == [("a", "['1', '2', '3']")]


def test_a_key_that_was_cleared_begins_anew_even_if_a_call_is_waiting() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.n += 1
        self.call_at(10**15)
        if row.x == "clear":
            self.clear()
        yield key, str(self.n)

    kind = op(process, n=Value(int, 0), due=lambda self, key, at: None)
    assert run(kind, [("a", "clear")], [("a", "")]) == [[("a", "0")], [("a", "1")]]


def test_numbers_are_not_cut_to_whole_ones() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.n = 1.5
        yield key, ""

    with pytest.raises(OutputMismatch, match=r"'n' is declared as int64, and got 1\.5"):
        run(op(process, n=Value(int, 0)), [("a", "")])


def test_rows_for_an_input_that_is_not_there_are_not_lost() -> None:
    def both(left: Any, right: Any) -> Any:
        return left.with_watermark("at", 0).key_by("k").join(right.with_watermark("seen", 0).key_by("k"), within=1)

    row = (1, datetime.datetime.fromtimestamp(1, datetime.timezone.utc), "a")
    with Harness(both, {"views": "k int, at timestamp, l string", "clicks": "k int, seen timestamp"}) as harness:
        for rows in ({"view": [row]}, [row]):
            with pytest.raises(InvalidConfiguration, match="the inputs are 'views', 'clicks'"):
                harness.epoch(rows)
    with (
        Harness(lambda rows: rows.key_by("key").aggregate(n=count()), INPUT) as harness,
        pytest.raises(InvalidConfiguration, match="there is one input, without a name"),
    ):
        harness.epoch({"rows": [("a", "b")]})


def test_a_filter_that_was_only_asked_writes_nothing() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        yield key, str(row.x in self.seen)

    with Harness(lambda s: s.key_by("key").process(op(process, seen=BloomFilter(1000))), INPUT) as harness:
        harness.epoch([("a", "x")])
        assert harness.state() == []


def test_containers_do_what_pythons_own_do() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.words.update("aab")
        self.words.update({"a": 1})
        self.tags |= {"y", "z"}
        for number, order in enumerate([3, 1, 3, 2]):
            self.queue.push(order, number)
        for neighbour in ("b", "aa", "a"):
            self.edges[neighbour] = 1
        found = (dict(self.words.items()), sorted(self.tags | {"x"}), list(self.queue), list(self.edges))
        yield key, repr(found)

    kind = op(process, words=Counter(str), tags=Set(str), queue=Queue(int, int), edges=Graph(str, int))
    expected = ({"a": 3, "b": 1}, ["x", "y", "z"], [(1, 1), (2, 3), (3, 0), (3, 2)], ["a", "aa", "b"])
    assert run(kind, [("a", "")]) == [[("a", repr(expected))]]


# -- time -------------------------------------------------------------------------------------------


def test_a_row_that_is_not_late_still_falls_into_its_window() -> None:
    class Sums(Operator):
        by_event_time = True
        sums = TumblingWindow(60_000, Reducing(int, operator.add))
        output = "key string, start long, total long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            assert self.sums.add(row.time, 1)
            return iter(())

        def closed(self, key: Any, span: Any, result: int) -> Iterator[Any]:
            yield key, span.start, result

    def at(seconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)

    def build(stream: Any) -> Any:
        return stream.with_watermark("time", 0.0).key_by("key").process(Sums)

    with Harness(build, "key string, time timestamp") as harness:
        harness.epoch([("a", at(10))])
        harness.epoch([("a", at(70))])
        # Late is what is older than 10 s, by the watermark of the epoch before; the window closes in this epoch.
        assert harness.epoch([("a", at(50))]) == [("a", 0, 2)]
        with pytest.raises(InvalidConfiguration, match="before the first operator"):
            harness.redeclare(lambda s: build(s).with_watermark("start", 0.0))


def test_aggregates_leave_late_rows_out() -> None:
    def at(seconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)

    def build(stream: Any) -> Any:
        return stream.with_watermark("time", 0.0, keep_late=True).key_by("key").aggregate(name="A", n=count())

    with Harness(build, "key string, time timestamp") as harness:
        harness.epoch([("a", at(100))])
        harness.epoch([("a", at(101))])
        assert harness.epoch([("a", at(5)), ("a", at(102))]) == [("a", 3)]
        assert harness.sides == {"late": [("a", at(5))]}


def test_time_to_live_can_be_added_and_taken_away() -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        if row.x:
            self.items.append(row.x)
            self.words[row.x] += 1
        yield key, repr((list(self.items), list(self.words)))

    def kind(ttl: int | None, **more: Any) -> type[Operator]:
        return op(process, items=List(str, ttl=ttl), words=Counter(str, ttl=ttl), n=Value(int, 0), **more)

    with Harness(lambda s: s.key_by("key").process(kind(None)), INPUT, now_ms=0) as harness:
        harness.epoch([("a", "old")])
        harness.redeclare(lambda s: s.key_by("key").process(kind(1000)))
        assert harness.epoch([("a", "new")]) == [("a", "(['old', 'new'], ['old', 'new'])")]
        harness.now_ms = 1100
        assert harness.epoch([("a", "")]) == [("a", "([], [])")]

        def plain(self: Any, key: Any, row: Any) -> Any:
            yield key, "plain"

        rest = op(plain, n=Value(int, 0), dropped=("items", "words"))
        harness.redeclare(lambda s: s.key_by("key").process(rest))
        harness.tick(10_000)
        assert harness.checkpoint.manifest(harness.epochs).operators["Op"].keys <= 1
        harness.tick(10_000)
        assert harness.checkpoint.manifest(harness.epochs).operators["Op"].keys == 0
        harness.snapshot()
        assert verify(harness.checkpoint).faults == ()


# -- declared anew ----------------------------------------------------------------------------------


def declared(**values: Any) -> Any:
    def process(self: Any, key: Any, row: Any) -> Any:
        for name in type(self).values():
            if isinstance(getattr(self, name), int):
                setattr(self, name, getattr(self, name) + 1)
        yield key, ""

    return lambda s: s.key_by("key").process(op(process, **values))


def test_names_and_defaults_are_remembered_for_ever() -> None:
    with Harness(declared(a=Value(int, 0)), INPUT) as harness:
        harness.epoch([("k", "")])
        harness.redeclare(declared(b=Value(int, 0, alias="a")))
        harness.epoch([("k", "")])
        harness.redeclare(declared(b=Value(int, 0)))
        assert harness.state() == [{"key": "k", "b": 2}]
        assert harness.state(epoch=1) == [{"key": "k", "b": 1}]
        harness.redeclare(declared(c=Value(int, 0, alias="b"), z=Value(int, 5)))
        harness.epoch([("k", "")])
        assert harness.state(epoch=1) == [{"key": "k", "c": 1, "z": 5}]
        harness.redeclare(declared(c=Value(int, 0), z=Value(int, 99)))
        assert harness.state(epoch=1) == [{"key": "k", "c": 1, "z": 5}]
        assert harness.state() == [{"key": "k", "c": 3, "z": 6}]
        harness.redeclare(declared(c=Value(int, 0), dropped=("z",)))
        harness.epoch([("k", "")])
        with pytest.raises(StateSchemaChanged, match="'z' of 'Op' was given up by an earlier start"):
            harness.redeclare(declared(c=Value(int, 0), z=Value(list[str], [])))


def test_two_states_of_one_name_are_refused(spark: Any, tmp_path: Any) -> None:
    from ferryman import Ferry, sinks

    def process(self: Any, key: Any, row: Any) -> Any:
        yield key, ""

    ferry = Ferry(spark, tmp_path / "checkpoint")
    stream = ferry.stream(spark.readStream.format("rate").load()).key_by("value")
    one = stream.process(op(process, items=List(int)), name="orders").write(sinks.none())
    other = stream.process(op(process, n=Value(int, 0)), name="orders.items").write(sinks.none())
    with pytest.raises(InvalidConfiguration, match=r"two operators keep state called 'orders\.items'"):
        ferry.start("twice", one, other)


@pytest.mark.parametrize("letters", [201, 196])
def test_a_name_that_a_file_name_has_no_room_for_is_refused(letters: int) -> None:
    def process(self: Any, key: Any, row: Any) -> Any:
        self.items.append(1)
        yield key, ""

    with pytest.raises(InvalidConfiguration, match=r"'a+(\.items)?' is too long for a name.*at most 200"):
        Harness(lambda stream: stream.key_by("key").process(op(process, items=List(int)), name="a" * letters), INPUT)
