"""The metrics history and its windows: what is measured, and what holes, clocks and cold epochs do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.metrics_window import MetricsWindow


def epoch(number: int, rows: int = 1000, busy_s: float = 0.2, every_s: float = 1.0, **values: object) -> EpochMetrics:
    metrics = EpochMetrics(
        epoch=number,
        began_s=number * every_s,
        ended_s=number * every_s + busy_s + 0.1,
        rows=rows,
        operators={"A": OperatorMetrics((rows,), (busy_s,))},
    )
    return replace(metrics, **values)  # type: ignore[arg-type]


def window_of(*epochs: EpochMetrics, seconds: float = 5.0) -> MetricsWindow:
    window = MetricsHistory.of(epochs).window(seconds)
    assert window is not None
    return window


def test_rates_are_of_the_time_in_which_rows_came() -> None:
    window = window_of(*[epoch(number) for number in range(1, 11)])

    assert window.rate == pytest.approx(1000)
    assert window.utilisation == pytest.approx(0.2)
    assert window.capacity == pytest.approx(5000)
    assert window.overhead_s == pytest.approx(0.1)


def test_a_job_that_falls_behind_is_used_by_more_than_all_its_time() -> None:
    # Each takes twice as long as its rows took to come.
    epochs = [
        EpochMetrics(
            epoch=n,
            began_s=2.0**n,
            ended_s=2.0 ** (n + 1),
            rows=2**n,
            operators={"A": OperatorMetrics((2**n,), (2.0**n,))},
        )
        for n in range(6)
    ]

    assert window_of(*epochs).utilisation == pytest.approx(2.0)


def test_the_busiest_instance_counts() -> None:
    uneven = {"A": OperatorMetrics((900, 100), (0.9, 0.1)), "B": OperatorMetrics((10, 10), (0.05, 0.05))}
    window = window_of(*[epoch(number, operators=uneven, instances=2) for number in range(10)])

    assert window.busy_s == pytest.approx(0.95)
    assert window.even_s == pytest.approx(0.55)
    rate, busy = window.operators["A"]
    assert (rate, busy) == (pytest.approx(1000), pytest.approx(0.9))


def test_what_an_epoch_costs_whatever_its_rows_is_no_load() -> None:
    rows = [100, 900, 300, 700, 500, 200, 800, 400, 600, 1000, 50, 950]
    window = window_of(*[epoch(n, count, 0.3 + count / 10_000) for n, count in enumerate(rows)], seconds=10)

    assert window.fixed_s == pytest.approx(0.3)
    assert window.capacity == pytest.approx(10_000)


def test_epochs_that_are_disturbed_count_for_what_came_and_not_for_what_it_cost() -> None:
    epochs = [epoch(number) for number in range(1, 11)]
    epochs[7] = replace(epochs[7], operators={"A": OperatorMetrics((1000,), (0.9,))}, disturbed=True)

    assert window_of(*epochs).utilisation == pytest.approx(0.2)


def test_a_hole_makes_it_begin_anew() -> None:
    history = MetricsHistory.of([epoch(1), epoch(2), epoch(7), epoch(8)])

    assert [told.epoch for told in history.epochs] == [7, 8]
    assert history.window(5) is None


def test_a_clock_that_goes_back_makes_it_begin_anew() -> None:
    history = MetricsHistory.of([epoch(101), epoch(102)]).settled(102.5)
    for number in range(103, 113):
        history = history.add(epoch(number, began_s=number - 103.0, ended_s=number - 102.8))

    assert history.epochs[0].epoch == 103
    window = history.window(5)
    assert window is not None
    assert window.rate == pytest.approx(1000)


@pytest.mark.parametrize(
    "faulty",
    [epoch(9, began_s=float("nan")), epoch(9, ended_s=1.0), epoch(9, rows=-1), epoch(9, instances=0)],
    ids=["no number", "ends before it began", "rows", "instances"],
)
def test_what_cannot_be_true_is_not_taken_in(faulty: EpochMetrics) -> None:
    history = MetricsHistory.of([epoch(7), epoch(8)])

    assert history.add(faulty) is history


def test_only_epochs_with_the_present_number_of_instances_count() -> None:
    history = MetricsHistory.of([*[epoch(n) for n in range(9)], *[epoch(n, instances=2) for n in range(9, 12)]])

    assert history.window(5) is None
    window = history.window(2)
    assert window is not None
    assert window.instances == 2


def test_quiet_time_brings_the_rate_down() -> None:
    history = MetricsHistory.of([epoch(number) for number in range(1, 11)])
    quiet = history.quiet(19.0, 0)

    window = quiet.window(5)
    assert window is not None
    assert window.rate == pytest.approx(0, abs=1000 / 5)
    later = quiet.quiet(60.0, 0).window(5)
    assert later is not None
    assert later.rate < 50


def test_what_the_source_still_has_counts_as_coming() -> None:
    history = MetricsHistory()
    for number in range(1, 11):
        history = history.add(epoch(number)).behind(number + 0.5, number * 500)

    window = history.window(5)
    assert window is not None
    assert window.rate == pytest.approx(1500, rel=0.02)
    assert window.backlog == 5000
    assert window.catch_up_s == pytest.approx(5000 / 3500, rel=0.02)


def test_what_a_change_made_wait_is_no_backlog_of_the_load() -> None:
    history = MetricsHistory().settled(0.5, made=4000)
    for number in range(1, 11):
        history = history.add(epoch(number)).behind(number + 0.5, 4000)

    window = history.window(5)
    assert window is not None
    assert window.waiting == 0
    later = replace(history, settled_s=-100).window(5)
    assert later is not None
    assert later.waiting == pytest.approx(3000)


def test_it_is_bounded() -> None:
    history = MetricsHistory()
    for number in range(3000):
        history = history.add(epoch(number, every_s=0.1)).behind(number * 0.1, 7)

    assert len(history.epochs) == 2000
    assert len(history.backlog) == 200


def test_a_trend_is_told_if_it_is_certain() -> None:
    grows = MetricsHistory.of([epoch(number, 1000 + 50 * number) for number in range(30)])
    flat = MetricsHistory.of([epoch(number, 1000 + 97 * (number * 7919 % 13)) for number in range(30)])

    assert grows.trend(20) == pytest.approx(50, rel=0.01)
    assert flat.trend(20) == 0


def test_a_trend_goes_on_through_changes() -> None:
    # Load that grows fast has the job changed again before any number of instances has lasted for long.
    grows = [epoch(number, 1000 + 50 * number, instances=1 + number // 8) for number in range(30)]

    assert MetricsHistory.of(grows).settled(25.0).trend(20) == pytest.approx(50, rel=0.01)


def test_epochs_that_tell_nothing_of_what_rows_cost_are_no_window() -> None:
    # Long ones, so that a window has no others: they look as if instances had nothing to do.
    cold = [epoch(number, every_s=6.0, disturbed=True) for number in range(3)]

    assert MetricsHistory.of(cold).window(5.0) is None
    assert MetricsHistory.of([*cold, epoch(3, every_s=6.0)]).window(5.0) is not None
