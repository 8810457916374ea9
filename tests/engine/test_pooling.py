"""The thread of the pool: it does what the pool wants, and nothing that goes wrong ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from until import until

from ferryman._engine.pooling import PoolControls, Pooling
from ferryman._model.errors import PlanUnderWay
from ferryman._scale.pool import Room, Seen
from ferryman._scale.pool_options import Pool


class World:
    """A cluster and a job on it, on host a, with as many executors as it is asked for: all on host b."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.open: frozenset[str] | None = None
        self.given_back: list[Mapping[str, int]] = []
        self.there = 1
        self.at_s = 0.0
        self.busy = 1
        self.broken = False

    def look(self) -> Seen:
        if self.broken:
            raise RuntimeError("no JVM")
        self.at_s += 1.0
        there = {"a": 1, "b": self.there - 1} if self.there > 1 else {"a": 1}
        return Seen(at_s=self.at_s, instances=1, executors=there, occupied={"a": 1}, open=self.open)

    def ask(self, executors: int) -> None:
        self.asked.append(executors)
        self.there = executors

    def keep_to(self, hosts: frozenset[str]) -> None:
        if self.busy:
            self.busy -= 1
            raise PlanUnderWay("later.")
        self.open = hosts

    def give_back(self, hosts: Mapping[str, int], left: int) -> None:
        self.given_back.append(hosts)
        self.there = left


@contextmanager
def running(world: World) -> Iterator[Pooling]:
    controls = PoolControls(look=world.look, ask=world.ask, keep_to=world.keep_to, give_back=world.give_back)
    pooling = Pooling(Pool(max=3, instances_each=1, give_back_after=2), controls)
    try:
        yield pooling
    finally:
        pooling.close()


def look_until(pooling: Pooling, condition: object, what: str) -> None:
    """Have it look again and again."""

    def found() -> bool:
        pooling._wake.set()
        return bool(condition())  # type: ignore[operator]

    until(found, what)


def test_executors_are_asked_for_opened_and_given_back() -> None:
    world = World()
    with running(world) as pooling:
        look_until(pooling, lambda: world.open == {"a"}, "the first hosts, though a plan was under way")
        look_until(pooling, lambda: pooling.room_for(3) == Room(3), "room")
        assert world.asked == [3]
        assert world.open == {"a", "b"}
        # There is room, and nobody comes: it is given back.
        look_until(pooling, lambda: world.given_back, "what is not needed to go")
        assert world.given_back == [{"b": 2}]
        assert world.open == {"a"}
    assert "ferryman-pool" not in {thread.name for thread in threading.enumerate()}


def test_whatever_goes_wrong_it_goes_on_and_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.broken = True
    with running(world) as pooling:
        assert pooling.room_for(2) is None
        look_until(pooling, lambda: "no JVM" in caplog.text, "a warning")
        world.broken = False
        look_until(pooling, lambda: world.asked, "a look")
    assert caplog.text.count("no JVM") == 1
