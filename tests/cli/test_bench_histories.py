"""`ferryman bench histories`: nothing promised is lost or counts twice, and what is left out is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from ferryman._cli import app
from ferryman._cli.bench import _load


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return _load("histories")


def test_a_hundred_histories_lose_and_double_nothing(tmp_path: Path) -> None:
    written = tmp_path / "histories.json"

    done = CliRunner().invoke(app, ["bench", "histories", "--count", "100", "--json", str(written)])

    assert done.exit_code == 0, done.output
    assert "100 histories" in done.stdout
    raw = json.loads(written.read_text())
    assert raw["broken"] == []
    # All that can happen did.
    happened = {"batch", "silence", "deaths", "power cuts", "snapshot", "rewind", "refused by the disk"}
    assert happened | {"asleep", "wakes", "meetings", "sleepers refused"} <= set(raw["counts"])


def test_a_history_is_the_same_each_time(bench: ModuleType, tmp_path: Path) -> None:
    def counts(seed: int) -> dict[str, int]:
        one = bench.History(tmp_path / "one", seed)
        one.run()
        return dict(one.counts)

    for seed in range(1, 11):
        assert counts(seed) == counts(seed)


# The others take longer to be caught; the command runs them all.
SOON = [
    "bytes of a manifest",
    "names of manifests",
    "bytes of a delta",
    "names of deltas",
    "names above the checkpoint",
    "bytes of Spark's offsets",
    "names of the sink's rows",
    "any look",
]


@pytest.mark.parametrize("mutant", SOON)
def test_a_sync_or_a_fence_that_is_left_out_is_noticed(bench: ModuleType, mutant: str, tmp_path: Path) -> None:
    assert mutant in bench.MUTANTS

    found = bench._caught(tmp_path, mutant, seed=1, most=100)

    assert found["caught after"] is not None


def test_a_mutant_that_is_not_caught_fails_the_command() -> None:
    few = ["--count", "0", "--most", "1", "--mutants", "names that are deleted"]

    done = CliRunner().invoke(app, ["bench", "histories", *few])

    assert done.exit_code == 1
    assert "not caught in 1" in done.stdout
