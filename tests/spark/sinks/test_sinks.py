"""What sinks show: every committed epoch, once, whatever they are called and whoever wakes up late."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from readings import ROWS, Readings, Trail, epoch_rows, expected

from ferryman import Ferry, sinks
from ferryman._engine.outputs import labels
from ferryman._spark.sinks.parquet import ParquetSink
from ferryman.errors import ForeignCheckpoint, InvalidConfiguration, JobFailed, SinkMissing, Superseded


class Deaf(ParquetSink):
    """A Parquet sink whose driver dies when it is about to be told of the second epoch."""

    def commit(self, epoch, written):
        if epoch == 2:
            raise OSError("died here")
        super().commit(epoch, written)


def output_rows(epochs: int) -> list[tuple]:
    return expected(row for epoch in range(1, epochs + 1) for row in epoch_rows(epoch))[1]


def shown(frame) -> list[tuple]:
    return sorted(tuple(row) for row in frame.collect())


def died_before_its_sink_was_told(spark, tmp_path: Path, path: str) -> Readings:
    job = Readings(spark, tmp_path, sink=Deaf(path))
    with pytest.raises(JobFailed, match="died here"):
        job.run()
    assert job.log.epochs() == [1, 2]
    return job


@pytest.mark.parametrize("spelled", ["absolute", "dotted", "linked", "moved"])
def test_a_sink_is_the_same_however_its_path_is_written(spark, tmp_path, monkeypatch, spelled):
    monkeypatch.chdir(tmp_path)
    job = died_before_its_sink_was_told(spark, tmp_path, "out")
    again = {"absolute": tmp_path / "out", "dotted": "./files/../out/", "linked": "link", "moved": "moved"}[spelled]
    if spelled == "linked":
        (tmp_path / "link").symlink_to("out")
    if spelled == "moved":
        (tmp_path / "out").rename(tmp_path / "moved")

    job.sink = sinks.parquet(again)
    job.run()

    assert shown(sinks.read_parquet(spark, again)) == output_rows(3)


def test_a_committed_epoch_whose_sink_is_gone_does_not_pass_silently(spark, tmp_path):
    job = died_before_its_sink_was_told(spark, tmp_path, str(tmp_path / "out"))
    label = job.sink.label

    job.sink = sinks.memory()
    says = ("epoch 2 is committed", label, "was not told", "Start the job once with that sink", "dropped_sinks")
    with pytest.raises(SinkMissing) as caught:
        job.run()
    assert all(what in str(caught.value) for what in says)

    job.run(dropped_sinks=[label])
    assert job.log.epochs() == [1, 2, 3]


def test_a_sink_can_be_left_out_after_a_job_that_ended_in_order(spark, tmp_path):
    job = Readings(spark, tmp_path, sink=sinks.parquet(tmp_path / "out"))
    job.run()
    assert shown(sinks.read_parquet(spark, tmp_path / "out")) == output_rows(3)

    job.put(4, epoch_rows(4))
    job.sink = sinks.memory()
    job.run()

    assert len(job.sink.rows()) == ROWS


def test_any_reader_of_parquet_finds_the_rows_and_their_columns(spark, tmp_path):
    job = Readings(spark, tmp_path, sink=sinks.parquet(tmp_path / "out"))
    job.run()
    # An epoch whose files are there and whose manifest is not: what a kill after the sink leaves.
    job.sink.write(spark.createDataFrame([("x", 1, 2)], "key string, n long, digest long"), 4)

    plain = spark.read.parquet(str(tmp_path / "out"))

    assert plain.columns == ["key", "n", "digest"]
    assert shown(plain) == output_rows(3)
    assert shown(sinks.read_parquet(spark, tmp_path / "out")) == output_rows(3)


def test_an_attempt_that_was_given_up_is_removed_once_its_epoch_is_committed(spark, tmp_path):
    job = Readings(spark, tmp_path, epochs=1, sink=sinks.parquet(tmp_path / "out"))
    job.run()
    frame = spark.createDataFrame([("x", 1, 2)], "key string, n long, digest long")
    for epoch in (2, 9):
        job.sink.write(frame, epoch)

    job.put(2, epoch_rows(2))
    job.run()

    left = [path.name for path in (tmp_path / "out" / "_ferryman" / "attempts").iterdir()]
    assert [name[:12] for name in left] == ["000000000009"]
    assert shown(sinks.read_parquet(spark, tmp_path / "out")) == output_rows(2)


def test_a_restored_checkpoint_takes_its_later_epochs_back_from_the_sink(spark, tmp_path):
    job = Readings(spark, tmp_path, epochs=1, sink=sinks.parquet(tmp_path / "out"))
    job.run()
    shutil.copytree(job.checkpoint, tmp_path / "backup")
    for epoch in (2, 3):
        job.put(epoch, epoch_rows(epoch))
        job.run()
    shutil.rmtree(job.checkpoint)
    shutil.copytree(tmp_path / "backup", job.checkpoint)
    (job.files / "0003.json").unlink()

    job.run()

    # Neither a reader of lists nor one of files sees epoch 3, which no checkpoint knows of.
    assert shown(sinks.read_parquet(spark, tmp_path / "out")) == output_rows(2)
    assert shown(spark.read.parquet(str(tmp_path / "out"))) == output_rows(2)


def test_a_run_that_was_taken_over_takes_nothing_back(spark, tmp_path):
    out = tmp_path / "out"
    job = Readings(spark, tmp_path, sink=sinks.parquet(out))
    job.run()
    zombie = sinks.parquet(out)
    zombie.claim(job.log.job_card().id)

    with pytest.raises(Superseded, match="had looked at the checkpoint before"):
        zombie.begin(sinks.SinkStart(epoch=0, term=0))

    assert shown(sinks.read_parquet(spark, out)) == output_rows(3)


def test_a_start_that_looked_too_early_touches_nothing(spark, tmp_path):
    out = tmp_path / "out"
    job = Readings(spark, tmp_path, sink=sinks.parquet(out))
    job.run()
    late = sinks.parquet(out)
    late.claim(job.log.job_card().id)
    written = {epoch: job.log.manifest(epoch).sinks[late.label]["written"] for epoch in job.log.epochs()}

    # It saw the checkpoint at epoch 1; meanwhile the run before has committed two more, and it is the newer run.
    with pytest.raises(Superseded, match="had looked at the checkpoint before"):
        late.begin(sinks.SinkStart(epoch=1, term=99, written_in=written.get))

    assert shown(sinks.read_parquet(spark, out)) == output_rows(3)
    assert shown(spark.read.parquet(str(out))) == output_rows(3)


def test_epochs_that_a_wrong_backup_took_back_are_shown_again(spark, tmp_path):
    out, job = tmp_path / "out", Readings(spark, tmp_path, epochs=1, sink=sinks.parquet(tmp_path / "out"))
    job.run()
    shutil.copytree(job.checkpoint, tmp_path / "old")
    for epoch in (2, 3):
        job.put(epoch, epoch_rows(epoch))
        job.run()
    # Somebody starts on the older backup, sees the mistake at once, and takes the right one.
    right = job.checkpoint.rename(tmp_path / "right")
    shutil.copytree(tmp_path / "old", job.checkpoint)
    early = sinks.parquet(out)
    early.claim(job.log.job_card().id)
    early.begin(sinks.SinkStart(epoch=1, term=50))
    assert shown(sinks.read_parquet(spark, out)) == output_rows(1)
    shutil.rmtree(job.checkpoint)
    right.rename(job.checkpoint)

    job.put(4, epoch_rows(4))
    job.run()

    assert shown(sinks.read_parquet(spark, out)) == output_rows(4)


def test_an_epoch_without_rows_leaves_no_file(spark, tmp_path):
    out = tmp_path / "out"
    job = Readings(spark, tmp_path, epochs=1, sink=sinks.parquet(out))
    job.run()
    before = sorted(path.name for path in out.iterdir())
    assert len(before) > 1

    job.put(2, [])
    job.run()

    assert job.log.epochs() == [1, 2]
    assert sorted(path.name for path in out.iterdir()) == before
    assert not list((out / "_ferryman" / "attempts").iterdir())


def test_functions_keep_their_numbers_by_their_names(spark, tmp_path):
    calls = {"a": [], "b": []}

    def function(name):
        return sinks.foreach(lambda rows, number: calls[name].append(number), name=name)

    job = Readings(spark, tmp_path, epochs=1)

    def run(*names):
        trail = job.trail()
        outputs = [trail.write(function(name)) for name in names]
        trail.ferry.start("readings", *outputs, instances=1, trigger={"availableNow": True}).wait()

    run("a", "b")
    for epoch, names in ((2, ("b",)), (3, ("b", "a"))):
        job.put(epoch, epoch_rows(epoch))
        run(*names)

    assert calls == {"a": [0, 1], "b": [0, 1, 2]}, "one that was left out goes on where it was"


def test_nothing_is_kept_when_an_epoch_is_over(spark, tmp_path):
    job = Readings(spark, tmp_path, sink=sinks.foreach(lambda rows, number: rows.count()))
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    frame = spark.readStream.schema(job.schema).json(str(job.files))
    job.run(job.ferry().stream(frame).key_by("key").process(Trail, name="Trail"))

    assert job.log.latest().epoch == 1, "all files came in one epoch"
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_two_outputs_do_not_go_to_one_place(spark, tmp_path):
    ferry = Ferry(spark, str(tmp_path / "checkpoint"))
    trail = Readings(spark, tmp_path).trail()
    outputs = [trail.write(sinks.parquet(tmp_path / "out")), trail.write(sinks.parquet(f"{tmp_path}/./out"))]

    with pytest.raises(InvalidConfiguration, match="two outputs go to one place"):
        ferry.start("readings", *outputs)


def test_three_sinks_of_one_kind_have_three_names():
    assert labels([sinks.none() for _ in range(3)]) == ["none", "none#2", "none#3"]


def test_the_output_of_another_checkpoint_is_refused(spark, tmp_path):
    Readings(spark, tmp_path / "a", epochs=1, sink=sinks.parquet(tmp_path / "out")).run()

    with pytest.raises(ForeignCheckpoint, match="holds the output of a job with another checkpoint"):
        Readings(spark, tmp_path / "b", epochs=1, sink=sinks.parquet(tmp_path / "out")).run()


def test_calls_of_a_function_are_counted_from_0_as_sparks_batches_are(spark, tmp_path):
    calls = []
    job = Readings(spark, tmp_path, sink=sinks.foreach(lambda rows, number: calls.append((number, rows.count()))))
    job.run()
    batches = []
    job.frame().writeStream.foreachBatch(lambda rows, number: batches.append((number, rows.count()))).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert calls == batches == [(0, ROWS), (1, ROWS), (2, ROWS)]

    job.put(4, epoch_rows(4))
    job.run()

    assert calls[3:] == [(3, ROWS)], "it goes on counting after a restart"


def test_a_silent_epoch_without_rows_calls_no_function(spark, tmp_path):
    calls = []
    job = Readings(spark, tmp_path, epochs=1, sink=sinks.foreach(lambda rows, number: calls.append(number)))
    trail = job.stream(idle="50 milliseconds").key_by("key").process(Trail, name="Trail")
    running = job.start(trail, trigger={"processingTime": "50 milliseconds"})
    try:
        assert running.wait_for(lambda: running.epoch >= 3, timeout=60)
        assert calls == [0]
        job.put(2, epoch_rows(2))
        assert running.wait_for(lambda: len(calls) > 1, timeout=60)
    finally:
        running.stop()
    assert calls == [0, 1]
