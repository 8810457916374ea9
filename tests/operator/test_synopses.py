"""Synopses answer within their error, the same whatever the epochs were, and merge."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from random_history import PerKey, kind_of, run_histories

from ferryman import BloomFilter, CountMin, DecayedRate, HyperLogLog, Operator, Reservoir, TDigest
from ferryman.errors import InvalidConfiguration
from ferryman.testing import Harness


class Sketches(Operator):
    seen = BloomFilter(1000)
    distinct = HyperLogLog()
    often = CountMin()
    some = Reservoir(int, 20)
    spread = TDigest()
    pace = DecayedRate(1000)
    output = "key string, found string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.seen.add(row.x)
        self.distinct.add(row.x)
        self.often.add(row.x)
        self.some.add(row.x)
        self.spread.add(float(row.x))
        self.pace.add(row.t)
        return iter(())

    def finish(self, key: Any) -> Iterator[Any]:
        found = (
            7 in self.seen,
            round(self.distinct.estimate()),
            self.often.estimate(7),
            self.some.count(),
            sorted(self.some.sample()),
            round(self.spread.quantile(0.5), 6),
            self.pace.rate(10_000),
        )
        yield key, repr(found)


def rows(n: int) -> list[tuple[str, int, int]]:
    chance = random.Random(1)
    return [("a", chance.randrange(500), number) for number in range(n)]


def run(cuts: list[int]) -> Any:
    with Harness(lambda s: s.key_by("key").process(Sketches), "key string, x long, t long", instances=2) as harness:
        whole, begin = rows(3000), 0
        for cut in [*cuts, len(whole)]:
            out = harness.epoch(whole[begin:cut])
            begin = cut
            harness.restart()
        return eval(out[0][1]), harness.state()


def test_all_answer_within_their_error() -> None:
    (seen, distinct, often, count, sample, median, _), _ = run([])
    values = [x for _, x, _ in rows(3000)]
    assert seen
    assert abs(distinct - len(set(values))) < 0.05 * len(set(values))
    assert values.count(7) <= often <= values.count(7) + 3
    assert count == 3000
    assert len(sample) == 20
    assert set(sample) <= set(values)
    assert abs(median - sorted(values)[1500]) < 10


def test_what_does_not_depend_on_the_epochs_does_not() -> None:
    once, _ = run([])
    often, _ = run([10, 11, 500, 2999])
    assert once[:5] == often[:5]
    assert once[6] == pytest.approx(often[6])


def test_a_task_that_runs_again_gives_the_same_bytes() -> None:
    assert run([100, 2000])[1] == run([100, 2000])[1]


def test_a_bloom_filter_that_is_declared_otherwise_still_knows_what_it_holds() -> None:
    before, after = BloomFilter(1000, error=0.1), BloomFilter(1000, error=0.001)
    live = before.create()
    for x in range(500):
        live.add(x)
    found = after.load(before.dump(live))
    assert all(x in found for x in range(500))
    with pytest.raises(ValueError, match="different sizes"):
        after.merge(found, after.create())


def fed(state: Any, values: list[int]) -> Any:
    """Give the same synopsis, that was never written and read again."""
    live = state.create()
    for x in values:
        live.add(x)
    return live


# For each type: the state, and what is asked of it. A model keeps all values, and asks a synopsis that was fed them.
ASKED: dict[str, Any] = {
    "BloomFilter": (BloomFilter(20), lambda s: [x for x in range(-20, 20) if x in s]),
    "HyperLogLog": (HyperLogLog(4), lambda s: s.estimate()),
    "CountMin": (CountMin(0.2, 0.5), lambda s: ([s.estimate(x) for x in range(8)], s.total())),
    "TDigest": (TDigest(100), lambda s: (s.count(), s.quantile(0), s.quantile(0.5), s.quantile(1), s.rank(2))),
    "Reservoir": (Reservoir(int, 3), lambda s: (s.count(), s.sample())),
    "DecayedRate": (DecayedRate(10), lambda s: s.rate(7)),
}


@pytest.mark.parametrize("name", list(ASKED))
def test_a_random_history_answers_as_one_that_was_never_written(name: str) -> None:
    state, ask = ASKED[name]
    operations = {
        "add": (lambda o, x: o.kept.add(x), lambda m, x, now_ms: m.append(x)),
        "clear": (lambda o, x: o.kept.clear(), lambda m, x, now_ms: m.clear()),
        "ask": (lambda o, x: None, lambda m, x, now_ms: None),
    }
    does = {what: act for what, (_, act) in operations.items()}
    kind = kind_of(
        state,
        {what: act for what, (act, _) in operations.items()},
        lambda operator: ask(operator.kept),
        lambda: PerKey(does, lambda kept, now_ms: ask(fed(state, kept)), list),
    )
    run_histories(kind)


@pytest.mark.parametrize("state", [BloomFilter(1000), HyperLogLog(), CountMin(), TDigest(), Reservoir(int, 50)])
def test_two_parts_merge(state: Any) -> None:
    one, other = state.create(), state.create()
    for x in range(100):
        one.add(x)
        other.add(x + 100)
    merged = state.load(state.dump(state.merge(one, other)))
    if isinstance(state, BloomFilter):
        assert all(x in merged for x in range(200))
        assert sum(x in merged for x in range(1000, 11_000)) < 200
    elif isinstance(state, HyperLogLog):
        assert abs(merged.estimate() - 200) < 10
    elif isinstance(state, CountMin):
        assert merged.total() == 200
    elif isinstance(state, TDigest):
        assert merged.count() == 200
        assert abs(merged.quantile(0.5) - 100) < 5
    else:
        assert merged.count() == 200
        assert len(merged.sample()) == 50
        assert 10 < sum(x < 100 for x in merged.sample()) < 40


def test_a_rate_forgets() -> None:
    state = DecayedRate(1000)
    steady = state.create()
    for number in range(20_000):
        steady.add(number * 10)
    assert steady.rate(200_000) == pytest.approx(100, rel=0.01)
    assert steady.rate(201_000) == pytest.approx(50, rel=0.01)
    other = state.create()
    other.add(200_000)
    assert state.merge(steady, other).rate(200_000) == pytest.approx(steady.rate(200_000) + other.rate(200_000))
    late = state.load(state.dump(steady))
    late.add(199_000)
    assert late.weight == pytest.approx(steady.decayed(199_990) + 0.5, abs=0.01)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HyperLogLog(99),
        lambda: CountMin(error=0),
        lambda: TDigest(1),
        lambda: BloomFilter(0),
        lambda: Reservoir(int, 0),
        lambda: DecayedRate(0),
        lambda: HyperLogLog(ttl=0),
    ],
)
def test_what_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        make()


def test_a_synopsis_lives_on_when_it_is_written_though_nothing_in_it_changes() -> None:
    class Fading(Operator):
        seen = BloomFilter(1000, ttl=1000)
        output = "key string, found boolean"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            yield key, "tea" in self.seen
            if row.adds:
                self.seen.add("tea")

    with Harness(lambda s: s.key_by("key").process(Fading), "key string, adds boolean", now_ms=0) as harness:
        found = []
        for adds in (True, True, True, False, False):
            found += [value for _, value in harness.epoch([("a", adds)])]
            harness.now_ms += 600
        # Asking is not writing: after the last add it is gone in time.
        assert found == [False, True, True, True, False]
