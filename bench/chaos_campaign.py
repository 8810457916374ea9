"""One chaos campaign: the job under its supervisor, the faults when they are due, and the end of it all."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.chaos_count import sound, through, what_is_left
from bench.chaos_damage import Damage
from bench.chaos_faults import Striker, Struck, Target, set_clock
from bench.chaos_hosts import Driver, Host
from bench.chaos_job import Feeder, wrong
from bench.chaos_schedule import Fault
from bench.chaos_watch import Watch, memory, stood_still_s, usual
from bench.report import Progress, Result
from ferryman._os.processes import below, end, end_with_parent, processes
from ferryman._spark.session.local_cluster import Cluster

INSTANCES = 4
_FIRST_EPOCH_S = 240.0
_DRAIN_S = 300.0
# How long the last faults have until the stream goes on.
_SETTLE_S = 90.0
_STOP_S = 120.0
_ROOT = Path(__file__).resolve().parents[1]


class _JobEnded(Exception):
    """The supervisor has ended, and was not asked to."""


class Campaign:
    """One job, from its first epoch to the last count."""

    def __init__(self, place: Path, cluster: Cluster, plan: Sequence[Fault], progress: Progress) -> None:
        self._place = place
        self._plan = plan
        self._progress = progress
        self._cluster = cluster
        self._checkpoint = place / "checkpoint"
        self._output = place / "driver.log"
        set_clock(place, 0)
        self._feeder = Feeder(place)
        self._supervisor = self._supervised()
        self._driver = Driver(self._supervisor.pid)
        self._watch = Watch(self._checkpoint, self._driver)
        hosts = [Host(worker) for worker in cluster.workers]
        self._target = Target(place, hosts, self._driver, Damage(self._checkpoint))
        self._striker = Striker(self._target)
        self._began = time.time()
        self._told = 0

    def run(self) -> Result:
        """Run it, and count."""
        drained, gave_up = False, ""
        try:
            with self._progress.step("first epochs"):
                self._until(lambda: self._watch.epoch >= 3, _FIRST_EPOCH_S)
            self._began = time.time()
            self._strike()
            seconds = time.time() - self._began
            self._striker.end()
            with self._progress.step("the rest of the rows"):
                drained = self._drained()
            with self._progress.step("the end of the job"):
                self._stop()
        except _JobEnded:
            seconds = time.time() - self._began
            gave_up = self._output.read_text(errors="replace")[-4000:]
        finally:
            self._end()
        with self._progress.step("counting"):
            sinks = wrong(self._place, self._feeder.rows)
            left = what_is_left(self._place, self._cluster, self._target.hosts)
        faults = [self._facts(struck) for struck in self._striker.struck]
        return {
            "seconds": round(seconds, 1),
            "epochs": self._watch.epoch,
            "rows": self._feeder.rows,
            "drivers": len({sample.driver for sample in self._watch.samples}),
            "exact": drained and not any(sinks.values()),
            "wrong": sinks,
            "drained": drained,
            "gave_up": gave_up,
            "exit_code": self._supervisor.returncode,
            **sound(self._checkpoint),
            "damaged_files": {"mended": self._target.damage.mended, "forgotten": self._target.damage.forgotten},
            "left": left,
            "memory": memory(self._watch.samples),
            "usual_s": usual(self._watch.commits),
            "supervisor": self._said(),
            "not_carried_out": [f"{one.fault.kind}: {one.error}" for one in self._striker.struck if one.error],
            "faults": faults,
        }

    def _supervised(self) -> subprocess.Popen[bytes]:
        words = ["run", "--restart", "--failures", "30", "--wait", "0.2", "--most-wait", "4"]
        words += [str(_ROOT / "bench" / "chaos_driver.py"), str(self._place), self._cluster.url, str(INSTANCES)]
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        disk = f"bench.chaos_disk:at_will:{self._place / 'full'}"
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", "from ferryman._cli import app; app()", *words],
                env={**os.environ, "PYTHONPATH": path, "FERRYMAN_DISK": disk},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def _until(self, condition: Callable[[], bool], patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while not (met := condition()) and time.monotonic() < deadline:
            if self._supervisor.poll() is not None:
                raise _JobEnded
            time.sleep(0.1)
        return met

    # -- faults ------------------------------------------------------------------------------------

    def _strike(self) -> None:
        for fault in self._plan:
            due = self._began + fault.at_s
            self._until(lambda due=due: time.time() >= due, 3600.0)  # type: ignore[misc]
            self._striker.strike(fault)
            self._tell()
        self._until(self._tell, _SETTLE_S)
        self._tell(last=True)

    def _tell(self, *, last: bool = False) -> bool:
        """Tell of faults whose end is known, in their order; say whether those are all."""
        struck = self._striker.struck
        while self._told < len(struck) and (last or struck[self._told].until is not None):
            facts = self._facts(struck[self._told])
            waiting = bool(facts["what"]) and facts["epoch_s"] is None
            if waiting and not last:
                break
            seen = f"not struck: {facts['why_not'] or 'nothing was there'}"
            if facts["what"]:
                again = f"next epoch after {facts['epoch_s']} s, none for {facts['still_s']} s"
                seen = f"{facts['what'][:100]}; {'no epoch yet' if waiting else again}"
            self._progress.say(f"{facts['at_s']:7.1f} s  {facts['number']}/{len(self._plan)} {facts['kind']}: {seen}")
            self._told += 1
        return self._told == len(struck)

    def _facts(self, struck: Struck) -> Result:
        until = struck.until or time.time()
        times = stood_still_s(self._watch.commits, struck.at, until) if struck.what else (None, None)
        return {
            "number": struck.fault.number,
            "at_s": round(struck.at - self._began, 1),
            "kind": struck.fault.kind,
            "lasted_s": round(until - struck.at, 2),
            "what": struck.what,
            "why_not": struck.error or struck.why_not,
            "epoch_s": times[0],
            "still_s": times[1],
            "schedule": asdict(struck.fault),
        }

    # -- the end -----------------------------------------------------------------------------------

    def _drained(self) -> bool:
        """Go on until damages are mended or forgotten, all rows have come through and all calls were made."""
        self._until(self._target.damage.settled, _DRAIN_S)
        self._feeder.stop()
        # Later than any clock was, or some calls would come only in days.
        set_clock(self._place, 400 * 86_400_000)
        return self._until(lambda: through(self._checkpoint, self._feeder.rows), _DRAIN_S)

    def _stop(self) -> None:
        (self._place / "stop").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_STOP_S)

    def _end(self) -> None:
        """End what has not ended by itself."""
        self._striker.end()
        self._feeder.stop()
        self._watch.end()
        if self._supervisor.poll() is None:
            driver = self._driver.family()
            family = [*below(self._supervisor.pid), *(one for one in processes().values() if one.id in driver)]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._supervisor.pid, signal.SIGKILL)
            self._supervisor.wait()
            end(family)

    def _said(self) -> list[str]:
        """List what the supervisor has said."""
        return re.findall(r"^ferryman run: (.*)", self._output.read_text(errors="replace"), re.MULTILINE)
