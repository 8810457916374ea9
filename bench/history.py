"""One random history on a disk that forgets: epochs, deaths at random calls, power cuts, restarts, rewinds, full disks.

The harness runs the operators and commits; Spark's log is written as Spark writes it, unsynced, and a small sink keeps
each epoch's rows in files. What must hold after every restart, whatever happened before:

- an epoch whose commit has returned is there: nothing that was promised is lost;
- the state is that of the source's rows up to the offsets of the newest manifest, and the sink lists each of their
  results once: nothing is doubled;
- a sink that has seen an epoch sees the same rows when that is redone;
- every epoch that is kept can be rebuilt, and the job starts.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ferryman import Operator, Value
from ferryman._log.agreement import check_agreement
from ferryman._log.directory import LocalDirectory
from ferryman._log.disk import use_disk
from ferryman._log.mend import mend_spark_log
from ferryman._log.retention import prune
from ferryman._log.spark_log import SparkLogKeeper, values_of
from ferryman._log.timeline import Timeline
from ferryman._model.errors import CheckpointInUse, CheckpointUnwritable, CorruptCheckpoint, FerrymanError
from ferryman._model.records import Manifest, SparkLog
from ferryman._testing.forgetful import ForgetfulDisk
from ferryman._testing.power import power_cut
from ferryman._testing.troubled import Death, TroubledDisk
from ferryman.testing import Harness

KEYS = ("a", "b", "c")
_SIDES = ("offsets", "commits")
Deaf = Callable[[str, str], bool]


class Broken(Exception):
    """What must hold does not."""


class Counts(Operator):
    """Number the rows of a key."""

    n = Value(int, 0)
    output = "row long, n long"

    def process(self, key: Any, row: Any) -> Any:
        """Count one."""
        self.n += 1
        yield row.row, self.n


def rows_between(start: int, end: int) -> list[tuple[str, int]]:
    """Give the rows of the source between two offsets; the same ones always."""
    return [(KEYS[row * 7 % 5 % 3], row) for row in range(start, end)]


class Files:
    """A sink that keeps an epoch's rows in a file, and lists the files of committed epochs."""

    def __init__(self, place: Path, seen: dict[int, list[Any]]) -> None:
        self._directory = LocalDirectory(place, fsync=True)
        self._seen = seen

    def begin(self, epoch: int) -> None:
        """Forget the epochs that a job which was taken back no longer has."""
        self._directory.keep(["files", "lists"])
        later = [name for name in self._directory.list("lists") if int(name) > epoch]
        self._directory.delete(f"lists/{name}" for name in later)

    def write(self, rows: list[Any], epoch: int, attempt: int) -> dict[str, Any]:
        """Write an epoch's rows, and check that they are those it was given before."""
        if sorted(self._seen.setdefault(epoch, rows)) != sorted(rows):
            raise Broken(f"epoch {epoch} was redone with other rows: {self._seen[epoch]} and then {rows}")
        name = f"files/{epoch}-{attempt}"
        self._directory.write(name, json.dumps(rows).encode())
        return {"file": name}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """List an epoch's file."""
        self._directory.write(f"lists/{epoch}", json.dumps(written).encode())

    def rows(self) -> list[Any]:
        """Read the rows of the epochs that are listed."""
        try:
            lists = [json.loads(bytes(self._directory.read(f"lists/{one}"))) for one in self._directory.list("lists")]
            return [tuple(row) for one in lists for row in json.loads(bytes(self._directory.read(one["file"])))]
        except (FileNotFoundError, ValueError) as error:
            raise Broken(f"the sink has lost rows of a committed epoch: {error}") from error


