"""When to begin an epoch while groups arrive: against every other choice of beginnings, by trying them all."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._migrate.epoch_pacing import EpochPacing


def finished(arrivals: list[float], work: float, epoch_s: float, begins: list[bool]) -> float:
    """Give when all rows are done, where an epoch begins at an arrival if one is wanted then and none is under way.

    What arrives during an epoch is looked at when it ends.
    """
    free, waiting, done = 0.0, 0, 0.0
    for number, at in enumerate(arrivals):
        waiting += 1
        last = number == len(arrivals) - 1
        now = max(at, free)
        # Nothing can begin before the epoch under way is over; more may have come by then.
        if not last and (not begins[number] or arrivals[number + 1] <= now):
            continue
        free = done = now + epoch_s + waiting * work
        waiting = 0
    return done


@settings(deadline=None, max_examples=100)
@given(
    groups=st.integers(2, 7),
    each_s=st.sampled_from([0.01, 0.05, 0.2, 0.5, 2.0]),
    work=st.sampled_from([0.0, 0.02, 0.3]),
    epoch_s=st.sampled_from([0.1, 0.2]),
)
def test_the_last_row_is_done_about_as_soon_as_it_can_be(groups, each_s, work, epoch_s) -> None:
    arrivals = [each_s * (number + 1) for number in range(groups)]
    pacing = EpochPacing(dict.fromkeys(range(groups), 1.0), began=0.0)
    begins = []
    for number, at in enumerate(arrivals):
        pacing.arrived(number)
        begins.append(pacing.wait_s(at, epoch_s) == 0.0)

    took = finished(arrivals, work, epoch_s, begins)
    best = min(finished(arrivals, work, epoch_s, list(begin)) for begin in product([True, False], repeat=groups))
    together = finished(arrivals, work, epoch_s, [False] * groups)

    assert took <= together + 1e-9, "worse than to wait for everything"
    assert took <= best + epoch_s


def test_a_line_that_stalls_does_not_keep_back_what_has_arrived() -> None:
    pacing = EpochPacing({0: 9.0, 1: 1.0}, began=0.0)
    assert pacing.wait_s(1.0, 0.2) == 0.0, "nothing has arrived, and nothing is known"
    pacing.arrived(0)

    assert pacing.wait_s(0.9, 0.2) == 0.2
    assert pacing.wait_s(9.0, 0.2) == 0.0


def test_when_all_is_there_nothing_waits() -> None:
    pacing = EpochPacing({0: 1.0}, began=0.0)
    pacing.arrived(0)

    assert pacing.wait_s(1.0, 10.0) == 0.0
