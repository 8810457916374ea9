"""What a checkpoint or a directory says of a sink is not believed: it leads nowhere else, and is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ferryman import sinks
from ferryman._engine.outputs import Outputs
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.files.term import Term
from ferryman._model.errors import CorruptCheckpoint, ForeignCheckpoint
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._spark.sinks.parquet import listed

ATTEMPT = "000000000001-000001-0123abcd"
SCHEMA = '{"type":"struct","fields":[]}'
DEEP = "[" * 100_000 + "]" * 100_000


def manifest(known: dict[str, Any]) -> Manifest:
    return Manifest(
        epoch=1,
        batch=0,
        silent=False,
        time_ms=0,
        routing=RoutingTable.even(1, 4, 1),
        operators={},
        tables={},
        sinks=known,
    )


def begin(tmp_path: Path, sink: Any, label: str, record: Any) -> None:
    """Start on a checkpoint whose newest epoch says that of a sink."""
    checkpoint = Checkpoint(directory(str(tmp_path / "checkpoint")))
    checkpoint.commit(manifest({label: record}))
    term = Term(number=2, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
    Outputs([sink], checkpoint, checkpoint.latest(), term=term, fsync=False).begin()


def of_parquet(**says: Any) -> dict[str, Any]:
    written = {"attempt": ATTEMPT, "files": [], "schema": SCHEMA, "path": "", **says}
    return {"told": True, "path": "", "written": written}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of the user's, three above where attempts are, with a file."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "letter").write_text("dear")
    return tmp_path / "victim"


@pytest.mark.parametrize(
    "says",
    [
        {"attempt": "../../../victim"},
        {"attempt": "../../../victim", "files": ["letter"]},
        {"attempt": ".."},
        {"attempt": ""},
        {"attempt": 7},
        {"attempt": None},
        {"attempt": "000000000002-000001-0123abcd"},
        {"files": ["../../../../victim/letter"]},
        {"files": [".."]},
        {"files": ["letter"]},
        {"files": [7]},
        {"files": "abc"},
        {"files": None},
        {"schema": 7},
    ],
)
def test_what_a_checkpoint_says_of_a_sink_does_not_lead_out_of_its_directory(
    tmp_path: Path, victim: Path, says: dict[str, Any]
) -> None:
    sink = sinks.parquet(tmp_path / "out")
    sink.claim("job")
    (tmp_path / "out" / "_ferryman" / "attempts" / ATTEMPT).mkdir(parents=True)

    with pytest.raises(CorruptCheckpoint, match="epoch 1"):
        begin(tmp_path, sink, sink.label, of_parquet(**says))

    assert (victim / "letter").read_text() == "dear"
    assert (tmp_path / "out" / "_ferryman" / "owner.json").exists()


@pytest.mark.parametrize("missing", ["attempt", "files", "schema"])
def test_a_record_of_a_parquet_sink_is_whole(tmp_path: Path, missing: str) -> None:
    sink = sinks.parquet(tmp_path / "out")
    sink.claim("job")
    record = of_parquet()
    del record["written"][missing]

    with pytest.raises(CorruptCheckpoint, match="epoch 1"):
        begin(tmp_path, sink, sink.label, record)


@pytest.mark.parametrize(
    "record",
    [7, None, [], "x", {"told": 1, "written": {}}, {"told": False}, {"told": False, "written": 7},
     {"told": False, "path": 7, "written": {}}],
)  # fmt: skip
def test_a_record_of_a_sink_has_its_shape(tmp_path: Path, record: Any) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"manifests/000000000001\.json .* is truncated or altered"):
        begin(tmp_path, sinks.foreach(print), "foreach", record)


@pytest.mark.parametrize("written", [{"n": 1}, {"number": "x"}, {"number": None}, {"number": -1}, {"number": 1e999}])
def test_a_count_of_calls_is_a_number(tmp_path: Path, written: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpoint, match="foreach"):
        begin(tmp_path, sinks.foreach(print), "foreach", {"told": False, "path": "", "written": written})


def test_a_function_that_has_not_been_called_has_no_count(tmp_path: Path) -> None:
    begin(tmp_path, sinks.foreach(print), "foreach", {})


@pytest.mark.parametrize(
    "says",
    [
        {"attempt": "../../../victim"},
        {"attempt": "000000000009-000001-0123abcd"},
        {"files": [".."]},
        {"files": [".parquet"]},
        {"files": ["a\x00.parquet"]},
        {"files": "abc"},
        {"schema": {}},
    ],
)
def test_a_list_of_files_names_plain_files_of_its_own_epoch(tmp_path: Path, says: dict[str, Any]) -> None:
    place = directory(str(tmp_path / "out"))
    whole = {"attempt": ATTEMPT, "files": ["a.parquet"], "schema": SCHEMA, **says}
    place.write("_ferryman/000000000001-000001.json", json.dumps(whole).encode())

    with pytest.raises(CorruptCheckpoint, match=r"_ferryman/000000000001-000001\.json .* is damaged"):
        listed(place)


@pytest.mark.parametrize("text", [DEEP, "7", "[]", '"x"', "", "{", "\xff"])
def test_a_list_of_files_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    place = directory(str(tmp_path / "out"))
    place.write("_ferryman/000000000001-000001.json", text.encode("latin1"))

    with pytest.raises(CorruptCheckpoint, match=r"_ferryman/000000000001-000001\.json .* is damaged"):
        listed(place)


def test_a_link_in_the_place_of_a_list_is_not_followed(tmp_path: Path) -> None:
    place = directory(str(tmp_path / "out"))
    whole = {"attempt": ATTEMPT, "files": ["a.parquet"], "schema": SCHEMA}
    (tmp_path / "elsewhere").write_text(json.dumps(whole))
    (tmp_path / "out" / "_ferryman").mkdir(parents=True)
    (tmp_path / "out" / "_ferryman" / "000000000001-000001.json").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        listed(place)


def test_the_columns_in_a_list_have_nothing_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted.py").write_text("class Type: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    place = directory(str(tmp_path / "out"))
    udt = {"type": "udt", "pyClass": "planted.Type", "serializedClass": "", "sqlType": "long"}
    field = {"name": "x", "type": {"type": "array", "elementType": udt, "containsNull": True}, "nullable": True}
    schema = json.dumps({"type": "struct", "fields": [{**field, "metadata": {}}]})
    whole = {"attempt": ATTEMPT, "files": [], "schema": schema}
    place.write("_ferryman/000000000001-000001.json", json.dumps(whole).encode())

    with pytest.raises(CorruptCheckpoint, match="columns"):
        sinks.read_parquet(None, tmp_path / "out")  # type: ignore[arg-type]

    assert "planted" not in sys.modules


@pytest.mark.parametrize(
    "schema",
    ["", "{", "7", "[]", DEEP, "{}", '{"type":"struct"}', '{"type":"struct","fields":7}', '"no such type"', '"long"',
     '{"type":"struct","fields":[{"name":"x","type":"no","nullable":true,"metadata":{}}]}',
     '{"type":"struct","fields":[{"name":"x","type":{"type":"map"},"nullable":true,"metadata":{}}]}'],
)  # fmt: skip
def test_columns_that_nothing_can_be_read_by_are_refused(tmp_path: Path, schema: str) -> None:
    place = directory(str(tmp_path / "out"))
    whole = {"attempt": ATTEMPT, "files": [], "schema": schema}
    place.write("_ferryman/000000000001-000001.json", json.dumps(whole).encode())

    with pytest.raises(CorruptCheckpoint, match="columns"):
        sinks.read_parquet(None, tmp_path / "out")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [DEEP, "7", "[]", "{", '{"job":7,"sink":"x"}', '{"job":"job"}', "\xff"])
def test_a_note_of_whose_rows_these_are_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    place = directory(str(tmp_path / "out"))
    place.write("_ferryman/000000000001-000001.json", b"{}")
    place.write("_ferryman/owner.json", text.encode("latin1"))

    with pytest.raises(CorruptCheckpoint, match=r"_ferryman/owner\.json in .* is damaged"):
        sinks.parquet(tmp_path / "out").claim("job")


def test_a_link_in_the_place_of_the_note_is_not_followed(tmp_path: Path) -> None:
    place = directory(str(tmp_path / "out"))
    place.write("_ferryman/000000000001-000001.json", b"{}")
    (tmp_path / "elsewhere").write_text('{"job":"job","sink":"x"}')
    (tmp_path / "out" / "_ferryman" / "owner.json").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CorruptCheckpoint, match=r"_ferryman/owner\.json in .* is damaged"):
        sinks.parquet(tmp_path / "out").claim("job")


@pytest.mark.parametrize(
    "left", ["_ferryman/000000000001-000001.json", f"_ferryman/attempts/{ATTEMPT}/x", f"{ATTEMPT}-00000.parquet"]
)
def test_rows_without_a_note_of_whose_they_are_are_claimed_by_nobody(tmp_path: Path, left: str) -> None:
    directory(str(tmp_path / "out")).write(left, b"{}")

    with pytest.raises(ForeignCheckpoint, match=r"has rows, and no _ferryman/owner\.json .* Restore that file"):
        sinks.parquet(tmp_path / "out").claim("another")

    assert not (tmp_path / "out" / "_ferryman" / "owner.json").exists()


def test_files_of_others_do_not_make_a_directory_a_sinks(tmp_path: Path) -> None:
    directory(str(tmp_path / "out")).write("README", b"rows come here")

    sinks.parquet(tmp_path / "out").claim("job")


def test_a_password_in_a_path_is_not_said(tmp_path: Path) -> None:
    with pytest.raises(ForeignCheckpoint, match="no committed epoch") as caught:
        sinks.read_parquet(None, "mock://user:open-sesame@place/out")  # type: ignore[arg-type]

    assert "open-sesame" not in str(caught.value)
    assert "place/out" in str(caught.value)
