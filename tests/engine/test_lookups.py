"""Tables that are looked up: one version for an epoch, the same one when it is done again, whoever died meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from driven_run import Run

from ferryman import Operator, TwoInputOperator, Value
from ferryman import aggregates as a
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman.errors import InvalidConfiguration, LookupFailed
from ferryman.testing import Crash, Harness

INPUT = "room int, value double"


def rooms(*rows: tuple[int | None, str], kind: pa.DataType | None = None) -> pa.Table:
    keys, names = [key for key, _ in rows], [name for _, name in rows]
    return pa.table({"room": pa.array(keys, kind or pa.int32()), "name": pa.array(names, pa.string())})


class Named(Operator):
    n = Value(int, 0)
    output = "room int, name string, n int"

    def process(self, key: Any, row: Any) -> Any:
        self.n += 1
        yield key, row.name, self.n


class Table:
    """A table that changes, and counts how often it was read."""

    def __init__(self, *rows: tuple[int | None, str]) -> None:
        self.rows = rooms(*rows)
        self.read = 0

    def __call__(self) -> pa.Table:
        self.read += 1
        return self.rows


def build(table: Any, **options: Any) -> Any:
    return lambda stream: stream.lookup(table, **{"on": "room", **options}).key_by("room").process(Named)


def test_a_row_goes_with_all_rows_of_its_key_and_a_null_with_none() -> None:
    table = rooms((1, "hall"), (2, "bath"), (2, "sauna"), (None, "nowhere"))
    rows = [(2, 0.0), (3, 0.0), (1, 0.0)]
    with Harness(build(table), INPUT) as harness:
        assert harness.epoch([*rows, (None, 0.0)]) == [(2, "bath", 1), (2, "sauna", 2), (1, "hall", 1)]
    with Harness(build(table, how="left"), INPUT) as harness:
        assert harness.epoch(rows) == [(2, "bath", 1), (2, "sauna", 2), (3, None, 1), (1, "hall", 1)]


def test_a_refresh_is_seen_from_one_epoch_on_by_all_instances() -> None:
    table, every = Table((1, "hall"), (2, "hall"), (3, "hall")), [(1, 0.0), (2, 0.0), (3, 0.0)]
    with Harness(build(table, refresh="1 minute"), INPUT, instances=3) as harness:

        def seen() -> set[str]:
            return {name for _, name, _ in harness.epoch(every)}

        assert seen() == {"hall"}
        table.rows = rooms((1, "new"), (2, "new"), (3, "new"))
        harness.now_ms += 59_999
        assert seen() == {"hall"}
        harness.now_ms += 1
        assert seen() == {"new"}
        manifests = [harness.checkpoint.manifest(epoch).lookups["lookup_room"] for epoch in (1, 2, 3)]
        assert [version.since for version in manifests] == [1, 1, 3]
        # What is the same when it is read is no new version, and no new file.
        before = table.read
        harness.now_ms += 60_000
        assert seen() == {"new"}
        assert table.read == before + 1
        assert len(harness.checkpoint.directory.list("lookups")) == 2


@pytest.mark.parametrize("refresh", [None, "1 minute"])
def test_an_epoch_that_is_done_again_sees_what_it_saw(refresh: str | None) -> None:
    table = Table((1, "first"))
    with Harness(build(table, refresh=refresh), INPUT) as harness:
        with pytest.raises(Crash):
            harness.epoch([(1, 0.0)], crash=True)
        table.rows = rooms((1, "second"))
        assert harness.redo() == [(1, "first", 1)]
        # The run that did it again reads the table for the next one, as every start does.
        with pytest.raises(Crash):
            harness.epoch([(1, 0.0)], crash="before-commit")
        table.rows = rooms((1, "third"))
        assert harness.redo() == [(1, "second", 2)]
        assert harness.epoch([(1, 0.0)]) == [(1, "third", 3)]
        # Nothing was written down of this one, as it has the version of the one before.
        with pytest.raises(Crash):
            harness.epoch([(1, 0.0)], crash=True)
        table.rows = rooms((1, "fourth"))
        assert harness.redo() == [(1, "third", 4)]


def test_lookups_before_between_and_after_operators_and_beside_each_other() -> None:
    class Both(TwoInputOperator):
        output = "room int, name string"

        def process_left(self, key: Any, row: Any) -> Any:
            yield key, f"left {row.name}"

        def process_right(self, key: Any, row: Any) -> Any:
            yield key, "right"

    names, floors = rooms((1, "hall"), (2, "bath")), pa.table({"name": ["left hall", "right"], "floor": ["1", "2"]})

    def pipeline(left: Any, right: Any) -> Any:
        left = left.lookup(names, on="room").key_by("room")
        both = left.connect(right.key_by("room")).process(Both)
        return both.lookup(floors, on="name", how="left").key_by("floor").aggregate(n=a.count())

    with Harness(pipeline, {"left": INPUT, "right": INPUT}) as harness:
        rows = {"left": [(1, 0.0), (2, 0.0)], "right": [(1, 0.0)]}
        with pytest.raises(Exception, match="NULL_KEY"):
            harness.epoch(rows)
        rows["left"].pop()
        assert sorted(harness.epoch(rows)) == [("1", 1), ("2", 1)]


DRIVE = """
import sys
from pathlib import Path
import pyarrow as pa
sys.path.insert(0, sys.argv[3])
from driven_run import Run
from ferryman import Operator, Value

