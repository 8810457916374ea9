"""The thread that feeds the autoscaler after epochs, and does what it wants done.

It is told of an epoch when that is over, so no epoch waits for it; and nothing that goes wrong here ends the job. Calls
`_scale`, and asks for changes as a user does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ferryman._engine.progress import EpochProgress
from ferryman._log.files.decision_log import DecisionLog
from ferryman._migrate.reconfiguration import Preview, Reconfiguration
from ferryman._model.errors import FerrymanError
from ferryman._scale.autoscaler import Autoscaler
from ferryman._scale.autoscaler_events import Behind, Changed, Committed, Event, Fewer, Keep, Quiet, Refused, Rescale
from ferryman._scale.bottleneck import Finding
from ferryman._scale.decision import Decision
from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.options import Autoscale
from ferryman._scale.pool import Room

log = logging.getLogger("ferryman")

# How often it looks around where no epoch ends.
_LOOK_S = 1.0
# So many epochs may wait to be looked at; of more, the oldest are a hole.
_MOST_WAITING = 1000
_KEPT = 500
# What Spark needs to run a job beside its tasks, by a shuffle: sinks write meanwhile, so that is not theirs.
_SPARK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class JobControls:
    """What the autoscaler needs of a job.

    Attributes
    ----------
    rescale, preview
        Change the number of instances, and say what that would take.
    idle
        Whether no epoch is under way.
    backlog
        How many rows the source still has; None where it does not tell.
    disturbed
        Whether a change is under way.
    slots
        How many tasks can run at the same time; None if not known.
    groups
        How many key groups there are: no more instances than that.
    room_for
        For how many of so many instances there are executors; None while these are waited for.
    most
        For how many instances there could be executors; None where nobody asks for any.
    """

    rescale: Callable[[int], Reconfiguration]
    preview: Callable[[int], Preview]
    idle: Callable[[], bool]
    backlog: Callable[[], int | None]
    disturbed: Callable[[], bool]
    slots: Callable[[], int | None]
    groups: int
    room_for: Callable[[int], Room | None] = Room
    most: Callable[[], int | None] = lambda: None


class Autoscaling:
    """Have a job choose its number of instances by itself.

    Parameters
    ----------
    options
        What the user has chosen.
    controls
        The job.
    kept
        Where decisions are kept.
    """

    def __init__(self, options: Autoscale, controls: JobControls, kept: DecisionLog) -> None:
        self._controls = controls
        self._kept = kept
        self._machine = Autoscaler(options=self._possible(options))
        self._decisions: deque[Decision] = deque(maxlen=_KEPT)
        self._epochs: deque[tuple[float, EpochProgress, bool]] = deque(maxlen=_MOST_WAITING)
        self._chosen: Autoscale | None = None
        self._change: Reconfiguration | None = None
        # The change that waits for executors.
        self._waiting: Rescale | None = None
        self._told_backlog: int | None = None
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="ferryman-autoscale", daemon=True)
        self._thread.start()

    # -- for the job -----------------------------------------------------------------------------------

    def committed(self, progress: EpochProgress) -> None:
        """Learn of an epoch; what follows from it is thought about on the own thread."""
        self._epochs.append((time.monotonic(), progress, self._controls.disturbed()))
        self._wake.set()

    def choose(self, options: Autoscale) -> None:
        """Go by other options from now on; what was learned stays."""
        self._chosen = self._possible(options)
        self._wake.set()

    def close(self) -> None:
        """Decide nothing any more."""
        self._ended = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_LOOK_S)

    @property
    def options(self) -> Autoscale:
        """Give what it goes by."""
        return self._chosen or self._machine.options

    @property
    def decisions(self) -> list[Decision]:
        """List the decisions of this run; of very many, the last."""
        return list(self._decisions)

    @property
    def finding(self) -> Finding:
        """Tell what holds the job back."""
        return self._machine.finding

    def __str__(self) -> str:
        last = self.decisions[-1] if self._decisions else None
        dry = " (dry run)" if self.options.dry_run else ""
        what = f"autoscaling{dry}, {self.options.min} to {self.options.max} instances: "
        return f"{what}{last or 'nothing was decided yet'}. What holds the job back: {self.finding}."

    # -- the thread ------------------------------------------------------------------------------------

    def _possible(self, options: Autoscale) -> Autoscale:
        most = self._controls.groups
        return replace(options, min=min(options.min, most), max=min(options.max, most))

    def _work(self) -> None:
        while True:
            self._wake.wait(_LOOK_S)
            self._wake.clear()
            if self._ended:
                return
            try:
                self._look()
            except Exception as error:
                # The job goes on with the instances it has.
                log.warning("the autoscaler could not decide: %s", error, exc_info=log.isEnabledFor(logging.DEBUG))

    def _look(self) -> None:
        """Take in what has happened since the last look."""
        if self._chosen is not None:
            self._machine, self._chosen = replace(self._machine, options=self._chosen), None
        slots = self._controls.slots() if self._epochs else None
        room = self._controls.most() if self._epochs else None
        while self._epochs:
            at_s, progress, disturbed = self._epochs.popleft()
            self._tell(Committed(metrics_of(progress, at_s, slots=slots, room=room, disturbed=disturbed)))
        now_s = time.monotonic()
        self._tell_backlog(now_s)
        if (waiting := self._waiting) is not None:
            self._waiting = None
            self._rescale(waiting)
        elif self._change is not None and self._change.over:
            self._tell(self._outcome(self._change, now_s))
            self._change = None
        elif self._controls.idle() and not self._epochs:
            self._tell(Quiet(now_s, time.time_ns() // 1_000_000))

    def _tell_backlog(self, now_s: float) -> None:
        backlog = self._controls.backlog()
        if backlog is not None:
            self._tell(Behind(now_s, backlog))

    def _outcome(self, change: Reconfiguration, now_s: float) -> Event:
        took = change.took
        if took is None:
            return Refused(now_s, f"the change was given up: {change.reason}")
        return Changed(now_s, took.seconds, change.moved_bytes)

    def _tell(self, event: Event) -> None:
        self._machine, instructions = self._machine.handle(event)
        for wanted in instructions:
            if isinstance(wanted, Keep):
                self._keep(wanted.decision)
            elif isinstance(wanted, Rescale):
                self._rescale(wanted)

    def _rescale(self, wanted: Rescale) -> None:
        try:
            room = self._controls.room_for(wanted.instances)
            if room is None:
                self._waiting = wanted
                return
            if room.instances < wanted.instances:
                self._tell(Fewer(time.monotonic(), room.instances, room.why))
                return
            if wanted.most_bytes is not None:
                between = self._controls.preview(wanted.instances).between
                if between > wanted.most_bytes:
                    why = f"{between:,} bytes would go from host to host, and {wanted.most_bytes:,} may in this hour"
                    self._tell(Refused(time.monotonic(), why))
                    return
            self._change = self._controls.rescale(wanted.instances)
        except FerrymanError as error:
            self._tell(Refused(time.monotonic(), error.message))
        except Exception as error:
            self._tell(Refused(time.monotonic(), f"{type(error).__name__}: {error}"))

    def _keep(self, decision: Decision) -> None:
        self._decisions.append(decision)
        log.log(logging.INFO if decision.changes else logging.DEBUG, "%s", decision)
        try:
            self._kept.append(decision.json())
        except (FerrymanError, OSError) as error:
            log.warning("a decision of the autoscaler could not be kept: %s", error)


def metrics_of(
    progress: EpochProgress,
    ended_s: float,
    *,
    slots: int | None = None,
    room: int | None = None,
    disturbed: bool = False,
) -> EpochMetrics:
    """Give what an epoch tells the autoscaler, of what it tells a user.

    Parameters
    ----------
    progress
        The epoch.
    ended_s
        When it ended, by a clock that only goes forward.
    slots
        How many tasks could run at the same time.
    room
        For how many instances there could be executors, if somebody asks for some.
    disturbed
        Whether a change was under way.
    """
    operators = {
        name: OperatorMetrics(
            tuple(said["instance_rows"]), tuple(ms / 1000 for ms in said["busy_ms"]), said["heaviest"]
        )
        for name, said in progress.operators.items()
    }
    rebuilt = any(said["rebuilt"] for said in progress.operators.values())
    late = None
    if progress.times is not None:
        # They are evenly spread, so the first but one is about that of the oldest of a hundred.
        late = float(progress.committed_ms - progress.times[1][0])
    return EpochMetrics(
        epoch=progress.epoch,
        began_s=ended_s - progress.duration_ms / 1000,
        ended_s=ended_s,
        time_ms=progress.committed_ms,
        instances=max((len(operator.busy_s) for operator in operators.values()), default=1) or 1,
        rows=progress.rows,
        operators=operators,
        sinks_s=_sinks_s(progress.phases_ms, operators, slots, by_shuffle=progress.route == "shuffle"),
        delta_bytes=progress.delta_bytes,
        late_ms=late,
        slots=slots,
        room=room,
        express=progress.route == "express",
        disturbed=disturbed or rebuilt,
    )


def recorded(progress: Iterable[EpochProgress]) -> list[EpochMetrics]:
    """Give what the epochs of a job told, to try a policy on, or to make an engine model of.

    Their times are those of the clock on the wall, so epochs should be of one run.
    """
    return [
        metrics_of(epoch, epoch.committed_ms / 1000, disturbed=number == 0) for number, epoch in enumerate(progress)
    ]


def _sinks_s(
    phases_ms: Mapping[str, float],
    operators: Mapping[str, OperatorMetrics],
    slots: int | None,
    *,
    by_shuffle: bool,
) -> float:
    """Give for how long sinks held an epoch up: by a shuffle tasks run while they write, and these do not count."""
    writing = phases_ms.get("sinks", 0.0) / 1000
    if by_shuffle:
        writing -= sum(operator.longest_s(slots) for operator in operators.values()) + _SPARK_S
    return max(0.0, writing) + phases_ms.get("tell", 0.0) / 1000
