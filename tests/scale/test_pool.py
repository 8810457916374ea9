"""The pool of executors, on a cluster in simulated time: it follows instances, never flaps, and leaves hosts first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._migrate.berths import Berths
from ferryman._model.errors import InvalidConfiguration
from ferryman._scale.pool import Ask, ExecutorPool, GiveBack, Instruction, KeepTo, Room, Seen
from ferryman._scale.pool_options import Pool


@dataclass
class Cluster:
    """Hosts with an executor each, which come a while after they were asked for, as long as there is room."""

    pool: ExecutorPool
    room: int = 10
    comes_after_s: float = 3.0
    instances: int = 1
    there: list[str] = field(default_factory=lambda: ["h0"])
    open: frozenset[str] | None = None
    at_s: float = 0.0
    wanted: int = 1
    due_s: float = 0.0
    done: list[tuple[float, Instruction]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.berths = Berths().settled(self.instances, self._rooms)
        self.made = len(self.there)

    @property
    def _rooms(self) -> dict[str, int]:
        return dict.fromkeys(self.there, 1)

    def rescale(self, instances: int) -> None:
        self.instances = instances
        self.berths = Berths().settled(instances, self._rooms, open=self.open)

    def lose(self, host: str) -> None:
        self.there.remove(host)
        self.due_s = self.at_s + self.comes_after_s
        self.berths = self.berths.settled(self.instances, self._rooms, open=self.open)

    def run(self, seconds: float, changing: bool = False, every_s: float = 0.5) -> None:
        until_s = self.at_s + seconds
        while self.at_s < until_s:
            self.at_s += every_s
            while len(self.there) < min(self.wanted, self.room) and self.at_s >= self.due_s:
                self.there.append(f"h{self.made}")
                self.made += 1
            self._look(changing)

    def _look(self, changing: bool) -> None:
        seen = Seen(
            at_s=self.at_s,
            instances=self.instances,
            executors=self._rooms,
            occupied=Counter(self.berths.hosts),
            open=self.open,
            changing=changing,
        )
        self.pool, instructions = self.pool.look(seen)
        for instruction in instructions:
            self.done.append((self.at_s, instruction))
            match instruction:
                case Ask(executors):
                    if executors > self.wanted:
                        self.due_s = self.at_s + self.comes_after_s
                    self.wanted = executors
                case KeepTo(hosts):
                    assert not changing
                    self.open, self.berths = hosts, self.berths.on(hosts, self._rooms)
                case GiveBack(hosts, left):
                    assert not changing
                    assert not hosts.keys() & set(self.berths.hosts), "something is there"
                    self.there = [host for host in self.there if host not in hosts]
                    self.wanted = left
                    assert len(self.there) == left

    def asked(self) -> list[int]:
        return [done.executors for _, done in self.done if isinstance(done, Ask)]


def of(options: Pool, **values: object) -> Cluster:
    return Cluster(ExecutorPool(options=options), **values)  # type: ignore[arg-type]


def test_executors_come_before_the_instances_they_are_for_and_go_after_them() -> None:
    cluster = of(Pool(max=3, instances_each=1))
    cluster.run(5)
    assert cluster.asked() == []

    cluster.pool = cluster.pool.await_room(3)
    cluster.run(1)
    assert cluster.pool.room_for(3) is None
    cluster.run(5)
    assert cluster.pool.room_for(3) == Room(3)
    assert cluster.open == {"h0", "h1", "h2"}

    cluster.rescale(3)
    cluster.pool = cluster.pool.await_room(None)
    cluster.run(60)
    assert set(cluster.berths.hosts) == {"h0", "h1", "h2"}
    assert cluster.asked() == [3]

    cluster.rescale(1)
    cluster.run(9)
    assert len(cluster.there) == 3, "more load may come back any moment"
    cluster.run(5)
    assert cluster.there == ["h0"]


def test_instances_leave_a_host_before_it_is_given_back() -> None:
    cluster = of(Pool(max=4, instances_each=2), there=["h0", "h1", "h2", "h3"], instances=4)
    cluster.run(30)

    kinds = [type(done) for _, done in cluster.done]
    assert kinds == [KeepTo, KeepTo, GiveBack]
    assert sorted(Counter(cluster.berths.hosts).values()) == [2, 2]
    assert len(cluster.there) == 2


def test_what_is_not_given_is_asked_for_again_later_each_time_and_the_job_goes_on_with_what_there_is() -> None:
    cluster = of(Pool(max=5, instances_each=1, patience="10 seconds"), room=2)
    cluster.pool = cluster.pool.await_room(5)
    cluster.run(3600, every_s=2)

    asks = [(at, done.executors) for at, done in cluster.done if isinstance(done, Ask)]
    # What was not given is not asked for any more, until it is again.
    assert [executors for _, executors in asks[:4]] == [5, 2, 5, 2]
    again = [at for at, executors in asks if executors == 5]
    gaps = [later - earlier for earlier, later in pairwise(again)]
    assert gaps == sorted(gaps)
    assert 30 < gaps[0] < 50
    assert gaps[-1] > 600
    assert len(cluster.there) == 2, "what came is kept"

    cluster.room = 5
    cluster.run(700)
    assert cluster.pool.room_for(5) == Room(5)
    assert not cluster.pool.refused


def test_after_a_refusal_there_is_room_for_what_there_is_and_later_for_more() -> None:
    cluster = of(Pool(max=5, instances_each=2, patience="10 seconds"), room=2)
    cluster.run(1)
    assert cluster.pool.most_instances == 10
    cluster.pool = cluster.pool.await_room(10)
    cluster.run(15)

    assert cluster.pool.most_instances == 4
    room = cluster.pool.room_for(10)
    assert room == Room(4, str(cluster.pool))
    assert "2 of 5 executors are there: the cluster gives no more, and is asked again in" in str(cluster.pool)
    # Nobody wants more any more, and it is still so that there is none.
    cluster.pool = cluster.pool.await_room(None)
    cluster.rescale(4)
    cluster.run(10)
    assert cluster.pool.most_instances == 4
    assert len(cluster.there) == 2, "what came is used"
    cluster.run(60)
    assert cluster.pool.most_instances == 10


def test_an_executor_that_is_lost_is_asked_for_again() -> None:
    cluster = of(Pool(max=3, instances_each=1), there=["h0", "h1", "h2"], instances=3, wanted=3)
    cluster.run(2)
    cluster.lose("h1")
    cluster.run(10)

    assert cluster.asked() == [3]
    assert set(cluster.berths.hosts) == {"h0", "h2", "h3"}


def test_nothing_moves_and_nothing_goes_while_a_plan_is_under_way() -> None:
    cluster = of(Pool(max=3, instances_each=1), there=["h0", "h1", "h2"])
    cluster.run(60, changing=True)
    assert cluster.done == []

    cluster.run(30)
    assert cluster.there == ["h0"]


@pytest.mark.parametrize(("shared", "given"), [(False, GiveBack({"b": 2}, 3)), (True, GiveBack({"a": 2, "b": 2}, 1))])
def test_executors_of_one_host_go_together_unless_they_share_a_home(shared: bool, given: GiveBack) -> None:
    pool, one = ExecutorPool(options=Pool(max=4, instances_each=1, give_back_after=0)), frozenset("a")
    seen = Seen(at_s=1.0, instances=1, executors={"a": 3, "b": 2}, occupied={"a": 1}, shared=shared)
    pool, (kept,) = pool.look(seen)
    assert kept == KeepTo(one)
    _, found = pool.look(replace(seen, at_s=2.0, open=one))
    assert found == (given,)


def test_what_has_come_and_is_not_warm_yet_is_waited_for_before_it_is_said_for_how_many_there_is_room() -> None:
    pool = ExecutorPool(options=Pool(max=3, instances_each=1, patience=10)).await_room(3)
    seen = Seen(at_s=0.0, instances=1, executors={"a": 1}, occupied={"a": 1}, open=frozenset("ab"))
    for at_s in (0.0, 5.0, 10.0):
        pool, _ = pool.look(replace(seen, at_s=at_s, cold=1))
    assert pool.refused
    assert pool.room_for(3) is None
    warm, _ = pool.look(replace(seen, at_s=12.0, executors={"a": 1, "b": 1}))
    assert warm.room_for(3) == Room(2, str(warm))
    never, _ = pool.look(replace(seen, at_s=20.0, cold=1))
    assert never.room_for(3) == Room(1, str(never))


@pytest.mark.parametrize("cold", [0, 1])
def test_executors_that_are_there_and_never_open_are_not_waited_for_for_ever(cold: int) -> None:
    pool = ExecutorPool(options=Pool(max=3, instances_each=1, patience=10)).await_room(2)
    executors = {"a": 1} if cold else {"a": 1, "b": 1}
    seen = Seen(at_s=0.0, instances=1, executors=executors, cold=cold, occupied={"a": 1}, open=frozenset("a"))
    for at_s in (0.0, 10.0, 19.0):
        pool, _ = pool.look(replace(seen, at_s=at_s))
        assert pool.room_for(2) is None
    # A plan keeps hosts from being opened, so its time does not count.
    pool, _ = pool.look(replace(seen, at_s=100.0, changing=True))
    pool, _ = pool.look(replace(seen, at_s=101.0))
    assert pool.room_for(2) is None
    pool, _ = pool.look(replace(seen, at_s=121.0))
    assert pool.room_for(2) == Room(1, "2 of 2 executors are there, and only 1 of them is open to instances")
    # Whoever asks anew waits anew.
    pool = pool.await_room(None).await_room(2)
    pool, _ = pool.look(replace(seen, at_s=122.0))
    assert pool.room_for(2) is None


def test_hosts_that_are_not_warm_are_neither_used_nor_given_back() -> None:
    pool = ExecutorPool(options=Pool(max=2, instances_each=1, give_back_after=0)).await_room(2)
    seen = Seen(at_s=1.0, instances=1, executors={"a": 1}, cold=1, occupied={"a": 1})
    pool, (kept,) = pool.look(seen)
    assert kept == KeepTo(frozenset("a"))
    assert pool.room_for(2) is None


def test_a_clock_that_goes_back_stops_nothing() -> None:
    cluster = of(Pool(max=3, instances_each=1, patience="10 seconds"), room=1, at_s=10_000.0)
    cluster.pool = cluster.pool.await_room(3)
    cluster.run(20)
    assert cluster.pool.refused

    cluster.at_s, cluster.room, cluster.due_s = 0.0, 3, 0.0
    cluster.run(20)
    assert cluster.pool.room_for(3) == Room(3)


STEPS = st.lists(
    st.tuples(st.sampled_from(["rescale", "await", "lose", "room", "run", "plan", "back"]), st.integers(0, 9)),
    max_size=25,
)


@settings(max_examples=50)
@given(steps=STEPS, least=st.integers(1, 3), more=st.integers(0, 5), each=st.integers(1, 3))
def test_whatever_happens_it_keeps_its_limits_and_comes_to_rest(
    steps: list[tuple[str, int]], least: int, more: int, each: int
) -> None:
    options = Pool(min=least, max=least + more, instances_each=each, patience=5)
    cluster = of(options)
    for what, number in steps:
        if what == "rescale":
            cluster.rescale(number + 1)
        elif what == "await":
            cluster.pool = cluster.pool.await_room(number or None)
        elif what == "lose" and len(cluster.there) > 1:
            cluster.lose(cluster.there[number % len(cluster.there)])
        elif what == "room":
            cluster.room = number + 1
        elif what == "back":
            cluster.at_s -= 5 * number
            cluster.due_s = 0.0
        cluster.run(4 * number, changing=what == "plan")
    cluster.room = 10
    cluster.pool = cluster.pool.await_room(None)
    cluster.run(1300, every_s=5)

    assert all(1 <= executors <= least + more for executors in cluster.asked())
    needed = options.executors_for(cluster.instances, None)
    assert len(cluster.there) == needed
    assert set(cluster.berths.hosts) <= (cluster.open or frozenset())
    settled = len(cluster.done)
    cluster.run(1300, every_s=5)
    assert len(cluster.done) == settled, "it goes to and fro"


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        Pool(min=True, max="4", instances_each=0, patience="-1 s", give_back_after="2 days")  # type: ignore[arg-type]
    assert all(name in raised.value.message for name in ("min", "max", "instances_each", "patience", "give_back_after"))
    with pytest.raises(InvalidConfiguration, match="less than min=3"):
        Pool(min=3, max=2)