class Named(Operator):
    output = "key string, name string"
    def process(self, key, row):
        yield key, row.name

root, version = Path(sys.argv[1]), sys.argv[2]
table = pa.table({"key": ["a"], "name": [version]})
run = Run(root, build=lambda stream: stream.lookup(table, on="key").key_by("key").process(Named))
while run.runner.newest.epoch < 2:
    run.batch("a")
    print(run._executor.output[0][1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["epoch", "before-manifest"])
def test_a_driver_that_is_killed_and_started_again_looks_up_the_same_version(tmp_path: Path, step: str) -> None:
    """A driver without Spark, with the real start: killed in its second epoch, and again in its first one."""
    own = str(Path(__file__).resolve().parents[1])

    def drive(version: str, fault: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", DRIVE, str(tmp_path), version, own],
            env={**os.environ, "FERRYMAN_FAULT": fault},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if fault else 0), done.stderr
        return done.stdout.split()

    drive("one", f"{step}:1")
    drive("two", f"{step}:2")
    log = Checkpoint(LocalDirectory(tmp_path))
    versions = [log.manifest(1).lookups["lookup_key"], log.intents()["intents/000000000002.json"].lookups["lookup_key"]]
    seen = [log.read_delta(version.file)["name"].to_pylist() for version in versions]
    # The first epoch is as it was begun; the second one was begun with what the table was then.
    assert seen == [["one"], ["two"]]
    assert drive("three", "") == ["two"]
    assert log.manifest(2).lookups["lookup_key"] == versions[1]
    assert verify(log).sound


def test_a_table_that_cannot_be_looked_up_says_so_and_nothing_is_lost(tmp_path: Path) -> None:
    table = Table((1, "hall"))
    with Harness(build(table, refresh=1), INPUT) as harness:
        harness.epoch([(1, 0.0)])

        def refused(rows: Any, why: str) -> None:
            table.rows = rows
            harness.now_ms += 1000
            with pytest.raises(LookupFailed, match=why):
                harness.epoch([(1, 0.0)])

        refused(
            pa.table({"room": [1], "name": ["hall"]}), "'room' was int when the job was declared, and now is bigint"
        )
        refused(rooms((1, "hall")).drop_columns(["name"]), "'name' was string when .* and now is not there any more")
        refused(
            pa.table({"room": pa.array([1], pa.int32()), "name": ["x" * (65 << 20)]}), "65 MB, and 64 MB is the most"
        )
        table.rows = rooms((1, "new"))
        assert harness.epoch([(1, 0.0)]) == [(1, "new", 2)]

    def gone() -> pa.Table:
        if table.read:
            raise OSError("no such database")
        table.read += 1
        return table.rows

    table.read = 0
    with Harness(build(gone), INPUT) as harness, pytest.raises(LookupFailed, match="OSError: no such database"):
        harness.epoch([(1, 0.0)])


def test_a_lookup_with_other_columns_waits_until_the_epoch_under_way_is_done(tmp_path: Path) -> None:
    table = Table((1, "hall"))
    with (
        Run(
            tmp_path, build=lambda stream: stream.lookup(as_keys(table.rows), on="key").key_by("key").process(One)
        ) as run,
        pytest.raises(Exception, match="OPERATOR_FAILED"),
    ):
        run.batch("1")
    wider = as_keys(table.rows).append_column("floor", pa.array([1]))
    run = Run(tmp_path, build=lambda stream: stream.lookup(wider, on="key").key_by("key").process(One))
    with run, pytest.raises(LookupFailed, match=r"had the columns key string, name string. Now .* floor int64"):
        run.batch("1")


class One(Operator):
    output = "name string"

    def process(self, key: Any, row: Any) -> Any:
        raise RuntimeError("not yet")


def as_keys(table: pa.Table) -> pa.Table:
    return pa.table({"key": table["room"].cast(pa.string()), "name": table["name"]})


def test_why_a_table_cannot_be_read_is_told_in_a_line_and_without_a_password() -> None:
    declared: list[bool] = []

    def table() -> pa.Table:
        if declared:
            raise ConnectionError("no answer of jdbc:x://h/d?user=u&password=hush\n  at java.lang.Thread.run")
        declared.append(True)
        return rooms((1, "hall"))

    with Harness(build(table), INPUT) as harness, pytest.raises(LookupFailed) as failed:
        harness.epoch([(1, 0.0)])
    assert "(ConnectionError: no answer of jdbc:x://h/d?user=u&password=***). The epoch was" in str(failed.value)


def test_what_cannot_be_is_refused_at_the_call() -> None:
    table = rooms((1, "hall"))
    for given, options, why in (
        (table, {"on": "rome"}, "the table has no such column; it has 'room', 'name'"),
        (rooms((1, "hall"), kind=pa.int64()), {}, r'int in the stream and bigint in the table.*cast\("int"\)'),
        (table.append_column("value", pa.array([1.0])), {}, "both the stream and the table have a column 'value'"),
        (table, {"how": "right"}, "how='right': give 'inner', or 'left'"),
        (table, {"refresh": 0}, "refresh=0: give more than nothing"),
        (table, {"name": "a/b"}, "name='a/b': give letters"),
        (table, {"name": "a" * 201}, "name='a+': give at most 200"),
        (table.append_column("a" * 200, pa.array([1])), {"on": ["room", "a" * 200]}, "give name=, of at most 200"),
        (table, {"on": []}, r"on=\[\]: name the columns"),
        ([(1, "hall")], {}, "lookup needs a table"),
        (table.append_column("n", pa.array([1], pa.uint64())), {}, "a type that Spark does not have .*uint64"),
    ):
        with pytest.raises(InvalidConfiguration, match=why):
            Harness(build(given, **options), INPUT)

    def twice(stream: Any) -> Any:
        other = rooms((1, "hall")).rename_columns(["room", "other"])
        return stream.lookup(table, on="room").lookup(other, on="room").key_by("room").process(Named)

    with pytest.raises(InvalidConfiguration, match="two lookups are called 'lookup_room'"):
        Harness(twice, INPUT)


def test_versions_that_no_kept_epoch_has_are_forgotten() -> None:
    table = Table((1, "0"))
    with Harness(build(table, refresh=1), INPUT) as harness:
        for number in range(6):
            # A version holds for two epochs.
            table.rows = rooms((1, str(number // 2)))
            harness.now_ms += 1000
            harness.epoch([(1, 0.0)])
            harness.snapshot()
        assert len(harness.checkpoint.directory.list("lookups")) == 3
        prune(harness.checkpoint, 4)
        write_snapshot(harness.checkpoint, harness.epochs)
        kept = {harness.checkpoint.manifest(epoch).lookups["lookup_room"].file.file for epoch in (4, 5, 6)}
        assert {f"lookups/{name}" for name in harness.checkpoint.directory.list("lookups")} == kept
        assert len(kept) == 2
        assert verify(harness.checkpoint).sound
        for name in kept:
            harness.checkpoint.directory.write(name, b"no")
        report = verify(harness.checkpoint)
        assert {fault.file for fault in report.faults} == kept
        assert report.rebuildable == report.epochs
