"""Declared windows give the very rows of Spark's `groupBy(window(...))`, batch by batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ferryman import Ferry, sinks, sources
from ferryman import aggregates as a
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._spark.api.state_view import StateView
from ferryman.errors import FerrymanError, InvalidConfiguration

INPUT = "shop string, time timestamp, price double, n int, what string"
OURS = {
    "rows": a.count(),
    "some": a.count("n"),
    "whole": a.sum("n"),
    "total": a.sum("price"),
    "mean": a.avg("price"),
    "least": a.min("what"),
    "most": a.max("price"),
}
Batches = list[list[tuple[Any, ...]]]


def sparks() -> list[Any]:
    made = [F.count(F.lit(1)), F.count("n"), F.sum("n"), F.sum("price"), F.avg("price"), F.min("what"), F.max("price")]
    return [column.alias(name) for column, name in zip(made, OURS, strict=True)]


def on_spark(beside: Beside, stream: DataFrame, mode: str) -> Batches:
    batches: Batches = []
    stream.writeStream.outputMode(mode).foreachBatch(
        lambda frame, _: batches.append([tuple(row) for row in frame.collect()])
    ).option("checkpointLocation", str(beside.place / f"spark-{mode}")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return batches


def on_ferryman(beside: Beside, build: Callable[[Any], dict[str, Any]], **options: Any) -> dict[str, list[Any]]:
    """Run several operators in one job; give the batches of each."""
    found: dict[str, list[Any]] = {}
    ferry = Ferry(beside.spark, beside.place / "ferryman", **options)

    def sink(name: str) -> Any:
        found[name] = []
        return sinks.foreach(lambda frame, _: found[name].append(frame.collect()), name)

    outputs = [stream.write(sink(name)) for name, stream in build(ferry.stream(beside.stream())).items()]
    ferry.start("windows", *outputs, instances=2, trigger={"availableNow": True}).wait()
    return found


def same(ours: list[Any], theirs: Batches) -> None:
    """Compare what came out, epoch by epoch, but for those in which nothing did."""
    mine, spark = ([sorted(map(tuple, batch), key=repr) for batch in batches if batch] for batches in (ours, theirs))
    assert len(mine) > 1, "there is something to compare"
    for one, other in zip(mine, spark, strict=False):
        only = [[row for row in some if row not in others] for some, others in ((one, other), (other, one))]
        assert one == other, f"only Ferryman: {only[0][:5]}, only Spark: {only[1][:5]}"
    assert len(mine) == len(spark)


def some_batches(seed: int, zone: timezone | None, begin: datetime, epochs: int = 7) -> Batches:
    """Make rows around a time that moves on: early, late and much too late ones, with nulls; then a gap."""
    made = random.Random(seed)
    batches = []
    for epoch in range(epochs):
        at = epoch * 25 + (10_000 if epoch == epochs - 1 else 0)
        times = [at + made.gauss(0, 15) - (90 if made.random() < 0.15 else 0) for _ in range(40)]
        batches.append(
            [
                (
                    made.choice("abc"),
                    None
                    if made.random() < 0.05
                    else (begin + timedelta(milliseconds=int(second * 1000))).replace(tzinfo=zone),
                    None if made.random() < 0.2 else made.randrange(100) / 2,
                    None if made.random() < 0.2 else made.randrange(-5, 100),
                    None if made.random() < 0.2 else made.choice(["x", "y", "zz", ""]),
                )
                for second in times
            ]
        )
    return batches


@contextmanager
def session_zone(spark: Any, zone: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


UTC = timezone.utc
CASES = {
    "tumbling": (UTC, datetime(2024, 5, 1), {"size": "30 seconds"}),
    "sliding": (UTC, datetime(2024, 5, 1), {"size": "60 seconds", "every": "20 seconds"}),
    # Panes of 5 s, as the one is no multiple of the other.
    "uneven": (UTC, datetime(2024, 5, 1), {"size": "25 seconds", "every": "10 seconds", "start": "7 seconds"}),
}


@pytest.mark.parametrize(
    "case", ["sliding", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "sliding")]
)
def test_windows_give_the_rows_of_sparks(spark: Any, tmp_path: Path, case: str) -> None:
    zone, begin, window = CASES[case]
    beside = Beside(spark, tmp_path, INPUT if zone else INPUT.replace("timestamp", "timestamp_ntz"))
    # Spark's `first` window is at the beginning of all, and a partial's rows are in no order: sums are of halves.
    beside.give(*some_batches(7, zone, begin))
    size, every = window["size"], window.get("every", window["size"])

    def build(stream: Any) -> dict[str, Any]:
        keyed = stream.withWatermark("time", "10 seconds").key_by("shop")
        return {
            mode: keyed.window("time", **window, updates=mode == "update").aggregate(mode, **OURS)
            for mode in ("append", "update")
        }

    with session_zone(spark, "Asia/Kolkata"):
        ours = on_ferryman(beside, build)
        for mode in ("append", "update"):
            spanned = F.window("time", size, every, window.get("start", "0 seconds"))
            grouped = beside.stream().withWatermark("time", "10 seconds").groupBy(spanned, "shop")
            same(ours[mode], on_spark(beside, grouped.agg(*sparks()), mode))


@pytest.mark.slow
def test_sessions_give_the_rows_of_sparks(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    first, *others = some_batches(5, UTC, datetime(2024, 5, 1))
    # The one just joins what began a gap before, the other does not.
    edge = [row("e", -300), row("e", -288), row("f", -300), row("f", -287.999)]
    beside.give([*first, *edge], *others)

    def build(stream: Any) -> dict[str, Any]:
        keyed = stream.withWatermark("time", "10 seconds").key_by("shop")
        return {"sessions": keyed.session("time", "12 seconds").aggregate("sessions", **OURS)}

    grouped = (
        beside.stream().withWatermark("time", "10 seconds").groupBy(F.session_window("time", "12 seconds"), "shop")
    )
    same(on_ferryman(beside, build)["sessions"], on_spark(beside, grouped.agg(*sparks()), "append"))


def at(second: float) -> datetime:
    return datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=second)


def row(shop: str, second: float, price: float = 1.0) -> tuple[Any, ...]:
    return shop, at(second), price, 1, "w"


def spans(batches: list[Any]) -> list[list[tuple[Any, ...]]]:
    """Give what came out as (seconds of the start, shop, rows), epoch by epoch."""
    begin = at(0).timestamp()
    return [
        sorted((window["start"].timestamp() - begin, shop, rows) for window, shop, rows, *_ in batch)
        for batch in batches
        if batch
    ]


def test_late_rows_go_aside_and_state_goes_with_the_watermark(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(
        [row("a", 5), row("b", 6)],
        [row("a", 68)],
        [row("a", 69)],
        # The window of 8 is over, that of 50 is not, though the watermark is beyond it.
        [row("a", 8), row("a", 50), row("b", 71)],
        [row("a", 200)],
        [row("c", 201)],
    )

    def build(stream: Any) -> dict[str, Any]:
        keyed = stream.with_watermark("time", "10 seconds", keep_late=True).key_by("shop")
        counted = keyed.window("time", "30 seconds").aggregate("Counts", rows=a.count())
        return {"rows": counted, "late": counted.side("late")}

    found = on_ferryman(beside, build)
    closed = [(30, "a", 1), (60, "a", 2), (60, "b", 1)]
    assert [each for batch in spans(found["rows"]) for each in batch] == [(0, "a", 1), (0, "b", 1), *closed]
    assert [late["shop"] for batch in found["late"] for late in batch] == ["a"]
    log = Checkpoint(LocalDirectory(tmp_path / "ferryman"))
    latest = log.latest()
    assert latest is not None
    assert sum(log.manifest(epoch).operators["Counts"].late for epoch in log.epochs()) == 1
    state = StateView(spark, log, "Counts", latest.epoch).to_arrow().to_pylist()
    assert [(kept["_pane"], kept["shop"], kept["rows"]) for kept in state] == [(at(180), "a", 1), (at(180), "c", 1)]


# As Spark writes them, and not a word is another.
GROUPED = {
    "window first": lambda rows: rows.groupBy(F.window("time", "30 seconds"), "shop").count(),
    "window last": lambda rows: rows.groupBy("shop", F.window("time", "40 seconds", "20 seconds", "5 seconds")).agg(
        {"price": "mean", "n": "max", "*": "count"}
    ),
    "session": lambda rows: rows.groupBy(F.session_window(F.col("time"), "12 seconds"), F.col("shop")).avg("price"),
    "all numbers": lambda rows: rows.groupBy(F.window("time", "30 seconds"), "what").max(),
}


@pytest.mark.slow
def test_group_by_window_as_spark_writes_it_gives_its_rows_and_columns(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(*some_batches(13, UTC, datetime(2024, 5, 1)))
    made: dict[str, Any] = {}

    def build(stream: Any) -> dict[str, Any]:
        # Rows without a key are refused here, as in all keyed state.
        for number, (name, of) in enumerate(GROUPED.items()):
            rows = stream.where("what IS NOT NULL").withWatermark("time", "10 seconds")
            made[name] = of(_Named(rows, f"w{number}"))
        return made

    ours = on_ferryman(beside, build)
    for number, (name, of) in enumerate(GROUPED.items()):
        theirs = of(beside.stream().where("what IS NOT NULL").withWatermark("time", "10 seconds"))
        # Those of a dict come in its order here, and in that of Java's hashes there.
        assert sorted(made[name].columns) == sorted(theirs.columns)
        assert made[name].columns[:2] == theirs.columns[:2]
        theirs = theirs.select(*(f"`{column}`" for column in made[name].columns))
        place = Beside(spark, tmp_path / str(number), INPUT)
        place.place.mkdir(exist_ok=True)
        same(ours[name], on_spark(place, theirs, "append"))


class _Named:
    """Give each aggregate of a job an operator's name of its own, which Spark's call has no place for."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def groupBy(self, *columns: Any) -> Any:
        grouped = self._stream.groupBy(*columns)
        aggregate = grouped.aggregate
        grouped.aggregate = lambda _, **declared: aggregate(self._name, **declared)
        return grouped


