"""The page on the checkpoint format is true: its programs read a checkpoint that Ferryman wrote."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from written_log import KEY, STATE, WrittenLog, files_of, local_log

from ferryman._log.files.term import Redo, settle_term, take_term
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot

PAGE = Path(__file__).resolve().parents[3] / "docs" / "checkpoint-format.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenLog:
    monkeypatch.chdir(tmp_path)
    log = local_log(tmp_path / "checkpoint")
    for number in range(1, 9):
        log.commit({"Counts": {f"s{number % 3}": number, f"t{number}": number, f"t{number - 2}": None}})
        if number in (3, 6):
            write_snapshot(log.checkpoint, number)
    prune(log.checkpoint, 4)
    return log


def run(part: str) -> dict[str, object]:
    (program,) = [program for program in PROGRAMS if part in program]
    names: dict[str, object] = {}
    exec(compile(program, str(PAGE), "exec"), names)
    return names


def test_pyarrow_alone_reads_a_snapshot(log: WrittenLog, capsys: pytest.CaptureFixture[str]) -> None:
    state = run("pyarrow.dataset")["state"]

    assert {row["sensor"]: (row["n"], row["note"]) for row in state.to_pylist()} == log.states[6]["Counts"]
    assert capsys.readouterr().out == f"Counts {len(log.states[6]['Counts'])}\n"


def test_duckdb_alone_reads_a_snapshot(log: WrittenLog, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    run("duckdb")

    numbers = [n for n, _ in log.states[6]["Counts"].values()]
    assert capsys.readouterr().out == f"[({len(numbers)}, {sum(numbers)})]\n"


def test_twenty_lines_rebuild_the_newest_epoch(log: WrittenLog) -> None:
    state = run("pa.ipc.open_file")["state"]

    assert {key[0]: (row["n"], row["note"]) for key, row in state.items()} == log.states[8]["Counts"]


def test_every_json_file_has_the_checksum_of_its_body_as_it_stands(log: WrittenLog) -> None:
    log.checkpoint.intend(9, 1)
    log.checkpoint.tell(8, 1)
    settle_term(log.checkpoint, take_term(log.checkpoint, "run", "job", reading={}), Redo(3, {}, 1))
    records = {name: data for name, data in files_of(Path("checkpoint")).items() if name.endswith(".json")}

    assert len(records) > 6
    for data in records.values():
        found = re.fullmatch(rb'\{"checksum":"([0-9a-f]{16})","body":(\{.*\})\}\n', data)
        assert found is not None
        assert found[1].decode() == xxhash.xxh3_64_hexdigest(found[2])


def test_the_page_names_every_field_of_every_record(log: WrittenLog) -> None:
    log.checkpoint.intend(9, 1)
    log.checkpoint.tell(8, 1)
    settle_term(log.checkpoint, take_term(log.checkpoint, "run", "job", reading={}), Redo(3, {}, 1))
    text = PAGE.read_text(encoding="utf-8")

    def fields(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {name for item in value.values() for name in fields(item)}
        return {name for item in value for name in fields(item)} if isinstance(value, list) else set()

    found = {
        name for path in Path("checkpoint").rglob("*.json") for name in fields(json.loads(path.read_text())["body"])
    }

    assert {name for name in found - {"Counts", "offset"} if f"`{name}`" not in text} == set()


def test_the_cards_schema_is_an_arrow_schema_message(log: WrittenLog) -> None:
    card = json.loads(Path("checkpoint/ferryman.json").read_text())["body"]["tables"]["Counts"]

    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(card["schema"])))

    assert schema == pa.schema([*KEY.fields, *STATE])
    assert [[each.name, str(each.type)] for each in schema] == card["key"] + card["state"]
