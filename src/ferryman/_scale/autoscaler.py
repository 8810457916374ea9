"""The autoscaler as a pure state machine: told what happened, it says what is to be done.

Every second or so it asks the policy. A wish that lasts, and that no guard objects to, becomes a decision; then it
waits until it learns what became of the change, and measures what that brought before it goes by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ferryman._scale.autoscaler_events import (
    Behind,
    Changed,
    Committed,
    Event,
    Fewer,
    Instruction,
    Keep,
    Quiet,
    Refused,
    Rescale,
)
from ferryman._scale.bottleneck import Finding, find
from ferryman._scale.decision import OUTCOMES, Decision, figures
from ferryman._scale.epoch_metrics import EpochMetrics
from ferryman._scale.guards import Guards
from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.metrics_window import MetricsWindow
from ferryman._scale.options import Autoscale
from ferryman._scale.policies import Wish
from ferryman._scale.scalability import Gain
from ferryman._scale.wishes import Fault, Wishes, ask

# How often the policy is asked.
_EVERY_S = 1.0
# So many epochs after a change tell nothing: workers are cold, and state is looked at for the first time.
_COLD_EPOCHS = 2
# A gain is learned only from a job that has something to do.
_TELLING = 0.2
# What is usual is looked for over so many windows.
_LONGER = 12
# An epoch that takes so many times as long as its rows took to come is a sign that the job falls behind.
_FALLS_BEHIND = 1.5
# The same thing is not said again for so long.
_SAME_S = 600.0


@dataclass(frozen=True)
class Trial:
    """A change whose gain is not known yet: what was done per second of work before it, and what was expected then."""

    before: int
    after: int
    rate_before: float
    expected: float


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """Where an autoscaler stands.

    Attributes
    ----------
    options
        What the user has chosen.
    history
        What epochs told.
    wishes
        What the policy wished since the last change.
    guards
        What is remembered of earlier changes.
    changing
        How many instances there are going to be, while a change is under way.
    changed_from
        How many there were when the last change began.
    trial
        The last change, while it is not known what it brought.
    cold
        How many epochs tell nothing yet.
    asked_s
        When the policy was asked for the last time.
    said
        What was said of late, and when, so that it is not said every second.
    """

    options: Autoscale
    history: MetricsHistory = field(default_factory=MetricsHistory)
    wishes: Wishes = field(default_factory=Wishes)
    guards: Guards = field(default_factory=Guards)
    changing: int | None = None
    changed_from: int = 0
    trial: Trial | None = None
    cold: int = _COLD_EPOCHS
    asked_s: float = float("-inf")
    said: tuple[tuple[float, str], ...] = ()

    # -- what is known now ---------------------------------------------------------------------------

    @property
    def window(self) -> MetricsWindow | None:
        """Give the figures over the newest epochs."""
        return self.history.window(self.options.window_s)

    @property
    def finding(self) -> Finding:
        """Tell what holds the job back."""
        return find(self.window, self.history.window(_LONGER * self.options.window_s))

    # -- what happened -------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Autoscaler, tuple[Instruction, ...]]:
        """Learn what happened; give the machine after it, and what is to be done because of it."""
        match event:
            case Committed(metrics):
                return self._committed(metrics)._asked()
            case Quiet(at_s, time_ms):
                return replace(self, history=self.history.quiet(at_s, time_ms))._asked()
            case Behind(at_s, rows):
                return replace(self, history=self.history.behind(at_s, rows)), ()
            case Changed(at_s, took_s, bytes):
                return self._changed(at_s, took_s, bytes)
            case Refused(at_s, why):
                return self._refused(at_s, why)
            case Fewer(at_s, instances, why):
                return self._fewer(at_s, instances, why)

    def _committed(self, metrics: EpochMetrics) -> Autoscaler:
        machine = self
        before = self.history.epochs[-1] if self.history.epochs else None
        if before is not None and metrics.ended_s < before.began_s and not metrics.faulty:
            # The clock went back: nothing may wait for a time that is long to come.
            machine = replace(
                self, wishes=Wishes(), guards=self.guards.went_back(metrics.ended_s), asked_s=float("-inf"), said=()
            )
        by_other = before is not None and metrics.instances != before.instances and self.changing is None
        if by_other and not metrics.faulty and self.trial is None:
            # Somebody else has changed it: what was wished before that is of no use.
            machine = replace(machine, wishes=Wishes(), cold=_COLD_EPOCHS)
        # After a change, what is cold in an epoch that is long by itself is little of it.
        long = metrics.took_s >= self.options.window_s and self.guards.changed_s > float("-inf")
        cold = 0 if long else machine.cold
        if cold or self.changing is not None:
            metrics = replace(metrics, disturbed=True)
        cold = max(0, cold - 1) if machine.changing is None else machine.cold
        return replace(machine, history=machine.history.add(metrics), cold=cold)

    def _changed(self, at_s: float, took_s: float, bytes: int) -> tuple[Autoscaler, tuple[Instruction, ...]]:
        if self.changing is None:
            return self, ()
        window = self.window
        made = round(took_s * window.rate) if window is not None else 0
        decision = self._decision(
            "done",
            self.changed_from,
            self.changing,
            f"it took {took_s:.2f} s, and {bytes:,} bytes went from host to host",
        )
        after = replace(
            self,
            history=self.history.settled(at_s, made),
            guards=self.guards.changed(at_s, bytes),
            wishes=Wishes(),
            changing=None,
            cold=_COLD_EPOCHS,
        )
        return after, (Keep(decision),)

    def _refused(self, at_s: float, why: str) -> tuple[Autoscaler, tuple[Instruction, ...]]:
        if self.changing is None:
            return self, ()
        machine = replace(self, changing=None, trial=None, wishes=Wishes(), guards=self.guards.refused(at_s))
        return machine._say(self._decision("refused", self.history.instances, self.changing, why))

    def _fewer(self, at_s: float, instances: int, why: str) -> tuple[Autoscaler, tuple[Instruction, ...]]:
        """Go as far as there is room; not at all if that is no further."""
        before, options = self.history.instances, self.options
        if self.changing is None or not before < instances < self.changing:
            return self._refused(at_s, why)
        decision = self._decision("held", before, self.changing, f"{why}, so there are going to be {instances}")
        machine = replace(self, changing=instances, trial=None)
        return machine, (Keep(decision), Rescale(instances, self.guards.left(options.most_moved, at_s)))

    # -- deciding ------------------------------------------------------------------------------------

    def _asked(self) -> tuple[Autoscaler, tuple[Instruction, ...]]:
        """Ask the policy, if it is time to, and decide."""
        now_s = self.history.now_s
        if self.changing is not None or now_s - self.asked_s < _EVERY_S or not self.history.epochs:
            return self, ()
        machine = replace(self, asked_s=now_s)._learned()
        window = machine.window
        if window is None:
            return machine, ()
        options, instances = self.options, machine.history.instances
        # More than can run at the same time would only take turns; with a pool, more can be had.
        newest = machine.history.epochs[-1]
        slots = newest.slots if newest.room is None else newest.room
        most = options.max if slots is None else max(min(options.max, slots), instances, options.min)
        said = ask(options.chosen, machine.history, options.min, min(options.max, most))
        if isinstance(said, Fault):
            return machine._say(machine._decision("ignored", instances, instances, said.why))
        wish = Wish(min(options.max, max(options.min, instances)), "within the limits") if said is None else said
        patience_s = machine.guards.patience_s(options.scale_in_s)
        keep_s = max(patience_s, options.scale_out_s)
        machine = replace(machine, wishes=machine.wishes.add(machine._holds_since_s, wish, keep_s))
        chosen = machine.wishes.candidate(now_s, instances, options.scale_out_s, patience_s)
        return (machine, ()) if chosen is None else machine._decided(chosen, window)

    @property
    def _holds_since_s(self) -> float:
        """Give since when what is known now holds.

        An epoch that takes much longer than its rows took to come has lasted for as long as it took: to wait for
        another one like it would be to wait for one that is longer still.
        """
        epochs = self.history.epochs
        if len(epochs) > 1 and epochs[-1].took_s > _FALLS_BEHIND * (epochs[-1].began_s - epochs[-2].began_s):
            return epochs[-1].began_s
        return self.history.now_s

    def _learned(self) -> Autoscaler:
        """Learn what the last change has brought, once it shows."""
        window, trial = self.window, self.trial
        if window is None or trial is None:
            return self
        if window.instances != trial.after or window.capacity is None or window.utilisation < _TELLING:
            return self
        gain = Gain(trial.before, trial.after, trial.rate_before, window.capacity)
        guards = self.guards
        if trial.after > trial.before:
            guards = guards.gained(self.history.now_s, gain, trial.expected)
        return replace(self, trial=None, guards=guards, history=self.history.gained(gain))

    def _decided(self, wish: Wish, window: MetricsWindow) -> tuple[Autoscaler, tuple[Instruction, ...]]:
        """Follow a wish that has lasted, unless something speaks against it."""
        now_s, before, options = self.history.now_s, self.history.instances, self.options
        left = self.guards.left(options.most_moved, now_s)
        more = wish.instances > before
        against = self.guards.objection(now_s, more, window, self.finding, left, options.cool_down_s)
        if against:
            return self._say(self._decision("held", before, wish.instances, f"{wish.why}, but {against}"), against[:20])
        decision = self._decision("scale out" if more else "scale in", before, wish.instances, wish.why)
        if options.dry_run:
            return self._say(decision)
        trial = None
        if window.capacity is not None and window.utilisation >= _TELLING:
            expected = self.history.scalability.speedup(before, wish.instances) - 1
            trial = Trial(before, wish.instances, window.capacity, expected)
        machine = replace(
            self,
            changing=wish.instances,
            changed_from=before,
            trial=trial,
            guards=self.guards.begun(now_s, before, wish.instances, options.scale_in_s),
            said=(),
        )
        return machine, (Keep(decision), Rescale(wish.instances, left))

    def _decision(self, kind: str, before: int, after: int, why: str) -> Decision:
        return Decision(
            time_ms=max(0, self.history.time_ms),
            epoch=self.history.epochs[-1].epoch if self.history.epochs else 0,
            kind=kind,
            before=before,
            after=after,
            why=why,
            # What came of a change stands on nothing that was measured.
            bottleneck="" if kind in OUTCOMES else str(self.finding),
            figures={} if kind in OUTCOMES else figures(self.window, self.history.scalability.coefficient),
            dry_run=self.options.dry_run,
        )

    def _say(self, decision: Decision, topic: str = "") -> tuple[Autoscaler, tuple[Instruction, ...]]:
        """Have a decision kept, unless it was said a short while ago."""
        now_s = self.history.now_s
        topic = f"{decision.kind} {topic or decision.after}"
        recent = tuple((at, said) for at, said in self.said if now_s - _SAME_S < at <= now_s)
        if any(said == topic for _, said in recent):
            return self, ()
        return replace(self, said=(*recent, (now_s, topic))), (Keep(decision),)


def replay(start: Autoscaler, events: Iterable[Event]) -> tuple[Autoscaler, list[Decision]]:
    """Give the machine that events lead to, and what it decided on the way; the same every time."""
    machine, decisions = start, []
    for event in events:
        machine, instructions = machine.handle(event)
        decisions += [wanted.decision for wanted in instructions if isinstance(wanted, Keep)]
    return machine, decisions
