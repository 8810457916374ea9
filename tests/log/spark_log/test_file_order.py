"""The files of a batch come by their age; notes of them that make no sense are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.spark_log.file_order import files_by_age
from ferryman._model.errors import CorruptCheckpoint

DEEP = "[" * 200_000 + "]" * 200_000


def noted(root: Path, number: int | str, *lines: str) -> Checkpoint:
    log = Checkpoint(LocalDirectory(root))
    log.directory.write(f"spark/sources/0/{number}", "\n".join(["v1", *lines]).encode())
    return log


def of(path: str, timestamp: int, number: int = 0) -> str:
    return f'{{"path":"{path}","timestamp":{timestamp},"batchId":{number}}}'


def test_the_older_come_first_and_of_one_age_by_name(tmp_path: Path) -> None:
    log = noted(tmp_path, 0, of("c", 5), of("b", 9), of("a", 9), "")
    noted(tmp_path, "1.compact", of("c", 5), of("b", 9), of("a", 9), of("d", 1, 1))

    assert files_by_age(log, (), ({"logOffset": 0},)) == ["c", "a", "b"]
    assert files_by_age(log, ({"logOffset": 0},), ({"logOffset": 1},)) == ["d"]
    assert files_by_age(log, (), ({"logOffset": 1}, 7)) == ["d", "c", "a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        DEEP,
        '{"a":' * 200_000,
        '{"path":"a","timestamp":1e999,"batchId":0}',
        '{"path":"a","timestamp":NaN,"batchId":0}',
        '{"path":"a","timestamp":9223372036854775808,"batchId":0}',
        '{"path":7,"timestamp":1,"batchId":0}',
        '{"path":"\\ud800","timestamp":1,"batchId":0}',
        '{"path":"a","batchId":0}',
        '{"path":"a","timestamp":1}',
        "[]",
        "{",
    ],
)
def test_a_note_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    log = noted(tmp_path, 0, line, of("b", 1))

    with pytest.raises(CorruptCheckpoint, match=r"spark/sources/0/0 in .* has a note"):
        files_by_age(log, (), ({"logOffset": 0},))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("offsets", [(0, 10**18), (-(10**18), 0)])
def test_more_notes_than_a_batch_can_have_are_not_looked_for(tmp_path: Path, offsets: tuple[int, int]) -> None:
    log = noted(tmp_path, 0, of("a", 1))
    before, after = ({"logOffset": offset} for offset in offsets)

    with pytest.raises(CorruptCheckpoint, match="spark/offsets"):
        files_by_age(log, (before,), (after,))
