"""A job meets damage: it goes on without what is damaged and mends it, or says which epoch can be had and goes back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from readings import Readings, Trail, epoch_rows, expected
from typer.testing import CliRunner
from until import until

from ferryman import _cli, sinks
from ferryman._log.check.verify import verify
from ferryman._log.fold.snapshot import write_snapshot
from ferryman.errors import CorruptCheckpoint, RewindUnfinished

EPOCHS = 4


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def job(spark, tmp_path) -> Readings:
    job = Readings(spark, tmp_path, epochs=EPOCHS, sink=sinks.parquet(tmp_path / "out"))
    job.run()
    return job


def rewind(job: Readings, *options: object) -> str:
    done = CliRunner().invoke(_cli.app, ["rewind", str(job.checkpoint), "--yes", *map(str, options)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def assert_went_on(job: Readings, *epochs: int) -> None:
    """Give it a file more, and see that state and sink are those of these epochs and of that."""
    job.put(EPOCHS + 1, epoch_rows(EPOCHS + 1))
    job.run()
    state, rows = expected(row for epoch in (*epochs, EPOCHS + 1) for row in epoch_rows(epoch))
    assert job.state() == state
    for shown in (sinks.read_parquet(job.spark, job.sink.path), job.spark.read.parquet(job.sink.path)):
        assert sorted(tuple(row) for row in shown.collect()) == rows
    assert verify(job.log).faults == ()


@pytest.mark.parametrize("keep", [False, True])
def test_a_job_goes_on_from_an_earlier_epoch(job, keep):
    said = rewind(job, "--to-epoch", 2, *(["--keep-offsets"] if keep else []))

    assert "16 rows that were read since" in said
    shown = sorted(tuple(row) for row in job.spark.read.parquet(job.sink.path).collect())
    assert shown == expected(row for epoch in (1, 2) for row in epoch_rows(epoch))[1]
    assert_went_on(job, *([1, 2] if keep else [1, 2, 3, 4]))


def test_a_job_whose_newest_epoch_is_lost_names_the_one_that_can_be_had_and_goes_on_from_there(job):
    flip(sorted(job.checkpoint.glob("deltas/000000000003-*"))[0])

    job.put(EPOCHS + 1, epoch_rows(EPOCHS + 1))

    with pytest.raises(CorruptCheckpoint) as caught:
        job.run()

    assert re.search(r"deltas/000000000003-Trail.* has altered bytes", caught.value.message)
    assert "the newest epoch that can be had is 2" in caught.value.message
    command = re.search(r"`ferryman (rewind \S+ --to-epoch 2)`", caught.value.message)
    assert command is not None
    done = CliRunner().invoke(_cli.app, [*command[1].split(), "--yes"])
    assert done.exit_code == 0, done.output
    assert_went_on(job, 1, 2, 3, 4)


def test_a_start_whose_newest_manifest_is_damaged_names_the_epoch_that_can_be_had(job):
    flip(job.checkpoint / "manifests/000000000004.json")

    with pytest.raises(CorruptCheckpoint, match="the newest epoch that can be had is 3, and `ferryman rewind "):
        job.run()

    rewind(job, "--to-epoch", 3)
    assert_went_on(job, 1, 2, 3, 4)


def test_a_start_is_refused_while_a_rewind_is_not_finished(job, monkeypatch):
    def killed(*about: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ferryman._cli.rewind.carry_out", killed)
        CliRunner().invoke(_cli.app, ["rewind", str(job.checkpoint), "--yes", "--to-epoch", "2"])

    with pytest.raises(RewindUnfinished, match="on its way back to epoch 2"):
        job.run()
    assert "is finished now" in rewind(job, "--to-epoch", 2)
    assert_went_on(job, 1, 2, 3, 4)


def test_a_damaged_snapshot_is_done_without_written_anew_and_told(job, caplog):
    for epoch in (2, 3):
        write_snapshot(job.log, epoch)
    file = job.log.snapshot(3).tables["Trail"][0].file
    flip(job.checkpoint / file)
    job.put(EPOCHS + 1, epoch_rows(EPOCHS + 1))

    run = job.start()
    run.wait()

    assert [progress.damaged for progress in run.progress()] == [(file,)]
    assert f"{file} in {job.checkpoint}: damaged or missing, and written anew" in caplog.text
    report = verify(job.log)
    assert report.faults == ()
    assert [note.file for note in report.mended] == [file]
    said = CliRunner().invoke(_cli.app, ["verify", str(job.checkpoint)]).output
    assert re.search(rf"mended, .* UTC: {file} was damaged or missing", said)
    assert job.state() == expected(row for epoch in range(1, EPOCHS + 2) for row in epoch_rows(epoch))[0]


def test_a_damaged_delta_of_a_job_that_runs_does_no_harm_once_a_snapshot_is_made_of_main_copies(
    spark, tmp_path, caplog
):
    job = Readings(spark, tmp_path, epochs=1)
    run = job.start(job.stream(snapshot_every=4, retain=1).key_by("key").process(Trail, name="Trail"), trigger=None)
    try:
        for epoch in (2, 3, 4):
            assert run.wait_for(lambda last=epoch - 1: run.epoch == last, timeout=120)
            if epoch == 4:
                # All main copies have it in them.
                for delta in job.checkpoint.glob("deltas/000000000002-*"):
                    delta.unlink()
            job.put(epoch, epoch_rows(epoch))
        until(lambda: job.log.snapshots(), "there is no snapshot", 60)
    finally:
        run.stop()
    job.epochs = 4

    assert "A snapshot is made of main copies" in caplog.text
    assert job.log.snapshots() == [4]
    job.put(5, epoch_rows(5))
    job.run()
    assert job.state() == expected(row for epoch in range(1, 6) for row in epoch_rows(epoch))[0]
