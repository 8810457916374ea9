"""Which host each instance is tied to, as hosts come and go: only what was lost moves, and to who stands by for it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ferryman._migrate.berths import Berths, ring_after

HOSTS = "abcde"


def settled(instances: int, *hosts: str, standbys: int = 0) -> Berths:
    berths = Berths()
    for there in hosts:
        berths = berths.settled(instances, dict.fromkeys(there, 1), standbys)
    return berths


def test_instances_begin_evenly_spread() -> None:
    assert settled(6, "abcd").hosts == ("a", "b", "c", "d", "a", "b")
    # As the hosts have executors.
    assert Counter(Berths().settled(6, {"a": 2, "b": 1}).hosts) == {"a": 4, "b": 2}


def test_what_was_on_a_lost_host_is_spread_over_those_that_are_left_and_the_rest_stays() -> None:
    assert settled(8, "abcd", "acd").hosts == ("a", "a", "c", "d", "a", "c", "c", "d")


def test_what_was_on_a_lost_host_goes_to_the_one_that_stands_by() -> None:
    assert settled(8, "abcd", "acd", standbys=1).hosts == ("a", "c", "c", "d", "a", "c", "c", "d")
    assert settled(4, "abcd", "abc", standbys=1).hosts == ("a", "b", "c", "a")


def test_the_next_standby_takes_over_if_the_first_is_lost_too() -> None:
    assert settled(4, "abcd", "ad", standbys=2).hosts == ("a", "d", "d", "d")
    # One standby is gone with the host: it goes to who has the least.
    assert settled(4, "abcd", "ad", standbys=1).hosts == ("a", "a", "d", "d")


def test_a_host_that_comes_back_has_again_what_it_had() -> None:
    assert settled(4, "abcd", "acd", "abcd", standbys=1).hosts == ("a", "b", "c", "d")


def test_a_host_that_comes_gets_its_share_and_nothing_else_moves() -> None:
    before, after = settled(4, "ab"), settled(4, "ab", "abc")

    assert Counter(after.hosts) == {"a": 2, "b": 1, "c": 1} or Counter(after.hosts) == {"a": 1, "b": 2, "c": 1}
    assert sum(one != other for one, other in zip(before.hosts, after.hosts, strict=True)) == 1


def test_a_host_that_has_come_gets_nothing_while_it_is_cold() -> None:
    two = settled(4, "ab")
    cold = two.settled(4, {"a": 1, "b": 1, "c": 1}, cold="c")

    assert cold.hosts == two.hosts
    assert Counter(cold.settled(4, {"a": 1, "b": 1, "c": 1}).hosts)["c"] == 1
    # In place of a lost one: who stands by is sooner there; without, it may find on the disk what was left.
    assert two.settled(4, {"a": 1, "b": 1}, standbys=1, cold="b").hosts == ("a",) * 4
    assert two.settled(4, {"a": 1, "b": 1}, cold="b").hosts == two.hosts


def test_instances_come_to_no_host_that_is_not_open_and_leave_none_by_themselves() -> None:
    all_there = dict.fromkeys("abcd", 1)
    two = settled(4, "ab")

    assert two.settled(4, all_there, open="ab").hosts == two.hosts
    assert two.settled(4, all_there, open="bc").hosts[0::2] == two.hosts[0::2], "what leaves, leaves by a plan"
    assert Counter(Berths().settled(4, all_there, open="bd").hosts) == {"b": 2, "d": 2}
    lost = dict.fromkeys("bcd", 1)
    assert set(two.settled(4, lost, open="abd").hosts) == {"b", "d"}
    assert set(two.without_lost(lost, open="ab").hosts) == {"b"}
    assert set(two.settled(4, {"c": 1, "d": 1}, open="ab").hosts) == {"c", "d"}, "they have to be somewhere"


@given(
    st.integers(1, 12),
    st.sets(st.sampled_from(HOSTS), min_size=1),
    st.sets(st.sampled_from(HOSTS), min_size=1),
    st.integers(0, 2),
)
def test_to_be_on_some_hosts_alone_moves_what_has_to_and_each_has_its_share(
    instances: int, there: set[str], open: set[str], standbys: int
) -> None:
    before = Berths().settled(instances, dict.fromkeys(there, 1), standbys)
    everywhere = dict.fromkeys(there | open, 1)
    after = before.on(open, everywhere, standbys)

    assert set(after.hosts) <= open
    counts = Counter(after.hosts)
    if not there & open:
        return
    for instance, (was, now) in enumerate(zip(before.hosts, after.hosts, strict=True)):
        if was != now:
            assert was not in open or now not in there, f"instance {instance} moved from {was} to {now}"
    if not standbys and len(open) > 1 and open <= there:
        # Who had fewer has not come to have more.
        assert max(counts.values()) - min(counts.get(host, 0) for host in open) <= 1
    assert after.on(open, everywhere, standbys) == after


def test_what_spark_has_restored_elsewhere_inside_an_epoch_stays_there() -> None:
    lost = settled(4, "abcd").without_lost(dict.fromkeys("acd", 1))
    assert lost.hosts == ("a", "a", "c", "d")

    assert lost.where_they_ran({1}, ("a", "d", "c", "d"), "acd").hosts == ("a", "d", "c", "d")
    # Not on a host that is gone too, and not if nothing is known.
    assert lost.where_they_ran({1}, ("a", "b", "c", "d"), "acd").hosts == lost.hosts
    assert lost.where_they_ran({1}, (), "acd").hosts == lost.hosts


def test_nothing_has_a_berth_before_there_is_a_host() -> None:
    assert settled(2, "").hosts == ("", "")
    assert settled(2, "", "ab").hosts == ("a", "b")
    assert settled(2, "ab", "").hosts == ("a", "b"), "they are waited for where they were"


@given(
    st.integers(1, 12),
    st.integers(0, 2),
    st.lists(st.sets(st.sampled_from(HOSTS), min_size=1), min_size=1, max_size=6),
)
def test_every_instance_is_on_a_host_that_is_there_and_moves_only_for_a_reason(
    instances: int, standbys: int, course: list[set[str]]
) -> None:
    berths, before = Berths(), set()
    for there in course:
        earlier, berths = berths, berths.settled(instances, dict.fromkeys(there, 1), standbys)
        assert set(berths.hosts) <= there
        for instance, (was, now) in enumerate(zip(earlier.hosts, berths.hosts, strict=bool(earlier.hosts))):
            if was != now:
                assert was not in there or now not in before, f"instance {instance} moved from {was} to {now}"
        before = there


@given(st.sets(st.sampled_from(HOSTS), min_size=1), st.sampled_from(HOSTS), st.integers(0, 6))
def test_the_ring_has_every_other_host_once(hosts: set[str], host: str, count: int) -> None:
    after = ring_after(host, hosts, count)

    assert len(after) == len(set(after)) == min(count, len(hosts | {host}) - 1)
    assert host not in after
