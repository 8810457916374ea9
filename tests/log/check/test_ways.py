"""Which epochs can still be had, whatever is damaged: as told, and as reading shows."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from written_log import LAST, WrittenLog, files_of, rebuildable, replaced, root, written

from ferryman._log.check.timeline import Timeline
from ferryman._log.check.verify import verify
from ferryman._log.check.way_back import with_way_back
from ferryman._log.check.ways import newest_to_be_had
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.retention import prune
from ferryman._model.errors import CorruptCheckpoint, InvalidConfiguration


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return written(tmp_path / "log")


def newest(log: WrittenLog, upto: int | None = None) -> int | None:
    checkpoint = Checkpoint(log.checkpoint.directory)
    card = checkpoint.job_card()
    return newest_to_be_had(checkpoint, Timeline.read(checkpoint, card), card, upto)


@pytest.mark.parametrize("pruned", [False, True])
def test_what_is_told_of_several_damaged_files_is_what_reading_shows(log: WrittenLog, pruned: bool) -> None:
    if pruned:
        prune(log.checkpoint, 4)
    names = [name for name in files_of(root(log)) if name.startswith(("deltas", "snapshots", "manifests"))]
    dice = random.Random(7)
    for _ in range(40):
        chosen = dice.sample(names, dice.choice((2, 2, 3, 5)))
        with contextlib.ExitStack() as altered:
            for name in chosen:
                data = (root(log) / name).read_bytes()
                altered.enter_context(replaced(root(log) / name, data[: len(data) // 2]))
            report, found = verify(log.checkpoint), rebuildable(log)

            assert report.rebuildable == tuple(epoch for epoch in found if epoch in report.epochs), chosen
            assert {fault.file for fault in report.faults} <= set(chosen)
            lost = {epoch for fault in report.faults for epoch in fault.damages}
            assert lost == set(report.epochs) - set(found), chosen
            assert newest(log) == max(report.rebuildable, default=None), chosen
            assert newest(log, 5) == max((epoch for epoch in report.rebuildable if epoch <= 5), default=None)


def test_no_more_is_read_than_the_newest_epoch_needs(log: WrittenLog) -> None:
    for epoch in (1, 2, 4, 5):
        for ref in log.checkpoint.manifest(epoch).tables["A"]:
            (root(log) / ref.file).write_bytes(b"")
    timeline = Timeline.read(log.checkpoint, log.checkpoint.job_card())

    assert newest_to_be_had(log.checkpoint, timeline, log.checkpoint.job_card()) == LAST
    assert timeline.unsound == set()


def lost(log: WrittenLog) -> CorruptCheckpoint:
    return with_way_back(log.checkpoint, CorruptCheckpoint("deltas/x is damaged."))


def test_an_error_tells_the_newest_epoch_that_can_be_had_and_how_to_go_back_to_it(log: WrittenLog) -> None:
    (root(log) / log.checkpoint.manifest(7).tables["A"][0].file).write_bytes(b"")

    error = lost(log)

    assert str(error).startswith("[CORRUPT_CHECKPOINT] deltas/x is damaged.")
    assert "the newest epoch that can be had is 6" in error.message
    assert f"`ferryman rewind {root(log)} --to-epoch 6` goes back to it" in error.message


def test_it_says_so_where_no_epoch_can_be_had(log: WrittenLog) -> None:
    for name in files_of(root(log)):
        if name.startswith("manifests"):
            (root(log) / name).write_bytes(b"")

    assert "no epoch that is kept can be had" in lost(log).message


def test_an_error_stays_as_it_is_where_everything_can_be_had(log: WrittenLog) -> None:
    assert lost(log).message == "deltas/x is damaged."
    (root(log) / log.checkpoint.manifest(7).tables["A"][0].file).write_bytes(b"")
    assert with_way_back(log.checkpoint, InvalidConfiguration("no")).message == "no"
    (root(log) / "ferryman.json").write_bytes(b"")
    assert lost(log).message == "deltas/x is damaged."