def test_what_cannot_be_grouped_by_windows_is_said(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([row("a", 5)])
    bare = Ferry(spark, tmp_path / "ferryman").stream(beside.stream())
    stream, minute = bare.withWatermark("time", "10 seconds"), F.window("time", "1 minute")
    for build, why in (
        (lambda: bare.groupBy(minute, "shop").count(), "need a watermark"),
        (lambda: stream.groupBy(minute), "a window and no column"),
        (lambda: stream.groupBy(minute, F.window("time", "1 hour"), "shop"), "several windows"),
        (lambda: stream.groupBy(minute.alias("w"), "shop"), "Leave alias out"),
        (lambda: stream.groupBy(minute, "shop").agg(F.sum("n")), "agg takes a dict on a stream"),
        (lambda: stream.groupBy(minute, "shop").agg({"n": "mode"}), "the function 'mode' for 'n'; there are avg"),
        (lambda: stream.groupBy(minute, "shop").pivot("what"), r"no 'pivot'. Write aggregate\(n=count\(\)\)"),
        (lambda: stream.groupBy(F.session_window("time", F.col("n")), "shop"), "not an interval of fixed length"),
    ):
        with pytest.raises(FerrymanError, match=why):
            build()


@pytest.mark.slow
def test_another_start_with_more_instances_goes_on_with_the_windows_that_were_open(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    ours: Batches = []
    theirs: Batches = []
    size, every = "60 seconds", "20 seconds"
    for number, batch in enumerate(some_batches(3, UTC, datetime(2024, 5, 1), epochs=4)):
        beside.give(batch)
        stream = Ferry(spark, tmp_path / "ferryman").stream(beside.stream()).withWatermark("time", "10 seconds")
        window = stream.key_by("shop").window("time", size, every).aggregate("w", **OURS)
        sink = sinks.foreach(lambda frame, _: ours.append([tuple(each) for each in frame.collect()]))
        window.write(sink).start("windows", instances=2 + number % 2, trigger={"availableNow": True}).wait()
        grouped = beside.stream().withWatermark("time", "10 seconds").groupBy(F.window("time", size, every), "shop")
        theirs += on_spark(beside, grouped.agg(*sparks()), "append")
    same(ours, theirs)


@pytest.mark.parametrize("by_spark", [True, False])
def test_windows_are_the_same_where_rows_are_aggregated_before_the_shuffle(
    spark: Any, tmp_path: Path, by_spark: bool
) -> None:
    each, epochs, late = 21_000, 3, 500
    made = sources.generator(spark, rows=epochs * each, rows_per_epoch=each, keys=40, partitions=3, interval_ms=1.0)
    # Some rows of the third epoch are of the very beginning.
    time = F.expr(f"IF(id >= {2 * each} AND id < {2 * each + late}, event_time - INTERVAL 42 SECONDS, event_time)")
    rows = made.select(F.col("id"), (F.col("id") % 40).alias("k"), time.alias("time"))
    kept = (
        {"n": a.count(), "most": a.max("id")} if by_spark else {"n": a.count(), "most": a.max("id"), "x": a.sum("id")}
    )
    out = sinks.memory()
    stream = Ferry(spark, tmp_path, express=False, idle=None).stream(rows).with_watermark("time", "1 second")
    counted = stream.key_by("k").window("time", "10 seconds", "5 seconds").aggregate("Counts", **kept)
    job = counted.write(out).start("windows", instances=2, trigger={"availableNow": True})
    job.wait()
    records = [epoch.operators["Counts"] for epoch in job.progress()]
    assert [record["rows"] for record in records if record["rows"]][1:] == [each, each]
    assert sum(record["late"] for record in records) == late
    # A window of ten seconds has ten thousand rows, in turn of forty keys.
    whole = [found["n"] for found in out.rows()]
    assert Counter(whole).most_common(1)[0][0] == 250
    begin = min(found["window"]["start"] for found in out.rows())
    for found in out.rows():
        last = int((found["window"]["end"] - begin).total_seconds() * 1000) - 5000 - 1
        if found["n"] == 250:
            assert found["most"] == max(n for n in range(last - 40, last + 1) if n % 40 == found["k"])


def test_windows_over_several_sources_wait_for_the_last_of_them(spark: Any, tmp_path: Path) -> None:
    each, epochs = 15_000, 3
    out = sinks.memory()
    ferry = Ferry(spark, tmp_path, express=False, idle=None)

    def source(name: str, behind: int) -> Any:
        made = sources.generator(spark, rows=epochs * each, rows_per_epoch=each, keys=40, partitions=2, interval_ms=1.0)
        time = F.expr(f"event_time - INTERVAL {behind} SECONDS")
        rows = made.select((F.col("id") % 40).alias("k"), time.alias("time"))
        return ferry.stream(rows, name).with_watermark("time", "1 second")

    both = source("ahead", 0).union(source("behind", 3600))
    counted = both.key_by("k").window("time", "10 seconds").aggregate("Counts", n=a.count())
    job = ferry.start("windows", counted.write(out), instances=2, trigger={"availableNow": True})
    job.wait()
    records = [epoch.operators["Counts"] for epoch in job.progress()]
    assert sum(record["late"] for record in records) == 0
    # Of the source that is behind, all windows are over but the last ones; of the other none.
    ends = [found["window"]["end"] for found in out.rows()]
    assert len(set(ends)) in (3, 4, 5)
    assert max(ends) - min(ends) < timedelta(minutes=5)


def test_what_cannot_be_is_refused_when_it_is_declared(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([row("a", 5)])
    stream = Ferry(spark, tmp_path / "ferryman").stream(beside.stream())
    keyed = stream.with_watermark("time", "10 seconds").key_by("shop")
    for build, why in (
        (lambda: stream.key_by("shop").window("time", "1 minute"), "need a watermark"),
        (lambda: keyed.window("price", "1 minute"), "one on 'time'"),
        (lambda: keyed.window("when", "1 minute"), "no column 'when'"),
        (lambda: keyed.window("time", "1 month"), "size='1 month' is not an interval"),
        (lambda: keyed.window("time", "1 minute", "2 minutes"), "would be lost"),
        (lambda: keyed.window("time", "1 minute", start="1 minute"), "start='1 minute'"),
        (lambda: keyed.window("time", 0), "more than nothing"),
        (lambda: keyed.window("time", "1 minute").aggregate(window=a.count()), "an aggregate is called 'window'"),
        (lambda: keyed.window("time", "1 minute").aggregate(x=a.sum("what")), "cannot be added up"),
    ):
        with pytest.raises(InvalidConfiguration, match=why):
            build()
