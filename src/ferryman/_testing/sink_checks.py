"""What a sink has to withstand to be exactly once, as checks that run on any sink.

A check makes a job's runs one after the other, each with a sink of its own as a new driver would have it, and looks at
what a reader sees. Every fourth epoch is empty and every seventh silent. Calls `SinkRun`.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ferryman._engine.sink import Sink
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._model.errors import FerrymanError
from ferryman._testing.crash_at_line import (
    NEVER,
    Killed,
    LineCount,
    Moment,
    files_of,
    in_a_child,
    kill_self,
    moments,
    raise_killed,
)
from ferryman._testing.sink_run import RowsOf, SinkRun, is_silent

# What a reader sees, in any order: tuples, or dicts.
Seen = Iterable[Any]


def some_rows(epoch: int) -> pa.Table:
    """Give three rows of an epoch; two of them have keys that other epochs have too."""
    keys = [f"k{epoch}", f"k{epoch % 2}", "k"]
    return pa.table({"key": keys, "n": pa.array([epoch * 10 + place for place in range(3)], pa.int64())})


def all_rows(epochs: list[pa.Table]) -> Seen:
    """Expect all rows of all epochs, as a sink shows them that appends."""
    return [row for epoch in epochs for row in epoch.to_pylist()]


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """A sink on trial, with a checkpoint in a folder of its own."""

    make: Callable[[], Sink]
    read: Callable[[], Seen]
    rows: RowsOf
    expected: Callable[[list[pa.Table]], Seen]
    spark: Any
    kills: int
    root: Path

    def rows_of(self, epoch: int) -> pa.Table:
        rows = self.rows(epoch)
        return rows.slice(0, 0) if epoch % 4 == 0 or is_silent(epoch) else rows

    def run(self, *, folder: str = "checkpoint", begun: bool = True, rows: RowsOf | None = None) -> SinkRun:
        """Start the job with a sink as a new driver has it."""
        return SinkRun(self.root / folder, self.make(), rows or self.rows_of, spark=self.spark, begun=begun)

    def committed(self) -> int:
        return max(Checkpoint(directory(str(self.root / "checkpoint"))).epochs(), default=0)

    def check(self, *last: int, when: str) -> None:
        """Compare what a reader sees with the rows of the epochs up to the last, or to another that is given."""
        found = _counted(self.read())
        wanted = [
            _counted(self.expected([self.rows_of(epoch) for epoch in range(1, most + 1)])) for most in last if most >= 0
        ]
        if found not in wanted:
            raise AssertionError(f"{when}: {_difference(found, wanted[0])}")


def _counted(seen: Seen) -> list[str]:
    return sorted(repr(tuple(row.values()) if isinstance(row, Mapping) else tuple(row)) for row in seen)


def _difference(found: list[str], wanted: list[str]) -> str:
    lost, doubled = list(wanted), []
    for row in found:
        if row in lost:
            lost.remove(row)
        else:
            doubled.append(row)
    return f"{len(lost)} rows are missing {lost[:5]}, {len(doubled)} are there once too often or wrongly {doubled[:5]}"


def _whole_epochs(trial: _Trial) -> None:
    run = trial.run()
    for _ in range(7):
        epoch = run.epoch()
        trial.check(epoch, when=f"after epoch {epoch}")


def _written_and_not_committed(trial: _Trial) -> None:
    trial.run().epoch()
    for _ in range(3):
        last = (run := trial.run()).epoch()
        run.written()
    trial.run().epoch()
    trial.check(last + 1, when="after drivers died that had written an epoch and not committed it")


def _committed_and_not_told(trial: _Trial) -> None:
    for _ in range(3):
        run = trial.run()
        last = run.epoch()
        manifest = run.written()
        run.fenced.commit(manifest)
        run.done(manifest)
    trial.run()
    trial.check(last + 1, when="after drivers died that had committed an epoch and told no sink")
    run = trial.run()
    assert run.latest is not None
    run.outputs.tell(run.latest)
    run.outputs.tell(run.latest)
    trial.check(last + 1, when="when the sink was told of an epoch several times")


def _killed_at_any_line(trial: _Trial) -> None:
    def drive(at: Moment) -> str:
        """Start the job and do two epochs, and die at some moment; say how often each line of the sink's has run."""
        die = raise_killed if trial.spark is not None else kill_self
        with LineCount(files_of(trial.make()), at, die) as counted:
            run = trial.run()
            run.epoch()
            run.epoch()
        return json.dumps(counted.times)

    def driven(at: Moment) -> list[Moment] | None:
        if trial.spark is None:
            times = in_a_child(lambda: drive(at))
        else:
            try:
                times = drive(at)
            except Killed:
                times = None
        return None if times is None else moments(json.loads(times))

    known = driven(NEVER)
    assert known, "no line of the sink's own code has run"
    told = trial.make().told
    kills = trial.kills or len(known)
    chance = random.Random(1)
    for kill in range(kills):
        # The start after it dies too, now and then before it has put right what the first has left.
        for at in (known[kill * len(known) // kills], chance.choice(known), NEVER):
            # Lines may run more often later, when there are more epochs to look at.
            known = driven(at) or known
            last = trial.committed()
            # Who is told shows nothing before that; another may show an epoch that is not committed yet.
            between = (last,) if at == NEVER else (last, last - 1 if told else last + 1)
            trial.check(*between, when=f"killed at {at.line}, when that was to run for the {at.time}. time")


def _taken_over_before_it_writes(trial: _Trial) -> None:
    asleep = trial.run()
    asleep.epoch()
    awake = trial.run()
    awake.epoch()
    with suppress(Exception):
        asleep.written(fenced=False)
    trial.check(awake.epoch(), when="after a driver that was taken over has written an epoch")
    trial.check(trial.run().epoch(), when="and after another start")


def _taken_over_before_it_tells(trial: _Trial) -> None:
    asleep = trial.run()
    asleep.epoch()
    manifest = asleep.written()
    asleep.fenced.commit(manifest)
    asleep.done(manifest)
    awake = trial.run()
    awake.epoch()
    with suppress(Exception):
        asleep.outputs.tell(manifest)
    trial.check(awake.epoch(), when="after a driver that was taken over has told its sink of an epoch")


def _taken_over_before_it_begins(trial: _Trial) -> None:
    trial.run().epoch()
    asleep = trial.run(begun=False)
    awake = trial.run()
    awake.epoch()
    with suppress(Exception):
        asleep.fenced.begin()
        asleep.written(fenced=False)
    trial.check(awake.epoch(), when="after a driver that was taken over has begun")
    trial.check(trial.run().epoch(), when="and after another start")


def _older_checkpoint(trial: _Trial, *, later: int = 3) -> None:
    run = trial.run()
    run.epoch()
    shutil.copytree(trial.root / "checkpoint", trial.root / "backup")
    for _ in range(later):
        run.epoch()
    try:
        # Its source has other rows now.
        again = trial.run(folder="backup", rows=lambda epoch: trial.rows_of(epoch + 30))
        again.epoch()
    except FerrymanError:
        trial.check(1 + later, when="a start on an older checkpoint was refused, and yet")
        return
    found = _counted(trial.read())
    wanted = _counted(trial.expected([trial.rows_of(1), trial.rows_of(32)]))
    if found != wanted:
        raise AssertionError(f"after a start on an older checkpoint: {_difference(found, wanted)}. Or refuse it.")


def _another_job(trial: _Trial) -> None:
    trial.run().epoch()
    try:
        trial.run(folder="another")
    except FerrymanError:
        trial.check(1, when="another job was refused, and yet")
    else:
        raise AssertionError("a job with another checkpoint was let in, and its epochs would be mixed with the first's")


_CHECKS: Mapping[str, Callable[[_Trial], None]] = MappingProxyType(
    {
        "whole epochs": _whole_epochs,
        "written and not committed": _written_and_not_committed,
        "committed and not told": _committed_and_not_told,
        "killed at any line": _killed_at_any_line,
        "taken over before it writes": _taken_over_before_it_writes,
        "taken over before it tells": _taken_over_before_it_tells,
        "taken over before it begins": _taken_over_before_it_begins,
        "older checkpoint": _older_checkpoint,
        "checkpoint older by an epoch": partial(_older_checkpoint, later=1),
        "another job": _another_job,
    }
)
SINK_CHECKS = tuple(_CHECKS)


def check_sink(
    check: str,
    make: Callable[[], Sink],
    read: Callable[[], Seen],
    *,
    rows: RowsOf = some_rows,
    expected: Callable[[list[pa.Table]], Seen] = all_rows,
    spark: Any = None,
    kills: int = 0,
) -> None:
    """Run one of `SINK_CHECKS` on a sink; raise AssertionError if it loses, doubles or mixes rows.

    Parameters
    ----------
    check
        Which one. Each needs an empty place.
    make
        Makes the sink anew, on that place: a driver that starts again.
    read
        Reads the place: what a reader of the sink sees.
    rows
        The rows of an epoch; the check leaves some epochs empty.
    expected
        What a reader sees of some epochs' rows. A view that is updated has the newest of each key.
    spark
        A session, for a sink that takes DataFrames only. It is then killed by an exception and not by a signal.
    kills
        How often a driver is killed, at lines that are spread over all of the sink's; if left out, at each of them the
        first and the last time that it runs.
    """
    root = Path(tempfile.mkdtemp(prefix="ferryman-sink-"))
    try:
        _CHECKS[check](_Trial(make=make, read=read, rows=rows, expected=expected, spark=spark, kills=kills, root=root))
    finally:
        shutil.rmtree(root, ignore_errors=True)
