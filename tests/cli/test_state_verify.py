"""`ferryman state` and `ferryman verify`, as a user calls them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result
from written_log import hash_of, local_log

import ferryman
from ferryman._cli import app
from ferryman._cli.printed_tables import ranges, size
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import FORMAT, JobCard
from ferryman._model.manifest import Manifest, OperatorRecord
from ferryman._model.routing import RoutingTable
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import delta_schema


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Write five epochs of two operators, with a snapshot of the third."""
    log = local_log(tmp_path / "my checkpoint", operators=("Counts", "Sums"))
    for number in range(1, 5):
        log.commit({"Counts": {f"s{number}": number, "all": number}, "Sums": {"all": number}})
        if number == 3:
            write_snapshot(log.checkpoint, 3)
    log.commit()
    return tmp_path / "my checkpoint"


def test_state_shows_the_job_its_epochs_and_its_operators(checkpoint: Path) -> None:
    result = run("state", checkpoint)

    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["job", "test"] in lines
    assert ["epochs", "kept", "1-5"] in lines
    assert ["snapshots", "3"] in lines
    assert ["source", "offsets", '{"offset":4}'] in lines
    assert ["key", "groups", "8"] in lines
    assert any(line[:3] == ["Counts", "sensor", "string"] and line[7] == "5" for line in lines)
    assert str(checkpoint) in result.stdout


def test_state_as_json_counts_the_keys_of_every_group(checkpoint: Path) -> None:
    raw = json.loads(run("state", checkpoint, "--json").stdout)

    assert (raw["job"], raw["format"], raw["groups"]) == ("test", FORMAT, 8)
    assert (raw["first"], raw["last"], raw["epoch"], raw["snapshots"]) == (1, 5, 5, [3])
    assert (raw["batch"], raw["offsets"], raw["instances"]) == (4, [{"offset": 4}], 2)
    counts, sums = raw["tables"]
    groups = [0] * 8
    for key in ("s1", "s2", "s3", "s4", "all"):
        groups[hash_of(key) % 8] += 1
    assert counts["keys_per_group"]["groups"] == groups
    assert counts["keys_per_group"]["max"] == max(groups)
    assert (counts["rows"], sums["rows"]) == (5, 1)
    sizes = {
        side: sum(path.stat().st_size for path in (checkpoint / side).glob("*-Counts-*"))
        for side in ("deltas", "snapshots")
    }
    assert (counts["delta_bytes"], counts["snapshot_bytes"]) == (sizes["deltas"], sizes["snapshots"])


def test_state_goes_back_to_an_epoch(checkpoint: Path) -> None:
    raw = json.loads(run("state", checkpoint, "--json", "--epoch", "2", "--operator", "Counts").stdout)

    assert (raw["epoch"], raw["batch"], raw["tables"][0]["rows"]) == (2, 1, 3)
    assert [(row["sensor"], row["n"]) for row in raw["rows"]] == [("all", 2), ("s1", 1), ("s2", 2)]


def test_state_prints_the_first_rows_in_the_order_of_the_key(checkpoint: Path) -> None:
    result = run("state", checkpoint, "--operator", "Counts", "--limit", "2")

    assert result.stdout.splitlines() == [
        "Counts, epoch 5: 2 of 5 keys",
        "sensor  n  note",
        "all     4  all=4",
        "s1      1  s1=1",
    ]


def test_state_writes_what_json_has_no_type_for(tmp_path: Path) -> None:
    key = KeySchema(pa.schema([("id", pa.binary())]))
    state = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2)), ("tags", pa.map_(pa.string(), pa.int64()))]
    )
    checkpoint = Checkpoint(LocalDirectory(tmp_path))
    checkpoint.create(JobCard("0", "odd", 4, {"Odd": card_of("Odd", key, state)}))
    columns = [[1], [False], [b"\x00\xff"], [0], [None], [[("a", 1)]]]
    schema = delta_schema(key, state)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    ref = checkpoint.write_delta(1, "Odd", 0, pa.Table.from_arrays(arrays, schema=schema))
    record = OperatorRecord(1, 1, 1)
    checkpoint.commit(
        Manifest(
            epoch=1,
            batch=0,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, 4, 1),
            operators={"Odd": record},
            tables={"Odd": (ref,)},
        )
    )

    raw = json.loads(run("state", tmp_path, "--operator", "Odd", "--json").stdout)

    assert raw["rows"] == [{"id": "00ff", "at": "1970-01-01 00:00:00+00:00", "price": None, "tags": {"a": 1}}]
    assert "null" in run("state", tmp_path, "--operator", "Odd").stdout


def test_state_of_a_job_before_its_first_epoch(tmp_path: Path) -> None:
    local_log(tmp_path)

    assert "none yet" in run("state", tmp_path).stdout
    raw = json.loads(run("state", tmp_path, "--json").stdout)
    assert (raw["epoch"], raw["first"], raw["tables"][0]["rows"]) == (0, None, 0)


def test_verify_of_a_sound_checkpoint_ends_with_0(checkpoint: Path) -> None:
    result = run("verify", checkpoint)

    assert result.exit_code == 0
    assert "epochs kept: 1-5; can be rebuilt: 1-5" in result.stdout
    assert "sound" in result.stdout
    assert json.loads(run("verify", checkpoint, "--json").stdout)["sound"] is True


