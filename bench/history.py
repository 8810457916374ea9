"""One random history on a disk that forgets: epochs, deaths at random calls, power cuts, restarts, rewinds, full disks.

And drivers that fall asleep at any call: others take over, and the sleeper wakes up in the middle of what they do, goes
on for a while, and perhaps falls asleep again. `bench.life` is what a driver does. What must hold, whatever happened:

- an epoch whose commit has returned is there, with that manifest: there is one history, and nothing that was promised
  is lost;
- the state is that of the source's rows up to the offsets of the newest manifest, and any reader of Parquet finds each
  of their results once in the sink: nothing is doubled;
- what a reader of the sink has seen stays there, unless a backup is restored;
- a sink that has seen an epoch sees the same rows when that is redone;
- every epoch that is kept can be rebuilt, and the job starts.

A run that was taken over, or met one that was, may end with an error; the next one goes on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.life import SIDES, Life, Mutant, SparkEnds, rows_between
from bench.turns import Driver
from ferryman._cli.rewind import go_back
from ferryman._log.check.timeline import Timeline
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._model.errors import CheckpointInUse, CheckpointUnwritable, FerrymanError, Superseded
from ferryman._model.manifest import Manifest
from ferryman._os.disk import Disk, use_disk
from ferryman._spark.sinks.parquet import listed
from ferryman._testing.faulty_disk import Death, FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

_ACTS = {"batch": 8, "silence": 3, "snapshot": 3, "rescale": 1, "rewind": 0.4}
# Where it matters what others do: calls to the disk by a part of the path, and looks by what comes next. Else any call.
_STOPS = [
    *[("", "")] * 6,
    ("link", "checkpoint/terms/"),
    ("replace", "checkpoint/terms/"),
    ("replace", "checkpoint/intents/"),
    ("link", "checkpoint/manifests/"),
    ("replace", "checkpoint/snapshots/"),
    ("list", "out/_ferryman"),
    ("link", "out/"),
    ("remove", "out/_ferryman/attempts/"),
    ("replace", "out/_ferryman/"),
    *[("look", what) for what in ("intent", "sink", "manifest", "telling", "snapshot", "retention")] * 2,
]
# Of a driver that meets one which woke up: either may be told that it is not alone.
_NOT_ALONE = (Superseded, CheckpointInUse, CheckpointUnwritable, SparkEnds)


class Broken(Exception):
    """What must hold does not."""


class Restored(Death):
    """The job has ended, and a backup was restored."""


def results_upto(end: int) -> list[tuple[int, int]]:
    """Give what the sink must hold of the source's rows before an offset."""
    numbers: Counter[str] = Counter()
    found = []
    for key, row in rows_between(0, end):
        numbers[key] += 1
        found.append((row, numbers[key]))
    return found


