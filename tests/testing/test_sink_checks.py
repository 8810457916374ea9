"""The checks of sinks: a sound sink passes all of them, and each finds what it is for."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ferryman.errors import ForeignCheckpoint, Superseded
from ferryman.sinks import SinkStart
from ferryman.testing import SINK_CHECKS, check_sink


class JsonFiles:
    """A file per epoch, which has its name when the epoch is committed."""

    whole, told, skips_silence = True, True, False

    def __init__(self, folder: Path) -> None:
        self.folder, self.label, self.term = folder, f"json:{folder.name}", 0

    def claim(self, job_id: str) -> int:
        self.folder.mkdir(exist_ok=True)
        owner = self.folder / "owner"
        if not owner.exists():
            owner.with_suffix(".new").write_text(job_id)
            os.replace(owner.with_suffix(".new"), owner)
        if owner.read_text() != job_id:
            raise ForeignCheckpoint(f"{self.folder} has the rows of another job. Give this one a folder of its own.")
        return max((int(file.stem.split("-")[1]) for file in self.folder.glob("*.json")), default=0)

    def begin(self, start: SinkStart) -> None:
        self.term = start.term
        for file in self.folder.glob("*.json"):
            epoch, term = map(int, file.stem.split("-"))
            if epoch > start.epoch and term > start.term:
                raise Superseded(f"run {term} writes to {self.folder} now.")
            if epoch > start.epoch:
                file.unlink()

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        name = f"{epoch}-{self.term}"
        (self.folder / f"{name}.attempt").write_text(json.dumps(rows.to_pylist()))
        return {"name": name}

    def write(self, rows: Any, epoch: int) -> dict[str, Any]:
        return self.write_table(rows.toArrow(), epoch)

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        attempt = self.folder / f"{written['name']}.attempt"
        if attempt.exists():
            os.replace(attempt, attempt.with_suffix(".json"))


def read(folder: Path) -> list[Any]:
    return [row for file in folder.glob("*.json") for row in json.loads(file.read_text())]


@pytest.mark.parametrize("check", SINK_CHECKS)
def test_a_sound_sink_passes(check: str, tmp_path: Path) -> None:
    check_sink(check, lambda: JsonFiles(tmp_path / "rows"), lambda: read(tmp_path / "rows"))


class AtOnce(JsonFiles):
    """Show an epoch when it is written, in a file of its own whoever writes it."""

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        super().commit(epoch, written := super().write_table(rows, epoch))
        return written


class NoFence(JsonFiles):
    """Take whoever begins for the newest."""

    def begin(self, start: SinkStart) -> None:
        super().begin(SinkStart(start.epoch, 1_000_000))


class Open(JsonFiles):
    """Let every job in."""

    def claim(self, job_id: str) -> int:
        self.folder.mkdir(exist_ok=True)
        return 0


class Once(JsonFiles):
    """Count on being told of an epoch once."""

    def begin(self, start: SinkStart) -> None:
        self.term = start.term

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        rows = (self.folder / f"{written['name']}.attempt").read_text()
        (self.folder / f"{epoch}-{random.getrandbits(20)}.json").write_text(rows)


class Torn(JsonFiles):
    """Write an epoch in two halves that a reader sees."""

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        attempt = self.folder / f"{written['name']}.attempt"
        if attempt.exists():
            rows = json.loads(attempt.read_text())
            attempt.with_suffix(".json").write_text(json.dumps(rows[:1]))
            attempt.with_suffix(".json").write_text(json.dumps(rows))
            attempt.unlink()


class Keeps(JsonFiles):
    """Keep what an older checkpoint does not have."""

    def begin(self, start: SinkStart) -> None:
        self.term = start.term


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (AtOnce, "killed at any line"),
        (AtOnce, "taken over before it writes"),
        (NoFence, "taken over before it begins"),
        (Once, "committed and not told"),
        (Torn, "killed at any line"),
        (Keeps, "older checkpoint"),
        (Open, "another job"),
    ],
)
def test_a_check_finds_what_it_is_for(kind: type[JsonFiles], check: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_sink(check, lambda: kind(tmp_path / "rows"), lambda: read(tmp_path / "rows"))
