"""The decisions of the autoscaler, as they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.decision_log import DecisionLog, read_decisions
from ferryman._log.files.directory import directory
from ferryman._model.errors import CorruptCheckpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(directory(str(tmp_path)))


def test_decisions_of_all_runs_are_read_in_their_order(checkpoint: Checkpoint) -> None:
    for run in (2, 11):
        kept = DecisionLog(checkpoint, run)
        kept.append({"number": run})
        kept.append({"number": run + 1})

    assert read_decisions(checkpoint, lambda raw: raw["number"]) == [2, 3, 11, 12]


def test_they_are_bounded_in_a_run_and_over_runs(checkpoint: Checkpoint) -> None:
    kept = DecisionLog(checkpoint, 1)
    for number in range(510):
        kept.append({"number": number})
    assert read_decisions(checkpoint, lambda raw: raw["number"]) == list(range(10, 510))

    for run in range(2, 30):
        DecisionLog(checkpoint, run).append({"number": run})
    assert checkpoint.numbers("decisions") == list(range(10, 30))


def test_a_file_that_is_altered_is_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    DecisionLog(checkpoint, 1).append({"number": 1})
    path = tmp_path / "decisions" / "000000000001.json"
    path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":2'))

    with pytest.raises(CorruptCheckpoint, match="decisions/000000000001"):
        read_decisions(checkpoint, lambda raw: raw)
