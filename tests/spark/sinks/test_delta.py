"""Rows in a Delta table: an epoch is one transaction, whoever wrote it and however often it is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from readings import Readings, epoch_rows, expected

from ferryman import sinks
from ferryman._engine.sink import SinkStart
from ferryman.errors import (
    CorruptCheckpoint,
    ForeignCheckpoint,
    InvalidConfiguration,
    SchemaDrift,
    SinkAhead,
    SinkMissing,
    Superseded,
)
from ferryman.testing import SINK_CHECKS, check_sink

deltalake = pytest.importorskip("deltalake", reason="make install brings it")

ROWS = pa.table({"key": ["a", "b"], "n": [1, 2]})
# A child that is forked cannot use what deltalake has begun in its parent, so those that are killed need a process.
CHECKS = [check for check in SINK_CHECKS if "killed" not in check]
# No deltalake in the parent of those that die: this reader goes by the log alone.
KILLS = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
from ferryman import sinks
from ferryman.testing import check_sink

place, key = Path(sys.argv[1]), sys.argv[2:]

def read():
    files = {}
    for log in sorted(place.glob("_delta_log/*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = None
            files.pop(action.get("remove", {}).get("path"), None)
    return [row for file in files for row in pq.ParquetFile(place / file).read().to_pylist()]

def newest(epochs):
    return list({row["key"]: row for epoch in epochs for row in epoch.to_pylist()}.values())

wanted = {"expected": newest} if key else {}
check_sink("killed at any line", lambda: sinks.delta(place, key=key), read, kills=25, **wanted)
"""


def shown(place: Path, **options: Any) -> list[dict[str, Any]]:
    if not deltalake.DeltaTable.is_deltatable(str(place)):
        return []
    return deltalake.DeltaTable(place, **options).to_pyarrow_table().to_pylist()


def newest(epochs: list[pa.Table]) -> list[dict[str, Any]]:
    """Give the newest row of each key."""
    return list({row["key"]: row for epoch in epochs for row in epoch.to_pylist()}.values())


@pytest.mark.parametrize("check", CHECKS)
def test_rows_that_are_added_pass(check: str, tmp_path: Path):
    check_sink(check, lambda: sinks.delta(tmp_path), lambda: shown(tmp_path))


@pytest.mark.parametrize("check", CHECKS)
def test_a_table_with_the_newest_row_of_each_key_passes(check: str, tmp_path: Path):
    check_sink(check, lambda: sinks.delta(tmp_path, key="key"), lambda: shown(tmp_path), expected=newest)