class History:
    """One history, by its seed, with something left out or not."""

    def __init__(self, place: Path, seed: int, mutant: Mutant | None = None) -> None:
        self._place = place
        self._root, self._journal = place / "disk", place / "journal"
        self._chance = random.Random(seed)
        self._mutant = mutant or Mutant()
        # The manifest of each epoch whose commit has returned, or that was found.
        self._promised: dict[int, Manifest] = {}
        # The newest epoch that the sink has shown, and the offset that it ends with.
        self._shown = (0, 0)
        # The rows that a function was called with, by the number of the call.
        self._seen: dict[int, list[Any]] = {}
        self._sleepers: list[Driver] = []
        self._restored = False
        self._clock_ms = 1_700_000_000_000
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Live a few times, and look at what is there each time; `Broken` if what must hold does not."""
        self._root.mkdir(parents=True)
        self._inner = UnsyncedDisk(self._root, self._journal)
        try:
            for _ in range(self._chance.randint(2, 5)):
                self._live(self._trouble())
            while self._sleepers:
                self._wake(self._sleepers[0], None)
            self._live({})
        finally:
            for sleeper in self._sleepers:
                sleeper.die()
            use_disk(None)
            self._inner.close()
            shutil.rmtree(self._place, ignore_errors=True)

    def _trouble(self) -> dict[str, Any]:
        chance = self._chance
        # A third of them die before they have started.
        trouble: dict[str, Any] = {"die_at": chance.randint(1, 60) if chance.random() < 0.3 else None}
        if chance.random() < 0.15:
            trouble["space"] = chance.randint(1, 9000)
        if chance.random() < 0.15:
            trouble.update(lost_reply_at=chance.randint(1, 12), lost_as=chance.choice([errno.EIO, errno.EEXIST]))
        if chance.random() < 0.1:
            trouble["late"] = chance.randint(1, 6)
        return trouble

    # -- drivers ---------------------------------------------------------------------------------

    def _live(self, trouble: dict[str, Any]) -> None:
        """Have a driver live until it ends or falls asleep; then the power may be cut."""
        chance = self._chance
        self._check_shown()
        driver = Driver(
            self._lived,
            self._inner,
            trouble,
            deaf=lambda path, before: self._mutant.sync(self._below(path), before, driver.starting),
            unfenced=lambda path: self._mutant.once(self._below(path)),
        )
        falls_asleep = bool(trouble) and chance.random() < (0.1 if self._sleepers else 0.5)
        if self._restored and self._sleepers:
            # It does the epoch again that a sleeper has done already.
            driver.disk.die_at, falls_asleep = None, False
            driver.stop = self._somewhere(200, ("look", chance.choice(["sink", "manifest", "telling"])))
        elif any(sleeper.at_look for sleeper in self._sleepers) and chance.random() < 0.5:
            # A backup will be restored.
            driver.disk.die_at, falls_asleep = None, False
        elif self._sleepers and trouble and chance.random() < 0.3:
            driver.disk.die_at, falls_asleep, driver.goes_far = None, False, True
        elif falls_asleep or self._sleepers:
            # It does not die before that, or before it has begun.
            driver.disk.die_at = 1 << 60 if falls_asleep else None
            driver.stop = self._somewhere(200)
        driver.go()
        while not driver.ended:
            if falls_asleep:
                self.counts["asleep"] += 1
                driver.slept = True
                self._sleepers.append(driver)
                return
            if self._sleepers:
                driver.disturbed = True
                self.counts["meetings"] += 1
                stop = self._somewhere(80) if chance.random() < 0.5 else None
                self._wake(chance.choice(self._sleepers), stop)
            driver.disk.dead = bool(trouble) and chance.random() < 0.2
            driver.stop = self._somewhere(80) if chance.random() < 0.5 else None
            driver.go()
        self._judge(driver)
        self._restored = isinstance(driver.error, Restored)
        if self._restored:
            # Whoever was asleep, and will look first who is the newest, may wake up to find that.
            newer = [
                sleeper for sleeper in self._sleepers if not (sleeper.at_look and 0 < sleeper.number < driver.number)
            ]
            self._end_sleepers(newer)
        if chance.random() < (0.15 if self._sleepers else 0.7):
            self._end_sleepers(list(self._sleepers))
            self.counts["power cuts"] += 1
            self._inner.close()
            power_cut(self._root, self._journal, chance.getrandbits(32))
            self._inner = UnsyncedDisk(self._root, self._journal)

    def _somewhere(self, most: int, wanted: tuple[str, str] | None = None) -> Callable[[str, str], bool]:
        """Choose where a driver stops: at so many calls at the most, or where it matters what others do meanwhile."""
        chance = self._chance
        what, where = wanted or chance.choice(_STOPS)
        left = chance.randint(1, most if what == "" else 2)
        # Before that, or after it: at whatever comes next.
        after = chance.random() < 0.5

        def stop(called: str, path: str) -> bool:
            nonlocal left
            if left > 0 and (not what or (called == what and where in path)):
                left -= 1
                return left == 0 and not after
            return left == 0

        return stop

    def _wake(self, sleeper: Driver, stop: Callable[[str, str], bool] | None) -> None:
        """Let a driver that fell asleep go on, until it stops again or to its end."""
        self.counts["wakes"] += 1
        sleeper.stop = stop
        if self._chance.random() < 0.2:
            sleeper.disk.die_at = sleeper.disk.calls + self._chance.randint(1, 60)
        sleeper.go()
        if sleeper.ended:
            self._sleepers.remove(sleeper)
            self._judge(sleeper)

    def _end_sleepers(self, sleepers: list[Driver]) -> None:
        for sleeper in sleepers:
            self._sleepers.remove(sleeper)
            sleeper.die()

    def _judge(self, driver: Driver) -> None:
        """See what a driver has ended with."""
        error = driver.error
        alone = not (driver.slept or driver.disturbed)
        if error is None:
            return
        if isinstance(error, Broken):
            raise error
        if isinstance(error, Death):
            self.counts["deaths"] += 1
        elif driver.slept and isinstance(error, (FerrymanError, OSError, SparkEnds)):
            self.counts["sleepers refused"] += 1
        elif driver.disturbed and isinstance(error, _NOT_ALONE):
            self.counts["not alone"] += 1
        elif isinstance(error, self._excused(driver)):
            self.counts["refused by the disk"] += 1
        else:
            met = "" if alone else " (it was not alone)"
            raise Broken(f"the job does not start or go on{met}: {error or type(error).__name__}") from error

    def _excused(self, driver: Driver) -> type[Exception] | tuple[type[Exception], ...]:
        """Give the errors that a driver may end with for the state of its disk."""
        if "late" in driver.trouble:
            return FerrymanError
        return (CheckpointUnwritable, CheckpointInUse) if driver.trouble else ()

    def _below(self, path: str) -> str:
        """Give a path as below the root; what is elsewhere as it is."""
        return os.path.relpath(path, self._root) if path.startswith(str(self._root)) else path

    # -- what a driver does ----------------------------------------------------------------------

    def _lived(self, driver: Driver) -> None:
        """Start the job, check what is there, go on for a while, and end in some way."""
        chance, disk = self._chance, driver.disk
        calm = not driver.trouble
        life = Life(
            self._root,
            instances=chance.choice([1, 2]),
            locked=chance.random() < 0.5,
            now_ms=self._clock_ms,
            call=self._call,
            name=lambda: f"{chance.getrandbits(32):08x}",
            commits=self._committed,
            shows=self._has_shown,
            passes=driver.pass_by,
            mutant=self._mutant,
        )
        try:
            driver.starting, driver.number = False, life.term.number
            if driver.goes_far:
                life.batch(chance.randint(1, 4))
                life.fold(2)
                life.batch(chance.randint(1, 4))
                life.fold(chance.randint(0, 1))
            if not calm and disk.die_at is None:
                if chance.random() < 0.3:
                    disk.die_after = disk.named + chance.randint(1, 20)
                else:
                    disk.die_at = disk.calls + chance.randint(1, 120)
            self._check(driver, life, all_epochs=chance.random() < 0.5)
            for _ in range(chance.randint(1, 6)):
                self._act(driver, life)
            if calm:
                life.batch(2)
                self._check(driver, life, all_epochs=True)
            if calm or chance.random() < 0.5:
                self.counts["ends in order"] += 1
                life.end()
        finally:
            life.close()

    def _act(self, driver: Driver, life: Life) -> None:
        chance = self._chance
        weights = dict(_ACTS)
        if any(sleeper.at_look for sleeper in self._sleepers):
            # Whoever wakes up to find a backup restored must not add to it.
            weights["rewind"] *= 20
        what = chance.choices(list(weights), list(weights.values()))[0]
        self.counts[what] += 1
        self._clock_ms += chance.randint(1, 5000)
        life.now_ms = self._clock_ms
        if what == "batch":
            life.batch(chance.randint(1, 4))
        elif what == "silence" and not life.pending:
            life.silence()
        elif what == "snapshot":
            life.fold(chance.randint(0, 2))
        elif what == "rescale":
            life.rescale(chance.choice([1, 2]))
        elif what == "rewind" and not driver.slept and not driver.disturbed:
            # In peace from the first look on: nobody falls asleep, wakes up, and then restores below another.
            driver.undisturbed = True
            self._rewind(life)
            driver.undisturbed = False

    def _committed(self, life: Life, manifest: Manifest) -> None:
        known = self._promised.setdefault(manifest.epoch, manifest)
        if known.json() == manifest.json():
            return
        # Who slept until retention had deleted the epoch's manifest can create it again; but then nobody reads it, and
        # the next retention deletes it. Before it is told to the sink, there is one look more.
        if manifest.epoch >= min(life.checkpoint.snapshots(), default=0):
            raise Broken(f"epoch {manifest.epoch} was committed by run {known.term} and by run {manifest.term}")
        self.counts["came when forgotten"] += 1

    def _has_shown(self, manifest: Manifest) -> None:
        self._shown = max(self._shown, (manifest.epoch, manifest.offsets[0] if manifest.offsets else 0))

    def _call(self, rows: Any, number: int) -> None:
        """Stand for a user's function: a number must not come again with other rows."""
        if sorted(self._seen.setdefault(number, rows), key=str) != sorted(rows, key=str):
            raise Broken(f"call {number} came again with other rows: {self._seen[number]} and then {rows}")

    def _rewind(self, life: Life) -> None:
        """Take the job back to an epoch that is kept, by the command or as with a backup; then start anew."""
        kept = life.checkpoint.epochs()
        snapshots = life.checkpoint.snapshots()
        if not kept:
            return
        usable = [number for number in kept if not snapshots or number >= snapshots[0]] or kept[-1:]
        epoch = self._chance.choice([*usable, *usable[-2:-1] * 2])
        manifest = life.checkpoint.manifest(epoch)
        if self._chance.random() < 0.5:
            self._command(life, epoch)
        else:
            self._restore(life, epoch, kept, snapshots)
        for known in [promised for promised in self._promised if promised > epoch]:
            del self._promised[known]
        for number in [call for call in self._seen if call > manifest.sinks["foreach"]["written"]["number"]]:
            del self._seen[number]
        self._shown = min(self._shown, (epoch, manifest.offsets[0] if manifest.offsets else 0))
        raise Restored

    def _command(self, life: Life, epoch: int) -> None:
        """Go back by `ferryman rewind`, which may be killed a few times and is begun again."""
        self.counts["rewind by command"] += 1
        calls = [self._chance.randint(1, 60) for _ in range(self._chance.randint(0, 3))]
        for die_at in (*calls, None):
            disk = FaultyDisk(self._inner, die_at=die_at)
            use_disk(disk)
            checkpoint = Checkpoint(LocalDirectory(self._root / "checkpoint", fsync=True, disk=disk))
            with contextlib.suppress(Death):
                go_back(checkpoint, checkpoint.job_card(), epoch)

    def _restore(self, life: Life, epoch: int, kept: list[int], snapshots: list[int]) -> None:
        """Put back a backup of all that belongs to the job."""
        manifest = life.checkpoint.manifest(epoch)
        # Whoever restores a backup does so in peace: no death, no trouble.
        place = LocalDirectory(self._root / "checkpoint", fsync=True, disk=self._inner)
        place.delete(f"manifests/{number:012d}.json" for number in kept if number > epoch)
        place.delete(f"snapshots/{number:012d}.json" for number in snapshots if number > epoch)
        place.delete([*Checkpoint(place).intent_files(), "told.json"])
        for side in SIDES:
            later = [name for name in place.list(f"spark/{side}") if name.isdigit() and int(name) > manifest.batch]
            place.delete(f"spark/{side}/{name}" for name in later)

    # -- what must hold --------------------------------------------------------------------------

    def _check_shown(self) -> None:
        """See, before a start, that the sink has all it has shown; and all there is, if the job says so."""
        checkpoint = Checkpoint(LocalDirectory(self._root / "checkpoint", disk=Disk()))
        epoch, end = self._shown
        if (latest := checkpoint.latest()) is not None and checkpoint.is_told(latest):
            epoch, end = latest.epoch, latest.offsets[0] if latest.offsets else 0
        found, expected = self._read_sink(epoch)[0], results_upto(end)
        if not set(found) >= set(expected):
            raise Broken(f"epoch {epoch} was shown, and now the sink has {found}, not {expected}")

    def _read_sink(self, epoch: int) -> tuple[list[tuple[int, int]], list[str]]:
        """Read the sink as any reader of Parquet does: its rows, and its files."""
        out = self._root / "out"
        try:
            files = sorted(file.name for file in out.glob("*.parquet"))
            tables = [pq.ParquetFile(out / name).read(use_threads=False) for name in files]
        except (OSError, pa.ArrowInvalid) as error:
            raise Broken(f"epoch {epoch}: the sink cannot be read: {error}") from error
        return sorted(pair for table in tables for pair in zip(*table.to_pydict().values(), strict=True)), files

    def _check_sink(self, latest: Manifest | None) -> None:
        """See that the sink has each result once, and that its lists say the same."""
        epoch, end = (latest.epoch, latest.offsets[0] if latest.offsets else 0) if latest else (0, 0)
        found, files = self._read_sink(epoch)
        if found != results_upto(end):
            raise Broken(f"epoch {epoch}: the sink has {found} and should have {results_upto(end)}")
        names = sorted(listed(LocalDirectory(self._root / "out", disk=Disk()))[0])
        if names != files:
            raise Broken(f"epoch {epoch}: the sink lists {names}, and there are {files}")

    def _check(self, driver: Driver, life: Life, *, all_epochs: bool) -> None:
        """Look at everything, unless somebody else is in the middle of something."""
        driver.undisturbed = True
        latest = life.checkpoint.latest()
        if not driver.slept and (not driver.disturbed or latest == life.latest):
            self.counts["checks"] += 1
            self._check_all(life, latest, all_epochs=all_epochs and not self._sleepers)
        driver.undisturbed = False

    def _check_all(self, life: Life, latest: Manifest | None, *, all_epochs: bool) -> None:
        epoch, end = (latest.epoch, latest.offsets[0] if latest.offsets else 0) if latest else (0, 0)
        newest = max(self._promised, default=0)
        if epoch < newest:
            raise Broken(f"epoch {newest} was promised, and the newest is {epoch}")
        first = min(life.checkpoint.snapshots(), default=0)
        manifests = [life.checkpoint.manifest(number) for number in life.checkpoint.epochs() if number >= first]
        for manifest in manifests:
            if self._promised.setdefault(manifest.epoch, manifest).json() != manifest.json():
                raise Broken(f"epoch {manifest.epoch} has another manifest than was promised")
        terms = [manifest.term for manifest in manifests]
        if terms != sorted(terms):
            raise Broken(f"the terms of the epochs do not grow: {terms}")
        numbers = Counter(key for key, _ in rows_between(0, end))
        found = {row["key"]: row["n"] for row in life.state()} if epoch else {}
        if found != dict(numbers):
            raise Broken(f"epoch {epoch}: the state is {found} and should be {dict(numbers)}")
        self._check_sink(latest)
        timeline = Timeline.read(life.checkpoint, life.checkpoint.card()) if all_epochs else Timeline()
        if timeline.faults:
            raise Broken(f"{timeline.faults[0][0]} {timeline.faults[0][1]}")
        for number in timeline.epochs:
            upto = timeline.manifests[number].offsets
            there = sum(row["n"] for row in life.state(epoch=number))
            if there != (upto[0] if upto else 0):
                raise Broken(f"epoch {number} is kept and was rebuilt with {there} rows of {upto}")
