"""Policies as what they are: functions of a history."""

from __future__ import annotations

import pytest

from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.policies import Policy, Schedule, Seep, TargetLatency, TrueRates, Wish
from ferryman._scale.scalability import Gain, Scalability

HOUR_MS = 3_600_000


def history(
    busy: float, instances: int = 2, *, every_s: float = 1.0, around_s: float = 0.1, hour: int = 0
) -> MetricsHistory:
    """Epochs of which the instances work this part of the time."""
    return MetricsHistory.of(
        EpochMetrics(
            epoch=number,
            began_s=number * every_s,
            ended_s=number * every_s + busy * every_s + around_s,
            time_ms=hour * HOUR_MS + number,
            instances=instances,
            # Not quite the same: a source that holds rows back gives as many to every epoch.
            rows=1000 + number % 2,
            operators={"A": OperatorMetrics((500,) * instances, (busy * every_s,) * instances)},
        )
        for number in range(1, 30)
    )


def wanted(policy: Policy, of: MetricsHistory) -> int:
    wish = policy(of)
    assert isinstance(wish, Wish)
    return wish.instances


@pytest.mark.parametrize(
    ("busy", "instances", "needed"), [(0.7, 2, 2), (0.84, 2, 2), (0.9, 2, 3), (0.3, 4, 2), (0.56, 4, 4), (0.01, 4, 1)]
)
def test_true_rates_ask_for_as_many_as_are_needed_if_it_is_far_enough_from_the_target(
    busy: float, instances: int, needed: int
) -> None:
    assert wanted(TrueRates(), history(busy, instances)) == needed


def test_true_rates_ask_for_more_where_instances_have_brought_less() -> None:
    poor = history(0.95, 8).gained(Gain(1, 4, 1000.0, 2200.0))

    assert poor.scalability.coefficient == pytest.approx(0.7)
    assert [wanted(TrueRates(), told) for told in (history(0.95, 8), poor)] == [11, 12]


def test_true_rates_make_room_for_a_backlog() -> None:
    behind = history(0.7, 2).behind(28.5, 60_000)

    assert wanted(TrueRates(), behind) > 2


def test_seep_asks_for_one_more_after_two_reports_and_for_one_less_if_that_is_safe() -> None:
    assert [wanted(Seep(), history(busy, 3)) for busy in (0.75, 0.6, 0.2)] == [4, 3, 2]


def test_a_target_latency_asks_for_as_few_as_keep_it() -> None:
    # A row waits a second at the most, and its epoch takes 0.1 s and the work.
    assert wanted(TargetLatency(seconds=1.6), history(0.7, 2)) == 8
    assert wanted(TargetLatency(seconds=2.5), history(0.7, 2)) == 2
    assert wanted(TargetLatency(seconds=3.0), history(0.3, 4)) == 2


def test_a_target_latency_that_cannot_be_had_is_told() -> None:
    wish = TargetLatency(seconds=0.5)(history(0.7, 2))

    assert wish is not None
    assert wish.instances == 2
    assert "no number of instances" in wish.why


def test_a_target_latency_knows_that_epochs_that_follow_each_other_grow() -> None:
    # 100 ms around them, and 300 ms of work for what comes in 400 ms: 400 ms each, and with twice as many 160 ms.
    assert wanted(TargetLatency(seconds=0.5), history(0.75, 2, every_s=0.4)) == 4


@pytest.mark.parametrize(("hour", "least"), [(3, 2), (8, 8), (12, 8), (21, 2)])
def test_a_schedule_has_so_many_at_the_least(hour: int, least: int) -> None:
    schedule = Schedule({"8:00": 8, "20:30": 2})

    assert wanted(schedule, history(0.01, 4, hour=hour)) == least
    assert wanted(schedule, history(0.95, 10, hour=hour)) == 14


@pytest.mark.parametrize("times", [{}, {"25:00": 3}, {"soon": 1}])
def test_a_schedule_of_no_times_is_refused(times: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"times|time data"):
        Schedule(times)


@pytest.mark.parametrize("policy", [TrueRates(), Seep(), TargetLatency(seconds=1.0)])
def test_nothing_is_wished_while_nothing_is_known(policy: Policy) -> None:
    assert policy(MetricsHistory()) is None


def test_scalability_is_what_changes_have_shown() -> None:
    good, poor = Gain(1, 2, 1000, 2000), Gain(2, 4, 2000, 2000)

    assert Scalability.learned([]).coefficient == 1.0
    assert Scalability.learned([good]).coefficient == pytest.approx(1.0)
    assert 0.3 < Scalability.learned([poor, poor]).coefficient < 1.0
    assert poor.obtained == 0