@pytest.mark.slow
@pytest.mark.parametrize("key", [(), ("key",)], ids=["added", "merged"])
def test_a_driver_that_is_killed_at_any_line_loses_and_doubles_nothing(key: tuple[str, ...], tmp_path: Path):
    ended = subprocess.run([sys.executable, "-c", KILLS, str(tmp_path), *key], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("check", SINK_CHECKS)
def test_files_that_sparks_tasks_have_written_pass(check: str, spark, tmp_path: Path):
    check_sink(check, lambda: sinks.delta(tmp_path), lambda: shown(tmp_path), spark=spark, kills=12)


def begun(
    place: Path, *, term: int = 1, epoch: int = 0, written: Mapping[str, Any] | None = None, **options: Any
) -> sinks.Sink:
    sink = sinks.delta(place, **options)
    sink.claim("job")
    sink.begin(SinkStart(epoch=epoch, term=term, written=written or {}))
    return sink


def told(sink: sinks.Sink, epoch: int, rows: pa.Table = ROWS) -> dict[str, Any]:
    written = sink.write_table(rows, epoch)
    sink.commit(epoch, written)
    return written


def test_the_version_of_an_epoch_is_found_also_of_one_without_rows(tmp_path: Path):
    sink = begun(tmp_path)
    assert sink.version_at(1) is None
    for epoch in range(1, 5):
        told(sink, epoch, ROWS.slice(0, 0) if epoch == 3 else ROWS)
    deltalake.write_deltalake(tmp_path, ROWS, mode="append")
    rows = {epoch: len(shown(tmp_path, version=sink.version_at(epoch))) for epoch in range(1, 5)}
    assert rows == {1: 2, 2: 4, 3: 4, 4: 6}


def test_a_driver_that_was_taken_over_is_refused_by_the_tables_own_log(tmp_path: Path):
    first = told(begun(tmp_path), 1)
    asleep = begun(tmp_path, term=2, epoch=1, written=first)
    written = asleep.write_table(ROWS, 2)
    begun(tmp_path, term=3, epoch=1, written=first)
    with pytest.raises(Superseded, match=r"run 3 of this job .* this is run 2"):
        asleep.commit(2, written)
    assert len(shown(tmp_path)) == 2


@pytest.mark.parametrize("by", [(), "key"], ids=["added", "merged"])
@pytest.mark.parametrize("also", [False, True], ids=["began", "committed"])
def test_a_driver_that_sleeps_between_its_look_and_its_transaction_is_refused(
    by: Any, also: bool, tmp_path: Path, monkeypatch
):
    first = told(begun(tmp_path, key=by), 1)
    asleep = begun(tmp_path, key=by, term=2, epoch=1, written=first)
    written = asleep.write_table(pa.table({"key": ["c"], "n": [3]}), 2)
    opened: Callable[[Any], Any] = type(asleep._table)._table

    def open_then_sleep(writer: Any) -> Any:
        table = opened(writer)
        monkeypatch.setattr(type(writer), "_table", opened)
        newer = begun(tmp_path, key=by, term=3, epoch=1, written=first)
        if also:
            newer.commit(2, written)
        return table

    monkeypatch.setattr(type(asleep._table), "_table", open_then_sleep)
    with pytest.raises(Superseded, match=r"run 3 of this job .* this is run 2"):
        asleep.commit(2, written)
    assert len(shown(tmp_path)) == (3 if also else 2)


@pytest.mark.parametrize(("before", "after"), [((), "key"), ("key", ())], ids=["merged now", "added now"])
def test_an_epoch_is_shown_again_as_it_was_written_whatever_the_sink_is_now(before: Any, after: Any, tmp_path: Path):
    started = begun(tmp_path, key=before)
    told(started, 1)
    written = started.write_table(ROWS, 2)
    for term in (2, 3):
        begun(tmp_path, key=after, term=term, epoch=2, written=written).commit(2, written)
    assert sorted(row["n"] for row in shown(tmp_path)) == ([1, 2] if before else [1, 1, 2, 2])


def test_others_may_write_to_the_table_between_two_epochs(tmp_path: Path):
    jobs = [begun(tmp_path), begun(tmp_path, name="second"), begun(tmp_path, key="key", name="merging")]
    for epoch in (1, 2):
        for job in jobs:
            told(job, epoch, pa.table({"key": [f"{id(job)}-{epoch}"], "n": [epoch]}))
        deltalake.write_deltalake(tmp_path, ROWS, mode="append")
        deltalake.DeltaTable(tmp_path).optimize.compact()
    assert len(shown(tmp_path)) == 2 * (3 + 2)
    with pytest.raises(ForeignCheckpoint, match=r"by the name 'ferryman-second'.*name="):
        sinks.delta(tmp_path, name="second").claim("another")


@pytest.mark.parametrize("by", [None, "key"], ids=["added", "merged"])
def test_another_writer_in_the_middle_of_a_commit_is_waited_for(by: str | None, tmp_path: Path, monkeypatch):
    sink = begun(tmp_path, key=by or ())
    told(sink, 1)
    opened: Callable[[Any], Any] = type(sink._table)._table
    late = iter([True])

    def open_then_be_overtaken(writer: Any) -> Any:
        table = opened(writer)
        if next(late, False):
            deltalake.write_deltalake(tmp_path, pa.table({"key": ["x"], "n": [9]}), mode="append")
        return table

    written = sink.write_table(ROWS, 2)
    monkeypatch.setattr(type(sink._table), "_table", open_then_be_overtaken)
    sink.commit(2, written)
    assert len(shown(tmp_path)) == (3 if by else 5)


def test_a_row_whose_key_is_null_has_the_place_of_the_one_before_it(tmp_path: Path):
    sink = begun(tmp_path, key=["the key", "other"])
    for epoch in (1, 2):
        rows = pa.table({"the key": [None, "a", None], "other": ["x", None, "x"], "n`n": [0, epoch, epoch]})
        told(sink, epoch, rows)
    assert sorted(row["n`n"] for row in shown(tmp_path)) == [2, 2]
    assert not list(tmp_path.glob("ferryman/*/*")), "what was put aside is gone once it is merged"


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_equal_numbers_are_one_key_however_they_are_written(kind: pa.DataType, tmp_path: Path):
    payload = {4: 0x7FC00001, 8: 0x7FF8000000000001}[kind.bit_width // 8].to_bytes(kind.bit_width // 8, "little")
    other_nan = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(payload)])
    sink = begun(tmp_path, key="k")
    for epoch in (1, 2):
        keys = pa.chunked_array([pa.array([0.0, -0.0, float("nan"), None], kind), other_nan])
        told(sink, epoch, pa.table({"k": keys, "n": [10 * epoch + place for place in range(5)]}))
    assert sorted(row["n"] for row in shown(tmp_path)) == [21, 23, 24]


