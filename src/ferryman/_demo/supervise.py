"""Run the demo: start the driver, kill one of its Python workers, kill the driver, start it again, have it checked.

Starts and ends processes, and decides when; `history` keeps what they report and `show` tells it. Every
process it started is gone when it returns, however it returns.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ferryman._demo.child import Child, Event
from ferryman._demo.fleet import Fleet
from ferryman._demo.history import History, Kill, Victim
from ferryman._demo.operators import checkpoint_path
from ferryman._demo.show import Show
from ferryman._model.errors import JobFailed
from ferryman._os.processes import kill, look, python_workers

# At which part of the readings the kills come: early enough to see the stream before, late enough to see it after.
_WORKER_AT, _DRIVER_AT = 0.3, 0.55
# Spark's words, in the driver's log, for a task whose Python worker has gone.
_CRASHED = "Python worker exited unexpectedly"


class Supervisor:
    """Watch over the processes of one run."""

    def __init__(self, fleet: Fleet, out: Path, show: Show) -> None:
        self.history = History(fleet=fleet, began=time.time())
        self._out = out
        self._show = show
        self._child: Child | None = None
        self._drivers = 0
        # Short, as it also holds sockets, whose paths the system allows about 100 characters.
        self._scratch = Path(tempfile.mkdtemp(prefix="ferryman-"))

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, *, kills: bool) -> None:
        """Run the job from the first reading to the last."""
        self._start_driver("starting Spark")
        if kills and self._until(lambda: self._is_due(_WORKER_AT, 3)):
            self._kill_worker()
            settled = self.history.epoch + 2
            if self._until(lambda: self._is_due(_DRIVER_AT, settled)):
                self._kill_driver()
                self._start_driver("starting the driver again, on the same checkpoint")
        self._until(lambda: False)

    def check(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Have everything computed anew, and give the answers per operator and what else was found."""
        self._show.phase("checking: computing everything again with plain Spark, as a batch")
        # A driver that has finished goes on with it: it has a session that is warm.
        self._child = child = self._child or self._begin("check", "check.log")
        answers: list[dict[str, Any]] = []
        while (event := self._next(child))["event"] != "checked":
            if event["event"] == "ended":
                raise _unexpected(child)
            if event["event"] == "answer":
                answers.append({name: value for name, value in event.items() if name not in ("event", "at")})
                self._show.happened(f"compared {event['operator']}: {'equal' if event['equal'] else 'NOT EQUAL'}")
        found = {name: event[name] for name in ("epochs", "snapshots")}
        while self._next(child)["event"] != "ended":
            pass
        self._child = None
        return answers, found

    # -- steps -----------------------------------------------------------------------------------

    def _start_driver(self, phase: str) -> None:
        self._show.phase(phase)
        self._drivers += 1
        self._child = self._begin("pipeline", f"driver-{self._drivers}.log")
        self._show.happened(f"driver {self._drivers} is process {self._child.id}")

    def _is_due(self, part: float, epoch: int) -> bool:
        return self.history.due(time.time()) >= part * self.history.fleet.rows and self.history.epoch >= epoch

    def _kill_worker(self) -> None:
        """Kill Python workers until one was in the middle of a task; the first nearly always is."""
        self._show.phase("killing a Python worker")
        while not self.history.finished and not self._kill_one_worker():
            pass
        self._show.phase("")

    def _kill_one_worker(self) -> bool:
        """Kill one Python worker; tell whether a task had to be run again for it."""
        assert self._child is not None, "a driver was started"
        driver, log = self._child.id, self._child.log
        ids: list[int] = []
        while not self.history.finished and not ids:
            ids = _kill_busy_worker(driver)
            self._until(lambda: True)
        if not ids:
            return False
        strike = self._struck("Python worker", ids)
        # The epoch under way commits whatever was struck; by the end of the one after it the log has told.
        self._until(lambda: self.history.committed_since(strike.at) >= 2 or _crashed(log))
        strike.redone = _crashed(log)
        if not strike.redone:
            # It was between two tasks after all: nothing had to be redone, and nothing is proved.
            self.history.kills.remove(strike)
            return False
        self._show.phase("Spark runs the task again, in a new worker")
        self._until(lambda: strike.recovered_at is not None)
        return True

    def _kill_driver(self) -> None:
        assert self._child is not None, "a driver was started"
        self._show.phase("killing the driver")
        # Right behind a commit and a little on, the next epoch is under way.
        before = self.history.epoch
        self._until(lambda: self.history.epoch > before)
        time.sleep(min(0.1, self.history.epochs[-1].duration_ms / 3000))
        if not self.history.finished:
            at = time.time()
            strike = self._struck("driver", self._child.kill(), at)
            strike.redone = _batch_under_way(checkpoint_path(self._out))

    def _struck(self, victim: Victim, ids: list[int], at: float | None = None) -> Kill:
        strike = Kill(victim=victim, ids=ids, at=at or time.time(), epoch=self.history.epoch)
        self.history.kills.append(strike)
        named = "the driver and its JVM" if victim == "driver" else "a Python worker"
        self._show.happened(f"kill -9 {' '.join(map(str, ids))}: {named}, after epoch {strike.epoch}", bad=True)
        return strike

    # -- events ----------------------------------------------------------------------------------

    def _begin(self, module: str, log: str) -> Child:
        # Spark's files, and homes; a killed JVM leaves its own behind, so they go with the scratch directory.
        environment = {"SPARK_LOCAL_DIRS": str(self._scratch), "TMPDIR": str(self._scratch)}
        return Child(module, self._out, self._out / "logs" / log, environment)

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Follow the driver until a condition holds or it has finished; tell whether the condition does."""
        while not self.history.finished:
            assert self._child is not None, "a driver that has not finished runs"
            event = self._child.event(0.1)
            if event is not None:
                self._learn(event, self._child)
            self._show.update(self.history)
            if condition():
                return True
        return False

    def _learn(self, event: Event, child: Child) -> None:
        match event["event"]:
            case "started":
                self.history.took_up(datetime.fromisoformat(event["start"]).timestamp(), event["committed"])
                self._show.phase("")
                self._show.happened(f"the job runs, from row {event['committed']:,}")
            case "epoch":
                waiting = [kill for kill in self.history.kills if kill.recovered_at is None]
                self.history.add(
                    event["epoch"], event["rows"], event["committed_at"], event["duration_ms"], event["keys"]
                )
                for kill in waiting:
                    if kill.recovered_at is not None:
                        took = kill.recovered_at - kill.at
                        self._show.happened(f"epoch {event['epoch']} is committed, {took:.1f} s after the kill")
            case "finished":
                self.history.finished = True
                self.history.keys = event["keys"]
                self._show.happened("every reading is processed; the job has stopped")
            case "ended":
                raise _unexpected(child)

    def _next(self, child: Child) -> Event:
        while (event := child.event(0.1)) is None:
            self._show.update(self.history)
        return event


def _unexpected(child: Child) -> JobFailed:
    return JobFailed(f"a process of the demo ended unexpectedly; its log {child.log} ends so:\n{child.last_words()}")


def _kill_busy_worker(driver: int, within_s: float = 0.3) -> list[int]:
    """Kill a Python worker of a driver that is at work right now; give its id, or nothing if all were idle."""
    workers = python_workers(driver)
    deadline = time.monotonic() + within_s
    while workers and time.monotonic() < deadline:
        for worker in workers:
            now = look(worker.id)
            if now is not None and now.running and now.started == worker.started and kill(worker.id):
                return [worker.id]
        # Far shorter than a task, so that what is found at work still is when the signal comes.
        time.sleep(0.001)
    return []


def _crashed(log: Path) -> bool:
    return _CRASHED in log.read_text(errors="replace")


def _batch_under_way(checkpoint: Path) -> bool:
    """Tell whether Spark had begun a micro-batch that it had not done with."""
    begun, done = (
        {file.name for file in (checkpoint / "spark" / side).glob("*") if file.name.isdigit()}
        for side in ("offsets", "commits")
    )
    return bool(begun - done)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a polite request to end do what Ctrl-C does, so that everything started is ended too."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
