"""A checkpoint that somebody altered who wants harm, with right checksums, is refused: nothing else comes of it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hostile
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ferryman import _cli
from ferryman._log.check.describe import describe
from ferryman._log.check.verify import verify
from ferryman._log.files.cards import decode_schema
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.advance import advance
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CorruptCheckpoint
from ferryman._state import store as stores

# How long the alterations are tried at random; longer by hand.
SECONDS = float(os.environ.get("FERRYMAN_FUZZ_S", "10"))
SEED = int(os.environ.get("FERRYMAN_FUZZ_SEED", "0"))

LAST = f"manifests/{hostile.LAST:012d}.json"
LIST = "snapshots/000000000002.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    hostile.write(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.fixture
def checkpoint(root: Path) -> Checkpoint:
    return Checkpoint(LocalDirectory(root))


def delta_of(root: Path, table: str) -> str:
    return str(hostile.body(root, LAST)["tables"][table][0]["file"])


def advanced(checkpoint: Checkpoint, table: str, home: Path) -> None:
    key, state, backend = hostile.TABLES[table]
    store = stores.open(backend, home, key, state, hostile.GROUPS)
    try:
        advance(store, checkpoint, table, np.arange(8), hostile.LAST, key=key, state=state, total=8)
    finally:
        store.close()


def faults(checkpoint: Checkpoint) -> str:
    return "\n".join(f"{fault.file} {fault.what}" for fault in verify(checkpoint).faults)


def with_offset(root: Path, name: str, value: int) -> None:
    """Have one offset of the keys' column of a delta point elsewhere."""
    data = (root / name).read_bytes()
    rows = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    offsets = rows.column("sensor").chunk(0).buffers()[1].to_pybytes()
    assert data.count(offsets) == 1
    altered = bytearray(offsets)
    altered[4:8] = value.to_bytes(4, "little", signed=True)
    hostile.replace(root, name, data.replace(offsets, bytes(altered)))


@pytest.mark.parametrize("value", [2**31 - 1, 1 << 20, -1])
@pytest.mark.parametrize("table", ["Columnar", "Notes"])
def test_offsets_out_of_range_are_refused_before_compiled_loops_follow_them(
    root: Path, checkpoint: Checkpoint, tmp_path: Path, table: str, value: int
) -> None:
    with_offset(root, delta_of(root, table), value)

    with pytest.raises(CorruptCheckpoint, match="cannot be read as Arrow"):
        advanced(checkpoint, table, tmp_path / "home")
    with pytest.raises(CorruptCheckpoint, match="cannot be read as Arrow"):
        rebuild(checkpoint, table, hostile.LAST)
    assert "cannot be read as Arrow" in faults(checkpoint)


def test_names_do_not_lead_out_of_the_directory(root: Path, checkpoint: Checkpoint) -> None:
    (root.parent / "secret").write_bytes((root / delta_of(root, "Notes")).read_bytes())
    for name in ("../secret", "deltas/../../secret", str(root.parent / "secret"), "spark/../../secret"):
        raw = hostile.body(root, LAST)
        raw["tables"]["Notes"][0]["file"] = name
        hostile.rewrite(root, LAST, raw)

        assert f"{LAST} is truncated or altered" in faults(checkpoint)
        with pytest.raises(CorruptCheckpoint):
            rebuild(checkpoint, "Notes", hostile.LAST)


def test_a_link_in_the_place_of_a_file_is_not_followed(root: Path, checkpoint: Checkpoint) -> None:
    name = delta_of(root, "Notes")
    (root / name).rename(root.parent / "secret")
    (root / name).symlink_to(root.parent / "secret")

    assert "cannot be read (Not a plain file)" in faults(checkpoint)
    with pytest.raises(CorruptCheckpoint, match="Not a plain file"):
        rebuild(checkpoint, "Notes", hostile.LAST)


@pytest.mark.parametrize(
    "folder", ["manifests", "deltas", "snapshots", "held", "lookups", "terms", "spark", "spark/offsets"]
)
def test_a_link_in_the_place_of_a_folder_is_not_followed(root: Path, checkpoint: Checkpoint, folder: str) -> None:
    (root / folder).mkdir(exist_ok=True)
    (root / folder).rename(root.parent / "elsewhere")
    (root / folder).symlink_to(root.parent / "elsewhere")

    for use in (checkpoint.card, checkpoint.refuse_foreign, lambda: verify(checkpoint), lambda: describe(checkpoint)):
        with pytest.raises(CorruptCheckpoint, match=f"{folder} in .* is a link"):
            use()
    for command in ("state", "verify"):
        assert "is a link or a file" in " ".join(CliRunner().invoke(_cli.app, [command, str(root)]).output.split())


def test_a_file_behind_a_link_to_a_folder_is_neither_read_nor_opened(root: Path, checkpoint: Checkpoint) -> None:
    name = delta_of(root, "Notes")
    (root / "deltas").rename(root.parent / "elsewhere")
    (root / "deltas").symlink_to(root.parent / "elsewhere")

    for way in (checkpoint.directory.read, checkpoint.directory.open):
        with pytest.raises(OSError, match="Not in a plain folder"):
            way(name)


