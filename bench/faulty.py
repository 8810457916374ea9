"""The driver of the fault campaign: runs case after case on one cluster, and does the killing itself, at the very step.

    python -m bench.faulty CONFIGURATION.json

Cases come in chains: one job on one checkpoint per victim, one case per strategy and phase. What came of a case is a
line of JSON in the configured file; a case that kills this very driver is judged by the next one, which goes on with
the job. Started by `bench.faults`, again and again until every case has a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from bench.movable import payload
from ferryman import Ferry, Job, List, Operator, Value, session, sinks
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.fold import rebuild
from ferryman._migrate.reconfiguration import Reconfiguration
from ferryman._model.errors import FerrymanError
from ferryman._os import faults
from ferryman._os.processes import below, look, processes
from ferryman._serve import registry
from ferryman._serve.state_host import LOCATION
from ferryman._spark.session.local_cluster import Worker

KEYS = 400
GROUPS = 16
MOVING = 4
BYTES = 2000
PER_EPOCH = 100
PRIME = (1 << 61) - 1

# Compiling well takes these short-lived JVMs longer than they live.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# A host that stalls does so until the plan is over, and no longer than this.
STALL_S = 40.0
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Case:
    """One thing that goes wrong.

    Attributes
    ----------
    strategy
        How state moves.
    phase
        Where the plan is when it happens.
    victim
        Who it happens to: driver, or the state host or executor of the source or the destination.
    how
        Whether the victim is killed, or stalls.
    """

    strategy: str
    phase: str
    victim: str
    how: str

    @property
    def name(self) -> str:
        """Give it a name."""
        return f"{self.strategy}, {self.phase}: {self.victim} {self.how}"

    @property
    def chain(self) -> str:
        """Name the job that it is a part of."""
        return f"{self.victim}-{self.how}".replace(" ", "-")


def trail() -> type[Operator]:
    """Make the operator: a digest per key of every row in its order, and something that weighs."""

    class Trail(Operator):
        n = Value(int, 0)
        digest = Value(int, 0)
        weight = List(bytes)
        output = "key string, id long, n long, digest long"

        def process(self, key: Any, row: Any) -> Iterator[tuple[Any, ...]]:
            if self.n == 0:
                self.weight.append(payload(key, BYTES))
            self.n += 1
            self.digest = (self.digest * 1_000_003 + row.id + 1) % PRIME
            yield key, row.id, self.n, self.digest

    return Trail


class Expected:
    """What an unmoved run gives: for each row the digest of its key after it."""

    def __init__(self) -> None:
        self._digests: list[int] = []

    def upto(self, rows: int) -> list[int]:
        """Give the digests of the first rows."""
        while len(self._digests) < rows:
            number = len(self._digests)
            before = self._digests[number - KEYS] if number >= KEYS else 0
            self._digests.append((before * 1_000_003 + number + 1) % PRIME)
        return self._digests[:rows]


class Campaign:
    """Run cases until one ends this process, or none is left."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self._place = Path(configuration["place"])
        self._lines = Path(configuration["lines"])
        self._cases = [Case(**case) for case in configuration["cases"]]
        self._until_s = configuration["until_s"]
        self._workers = [
            Worker(worker["host"], worker["pid"], Path(worker["place"])) for worker in configuration["workers"]
        ]
        self._spark = _session(configuration["url"], self._place)
        self._expected = Expected()
        self._job: Job | None = None
        self._chain = ""
        self._moved: dict[int, int] = {}

    def run(self) -> None:
        """Judge the case that ended the driver before, then go on with those that are left."""
        said = [json.loads(line) for line in self._lines.read_text().splitlines()] if self._lines.exists() else []
        over = {line["case"] for line in said if "ended" in line}
        begun = next((line for line in said if "case" in line and line["case"] not in over), None)
        for case in self._cases:
            if case.name in over:
                continue
            if begun is not None and begun["case"] == case.name:
                self._judge_killed(case, begun)
            elif time.time() > self._until_s:
                break
            else:
                self._run(case)
            chain = [other for other in self._cases if other.chain == case.chain]
            if case is chain[-1]:
                self._end_chain()
        self._end_chain()
        self._spark.stop()

    def _run(self, case: Case) -> None:
        started = time.monotonic()
        job = self._running(case)
        # Whoever was hit in the case before is back, and the instances are on two hosts.
        self._until(lambda: len(set(self._hosts())) == 2, "instances on both hosts", PATIENCE_S)
        owner = job._runner.coordinator.table.owner
        source = 0 if owner.count(0) >= owner.count(1) else 1
        # Those that have not moved for longest: a host that was struck may still have what it had of the others.
        mine = [group for group, instance in enumerate(owner) if instance == source]
        moving = sorted(sorted(mine, key=lambda group: self._moved.get(group, 0))[:MOVING])
        self._moved.update(dict.fromkeys(moving, max(self._moved.values(), default=0) + 1))
        where = self._hosts()
        victims = {"source": self._worker(where[source]), "destination": self._worker(where[1 - source])}
        after = [1 - source if group in moving else instance for group, instance in enumerate(owner)]
        self._forget(moving, 1 - source)
        self._say(case, moving=moving, after=after)
        struck: list[int] = []
        fired = threading.Event()

        def strike(step: str) -> None:
            if step == f"plan-{case.phase}" and not struck:
                # What has come over the line by now; of a driver that dies here nobody else can tell.
                self._say(case, moved_bytes=job.history()[-1].moved_bytes)
                struck.extend(_strike(case, victims))
                # One that nobody was there for has shown nothing.
                if struck:
                    fired.set()

        began = time.monotonic()
        faults.watcher = strike
        try:
            change = job.move(moving, 1 - source, strategy=case.strategy)
            self._until(lambda: change.over or not job.active, "the plan's end", STALL_S)
            if case.phase == "release":
                # What is left to do then is done after the plan's end.
                worker = job._runner.coordinator._worker
                assert worker is not None, "it has carried out a plan"
                self._until(lambda: fired.is_set() or not worker.is_alive(), "the end of all that", STALL_S)
        finally:
            faults.watcher = None
            took = time.monotonic() - began
            for pid in struck if case.how == "stalls" else ():
                _signal(pid, signal.SIGCONT)
        self._until(lambda: change.over or not job.active, "the plan's end after the stall", PATIENCE_S)
        self._judge(case, change, fired.is_set(), took, began - started)

    def _judge(self, case: Case, change: Reconfiguration, fired: bool, took: float, ready: float) -> None:
        judged = time.monotonic()
        job = self._job
        assert job is not None, "a case has a job"
        failure = self._goes_on(job)
        wrong = [failure] if failure else self._wrong()
        self._say(
            case,
            ended=change.phase if fired else "not reached",
            reason=change.reason,
            right=not wrong,
            wrong=wrong,
            leaks=[] if failure else self._leaks(),
            plan_s=round(took, 2),
            ready_s=round(ready, 2),
            judge_s=round(time.monotonic() - judged, 2),
            moved_bytes=change.moved_bytes,
        )
        if failure:
            self._job = None

    def _judge_killed(self, case: Case, begun: dict[str, Any]) -> None:
        """Judge a case whose victim was the driver."""
        if case.victim != "driver":
            self._say(case, ended="driver ended", reason="", right=False, wrong=["the driver ended"], leaks=[])
            return
        began = time.monotonic()
        job = self._running(case)
        failure = self._goes_on(job)
        owner = list(job._runner.coordinator.table.owner)
        wrong = [failure] if failure else self._wrong()
        elsewhere = [group for group, instance in enumerate(owner) if instance != begun["after"][group]]
        # What a strategy of several steps had committed stays.
        kept = "aborted" if set(elsewhere) <= set(begun["moving"]) else "neither"
        said = [json.loads(line) for line in self._lines.read_text().splitlines()]
        self._say(
            case,
            ended=kept if elsewhere else "done",
            reason="the driver was killed",
            right=not wrong,
            wrong=wrong,
            leaks=[] if failure else self._leaks(),
            plan_s=round(time.monotonic() - began, 2),
            moved_bytes=max(line.get("moved_bytes", 0) for line in said if line.get("case") == case.name),
        )

    def _forget(self, groups: list[int], instance: int) -> None:
        """Have the host of an instance forget groups: it had to work on all while the other host was struck."""
        assert self._job is not None, "a case has a job"
        coordinator = self._job._runner.coordinator
        (at,) = coordinator.state_hosts.locate(coordinator.layout)
        coordinator.state_hosts.drop(at[instance].location or "", tuple(groups))

    def _goes_on(self, job: Job) -> str:
        """Wait until the stream has gone on for two epochs with no row waiting; tell what kept it from that."""
        at = job.epoch
        try:
            if not job.wait_for(lambda: job.epoch >= at + 2 and not job._runner.latest.held, PATIENCE_S):  # type: ignore[union-attr]
                return "the stream stands still, or rows wait for ever"
        except FerrymanError as error:
            return f"the job failed: {str(error)[:2000]}"
        return ""

    # -- the job -----------------------------------------------------------------------------------

    def _running(self, case: Case) -> Job:
        if self._chain != case.chain:
            self._end_chain()
        if self._job is None or not self._job.active:
            place = self._place / case.chain
            # Not our generator: that is Python, and takes a new driver many seconds to start.
            source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", PER_EPOCH)
            rows = source.option("numPartitions", 2).load()
            rows = rows.selectExpr(f"concat('k-', value % {KEYS}) AS key", "value AS id")
            ferry = Ferry(self._spark, str(place / "checkpoint"), groups=GROUPS, retain=40, snapshot_every=10)
            stream = ferry.stream(rows).key_by("key").process(trail(), name="Trail")
            # Not all the time: what was struck has to come up again on the same cores.
            trigger = {"processingTime": "500 milliseconds"}
            self._job = stream.write(sinks.parquet(str(place / "out"))).start("faults", instances=2, trigger=trigger)
            self._chain, self._moved = case.chain, {}
            self._job.wait_for(lambda: self._job is not None and len(self._job.progress()) >= 2, PATIENCE_S)
        return self._job

    def _end_chain(self) -> None:
        """Stop the job of a chain, and look at what it left behind."""
        if self._job is None:
            return
        home = self._job._home
        self._job.stop()
        self._job = None
        left: list[str] = []

        def nothing_left() -> bool:
            left[:] = [f"state host {process}" for process in self._state_hosts()]
            left.extend(["home of the driver"] if home.exists() else [])
            left.extend(f"announced {file.job}" for file in registry.place().glob("*.json"))
            left.extend(f"thread {thread.name}" for thread in _threads())
            return not left

        self._until(nothing_left, "", 20)
        found = verify(Checkpoint(directory(str(self._place / self._chain / "checkpoint"))))
        left += [] if found.sound else [f"checkpoint: {fault}" for fault in found.faults]
        self._say(None, chain=self._chain, left=list(left))
        self._chain = ""

    def _hosts(self) -> list[str]:
        assert self._job is not None, "a case has a job"
        return list(self._job.progress()[-1].operators["Trail"]["hosts"])

    def _worker(self, host: str) -> Worker:
        return next(worker for worker in self._workers if worker.host == host)

    # -- judging -----------------------------------------------------------------------------------

    def _wrong(self) -> list[str]:
        """Compare what the job has put out and what it keeps with what an unmoved run would have."""
        assert self._job is not None, "a case has a job"
        log = Checkpoint(directory(self._job._runner.checkpoint.directory.uri))
        # One epoch, in which nothing waits; what the sink has is that much at the least.
        latest = self._job._runner.latest
        assert latest is not None, "epochs were committed"
        state = rebuild(log, "Trail", latest.epoch).select(["key", "n", "digest"]).to_pylist()
        rows = sum(row["n"] for row in state)
        digests = self._expected.upto(rows)
        wrong = []
        want = {f"k-{number % KEYS}": (number // KEYS + 1, digests[number]) for number in range(rows)}
        if {row["key"]: (row["n"], row["digest"]) for row in state} != want:
            wrong.append(f"state of epoch {latest.epoch}")
        out = sinks.read_parquet(self._spark, str(self._place / self._chain / "out")).toArrow().sort_by("id")
        ids = out["id"].to_numpy()
        if len(ids) < rows or not (ids == np.arange(len(ids))).all():
            wrong.append(f"rows lost or doubled: {len(ids)} rows, {len(np.unique(ids))} ids, {rows} in the state")
        elif out["digest"].to_pylist() != self._expected.upto(len(ids)):
            wrong.append("order of rows")
        return wrong

    def _leaks(self) -> list[str]:
        """List what a plan that is over has left behind in a job that goes on."""
        assert self._job is not None, "a case has a job"
        left: list[str] = []

        def nothing_left() -> bool:
            hosts = self._state_hosts()
            left[:] = [f"{len(hosts)} state hosts on {len(self._workers)} hosts"] * (len(hosts) > len(self._workers))
            left.extend(f"thread {thread.name}" for thread in _threads())
            anchors = self._spark.sparkContext._jsc.sc().getPersistentRDDs().size()
            left.extend([f"{anchors} cached frames"] if anchors > 1 else [])
            left.extend(f"process {process.id} has stopped" for process in processes().values() if _stopped(process.id))
            return not left

        self._until(nothing_left, "", 30)
        return list(left)

    def _state_hosts(self) -> list[int]:
        """List the state hosts of this campaign's cluster."""
        mine = str(self._place)
        return [
            process.id
            for process in processes().values()
            if "ferryman._serve.state_host" in process.command and mine in _environment(process.id)
        ]

    # -- telling -----------------------------------------------------------------------------------

    def _say(self, case: Case | None, **facts: Any) -> None:
        with self._lines.open("a") as lines:
            lines.write(json.dumps({**({"case": case.name, **asdict(case)} if case else {}), **facts}) + "\n")

    def _until(self, condition: Callable[[], bool], what: str, patience_s: float) -> bool:
        """Wait for a condition; without it the next look tells what is wrong."""
        deadline = time.monotonic() + patience_s
        while not (met := condition()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not met and what:
            print(f"not within {patience_s:.0f} s: {what}", flush=True)
        return met


def _strike(case: Case, victims: dict[str, Worker]) -> list[int]:
    """Send the signal, now; give the processes that have it."""
    if case.victim == "driver":
        os.kill(os.getpid(), signal.SIGKILL)
    side, _, kind = case.victim.partition(" ")
    worker = victims[side]
    pids = [one["pid"] for file in (worker.place / "local").glob(f"**/{LOCATION}") if (one := _read(file))]
    pids = [pid for pid in pids if look(pid) is not None]
    if kind == "executor":
        # The executor first: nothing may come up again while the others are hit.
        pids = [process.id for process in below(worker.pid)] + pids
    for pid in pids:
        _signal(pid, signal.SIGKILL if case.how == "killed" else signal.SIGSTOP)
    print(f"{case.name}: {len(pids)} processes", flush=True)
    return pids


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # Only those that we may have stopped.
        return stat[0] == "T" and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _threads() -> list[threading.Thread]:
    names = ("ferryman-plan", "ferryman-copy", "ferryman-call")
    return [thread for thread in threading.enumerate() if thread.name.startswith(names)]


def _session(url: str, place: Path) -> SparkSession:
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": BRIEF,
        "spark.executor.extraJavaOptions": f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
        "spark.executor.memory": "512m",
        "spark.cores.max": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.python.daemon.module": "ferryman._spark.session.warm_workers",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(place / "driver"),
        # Spark takes an executor that says nothing for lost after two minutes; a campaign has less patience.
        "spark.executor.heartbeatInterval": "2s",
        "spark.network.timeout": "10s",
        "spark.network.timeoutInterval": "2s",
    }
    return session("ferryman bench faults", url, conf=conf)


if __name__ == "__main__":
    Campaign(json.loads(Path(sys.argv[1]).read_text())).run()