class Run(Harness):
    """One run of a job: the harness, with Spark's log and a sink as a driver has them."""

    def __init__(self, root: Path, instances: int, sink: Files, attempt: int, *, asleep: bool) -> None:
        self._root, self._sink, self._attempt, self._asleep = root / "checkpoint", sink, attempt, asleep
        self._taken: tuple[int, SparkLog] | None = None
        self.held_back: Manifest | None = None
        super().__init__(
            lambda stream: stream.key_by("key").process(Counts),
            "key string, row long",
            instances=instances,
            groups=2,
            store="lmdb",
            checkpoint=self._root,
            fsync=True,
        )
        latest = self.checkpoint.latest()
        self.mended = mend_spark_log(self.checkpoint, latest)
        check_agreement(self.checkpoint, latest)
        self._keeper = SparkLogKeeper(self.checkpoint, sync=True)
        sink.begin(latest.epoch if latest else 0)
        if latest is not None:
            sink.commit(latest.epoch, latest.sinks["files"])
        intent = self.checkpoint.intent()
        if intent is not None and intent.epoch == self.epochs + 1:
            # A silent epoch was under way: it comes first, just as it was begun.
            self.silence()

    def _spark_writes(self, name: str, text: str) -> None:
        path = self._root / "spark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.tmp").write_text(text)
        path.with_name(f".{path.name}.tmp").replace(path)

    def begun(self) -> int | None:
        """Give the batch that Spark has begun and not committed, as Spark itself sees it."""
        names = [[int(one.name) for one in (self._root / f"spark/{side}").glob("[0-9]*")] for side in _SIDES]
        begun, done = (max(one, default=-1) for one in names)
        return begun if begun > done else None

    def batch(self, wanted: int) -> None:
        """Run the next micro-batch as Spark does: one that was begun is done again, else so many rows are new."""
        latest = self.checkpoint.latest()
        batch = self.begun()
        start = latest.offsets[0] if latest and latest.offsets else 0
        if batch is None:
            batch = latest.batch + 1 if latest else 0
            if not (self._root / "spark/metadata").exists():
                self._spark_writes("metadata", '{"id":"one"}')
            self._spark_writes(f"offsets/{batch}", f'v1\n{{"batchTimestampMs":1}}\n{start + wanted}')
        if latest is None or batch > latest.batch:
            log = self._keeper.take(batch, latest)
            self._taken = batch, log
            values = values_of(log.offsets.get(batch, ""))
            if not values:
                raise CorruptCheckpoint(f"Spark does not start: spark/offsets/{batch} is torn.")
            self.epoch(rows_between(start, values[0]))
        self._spark_writes(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def silence(self) -> None:
        """Run an epoch without data."""
        self.checkpoint.intend(self.epochs + 1, self.now_ms)
        self._taken = None
        self.epoch()

    def _commit(self, manifest: Manifest, output: list[tuple[Any, ...]]) -> None:
        latest = self.checkpoint.latest()
        if self._taken is not None:
            batch, log = self._taken
            manifest = replace(manifest, batch=batch, offsets=values_of(log.offsets[batch]), spark=log)
        else:
            offsets, log = (latest.offsets, latest.spark) if latest else ((), SparkLog())
            manifest = replace(manifest, batch=latest.batch if latest else -1, offsets=offsets, spark=log)
        written = self._sink.write(output, manifest.epoch, self._attempt)
        manifest = replace(manifest, sinks={"files": written})
        if self._asleep:
            # The driver falls asleep here, and another takes over.
            self.held_back = manifest
            raise Death
        super()._commit(manifest, output)
        self._sink.commit(manifest.epoch, written)


class History:
    """One history, by its seed; `deaf` says which syncs are not done, `unfenced` that names can be given twice."""

    def __init__(self, place: Path, seed: int, *, deaf: Deaf | None = None, unfenced: bool = False) -> None:
        self._place = place
        self._root, self._journal = place / "disk", place / "journal"
        self._chance = random.Random(seed)
        self._deaf = deaf
        self._unfenced = unfenced
        self._promised = 0
        self._seen: dict[int, list[Any]] = {}
        self._lives = 0
        self._sleeper: Run | None = None
        self.counts: Counter[str] = Counter()
        self.starting = False

    def run(self) -> None:
        """Live a few times, and look at what is there each time; `Broken` if what must hold does not."""
        self._root.mkdir(parents=True)
        try:
            for _ in range(self._chance.randint(2, 4)):
                self._live(self._trouble())
            self._live({})
        finally:
            use_disk(None)
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

    def _live(self, trouble: dict[str, Any]) -> None:
        """Start the job, check what is there, go on for a while, and end in some way."""
        chance = self._chance
        self._lives += 1
        inner = ForgetfulDisk(self._root, self._journal)
        deaf = {} if self._deaf is None else {"deaf": self._deaf}
        disk = TroubledDisk(inner, unfenced=self._unfenced, **deaf, **trouble)
        use_disk(disk)
        run = None
        try:
            sink = Files(self._root / "out", self._seen)
            asleep = bool(trouble) and chance.random() < 0.1
            self.starting = True
            run = Run(self._root, chance.choice([1, 2]), sink, self._lives, asleep=asleep)
            self.starting = False
            if trouble and disk.die_at is None:
                if chance.random() < 0.3:
                    disk.die_after = disk.named + chance.randint(1, 20)
                else:
                    disk.die_at = disk.calls + chance.randint(1, 120)
            self._check(run, sink, all_epochs=chance.random() < 0.5)
            for _ in range(chance.randint(1, 6)):
                self._act(run)
            if not trouble:
                run.batch(2)
                self._promised = run.epochs
                self._check(run, sink, all_epochs=True)
        except Death:
            self.counts["deaths"] += 1
        except (CheckpointUnwritable, CheckpointInUse) as error:
            if not trouble:
                raise Broken(f"the disk is in order, and yet: {error}") from error
            self.counts["refused by the disk"] += 1
        except FerrymanError as error:
            if "late" not in trouble:
                raise Broken(f"the job does not start or go on: {error}") from error
            self.counts["refused by the disk"] += 1
        finally:
            inner.close()
            if run is not None:
                if run.held_back is not None:
                    self._sleeper = run
                run.close()
        if chance.random() < 0.7:
            self.counts["power cuts"] += 1
            power_cut(self._root, self._journal, chance.getrandbits(32))

    def _act(self, run: Run) -> None:
        chance = self._chance
        what = chance.choices(["batch", "silence", "snapshot", "rescale", "wake", "rewind"], [9, 2, 3, 1, 3, 0.3])[0]
        self.counts[what] += 1
        if what == "batch":
            run.batch(chance.randint(1, 4))
            self._promised = run.epochs
        elif what == "silence" and run.begun() is None:
            run.silence()
            self._promised = run.epochs
        elif what == "snapshot":
            run.snapshot()
            prune(run.checkpoint, run.epochs - chance.randint(0, 2))
        elif what == "rescale":
            run.rescale(chance.choice([1, 2]))
        elif what == "wake":
            self._wake(run)
        elif what == "rewind":
            self._rewind(run)

    def _wake(self, run: Run) -> None:
        """Let a driver that was taken over wake up, and try to commit the epoch it was at."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is None or sleeper.held_back is None or sleeper.held_back.epoch > run.epochs:
            return
        epoch = sleeper.held_back.epoch
        if epoch not in run.checkpoint.epochs():
            return
        try:
            run.checkpoint.commit(sleeper.held_back)
        except CheckpointInUse:
            self.counts["sleepers refused"] += 1
            return
        raise Broken(f"epoch {epoch} was committed twice, by two drivers")

    def _rewind(self, run: Run) -> None:
        """Take the job back to an epoch that is kept, as with a backup of all that belongs to it; then start anew."""
        kept = run.checkpoint.epochs()
        base = next(iter(run.checkpoint.snapshots()), None)
        if not kept:
            return
        epoch = self._chance.choice([one for one in kept if base is None or one >= base] or kept[-1:])
        manifest = run.checkpoint.manifest(epoch)
        snapshots = run.checkpoint.snapshots()
        # Whoever restores a backup does so in peace: no death, no trouble.
        peaceful = ForgetfulDisk(self._root, self._journal)
        place = LocalDirectory(self._root / "checkpoint", fsync=True, disk=peaceful)
        place.delete(f"manifests/{one:012d}.json" for one in kept if one > epoch)
        place.delete(f"snapshots/{one:012d}.json" for one in snapshots if one > epoch)
        place.delete(["intent.json"])
        for side in _SIDES:
            later = [name for name in place.list(f"spark/{side}") if name.isdigit() and int(name) > manifest.batch]
            place.delete(f"spark/{side}/{name}" for name in later)
        peaceful.close()
        self._promised = epoch
        for later_epoch in [one for one in self._seen if one > epoch]:
            del self._seen[later_epoch]
        self._sleeper = None
        raise Death

    def _check(self, run: Run, sink: Files, *, all_epochs: bool = False) -> None:
        latest = run.checkpoint.latest()
        epoch, end = (latest.epoch, latest.offsets[0] if latest.offsets else 0) if latest else (0, 0)
        if epoch < self._promised:
            raise Broken(f"epoch {self._promised} was promised, and the newest is {epoch}")
        self._promised = epoch
        numbers: Counter[str] = Counter()
        expected = []
        for key, row in rows_between(0, end):
            numbers[key] += 1
            expected.append((row, numbers[key]))
        found = {row["key"]: row["n"] for row in run.state()} if epoch else {}
        if found != dict(numbers):
            raise Broken(f"epoch {epoch}: the state is {found} and should be {dict(numbers)}")
        if sorted(sink.rows()) != sorted(expected):
            raise Broken(f"epoch {epoch}: the sink has {sorted(sink.rows())} and should have {sorted(expected)}")
        timeline = Timeline.read(run.checkpoint, run.checkpoint.card()) if all_epochs else Timeline()
        if timeline.faults:
            raise Broken(f"{timeline.faults[0][0]} {timeline.faults[0][1]}")
        for one in timeline.kept:
            upto = run.checkpoint.manifest(one).offsets
            there = sum(row["n"] for row in run.state(epoch=one))
            if there != (upto[0] if upto else 0):
                raise Broken(f"epoch {one} is kept and was rebuilt with {there} rows of {upto}")