def test_verify_of_a_damaged_checkpoint_ends_with_1_and_names_every_fault(checkpoint: Path) -> None:
    (damaged,) = (checkpoint / "snapshots").glob("*-Counts-*")
    damaged.write_bytes(b"")
    (checkpoint / "manifests" / "000000000002.json").unlink()

    result = run("verify", checkpoint)

    assert result.exit_code == 1
    assert "2 faults" in result.stdout
    assert "can be rebuilt: 1" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith(f"snapshots/{damaged.name}"))
    assert "has 0 bytes instead of" in row
    assert "  3-5  " in row
    raw = run("verify", checkpoint, "--json")
    assert raw.exit_code == 1
    assert [fault["damages"] for fault in json.loads(raw.stdout)["faults"]] == [[3, 4, 5], [2, 3, 4, 5]]


def newer(path: Path) -> Path:
    Checkpoint(LocalDirectory(path)).create(JobCard("0", "test", 8, {}, format=FORMAT + 1))
    return path


def without_card(path: Path) -> Path:
    (path / "ferryman.json").unlink()
    return path


WRONG = {
    "a directory that is not there": (lambda path: path / "nothing", "[FOREIGN_CHECKPOINT]", "is not a checkpoint"),
    "an ordinary directory": (lambda path: path / "manifests", "[FOREIGN_CHECKPOINT]", "is not a checkpoint"),
    "a file": (lambda path: path / "ferryman.json", "[FOREIGN_CHECKPOINT]", "ferryman.json is"),
    "no card": (without_card, "[FOREIGN_CHECKPOINT]", "no ferryman.json"),
    "a newer format": (newer, "[NEWER_FORMAT]", "Upgrade ferryman"),
    "an unknown filesystem": (lambda path: "gopher://x", "[INVALID_CONFIGURATION]", "gopher://x"),
}


@pytest.mark.parametrize("command", ["state", "verify"])
@pytest.mark.parametrize("case", list(WRONG))
def test_what_is_no_checkpoint_is_one_clear_line(checkpoint: Path, command: str, case: str) -> None:
    make, error_class, words = WRONG[case]

    result = run(command, make(checkpoint))

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(error_class)
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epoch", "9"], "the epochs kept are 1 to 5"),
        (["--operator", "Nope"], "no table 'Nope'; it has: Counts, Sums"),
    ],
)
def test_asking_for_what_is_not_there_is_one_clear_line(checkpoint: Path, arguments: list[str], words: str) -> None:
    result = run("state", checkpoint, *arguments)

    assert result.exit_code == 1
    assert words in result.stderr


def test_state_of_a_damaged_checkpoint_points_to_verify(checkpoint: Path) -> None:
    (checkpoint / "manifests" / "000000000005.json").write_bytes(b"{")

    result = run("state", checkpoint)

    assert result.exit_code == 1
    assert "[CORRUPT_CHECKPOINT] manifests/000000000005.json" in result.stderr
    assert "ferryman verify" in result.stderr


def test_tables_are_drawn_on_a_terminal(checkpoint: Path) -> None:
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", "from ferryman._cli import app; app()", "state", str(checkpoint)]
    process = subprocess.Popen(
        program, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # what a terminal gives at its end on Linux
            break
        if not data:
            break
        shown += data
    os.close(ours)

    assert process.wait() == 0
    assert "╭" in shown.decode()
    assert "Counts" in shown.decode()
    assert "╭" not in run("state", checkpoint).stdout


@pytest.mark.parametrize(
    ("numbers", "text"), [([], "none"), ([4], "4"), ([1, 2, 3], "1-3"), ([1, 3, 4, 9], "1, 3-4, 9")]
)
def test_ranges_are_folded(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_sizes_are_for_people() -> None:
    assert [size(count) for count in (0, 999, 1000, 1_500_000, 2 * 10**9, 3 * 10**12)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB", "3.0 TB",
    ]  # fmt: skip


def test_a_real_jobs_checkpoint_is_shown_and_sound(spark: SparkSession, tmp_path: Path) -> None:
    rows = ferryman.sources.generator(spark, keys=20, rows=300, rows_per_epoch=100, key_prefix="sensor-")
    ferry = ferryman.Ferry(
        spark, checkpoint=str(tmp_path / "job"), idle=None, snapshot_every=2, retain=2, home=str(tmp_path / "home")
    )
    counted = ferry.stream(rows).key_by("key").aggregate(name="Counts", n=ferryman.count())
    job = counted.write(ferryman.sinks.none()).start("sensors", instances=2)
    job.wait_for(lambda: sum(epoch.rows for epoch in job.progress()) == 300, 120)
    last = job.epoch
    expected = {row["key"]: row["n"] for row in job.state("Counts").to_arrow().to_pylist()}
    job.stop()

    raw = json.loads(run("state", tmp_path / "job", "--json", "--operator", "Counts", "--limit", "100").stdout)
    report = json.loads(run("verify", tmp_path / "job", "--json").stdout)

    assert (raw["job"], raw["last"], raw["instances"]) == ("sensors", last, 2)
    assert {row["key"]: row["n"] for row in raw["rows"]} == expected
    assert sum(expected.values()) == 300
    assert raw["tables"][0]["rows"] == len(expected)
    assert (report["sound"], report["faults"]) == (True, [])
    assert report["epochs"][-1] == last

    shutil.rmtree(tmp_path / "job" / "deltas")
    assert run("verify", tmp_path / "job").exit_code == 1


def test_the_command_says_its_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout.strip()) == (0, importlib.metadata.version("ferryman"))