def test_a_tables_name_does_not_have_a_snapshot_written_elsewhere(root: Path, checkpoint: Checkpoint) -> None:
    raw = hostile.body(root, "ferryman.json")
    raw["tables"]["x/../../../outside"] = raw["tables"]["Notes"]
    hostile.rewrite(root, "ferryman.json", raw)

    with pytest.raises(CorruptCheckpoint):
        write_snapshot(checkpoint, hostile.LAST)


@pytest.mark.parametrize("runs", [[[0, 10**9]], [[0, 10**12]], [[0, 9]], [], [[0, -1]], [[9, 8]]])
def test_a_routing_table_is_no_longer_than_there_are_groups(
    root: Path, checkpoint: Checkpoint, tmp_path: Path, runs: list[list[int]]
) -> None:
    raw = hostile.body(root, LAST)
    raw["routing"]["runs"] = runs
    hostile.rewrite(root, LAST, raw)

    assert LAST in faults(checkpoint)
    with pytest.raises(CorruptCheckpoint):
        advanced(checkpoint, "Notes", tmp_path / "home")


@pytest.mark.parametrize("depth", [80, 900, 200_000])
@pytest.mark.parametrize("name", ["ferryman.json", LAST, LIST, "intents/000000000000.json"])
def test_deep_json_is_refused(root: Path, checkpoint: Checkpoint, name: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    hostile.rewrite(root, name, None, text=f'{{"epoch":{deep},"offsets":{deep}}}')

    assert f"{name} is truncated or altered" in faults(checkpoint)


@pytest.mark.parametrize("epoch", ["Infinity", "NaN", "-1", "1.5", '"7"', "true", "1e400"])
def test_a_note_of_what_sinks_know_that_names_no_epoch_is_refused(
    root: Path, checkpoint: Checkpoint, epoch: str
) -> None:
    hostile.rewrite(root, "told.json", json.loads(f'{{"epoch":{epoch}}}'))

    with pytest.raises(CorruptCheckpoint, match=r"told\.json"):
        checkpoint.told()
    assert "told.json is truncated or altered" in faults(checkpoint)


def test_offsets_that_are_nested_deep_are_refused(root: Path, checkpoint: Checkpoint) -> None:
    raw = hostile.body(root, LAST)
    raw["offsets"] = [hostile.DEEP]
    hostile.rewrite(root, LAST, raw)

    with pytest.raises(CorruptCheckpoint):
        describe(checkpoint)


@pytest.mark.parametrize("epoch", [10**11, 10**17])
@pytest.mark.parametrize("where", ["manifest", "intent", "snapshot"])
def test_an_epoch_far_beyond_the_others_is_one_fault(
    root: Path, checkpoint: Checkpoint, where: str, epoch: int
) -> None:
    if where == "manifest":
        raw = hostile.body(root, LAST)
        hostile.rewrite(root, f"manifests/{epoch:012d}.json", {**raw, "epoch": epoch})
    elif where == "intent":
        checkpoint.intend(epoch, 5)
    else:
        hostile.rewrite(root, f"snapshots/{epoch:012d}.json", {**hostile.body(root, LIST), "epoch": epoch})

    report = verify(checkpoint)

    assert len(report.faults) <= 2
    assert len(report.epochs) <= hostile.LAST


@pytest.mark.parametrize("groups", [b"[0,1,2,3,4,5,6,7,7,7]", b"[1000000]", b"[-1]", b"{}", b"[" * 5000])
def test_a_list_of_row_groups_that_is_wrong_is_refused(
    root: Path, checkpoint: Checkpoint, tmp_path: Path, groups: bytes
) -> None:
    prune(checkpoint, 2)  # so that nothing can be read in the place of the snapshot
    name = hostile.body(root, LIST)["tables"]["Notes"][0]["file"]
    rows = pq.read_table(root / name).replace_schema_metadata({b"ferryman.groups": groups})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    hostile.replace(root, name, sink.getvalue().to_pybytes())

    assert f"{name} cannot be read as Parquet of a snapshot" in faults(checkpoint)
    with pytest.raises(CorruptCheckpoint, match="cannot be read as Parquet"):
        rebuild(checkpoint, "Notes", hostile.LAST)
    with pytest.raises(CorruptCheckpoint, match="cannot be read as Parquet"):
        advanced(checkpoint, "Notes", tmp_path / "home")


def test_a_delta_that_is_compressed_is_refused_before_it_is_unpacked(root: Path, checkpoint: Checkpoint) -> None:
    name = delta_of(root, "Notes")
    rows = pa.ipc.open_file(str(root / name)).read_all()
    many = rows.slice(0, 1).take(pa.array(np.zeros(4_000_000, np.int64)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, many.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(many)
    hostile.replace(root, name, sink.getvalue().to_pybytes(), rows=many.num_rows)
    del many
    before = pa.total_allocated_bytes()

    with pytest.raises(CorruptCheckpoint, match="it is compressed"):
        rebuild(checkpoint, "Notes", hostile.LAST)
    assert pa.default_memory_pool().max_memory() >= before
    assert pa.total_allocated_bytes() <= before + (1 << 20)


def test_a_small_file_does_not_decode_to_a_large_state(root: Path, checkpoint: Checkpoint) -> None:
    prune(checkpoint, 2)  # so that nothing can be read in the place of the snapshot
    name = hostile.body(root, LIST)["tables"]["Columnar"][0]["file"]
    rows = pq.read_table(root / name).slice(0, 1).take(pa.array(np.zeros(20_000_000, np.int64)))
    sink = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata({b"ferryman.groups": b"[0]"}), sink, row_group_size=1 << 30)
    data = sink.getvalue().to_pybytes()
    hostile.replace(root, name, data, rows=rows.num_rows)
    assert len(data) < 1 << 20

    with pytest.raises(CorruptCheckpoint, match="would decode to"):
        rebuild(checkpoint, "Columnar", hostile.LAST)


def test_a_long_word_that_many_rows_share_does_not_become_a_large_state(root: Path, checkpoint: Checkpoint) -> None:
    prune(checkpoint, 2)  # so that nothing can be read in the place of the snapshot
    name = hostile.body(root, LIST)["tables"]["Notes"][0]["file"]
    rows = pq.read_table(root / name).slice(0, 1).take(pa.array(np.zeros(3000, np.int64)))
    at = rows.column_names.index("note")
    word = pa.array(["y" * 100_000]).take(pa.array(np.zeros(rows.num_rows, np.int64)))
    sink = pa.BufferOutputStream()
    many = rows.set_column(at, "note", word).replace_schema_metadata({b"ferryman.groups": b"[0]"})
    pq.write_table(many, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    # Its footer speaks of one word, and it is right.
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).total_byte_size < 1 << 20
    hostile.replace(root, name, data, rows=rows.num_rows)

    with pytest.raises(CorruptCheckpoint, match="decodes to more than"):
        rebuild(checkpoint, "Notes", hostile.LAST)
    assert "decodes to more than" in faults(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "AAAA"},
        {"schema": "not base64"},
        {"defaults": base64.b64encode(b"\xff\xff\xff\xff\xff\xff\xff\x7f").decode()},
        {"key": []},
        {"key": [["sensor", "string"], ["n", "int64"], ["mean", "double"], ["x", "double"]]},
        {"earlier": ["AAAA"]},
        {"aliases": {"n": "m"}},
        {"operator": "../x"},
    ],
)
def test_a_card_that_nothing_can_be_read_by_is_refused(
    root: Path, checkpoint: Checkpoint, change: dict[str, object]
) -> None:
    raw = hostile.body(root, "ferryman.json")
    raw["tables"]["Columnar"].update(change)
    hostile.rewrite(root, "ferryman.json", raw)

    with pytest.raises(CorruptCheckpoint, match=r"ferryman\.json"):
        checkpoint.card()
    assert "ferryman.json" in faults(checkpoint)