def test_rows_that_do_not_fit_the_table_are_refused_before_their_epoch_is_committed(tmp_path: Path):
    sink = begun(tmp_path)
    told(sink, 1)
    with pytest.raises(SchemaDrift, match=r"a column 'more'.*it has key, n.*add_columns"):
        sink.write_table(ROWS.append_column("more", pa.array([1, 2])), 2)
    with pytest.raises(SchemaDrift, match=r"'n' .* has the type long, and the rows have string"):
        sink.write_table(pa.table({"key": ["a"], "n": ["1"]}), 2)
    with pytest.raises(InvalidConfiguration, match=r"Delta cannot have these columns \(.*[Dd]uplicate"):
        begun(tmp_path / "new").write_table(pa.table({"n": [1], "N": [2]}), 1)
    with pytest.raises(InvalidConfiguration, match=r"no type 'interval day to second'"):
        sink.write_table(pa.table({"key": pa.array([1], pa.duration("us"))}), 2)
    told(sink, 2, ROWS.select(["key"]))
    assert [row["n"] for row in shown(tmp_path)].count(None) == 2, "columns that the rows do not have are null"
    deltalake.DeltaTable(tmp_path).alter.add_columns([deltalake.Field("more", "long")])
    told(sink, 3, ROWS.append_column("more", pa.array([1, 2])))
    assert len(shown(tmp_path)) == 6


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"partition_by": ["key"]}, "is partitioned by key"),
        ({"by": "key", "configuration": {"delta.appendOnly": "true"}}, "takes no other rows in the place of those"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "maps its columns|[Cc]olumn mapping"),
    ],
)
def test_a_table_that_asks_for_more_than_files_is_refused(options: dict[str, Any], reason: str, tmp_path: Path):
    by = options.pop("by", ())
    try:
        deltalake.DeltaTable.create(tmp_path, ROWS.schema, **options)
    except deltalake.exceptions.DeltaError as why:
        pytest.skip(f"deltalake makes no such table: {why}")
    with pytest.raises(InvalidConfiguration, match=reason):
        begun(tmp_path, key=by).write_table(ROWS, 1)


def test_a_constraint_and_a_column_without_nulls_are_kept(tmp_path: Path):
    columns = pa.schema([pa.field("key", pa.string(), nullable=False), ("n", pa.int64())])
    table = deltalake.DeltaTable.create(tmp_path, columns)
    sink = begun(tmp_path)
    told(sink, 1)
    with pytest.raises(SchemaDrift, match=r"'key' .* takes no nulls"):
        sink.write_table(pa.table({"key": ["a", None], "n": [1, 2]}), 2)
    table.update_incremental()
    table.alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(InvalidConfiguration, match=r"has the constraint positive.*key="):
        sink.write_table(ROWS, 2)
    assert len(shown(tmp_path)) == 2


