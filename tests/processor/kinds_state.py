"""Processors on rows that keep values, lists and maps, as users write them, and at the edges of what Spark says."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from typing import Any

from processor.kind import Kind, Telling, at, shown
from pyspark.sql import Row

D = decimal.Decimal
NUMBERS = [
    [("a", 3), ("b", -1), ("a", 5)],
    [("a", 7), ("c", 2**62), ("b", 0)],
    [("c", 1), ("a", -9), ("a", 3), ("b", 5)],
]
TYPES = (
    "b boolean, y byte, h short, i int, l long, f float, d double, e decimal(10,2), s string, x binary, a date, "
    "t timestamp, n timestamp_ntz, ar array<int>, m map<string,int>, st struct<a:int,b:string>, "
    "z array<struct<q:array<double>>>"
)


def every_type() -> tuple[Any, ...]:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)
    flat = (True, -1, 2, 3, 2**62 + 1, 0.5, 1.25, D("1.50"), "ü", b"ab", datetime.date(2024, 1, 1), moment, moment)
    return (*flat, [1, 2, None], {"a": 1, "b": None}, Row(a=1, b="x"), [Row(q=[0.5, None]), Row(q=None)])


class RunningStats(Telling):
    def init(self, handle: Any) -> None:
        self.stats = handle.getValueState("stats", "n long, total long, least long, most long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, total, least, most = self.stats.get() or (0, 0, None, None)
        for row in rows:
            n, total = n + 1, total + row.n
            least = row.n if least is None else min(least, row.n)
            most = row.n if most is None else max(most, row.n)
        self.stats.update((n, total, least, most))
        yield self.say(key, self.stats.get(), total / n)


class Distinct(Telling):
    """Pass on what was not seen yet, of each key."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getMapState("seen", "n long", "times long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            times = self.seen.getValue((row.n,))
            if times is None:
                yield self.say(key, "new", row.n, self.seen.containsKey((row.n,)))
            self.seen.updateValue((row.n,), ((times[0] if times else 0) + 1,))
        yield self.say(key, len(list(self.seen.keys())), sum(count for (count,) in self.seen.values()))


