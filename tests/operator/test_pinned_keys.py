"""Pinned keys: whatever is pinned, unpinned and moved, rows, timers and state are those of a job that never did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferryman import List, Map, Operator, Value
from ferryman._log.check.examine import TableFiles, examine_delta
from ferryman._log.check.verify import verify
from ferryman.errors import InvalidPlan
from ferryman.testing import Crash, Harness

KEYS = tuple(f"k{number}" for number in range(8))
GROUPS = 3


class Everything(Operator):
    """A value, entries, entries that expire, and a timer for every third row."""

    n = Value(int, 0)
    seen = List(int)
    brief = Map(int, int, ttl=700)
    output = "key string, what string, n long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        self.seen.append(row.id)
        self.brief[row.id % 3] = row.id
        if row.id % 3 == 0:
            self.call_at(self.now_ms + 500)
        yield key, "row", self.n

    def due(self, key: Any, at: int) -> Iterator[Any]:
        yield key, f"timer at {at}", len(self.seen)
        if self.n % 4 == 0:
            self.clear()


def harness(**options: Any) -> Harness:
    return Harness(lambda s: s.key_by("key").process(Everything), "key string, id long", groups=GROUPS, **options)


TABLES = ("Everything", "Everything.seen", "Everything.brief")


def everything(one: Harness) -> list[list[dict[str, Any]]]:
    return [one.state(table) for table in TABLES]


STEPS = st.one_of(
    st.tuples(st.just("epoch"), st.lists(st.sampled_from(KEYS), max_size=8)),
    st.tuples(st.just("tick"), st.sampled_from([300, 600])),
    st.tuples(st.just("pin"), st.tuples(st.sampled_from(KEYS), st.integers(0, 2))),
    st.tuples(st.just("rescale"), st.integers(2, 3)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("snapshot"), st.none()),
    st.tuples(st.just("crash"), st.lists(st.sampled_from(KEYS), max_size=4)),
)


@pytest.mark.parametrize(("store", "hosts"), [(None, 1), (None, 3), ("rocksdb", 2)])
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_one_can_tell_that_keys_were_pinned(store: str | None, hosts: int, steps: list[tuple[str, Any]]) -> None:
    number = 0
    with harness(instances=3, store=store, hosts=hosts) as pinned, harness(store=store) as plain:
        # Always something pinned: two keys of one group on two instances that are not its owner.
        first, second = [key for key in KEYS if owner_and_group(pinned, key) == owner_and_group(pinned, "k0")][:2]
        others = [instance for instance in range(3) if instance != owner_and_group(pinned, first)[0]]
        pinned.pin(first, others[0])
        pinned.pin(second, others[1])
        for what, detail in [*steps, ("epoch", list(KEYS)), ("tick", 600)]:
            if what in ("epoch", "crash"):
                rows = [(key, number + place) for place, key in enumerate(detail)]
                number += len(rows)
                if what == "crash":
                    with pytest.raises(Crash):
                        pinned.epoch(rows, crash=True)
                assert sorted(pinned.epoch(rows)) == sorted(plain.epoch(rows))
            elif what == "tick":
                assert sorted(pinned.tick(detail)) == sorted(plain.tick(detail))
            elif what == "pin":
                key, to = detail
                if to < pinned._routing.instances and pinned._routing.owner_of(hash_of(key)) != to:
                    pinned.pin(key, to)
            elif what == "rescale":
                pinned.rescale(detail)
            else:
                getattr(pinned, what)()
        assert everything(pinned) == everything(plain)
        assert verify(pinned.checkpoint).faults == ()


def hash_of(key: str) -> int:
    from ferryman._testing.local_executor import hashes_of

    return int(hashes_of([(key,)])[0])


def owner_and_group(one: Harness, key: str) -> tuple[int, int]:
    group = one._routing.group(hash_of(key))
    return one._routing.owner[group], group


def test_a_pinned_key_leaves_its_rows_in_the_deltas_of_its_own_instance_and_a_wrong_one_is_found() -> None:
    with harness(instances=2) as one:
        one.epoch([(key, 0) for key in KEYS])
        key = next(key for key in KEYS if owner_and_group(one, key)[0] == 0)
        one.pin(key, 1)
        one.epoch([(key, 1)])
        manifest = one.checkpoint.latest()
        assert manifest is not None
        assert {ref.instance for ref in manifest.tables["Everything"]} == {1}
        assert manifest.routing.pins[0].key == key
        with pytest.raises(InvalidPlan, match="instance 4 does not exist"):
            one.pin(key, 4)
        # The same delta under a table that does not pin the key is another instance's.
        card = one.checkpoint.job_card().tables["Everything"]
        (ref,) = manifest.tables["Everything"]
        files = TableFiles.of("Everything", card, GROUPS)
        assert examine_delta(one.checkpoint, ref, manifest.routing, files) is None
        said = examine_delta(one.checkpoint, ref, replace(manifest.routing, pins=()), files)
        assert said is not None
        assert "does not give to instance 1" in said
