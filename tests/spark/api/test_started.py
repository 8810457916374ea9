"""`job.started` tells how a start went: what it took, what it went on after, and what it has restored."""

from __future__ import annotations

from ferryman import Ferry, aggregates, sinks, sources


def run(spark, checkpoint, rows: int):
    given = sources.generator(spark, keys=4, rows=rows, rows_per_epoch=100)
    counts = Ferry(spark, checkpoint, groups=16).stream(given).key_by("key").aggregate(n=aggregates.count())
    job = counts.write(sinks.none()).start("started", instances=2, trigger={"availableNow": True})
    job.wait()
    return job.started


def test_a_start_and_a_restart_tell_how_they_went(spark, tmp_path):
    first = run(spark, tmp_path / "checkpoint", 200)
    assert (first.step, first.after, first.redone, first.groups) == ("", 0, None, 0)

    again = run(spark, tmp_path / "checkpoint", 300)
    assert (again.after, again.redone) == (2, None)
    assert (again.groups, again.restored, again.rebuilt) == (16, 16, 16)
    assert [step for step in again.steps_ms if step not in ("java", "session")] == ["take over", "query", "first epoch"]

    # There is nothing to read any more: no epoch comes, and the clock stops with the job.
    idle = run(spark, tmp_path / "checkpoint", 300)
    assert (idle.step, idle.restored) == ("first epoch", 0)