def test_rows_that_break_a_rule_of_the_table_are_told_of_when_they_are_merged(tmp_path: Path):
    columns = pa.schema([pa.field("key", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    table = deltalake.DeltaTable.create(tmp_path, columns)
    sink = begun(tmp_path, key="key")
    told(sink, 1)
    with pytest.raises(SchemaDrift, match=r"'n' .* takes no nulls"):
        sink.write_table(pa.table({"key": ["c"], "n": pa.array([None], pa.int64())}), 2)
    table.update_incremental()
    table.alter.add_constraint({"positive": "n > 0"})
    written = sink.write_table(pa.table({"key": ["c"], "n": [-1]}), 2)
    with pytest.raises(SchemaDrift, match=r"epoch 2, which is committed, .*drop_constraint"):
        sink.commit(2, written)
    table.update_incremental()
    table.alter.drop_constraint("positive")
    sink.commit(2, written)
    assert sorted(row["n"] for row in shown(tmp_path)) == [-1, 1, 2]


def test_a_checkpoint_that_has_less_than_the_table_is_refused(tmp_path: Path):
    sink = begun(tmp_path)
    written = told(sink, 3)
    again = sinks.delta(tmp_path)
    assert again.claim("job") == 1
    assert again.label == sink.label
    with pytest.raises(SinkAhead, match=r"up to epoch 3 .*to epoch 2.*name="):
        again.begin(SinkStart(epoch=2, term=2))
    with pytest.raises(SinkMissing, match=r"up to epoch 7 of this job, and now has them up to epoch 3"):
        again.begin(SinkStart(epoch=7, term=2, written={**written, "noted": 7}))


def test_a_checkpoint_whose_epoch_of_that_number_is_another_is_refused_and_no_file_is_removed(tmp_path: Path):
    # As a rewind that keeps the source's offsets leaves it: its own epoch has written nothing.
    sink = begun(tmp_path)
    for epoch in (1, 2):
        told(sink, epoch)
    with pytest.raises(SinkAhead, match=r"up to epoch 2 .*to epoch 2, without them.*name="):
        begun(tmp_path, term=2, epoch=2)
    assert len(shown(tmp_path)) == 4


def test_a_table_that_is_deleted_under_a_job_is_missed_and_not_begun_anew(tmp_path: Path):
    sink = begun(tmp_path)
    for epoch in (1, 2):
        told(sink, epoch)
    shutil.rmtree(tmp_path / "_delta_log")
    written = sink.write_table(ROWS, 3)
    with pytest.raises(SinkMissing, match=r"up to epoch 1, and now has them up to epoch 0|up to epoch 2.*epoch 0"):
        sink.commit(3, written)
    assert not (tmp_path / "_delta_log").exists()


def test_files_that_are_gone_before_they_are_shown_are_missed(tmp_path: Path):
    sink = begun(tmp_path)
    written = sink.write_table(ROWS, 1)
    next(tmp_path.glob("ferryman/*/*/rows.parquet")).unlink()
    with pytest.raises(SinkMissing, match=r"rows\.parquet .* is gone, and epoch 1"):
        sink.commit(1, written)


def test_what_a_checkpoint_says_does_not_lead_out_of_the_attempts_folder(tmp_path: Path):
    sink = begun(tmp_path)
    written = sink.write_table(ROWS, 1)
    for altered in (
        {"files": [{**written["files"][0], "name": "../../secret.parquet"}]},
        {"attempt": "../../.."},
        {"attempt": written["attempt"].replace("000000000001", "000000000002")},
        {"files": 7},
        {"columns": "[" * 10_000},
        {"columns": '{"type": "struct"}'},
        {"columns": written["columns"].replace("long", "elephant")},
        {"key": "key"},
        {"key": ["key", 7]},
    ):
        with pytest.raises(CorruptCheckpoint, match="epoch 1"):
            sink.commit(1, written | altered)


def test_what_a_killed_driver_has_begun_is_removed_once_its_epoch_is_committed(tmp_path: Path):
    begun(tmp_path).write_table(ROWS, 1)
    sink = begun(tmp_path, term=2)
    told(sink, 1)
    assert len(list(tmp_path.glob("ferryman/*/*"))) == 1
    assert len(shown(tmp_path)) == 2


def test_an_owner_that_a_power_cut_left_empty_is_written_anew_unless_there_are_rows(tmp_path: Path):
    (tmp_path / "_ferryman").mkdir()
    owner = tmp_path / "_ferryman" / "ferryman.json"
    owner.touch()
    told(begun(tmp_path), 1)
    owner.write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match=r"ferryman\.json .* is damaged"):
        sinks.delta(tmp_path).claim("job")


def test_a_name_that_no_log_takes_is_refused():
    with pytest.raises(InvalidConfiguration, match="a name has letters"):
        sinks.delta("rows", name="a b")
    with pytest.raises(InvalidConfiguration, match=r"no column 'id', but key, n"):
        sinks.delta("rows", key="id").write_table(ROWS, 1)


def test_a_job_writes_to_a_delta_table(spark, tmp_path: Path):
    job = Readings(spark, tmp_path)
    trail = job.trail().transform(
        lambda rows: rows.selectExpr("*", "timestamp '2026-01-02 03:04:05Z' AS at", "array(n, 1) AS both")
    )
    outputs = trail.write(sinks.delta(tmp_path / "added")), trail.write(sinks.delta(tmp_path / "view", key="key"))
    trail.ferry.start("readings", *outputs, instances=2, trigger={"availableNow": True}).wait()

    state, output = expected(row for epoch in range(1, job.epochs + 1) for row in epoch_rows(epoch))
    added = shown(tmp_path / "added")
    assert sorted(tuple(row.values())[:3] for row in added) == output
    assert sorted(tuple(row.values())[:3] for row in shown(tmp_path / "view")) == state
    assert {row["at"] for row in added} == {datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)}
    assert all(row["both"] == [row["n"], 1] for row in added)
