"""Carry out one fault: strike now, lift what lasts when it is over. Each kind of `chaos_schedule` has a function."""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import chaos_lines as lines
from bench.chaos_damage import Damage
from bench.chaos_hosts import Driver, Host, send, wake
from bench.chaos_job import GROUPS, HOT
from bench.chaos_schedule import Fault
from ferryman._model.errors import FerrymanError
from ferryman._serve import registry
from ferryman._serve.endpoint import ask

# What a fault was done to; after a yield it is lifted. Nothing was there to be hit where it is empty.
Strike = Generator[str, None, None]
_PLAN_S = 60.0


class NothingHit(Exception):
    """The fault could not be, for a reason that is no fault."""


@dataclass
class Target:
    """Whom a campaign may hit."""

    place: Path
    hosts: list[Host]
    driver: Driver
    damage: Damage


def _host(target: Target, fault: Fault) -> Host:
    return target.hosts[fault.of(len(target.hosts))]


def _killed(ids: list[int], where: str) -> Strike:
    reached = send(signal.SIGKILL, ids)
    yield f"{where}: {_named(reached)}" if reached else ""


def _named(ids: list[int]) -> str:
    return f"{'process' if len(ids) == 1 else 'processes'} {', '.join(map(str, ids))}"


def _stopped(ids: list[int], where: str) -> Strike:
    reached = send(signal.SIGSTOP, ids)
    try:
        yield f"{where}: {_named(reached)}" if reached else ""
    finally:
        wake(reached)