class TopTwo(Telling):
    def init(self, handle: Any) -> None:
        self.top = handle.getListState("top", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        best = sorted([*(number for (number,) in self.top.get()), *(row.n for row in rows)], reverse=True)[:2]
        self.top.put([(number,) for number in best])
        yield self.say(key, list(self.top.get()), self.top.exists())


class LastThree(Telling):
    """A buffer that is cut when it is full, and cleared when a number below 0 comes."""

    def init(self, handle: Any) -> None:
        self.last = handle.getListState("last", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.n < 0:
                self.last.clear()
            self.last.appendList([(row.n,), (row.n + 1,)])
            held = list(self.last.get())
            if len(held) > 3:
                self.last.put(held[-3:])
            yield self.say(key, row.n, list(self.last.get()))


class Joined(Telling):
    """Match orders and payments, whichever comes first."""

    def init(self, handle: Any) -> None:
        self.orders = handle.getListState("orders", "id long, amount decimal(8,2)")
        self.paid = handle.getMapState("paid", "id long", "amount decimal(8,2)")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.what == "order":
                self.orders.appendValue((row.id, row.amount))
            else:
                self.paid.updateValue((row.id,), (row.amount,))
        waiting = []
        for id, amount in self.orders.get():
            paid = self.paid.getValue((id,))
            if paid is None:
                waiting.append((id, amount))
            else:
                self.paid.removeKey((id,))
                yield self.say(key, id, amount, shown(paid[0] - amount))
        if waiting:
            self.orders.put(waiting)
        else:
            self.orders.clear()
        yield self.say(key, "waiting", waiting, list(self.paid.iterator()), self.orders.exists(), self.paid.exists())


class Machine(Telling):
    """An order's way from one status to the next; what is not allowed is told and changes nothing."""

    def init(self, handle: Any) -> None:
        self.status = handle.getValueState("status", "status string, since timestamp")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            now = self.status.get()
            if f"{now[0] if now else ''} {row.what}" in (" new", "new paid", "new gone", "paid sent"):
                self.status.update((row.what, row.t))
                yield self.say(key, "is", shown(self.status.get()))
            elif row.what == "forget":
                self.status.clear()
                yield self.say(key, "forgotten", self.status.exists(), self.status.get())
            else:
                yield self.say(key, "not", row.what, "after", now)


class ByRoomAndDay(Telling):
    """A map whose keys have two fields, and values with a struct and a map in them."""

    def init(self, handle: Any) -> None:
        value = "last struct<n:long, tags:array<string>>, seen map<string,long>"
        self.by = handle.getMapState("by", "room string, day date", value)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            entry = (row.room, row.day)
            before = self.by.getValue(entry)
            seen = dict(before.seen) if before is not None else {}
            seen[str(row.n)] = seen.get(str(row.n), 0) + 1
            self.by.updateValue(entry, (Row(n=row.n, tags=[str(row.n), None]), seen))
            yield self.say(key, shown(before), shown(self.by.getValue(entry)))
        yield self.say(key, sorted(shown(item) for item in self.by.iterator()))


class EveryType(Telling):
    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", TYPES)
        self.list = handle.getListState("list", TYPES)
        self.map = handle.getMapState("map", "x binary, e decimal(10,2), b boolean, a date, f float", TYPES)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        entry = (b"k", D("2.5"), True, datetime.date(2024, 1, 1), 0.1)
        for row in rows:
            new = every_type() if row.n else (None,) * 17
            yield self.say("before", *self.found(entry))
            self.value.update(new)
            self.list.appendValue(new)
            self.map.updateValue(entry, new)
            yield self.say("after", *self.found(entry))

    def found(self, entry: Any) -> Iterator[str]:
        yield shown(self.value.get())
        yield from (shown(value) for value in self.list.get())
        yield from (shown(item) for item in self.map.iterator())
        yield f"{shown(self.map.getValue(entry))} {self.map.containsKey(entry)}"


class OddNumbers(Telling):
    """Numbers that are no numbers, and those at the ends of their types, in values and as keys of a map."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "f float, d double, l long, y byte")
        self.map = handle.getMapState("map", "d double", "l long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield self.say(key, shown(row), shown(self.value.get()), sorted(map(shown, self.map.iterator())))
            self.value.update((row.f, row.d, row.l, row.y))
            if row.d is not None and row.d != 0:
                self.map.updateValue((row.d,), (row.l,))
            yield self.say(key, shown(self.value.get()))


class Lazily(Telling):
    """Iterators read when the first value is asked for, and not again."""

    def init(self, handle: Any) -> None:
        self.list = handle.getListState("list", "n long")
        self.map = handle.getMapState("map", "k long", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        numbers = [row.n for row in rows]
        made = self.list.get(), self.map.iterator(), self.map.keys(), self.map.values()
        for n in numbers:
            self.list.appendValue((n,))
            self.map.updateValue((n,), (n,))
        yield self.say("written after they were made", *(list(iterator) for iterator in made))
        values, entries = self.list.get(), self.map.iterator()
        first = next(values), next(entries)
        self.list.appendValue((99,))
        self.map.updateValue((99,), (99,))
        self.map.removeKey((numbers[0],))
        yield self.say("written after the first", *first, list(values), list(entries))
        values = self.list.get()
        self.list.clear()
        self.map.clear()
        yield self.say("cleared", list(values), self.list.exists(), self.map.exists(), next(self.map.keys(), None))
        self.list.put([(1,), (2,)])
        self.map.updateValue((numbers[0],), (numbers[0],))


class ReadsInPart(Telling):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield self.say(key, next(rows))


class ReadsTwice(Telling):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield self.say(key, len(list(rows)), len(list(rows)), iter(rows) is rows)


class Eager(Telling):
    """A method that is no generator: it has done its work when it returns."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
        before = (self.seen.get() or (0,))[0]
        self.seen.update((before + len(list(rows)),))
        if key[0] == "a":
            return [self.say(key, "a list", before, self.seen.get())]
        return (self.say(key, "an expression", number, self.seen.get()) for number in range(before + 1))


class Zähler(Telling):
    """What a processor keeps in itself lasts as long as a batch."""

    def init(self, handle: Any) -> None:
        self.called = ["init"]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        # Spark comes to keys in their order, Ferryman in that of their rows.
        self.called.append("key")
        yield self.say(self.called, timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs())


class Quiet(Telling):
    """Mostly nothing to say."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        return iter([self.say(key)] if key[0] == "c" else [])


class Heavy(Telling):
    """Lists and maps of many entries, and many rows out."""

    def init(self, handle: Any) -> None:
        self.list = handle.getListState("list", "n long, s string")
        self.map = handle.getMapState("map", "n long", "s string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.list.appendList([(number, "x" * 10) for number in range(300)])
        for number in range(0, 300, 3):
            self.map.updateValue((number * 7 % 301,), (str(number),))
        yield self.say(key, sum(n for n, _ in self.list.get()), len(list(self.map.keys())), self.map.getValue((3,)))
        yield from (self.say(key, row.n, number) for row in rows for number in range(300))


class Grouped(Telling):
    """Count by a key, whatever it is, and say what it is."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.seen.update(((self.seen.get() or (0,))[0] + len(list(rows)),))
        self.handle.registerTimer(1000)
        yield self.say(shown(key), self.seen.get())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield self.say("due", shown(key), self.seen.get())


class Through(Telling):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield from rows


class ByName(Telling):
    """Rows with other orders of fields, with more, and with fewer."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(z=1, a=2, b="more")
        yield Row(b="fewer")
        yield Row("b", "a")("another order", 5)
        yield Row(A=9, b="another case")


class NamesOfColumns(Telling):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield self.say(row, row["a b"], row._x, row["count"], callable(row.count), "ü" in row, row.asDict())


class NamesOfStates(Telling):
    NAMES = ("v", "V", "my state", "k", "_timers", "a.b", "ü", "2")

    def init(self, handle: Any) -> None:
        fields = "a_b long, K string, k string, _value long"
        self.states = [handle.getValueState(name, fields) for name in self.NAMES]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for number, state in enumerate(self.states):
            yield self.say(number, state.get())
            state.update((number, "x", None, 5))


class Forms(Telling):
    """A value given as a list, as a row, as a row with other names."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "a long, b long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for value in ([1, 2], Row(a=1, b=2), Row(b=1, a=2), Row(x=5, y=6)):
            self.value.update(value)
            yield self.say(value, shown(self.value.get()))


class Brought(Telling):
    """Values that are brought into the types of their fields: days of times, rounded decimals, lists as structs."""

    def init(self, handle: Any) -> None:
        fields = "a date, n timestamp_ntz, e decimal(10,2), x binary, st struct<a:int,e:decimal(5,1)>, ar array<date>"
        self.value = handle.getValueState("value", fields)
        self.list = handle.getListState("list", fields)
        self.map = handle.getMapState("map", "a date, e decimal(10,2)", fields)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield self.say("before", *self.found(row))
            moments = [row.t, None, row.t.date()]
            new = (row.t, row.t, row.e / 3, row.k, [row.t.day, row.e / 7], moments)
            self.value.update(new)
            self.list.appendList([new, new])
            self.map.updateValue((row.t, row.e / 3), new)
            yield self.say("after", *self.found(row))

    def found(self, row: Row) -> Iterator[str]:
        yield shown(self.value.get())
        yield from (shown(value) for value in self.list.get())
        yield from sorted(shown(item) for item in self.map.iterator())
        yield f"{shown(self.map.getValue((row.t.date(), row.e / 3)))} {self.map.containsKey((row.t, row.e / 3))}"


class Streak(Telling):
    """Days in a row on which something came."""

    def init(self, handle: Any) -> None:
        self.run = handle.getValueState("run", "first date, last date")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for day in sorted({row.day for row in rows if row.day is not None}):
            run = self.run.get()
            goes_on = run is not None and day - run[1] <= datetime.timedelta(days=1)
            self.run.update((run[0] if goes_on and run else day, day))
        run = self.run.get()
        yield self.say(key, shown(run), run and (run[1] - run[0]).days)


class Toggles(Telling):
    """Switches by name, in one map; a null turns all off."""

    def init(self, handle: Any) -> None:
        self.on = handle.getMapState("on", "name string", "on boolean")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.name is None:
                for (name,) in self.on.keys():  # noqa: SIM118  it is no dict
                    self.on.updateValue((name,), (False,))
            else:
                self.on.updateValue((row.name,), (not (self.on.getValue((row.name,)) or (False,))[0],))
        yield self.say(key, sorted(shown(item) for item in self.on.iterator()))


DAY = datetime.date(2024, 2, 28)
READINGS = [
    [("a", "r1", DAY, 1), ("a", None, DAY, 2), ("b", "r1", None, 3)],
    [("a", "r1", DAY, 4), ("a", "ü", DAY + datetime.timedelta(1), 5), ("a", None, None, 6)],
    [("b", "r1", None, 7), ("a", "r1", DAY, 4), ("b", "r2", DAY + datetime.timedelta(2), 8)],
]
KEYS = "k string, b boolean, y byte, x binary, e decimal(10,2), a date, u timestamp, n timestamp_ntz, t timestamp"
SOME_KEY = ("k", True, -128, b"x", D("1.50"), DAY, at(5), datetime.datetime(2024, 1, 1, 12))
NO_KEY = (None,) * 8
ODD = [
    [("a", math.nan, math.nan, 2**63 - 1, 127), ("b", 0.1, -0.0, -(2**63), -128)],
    [("a", math.inf, -math.inf, 0, 0), ("b", None, None, None, None)],
    [("a", 3.4028234663852886e38, 5e-324, 1, 1), ("b", 1.0, 1 / 3, 2, 2)],
]
ANY = "k string, t timestamp, m map<string,int>, s struct<a:int,b:array<int>>, x binary, e decimal(5,1), f float"
THROUGH = [
    [("a", at(0), {"a": 1}, {"a": 1, "b": [1, None]}, b"x", D("1.5"), 0.1), ("a", *(None,) * 6)],
    [("b", at(1), {}, {"a": None, "b": None}, b"", D("0.0"), -0.0)],
]
MONEY = [
    [("a", "order", 1, D("5.00")), ("a", "payment", 2, D("7.25")), ("b", "order", 9, D("1.00"))],
    [("a", "order", 2, D("7.00")), ("a", "order", 3, None)],
    [("a", "payment", 1, D("5.00")), ("b", "payment", 9, D("2.00"))],
]
STEPS = [
    [("a", "new", at(1)), ("b", "paid", at(1)), ("b", "new", at(2))],
    [("a", "paid", at(3)), ("a", "sent", at(4)), ("b", "gone", None)],
    [("a", "new", at(5)), ("b", "forget", at(5)), ("b", "new", at(6))],
]
SHARES = [
    [("a", at(1), D("10.00")), ("b", at(2), D("0.05"))],
    [("a", at(90_000), D("-20.00")), ("a", at(1), D("1.00"))],
]
SWITCHES = [[("a", "x"), ("a", "y"), ("b", "")], [("a", "x"), ("a", None), ("b", "")], [("a", "x")]]

KINDS = [
    Kind("running stats", "k string, n long", NUMBERS, RunningStats),
    Kind("what was not seen yet", "k string, n long", NUMBERS, Distinct),
    Kind("the two largest", "k string, n long", NUMBERS, TopTwo),
    Kind("a buffer of three", "k string, n long", NUMBERS, LastThree),
    Kind("orders and payments", "k string, what string, id long, amount decimal(8,2)", MONEY, Joined),
    Kind("a state machine", "k string, what string, t timestamp", STEPS, Machine),
    Kind("a map with nested values", "k string, room string, day date, n long", READINGS, ByRoomAndDay),
    Kind("every type in every state", "k string, n long", [[("a", 1), ("b", 0)], [("a", 0), ("b", 1)]], EveryType),
    Kind("odd numbers", "k string, f float, d double, l long, y byte", ODD, OddNumbers),
    Kind("iterators and writes", "k string, n long", [[("a", 1), ("a", 2), ("a", 3)], [("a", 4)]], Lazily),
    Kind("rows read in part", "k string, n long", NUMBERS, ReadsInPart),
    Kind("rows read twice", "k string, n long", NUMBERS, ReadsTwice),
    Kind("no generator", "k string, n long", NUMBERS, Eager),
    Kind("attributes", "k string, n long", NUMBERS, Zähler),
    Kind("little to say", "k string, n long", NUMBERS, Quiet),
    Kind("many entries and rows", "k string, n long", [[("a", 1)], [("a", 2), ("b", 3)]], Heavy),
    Kind(
        "a key of many types",
        KEYS,
        [[(*SOME_KEY, at(0)), (*NO_KEY, at(0))], [(*SOME_KEY, at(50))], [(*NO_KEY, at(100)), (*SOME_KEY, at(100))]],
        Grouped,
        key=("k", "b", "y", "x", "e", "a", "u", "n"),
        time="EventTime",
        watermark=("t", "1 second"),
    ),
    Kind("rows as they came", ANY, THROUGH, Through, output=ANY),
    Kind("rows by name", "k string", [[("a",)]], ByName, output="a long, b string"),
    Kind(
        "names of columns",
        "k string, `a b` long, _x long, class long, `ü` long, count long",
        [[("a", 1, 2, 3, 4, 5)]],
        NamesOfColumns,
    ),
    Kind("names of states", "k string", [[("a",)], [("a",)]], NamesOfStates),
    Kind("values of other types", "k string, t timestamp, e decimal(10,2)", SHARES, Brought),
    Kind("nulls where none are declared", "k string", [[("a",)]], ByName, output="a long NOT NULL, b string NOT NULL"),
    Kind("values in other forms", "k string", [[("a",)]], Forms),
    Kind("days in a row", "k string, room string, day date, n long", READINGS, Streak),
    Kind("switches", "k string, name string", SWITCHES, Toggles),
]