def test_a_schema_is_read_back(root: Path) -> None:
    raw = hostile.body(root, "ferryman.json")
    assert decode_schema(raw["tables"]["Columnar"]["schema"]).names == ["sensor", "n", "mean"]


def test_what_a_checkpoint_says_does_not_steer_the_terminal(root: Path) -> None:
    raw = hostile.body(root, "ferryman.json")
    hostile.rewrite(root, "ferryman.json", {**raw, "job": "\x1b]0;owned\x07\x9b31m"})

    shown = CliRunner().invoke(_cli.app, ["state", str(root)]).output

    assert "owned" in shown
    assert not [character for character in shown if character != "\n" and not character.isprintable()]


def test_dates_that_python_has_not_are_shown(root: Path) -> None:
    name = delta_of(root, "Notes.log")
    rows = pa.ipc.open_file(str(root / name)).read_all()
    late = pa.array([2**62] * rows.num_rows, pa.int64()).cast(pa.timestamp("us", "UTC"))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows.set_column(3, "at", late))
    hostile.replace(root, name, sink.getvalue().to_pybytes())

    for line in ([], ["--json"]):
        done = CliRunner().invoke(_cli.app, ["state", str(root), "--operator", "Notes.log", "--limit", "99", *line])
        assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 280)
def test_no_alteration_ends_otherwise_than_in_an_error_of_ours() -> None:
    program = [sys.executable, hostile.__file__, str(SEED), str(SECONDS)]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})

    wrong = [line for line in done.stdout.splitlines() if not line.startswith(("seed", "sound", "tried"))]
    last = done.stdout.splitlines()[-1:]
    ended = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
    assert (ended, wrong) == (0, []), f"ended with {ended} after {last}: {done.stderr[-2000:]}"
    assert last[0].startswith("tried ")
