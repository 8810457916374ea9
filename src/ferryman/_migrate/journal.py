"""The events of a plan as they came, and the machine that they lead to: the only place where a machine changes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ferryman._migrate.machine import Migration
from ferryman._migrate.plan import Plan
from ferryman._migrate.plan_events import Event, Instruction
from ferryman._migrate.reconfiguration import Reconfiguration

# More events than a plan of the most key groups has; those of one that takes for ever must not take all memory.
_MOST_EVENTS = 1 << 17


class Journal:
    """Take what happens to a plan, keep it, and let the machine go on.

    Parameters
    ----------
    plan
        The plan that begins.
    shown
        What the user sees of it; it is told where the machine stands after every event.
    changed
        The lock that events are taken under, notified after each.
    do
        Does what the machine wants done, with the lock held.
    keeps_events
        Whether the events are kept when the plan is over: for tests, which tell them again.

    Attributes
    ----------
    machine
        Where the plan stands.
    """

    def __init__(
        self,
        plan: Plan,
        shown: Reconfiguration,
        changed: threading.Condition,
        do: Callable[[Instruction], None],
        *,
        keeps_events: bool = False,
    ) -> None:
        self.shown = shown
        self.changed = changed
        self._do = do
        self._keeps_events = keeps_events
        self._start = self._machine = Migration.of(plan)
        self._events: deque[Event] = deque()

    @property
    def machine(self) -> Migration:
        """Give where the plan stands."""
        return self._machine

    @property
    def over(self) -> bool:
        """Tell whether the plan is done or aborted."""
        return self._machine.over

    def tell(self, event: Event) -> None:
        """Take an event, and have done what follows from it."""
        with self.changed:
            self._events.append(event)
            if len(self._events) > _MOST_EVENTS:
                self._start = self._start.after(self._events.popleft())
            self._machine, wanted = self._machine.handle(event)
            if self._machine.over and not self._keeps_events:
                self._start = self._machine
                self._events.clear()
            self.shown.show(self._machine)
            for instruction in wanted:
                self._do(instruction)
            self.changed.notify_all()

    def events(self) -> tuple[Migration, tuple[Event, ...]]:
        """Give a machine and the events since; `replay` makes of them the one there is now."""
        with self.changed:
            return self._start, tuple(self._events)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something is so, or the plan is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.over or condition())
