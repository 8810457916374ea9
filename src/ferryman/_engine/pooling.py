"""The thread that looks after the pool: what there is it tells the pool, and what that wants done it does.

Nothing that goes wrong here ends the job: it goes on with the executors it has. Calls `_scale`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ferryman._model.errors import InvalidPlan, PlanUnderWay
from ferryman._scale.pool import Ask, ExecutorPool, GiveBack, Instruction, KeepTo, Room, Seen
from ferryman._scale.pool_options import Pool

log = logging.getLogger("ferryman")

# How often it looks.
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class PoolControls:
    """What the pool needs of a job and its cluster.

    Attributes
    ----------
    look
        Tells what there is.
    ask
        Asks the cluster for so many executors in all.
    keep_to
        Has instances on some hosts alone; refused while a plan is under way.
    give_back
        Gives back so many executors of each of some hosts, between two epochs; so many stay.
    """

    look: Callable[[], Seen]
    ask: Callable[[int], object]
    keep_to: Callable[[frozenset[str]], object]
    give_back: Callable[[Mapping[str, int], int], object]


class Pooling:
    """Look after the executors of a job.

    Parameters
    ----------
    options
        What the user has chosen.
    controls
        The job and its cluster.
    """

    def __init__(self, options: Pool, controls: PoolControls) -> None:
        self._controls = controls
        self._pool = ExecutorPool(options=options)
        # Guards the pool: the autoscaler says how many instances there are going to be.
        self._changed = threading.Lock()
        self._wake = threading.Event()
        # What went wrong the last time: it is said once.
        self._told = ""
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="ferryman-pool", daemon=True)
        self._thread.start()

    def room_for(self, instances: int) -> Room | None:
        """Tell for how many of so many instances there is room; None while their executors are waited for."""
        with self._changed:
            room = self._pool.room_for(instances)
            if self._pool.awaited != (instances if room is None else None):
                self._pool = self._pool.await_room(instances if room is None else None)
                self._wake.set()
            return room

    def forget(self) -> None:
        """Learn that there are not going to be other instances than there are."""
        with self._changed:
            self._pool = self._pool.await_room(None)

    @property
    def most_instances(self) -> int | None:
        """Give for how many instances there can be room; None while nothing is known."""
        return self._pool.most_instances

    def close(self) -> None:
        """Ask for nothing any more."""
        self._ended = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_LOOK_S)

    def __str__(self) -> str:
        return str(self._pool)

    def _work(self) -> None:
        while not self._ended:
            try:
                self._look()
                self._told = ""
            except Exception as error:
                if self._told != str(error):
                    self._told = str(error)
                    log.warning("the pool could not look: %s", error, exc_info=log.isEnabledFor(logging.DEBUG))
            self._wake.wait(_LOOK_S)
            self._wake.clear()

    def _look(self) -> None:
        seen = self._controls.look()
        with self._changed:
            before = self._pool
            self._pool, instructions = before.look(seen)
            if self._pool.refusals == 1 and not before.refusals:
                log.warning("%s. The job goes on with those.", self._pool)
        for wanted in instructions:
            if not self._ended:
                self._do(wanted)

    def _do(self, wanted: Instruction) -> None:
        match wanted:
            case Ask(executors):
                log.info("the cluster is asked for %d executors in all", executors)
                self._controls.ask(executors)
            case KeepTo(hosts):
                try:
                    self._controls.keep_to(hosts)
                except (InvalidPlan, PlanUnderWay) as error:
                    log.debug("instances stay where they are: %s", error)
            case GiveBack(hosts, left):
                log.info("executors on %s are given back", ", ".join(sorted(hosts)))
                self._controls.give_back(hosts, left)
