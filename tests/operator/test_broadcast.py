"""Broadcast state: small, read by all instances, updated by a stream, and of the epoch it is read in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from processor.beside import Beside
from random_history import KEYS, SMALL, Kind, run_histories

from ferryman import Ferry, Operator, Value, sinks
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman.errors import InvalidConfiguration, NullKey, OperatorFailed
from ferryman.testing import Crash, Harness

INPUT = "kind string, sensor string, value long, gone boolean"


class Alarms(Operator):
    n = Value(int, 0)
    output = "sensor string, rules string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        if row.kind == "reading":
            self.n += 1
            rules = getattr(self, "rules", {})
            broken = sorted(name for name, rule in rules.items() if row.value > rule.value)
            yield key, f"{self.n} {broken}"


def pipeline(stream: Any) -> Any:
    rules = stream.broadcast("sensor", deleted="gone")
    return stream.key_by("sensor").process(Alarms, broadcast={"rules": rules})


def test_all_instances_read_the_version_of_their_epoch() -> None:
    with Harness(pipeline, INPUT, instances=3) as harness:
        readings = [("reading", f"s{number}", 50, None) for number in range(9)]

        def seen(**given: Any) -> set[str]:
            return {rules.split(" ", 1)[1] for _, rules in harness.epoch(readings, **given)}

        def rules(*rows: Any) -> dict[str, Any]:
            return {"Alarms.rules": rows}

        assert seen() == {"[]"}
        assert seen(broadcast=rules(("rule", "warm", 40, None), ("rule", "hot", 90, None))) == {"['warm']"}
        harness.rescale(2)
        harness.restart()
        assert seen() == {"['warm']"}
        with pytest.raises(Crash):
            harness.epoch(readings, broadcast=rules(("rule", "cold", 0, None)), crash=True)
        assert seen(broadcast=rules(("rule", "hot", 1, None), ("rule", "hot", 45, None))) == {"['hot', 'warm']"}
        harness.snapshot()
        assert seen(broadcast=rules(("rule", "warm", 0, True))) == {"['hot']"}
        assert [row["sensor"] for row in harness.state("Alarms.rules")] == ["hot"]
        assert [row["sensor"] for row in harness.state("Alarms.rules", epoch=4)] == ["hot", "warm"]
        assert verify(harness.checkpoint).faults == ()
        with pytest.raises(NullKey, match=r"'Alarms\.rules', epoch 6.*'sensor'"):
            harness.epoch(readings, broadcast=rules(("rule", None, 0, None)))


class Told(Operator):
    """Tell which rules there are, and all that is known of them."""

    n = Value(int, 0)
    output = "sensor string, rules string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        yield key, f"{self.n} {[(name, *rule) for name, rule in sorted(getattr(self, 'rules', {}).items())]}"


def test_a_job_that_has_epochs_may_gain_one_and_it_may_gain_a_column() -> None:
    def without(stream: Any) -> Any:
        return stream.key_by("sensor").process(Told)

    def with_rules(stream: Any) -> Any:
        return stream.key_by("sensor").process(Told, broadcast={"rules": stream.broadcast("sensor", deleted="gone")})

    def with_more(stream: Any) -> Any:
        # The column that took keys out before is one of the state's own now.
        return stream.key_by("sensor").process(Told, broadcast={"rules": stream.broadcast("sensor")})

    reading = [("reading", "a", 50, None)]
    with Harness(without, INPUT, instances=2) as harness:
        harness.epoch(reading)
        harness.snapshot()
        harness.epoch(reading)
        harness.redeclare(with_rules)
        with pytest.raises(Crash):
            harness.epoch(reading, crash=True)
        assert harness.epoch(reading) == [("a", "3 []")]
        rule = {"Told.rules": [("rule", "warm", 40, None)]}
        assert harness.epoch(reading, broadcast=rule) == [("a", "4 [('warm', 'rule', 40)]")]
        harness.redeclare(with_more)
        assert harness.epoch(reading) == [("a", "5 [('warm', 'rule', 40, None)]")]
        rule = {"Told.rules": [("rule", "hot", 90, True)]}
        assert harness.epoch(reading, broadcast=rule) == [
            ("a", "6 [('hot', 'rule', 90, True), ('warm', 'rule', 40, None)]")
        ]
        harness.restart()
        assert len(harness.state("Told.rules")) == 2
        assert verify(harness.checkpoint).faults == ()


def test_a_key_that_no_row_came_for_is_gone_in_time() -> None:
    def build(ttl: int | None) -> Any:
        def fading(stream: Any) -> Any:
            rules = stream.broadcast("sensor", deleted="gone", ttl=ttl)
            return stream.key_by("sensor").process(Alarms, broadcast={"rules": rules})

        return fading

    def seen(*names: str) -> str:
        rows = [("rule", name, 0, None) for name in names]
        [(_, rules)] = harness.epoch([("reading", "s", 50, None)], broadcast={"Alarms.rules": rows})
        return rules.split(" ", 1)[1]

    with Harness(build(None), INPUT, now_ms=0) as harness:
        assert seen("old", "older") == "['old', 'older']"
        harness.redeclare(build(1000))
        # What was there before there was a time to live begins to live now.
        assert seen("new") == "['new', 'old', 'older']"
        harness.now_ms = 600
        assert seen("old") == "['new', 'old', 'older']"
        harness.restart()
        harness.now_ms = 1000
        with pytest.raises(Crash):
            harness.epoch(crash=True)
        assert seen() == "['old']"
        assert [row["sensor"] for row in harness.state("Alarms.rules")] == ["old"]
        harness.now_ms = 1600
        assert seen("new") == "['new']"
        assert verify(harness.checkpoint).faults == ()


class Rules:
    """One dict for all."""

    def __init__(self) -> None:
        self.rules: dict[str, int] = {}
        self.seen: dict[str, int] = {}

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        for kind, name, value, gone in done:
            if kind == "rule":
                self.rules.pop(name, None)
                if not gone:
                    self.rules[name] = value
        told = []
        for kind, key, value, _ in done:
            if kind == "reading":
                self.seen[key] = self.seen.get(key, 0) + 1
                broken = sorted(name for name, least in self.rules.items() if value > least)
                told.append((key, f"{self.seen[key]} {broken}"))
        return told

    def check(self, harness: Harness) -> None:
        assert {row["sensor"]: row["value"] for row in harness.state("Alarms.rules")} == self.rules
        assert {row["sensor"]: row["n"] for row in harness.state("Alarms")} == self.seen


@pytest.mark.parametrize("store", [None, "rocksdb"])
def test_a_random_history_equals_one_dict_for_all(store: str | None) -> None:
    def given(done: list[Any]) -> dict[str, Any]:
        rules = [row for row in done if row[0] == "rule"]
        return {"rows": [row for row in done if row[0] == "reading"], "broadcast": {"Alarms.rules": rules}}

    step = st.tuples(st.sampled_from(["rule", "reading"]), KEYS, SMALL, st.sampled_from([None, False, True]))
    run_histories(Kind(pipeline, INPUT, step, Rules, given), store=store, examples=4 if store else 10)


def test_it_cannot_be_changed_by_an_operator() -> None:
    class Writes(Alarms):
        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.rules["mine"] = row
            return iter(())

    def build(stream: Any) -> Any:
        return stream.key_by("sensor").process(Writes, broadcast={"rules": stream.broadcast("sensor")})

    with Harness(build, INPUT) as harness, pytest.raises(OperatorFailed, match="does not support item assignment"):
        harness.epoch([("reading", "a", 1, None)])


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda s: s.broadcast(), "needs columns of the stream"),
        (lambda s: s.broadcast("nope"), "got nope"),
        (lambda s: s.broadcast("sensor", ttl=0), "above 0"),
        (lambda s: pipeline(s).broadcast("sensor"), "not of an operator's output"),
        (
            lambda s: s.key_by("sensor").process(Alarms, broadcast={"n": s.broadcast("sensor")}),
            "declares state 'n' and gets a broadcast state",
        ),
    ],
)
def test_what_cannot_be_is_refused(build: Any, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        Harness(build, INPUT)


def test_on_spark_with_a_restart(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    rows: list[Any] = []

    def run(*, with_rules: bool = True) -> None:
        ferry = Ferry(spark, tmp_path / "checkpoint")
        source = ferry.stream(beside.stream())
        rules = source.where("kind = 'rule'").broadcast("sensor", deleted="gone")
        broadcast = {"rules": rules} if with_rules else {}
        stream = source.where("kind = 'reading'").key_by("sensor").process(Alarms, broadcast=broadcast)
        sink = sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()))
        stream.write(sink).start("alarms", instances=2, trigger={"availableNow": True}).wait()

    # The job has an epoch before it has rules.
    beside.give([("reading", "a", 50, None)])
    run(with_rules=False)
    beside.give([("reading", "a", 50, None), ("rule", "warm", 40, None)], [("reading", "b", 30, None)])
    run()
    beside.give([("rule", "low", 10, None), ("reading", "b", 30, None)])
    run()

    assert sorted(rows) == [("a", "1 []"), ("a", "2 ['warm']"), ("b", "1 []"), ("b", "2 ['low']")]
    log = Checkpoint(LocalDirectory(tmp_path / "checkpoint"))
    assert rebuild(log, "Alarms.rules", 4).column("sensor").to_pylist() == ["warm", "low"]
    write_snapshot(log, 4)
    assert verify(log).faults == ()