def _worker_killed(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    workers = host.python_workers()
    return _killed([workers[fault.number % len(workers)]] if workers else [], host.name)


def _executor_killed(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    return _killed(host.executors(), host.name)


def _state_host_killed(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    return _killed(host.state_hosts(), host.name)


def _host_killed(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    return _killed(host.everything(), host.name)


def _driver_killed(target: Target, fault: Fault) -> Strike:
    found = target.driver.process()
    return _killed([found.id] if found else [], "driver")


def _jvm_killed(target: Target, fault: Fault) -> Strike:
    found = target.driver.java()
    return _killed([found.id] if found else [], "JVM")


def _worker_stopped(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    return _stopped(host.python_workers(), host.name)


def _executor_stopped(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    return _stopped(host.executors(), host.name)


def _state_host_stopped(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    return _stopped(host.state_hosts(), host.name)


def _driver_stopped(target: Target, fault: Fault) -> Strike:
    return _stopped(target.driver.family(), "driver")


def _slowed(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    over = threading.Event()

    def throttle() -> None:
        while not over.is_set():
            held = send(signal.SIGSTOP, host.everything())
            over.wait(0.2)
            wake(held)
            over.wait(0.1)

    thread = threading.Thread(target=throttle, name="chaos-slowed", daemon=True)
    thread.start()
    try:
        yield host.name
    finally:
        over.set()
        thread.join()


def _checkpoint_full(target: Target, fault: Fault) -> Strike:
    sign = target.place / "full"
    sign.touch()
    try:
        yield "checkpoint and sinks"
    finally:
        sign.unlink()


def _host_full(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)

    def limit(size: int) -> list[int]:
        limited = []
        for id in host.python():
            with contextlib.suppress(ProcessLookupError):
                most = resource.prlimit(id, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(id, resource.RLIMIT_FSIZE, (most if size < 0 else size, most))
                limited.append(id)
        return limited

    limited = limit(4096)
    try:
        yield f"{host.name}: {_named(limited)}" if limited else ""
    finally:
        # Again, for those that were forked by one that was limited still.
        for _ in range(3):
            limit(-1)
            time.sleep(0.05)


def _muted(target: Target, fault: Fault, program: Any) -> Strike:
    host = _host(target, fault)
    muted = lines.Muted(host.everything, program)
    try:
        yield f"{host.name}: {muted.lines} lines"
    finally:
        muted.lift()


def _cut_off(target: Target, fault: Fault) -> Strike:
    return _muted(target, fault, lines.NOTHING)


def _losses(target: Target, fault: Fault) -> Strike:
    return _muted(target, fault, lines.some(1 / 3))


def _torn(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    torn = lines.tear(host.everything())
    yield f"{host.name}: {torn} lines" if torn else ""


def _state_lines_torn(target: Target, fault: Fault) -> Strike:
    host = _host(target, fault)
    over, torn = threading.Event(), [0]

    def tear() -> None:
        while not over.wait(0.05):
            torn[0] += lines.tear(host.state_hosts())

    if not host.state_hosts():
        yield ""
        return
    thread = threading.Thread(target=tear, name="chaos-torn", daemon=True)
    thread.start()
    try:
        yield host.name
    finally:
        over.set()
        thread.join()


def _clock(target: Target, fault: Fault) -> Strike:
    ahead = fault.kind == "clock ahead"
    set_clock(target.place, read_clock(target.place) + (1 if ahead else -1) * fault.much * 1000)
    yield f"by {fault.much} s"


def read_clock(place: Path) -> int:
    """Read by how many milliseconds the job's clock is ahead of the machine's."""
    return int((place / "clock").read_text())


def set_clock(place: Path, ahead_ms: int) -> None:
    """Set the job's clock."""
    (place / "clock.new").write_text(str(ahead_ms))
    (place / "clock.new").rename(place / "clock")


def _flipped(target: Target, fault: Fault) -> Strike:
    yield target.damage.flip(fault.kind.partition(" ")[0], fault.chance)


def _asked(request: str, **values: Any) -> str:
    """Have the running job change; tell what it said."""
    job = next(iter(registry.running()), None)
    if job is None:
        raise NothingHit("no job runs")
    try:
        answer = ask(job, request, _PLAN_S, **values)
    except FerrymanError as error:
        raise NothingHit(error.message.splitlines()[0][:150]) from error
    return str(answer.get("text") or f"{answer['kind']}: {answer['phase']}")


def _rescale(target: Target, fault: Fault) -> Strike:
    _asked("rescale", instances=fault.much, strategy="live")
    yield f"to {fault.much} instances"


def _hot_key_moved(target: Target, fault: Fault) -> Strike:
    yield _asked("move", keys=[HOT], operator="Trail", to=fault.much - 1, strategy="live")


def _groups_moved(target: Target, fault: Fault) -> Strike:
    first = fault.of(3)
    yield _asked("move", groups=list(range(first, GROUPS, 3)), to=fault.much - 1, strategy="live")


def _autoscaling(target: Target, fault: Fault) -> Strike:
    options = {"max": 6, "window": 2, "scale_in_after": 4, "cool_down": 2, "target": 0.3}
    said = _asked("autoscale", options=options)
    try:
        yield said
    finally:
        # Another driver may be there by now, or none.
        with contextlib.suppress(NothingHit):
            _asked("autoscale", off=True)


STRIKES: dict[str, Callable[[Target, Fault], Strike]] = {
    "worker killed": _worker_killed,
    "executor killed": _executor_killed,
    "state host killed": _state_host_killed,
    "host killed": _host_killed,
    "driver killed": _driver_killed,
    "driver's JVM killed": _jvm_killed,
    "worker stopped": _worker_stopped,
    "executor stopped": _executor_stopped,
    "state host stopped": _state_host_stopped,
    "driver stopped": _driver_stopped,
    "host slowed": _slowed,
    "checkpoint disk full": _checkpoint_full,
    "host disk full": _host_full,
    "host cut off": _cut_off,
    "line with losses": _losses,
    "lines torn": _torn,
    "state lines torn": _state_lines_torn,
    "clock ahead": _clock,
    "clock back": _clock,
    "delta flipped": _flipped,
    "snapshot flipped": _flipped,
    "manifest flipped": _flipped,
    "rescale": _rescale,
    "hot key moved": _hot_key_moved,
    "groups moved": _groups_moved,
    "autoscaling": _autoscaling,
}


@dataclass
class Struck:
    """A fault that came.

    Attributes
    ----------
    fault
        Which.
    at
        When, in seconds of the machine's clock.
    what
        What it was done to; empty where nothing was there to be hit.
    until
        When it was lifted.
    why_not
        Why nothing was hit, where that is known.
    error
        What is wrong with the campaign itself.
    """

    fault: Fault
    at: float
    what: str = ""
    until: float | None = None
    why_not: str = ""
    error: str = ""


class Striker:
    """Strike, and lift what lasts on a thread of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.struck: list[Struck] = []

    def strike(self, fault: Fault) -> None:
        """Carry a fault out; it may take a while, and the next one does not wait for it."""
        struck = Struck(fault, time.time())
        self.struck.append(struck)
        thread = threading.Thread(target=self._strike, args=(struck,), name=f"chaos-{fault.kind}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _strike(self, struck: Struck) -> None:
        try:
            with contextlib.closing(STRIKES[struck.fault.kind](self._target, struck.fault)) as going:
                struck.what = next(going)
                if struck.what:
                    self._over.wait(struck.fault.lasts_s)
        except NothingHit as nothing:
            struck.why_not = str(nothing)
        except Exception as error:
            struck.error = f"{type(error).__name__}: {error}"
        finally:
            struck.until = time.time()

    def end(self) -> None:
        """Lift all that lasts."""
        self._over.set()
        for thread in self._threads:
            thread.join(_PLAN_S)
        for host in self._target.hosts:
            wake(host.everything())
        wake(self._target.driver.family())
