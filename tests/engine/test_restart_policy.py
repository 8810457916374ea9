"""After a failure: started again, later each time, or given up with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman import errors
from ferryman._engine.restart_policy import LASTING, Ending, Failures, GiveUp, RestartPolicy, Wait

POLICY = RestartPolicy(failures=4, window_s=100, first_s=1, most_s=5)


def failing(*at_s: float, policy: RestartPolicy = POLICY, epochs: int = 0, error: str = ""):
    """Fail at these times, and give what comes after each."""
    failures, said = Failures(), []
    for moment in at_s:
        failures, now = failures.after(
            Ending(at_s=moment, how="killed by SIGKILL", error=error, epochs=epochs), policy, 0.0
        )
        said.append(now)
    return said


def test_it_waits_twice_as_long_each_time_and_then_gives_up():
    *waits, last = failing(0, 10, 20, 30)

    assert waits == [Wait(1), Wait(2), Wait(4)]
    assert last == GiveUp(
        "it has failed 4 times in 30 s, with no epoch committed in between; the last time: killed by SIGKILL", False
    )


def test_a_driver_that_has_committed_an_epoch_begins_anew():
    assert failing(*range(50), epochs=1) == [Wait(1)] * 50


def test_failures_of_long_ago_do_not_count():
    assert failing(0, 10, 20, 111, 112)[-2:] == [Wait(2), Wait(4)]


@pytest.mark.parametrize("error", ["CorruptCheckpoint", "RewindUnfinished", "SinkAhead", "SourcesChanged"])
def test_what_a_start_cannot_mend_is_given_up_at_once(error):
    assert failing(0, error=error, epochs=3) == [
        GiveUp("another start would end the same way (killed by SIGKILL)", True)
    ]


def test_every_lasting_error_is_one_that_there_is():
    ours = {name for name in LASTING if not name.endswith("Error")}

    assert all(issubclass(getattr(errors, name), errors.FerrymanError) for name in ours)


@given(
    endings=st.lists(st.tuples(st.floats(0, 500), st.integers(0, 2)), min_size=1, max_size=30),
    chance=st.floats(0, 1),
)
def test_it_never_waits_longer_than_it_may_and_gives_up_after_as_many_as_it_may(endings, chance):
    failures, at_s, since = Failures(), 0.0, []
    for pause_s, epochs in endings:
        at_s += pause_s
        failures, now = failures.after(Ending(at_s=at_s, how="", epochs=epochs), POLICY, chance)
        # A model in a line: what failed since the last epoch, and not too long ago.
        since = [*([] if epochs else [moment for moment in since if at_s - moment <= POLICY.window_s]), at_s]
        assert isinstance(now, GiveUp) == (len(since) >= POLICY.failures)
        if isinstance(now, GiveUp):
            return
        longest = min(POLICY.most_s, 2 ** (len(since) - 1))
        assert now.seconds == pytest.approx(longest * (1 - 0.2 * chance))
