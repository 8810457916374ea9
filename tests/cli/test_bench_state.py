"""`ferryman bench state`, on little data: it runs, its JSON has every field, and wrong state fails it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from ferryman._cli import app
from ferryman._cli.bench import _load
from ferryman._operator.types.collections import State

TINY = ["--keys", "200", "--rows", "200", "--epochs", "1", "--larger", "0.02", "--touches", "2"]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return _load("state")


def measured(bench: ModuleType, place: Path, kind: str, backend: str) -> dict[str, Any]:
    options = {"kind": kind, "backend": backend, "keys": 200, "rows": 200, "epochs": 1, "size": 20}
    try:
        result: dict[str, Any] = bench.measure(lambda *_: None, place, **options)
    finally:
        bench.close_stores()
    return result


@pytest.mark.slow
def test_the_command_measures_types_and_state_larger_than_memory(tmp_path: Path) -> None:
    written = tmp_path / "state.json"
    done = CliRunner().invoke(
        app, ["bench", "state", *TINY, "--types", "counter", "--backends", "rocksdb", "--json", str(written)]
    )

    assert done.exit_code == 0, done.output
    assert "counter on rocksdb (1 of 1)" in done.stdout
    raw = json.loads(written.read_text())
    assert raw["benchmark"] == "state"
    assert (raw["parameters"]["keys"], raw["parameters"]["types"]) == (200, "counter")
    assert {"cores", "memory_gb", "load_before", "at"} <= raw["environment"].keys()
    assert {"lmdb", "rocksdict", "pyarrow"} <= raw["environment"]["versions"].keys()
    counter = raw["types"]["counter"]["rocksdb"]
    assert set(counter["backends"].values()) == {"rocksdb"}
    assert counter["updates"].keys() == {"rows_per_s", "epoch_s", "fill_rows_per_s"}
    assert counter["reads"]["table"] == "state.held"
    assert {"point_rows_per_s", "multi_rows_per_s", "multi_keys", "scan_rows_per_s", "rows"} < counter["reads"].keys()
    assert counter["moves"].keys() == {"from_deltas_s", "from_snapshot_s", "merge_s", "return_s"}
    assert {"full_s", "full_bytes", "incremental_s", "incremental_bytes"} < counter["checkpoint"].keys()
    assert counter["checkpoint"]["full_bytes"] > counter["checkpoint"]["incremental_bytes"] > 0
    assert counter["memory"]["peak_rss_mb"] > counter["memory"]["peak_anon_mb"] > 0
    assert {"start", "updates", "reads", "moves", "checkpoint"} <= counter["memory"]["phases"].keys()
    larger = raw["larger"]["rocksdb"]
    assert larger["allowed_bytes"] == 256 << 20
    assert larger["state_bytes"] > 0.02 * larger["allowed_bytes"]
    assert larger["memory"]["peak_data_mb"] <= 256
    assert larger["seconds"].keys() == larger["rows_per_s"].keys() == {"fill", "touch", "check"}
    assert counter["results"] == larger["results"] == "equal to plain Python"


def test_only_stores_that_can_hold_a_type_are_measured(bench: ModuleType) -> None:
    held = {
        name: [backend for backend in bench.BACKENDS if bench.can_hold(kind, backend)]
        for name, kind in bench.TYPES.items()
    }

    assert held["value"] == held["aggregating"] == ["columnar", "lmdb", "rocksdb"]
    assert held["bytes"] == held["hyperloglog"] == ["lmdb", "rocksdb"]
    # Bounds of a list are narrow and its entries are not one per key: two tables, in two stores.
    assert held["list"] == ["default", "lmdb", "rocksdb"]


@pytest.mark.parametrize("kind", ["graph", "nested", "sliding", "session", "perinstance"])
def test_what_is_made_of_parts_is_measured_too(bench: ModuleType, tmp_path: Path, kind: str) -> None:
    result = measured(bench, tmp_path, kind, "lmdb")

    assert result["results"] == "equal to plain Python"
    assert result["reads"]["rows"] > 0


def test_every_type_is_measured_that_is_in_a_store(bench: ModuleType) -> None:
    import ferryman

    states = {state for state in vars(ferryman).values() if isinstance(state, type) and issubclass(state, State)}
    assert {type(state) for kind in bench.TYPES.values() for state in kind.operator.states().values()} == states


@pytest.mark.parametrize(("kind", "backend"), [("value", "columnar"), ("tumbling", "default")])
def test_the_state_of_every_key_is_compared_with_plain_python(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, backend: str
) -> None:
    assert measured(bench, tmp_path / "right", kind, backend)["results"] == "equal to plain Python"

    right = bench.TYPES[kind].plain
    other = dataclasses.replace(bench.TYPES[kind], plain=lambda rows: None if rows[0].key == 7 else right(rows))
    monkeypatch.setitem(bench.TYPES, kind, other)
    with pytest.raises(_load("state_job").WrongState, match="key 7: "):
        measured(bench, tmp_path / "wrong", kind, backend)


def test_an_unknown_type_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "state", "--types", "heap"])

    assert done.exit_code == 2
    assert "heap: not among value" in done.output


def test_the_page_has_the_figures_of_the_result(bench: ModuleType) -> None:
    page = bench.PAGE.read_text()

    assert bench.filled(page, json.loads(bench.RESULT.read_text())) == page, "run: python -m bench.state"
