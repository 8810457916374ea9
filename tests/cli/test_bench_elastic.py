"""`ferryman bench elastic`: which rows come, what its figures mean, and that the others' rules are theirs."""

from __future__ import annotations

from datetime import datetime, timezone
from types import ModuleType

import numpy as np
import pytest
from pyspark.sql import SparkSession

from ferryman import sources
from ferryman._cli.bench import _load
from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.metrics_history import MetricsHistory

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def load() -> ModuleType:
    return _load("elastic_load")


@pytest.fixture(scope="module")
def rivals() -> ModuleType:
    return _load("elastic_rivals")


def trace_of(load: ModuleType, **other: float):
    values = {"low": 50.0, "high": 500.0, "warm_s": 2.0, "quiet_s": 3.0, "rise_s": 7.0, "fall_s": 6.0, "after_s": 2.0}
    return load.Trace(**{**values, "row_s": 0.002, **other})


@pytest.mark.slow
def test_the_rows_that_come_are_those_that_are_counted_on(load: ModuleType, spark: SparkSession) -> None:
    trace = trace_of(load)
    rows = sources.generated(spark, rows=int(trace.seconds * trace.high), keys=100, rate=trace.high, start=BEGAN)

    ids = trace.thinned(rows).select("id").toPandas()["id"].to_numpy()

    assert sorted(ids) == trace.ids.tolist()
    # 50 a second in the quiet ends, and the mean of both in between.
    assert len(ids) == pytest.approx(7 * 50 + 13 * 275, rel=0.05)
    assert trace.due(5.0) == pytest.approx(250, rel=0.2)


def test_the_oracle_has_as_many_instances_as_the_load_needs(load: ModuleType) -> None:
    trace = trace_of(load, row_s=0.004)

    # 500 rows of 4 ms a second are two seconds of work, and 0.7 of an instance's time is wanted.
    assert [count for _, count in trace.oracle()] == [1, 2, 3, 2, 1]
    assert trace.mean_needed == 2


def outcome_of(load: ModuleType, ids: list[int], at: list[float]):
    trace, arrived = trace_of(load), load.Arrived()
    arrived._written, arrived.at = {1: np.array(ids)}, {1: 0.0}
    arrived.arrived = lambda: (np.array(ids), np.array(at) + 100.0)
    return trace, load.Outcome.of(trace, arrived, 100.0, 130.0, [(0.0, 1)], [])


def test_a_row_that_is_not_done_has_waited_until_the_end(load: ModuleType) -> None:
    ids = trace_of(load).ids.tolist()
    trace, outcome = outcome_of(load, ids[:-1], [number / 500 + 0.25 for number in ids[:-1]])

    assert outcome.right
    assert outcome.missing == 1
    assert outcome.late[:-1] == pytest.approx(0.25)
    assert outcome.late[-1] == pytest.approx(30.0 - ids[-1] / trace.high)


@pytest.mark.parametrize("wrong", ["twice", "unknown"])
def test_a_row_that_is_wrong_shows(load: ModuleType, wrong: str) -> None:
    ids = trace_of(load).ids.tolist()
    absent = next(number for number in range(ids[-1]) if number not in ids)
    came = [*ids, ids[7] if wrong == "twice" else absent]

    assert not outcome_of(load, came, [number / 500 + 0.25 for number in came])[1].right


def seen(rivals: ModuleType, at_s: float, instances: int, lag: int, busy_s: float = 0.7, started_s: float | None = 0.0):
    """A job with an epoch a second, of which instances work so long."""
    epochs = [
        EpochMetrics(
            epoch=second,
            began_s=float(second),
            ended_s=second + 0.9,
            instances=instances,
            rows=100,
            operators={"A": OperatorMetrics((100,), (busy_s,))},
        )
        for second in range(int(at_s) + 1)
    ]
    return rivals.Seen(
        at_s=at_s, instances=instances, lag=lag, history=lambda: MetricsHistory.of(epochs), started_s=started_s
    )


def test_the_rule_of_lag_is_that_of_an_autoscaler_of_pods(rivals: ModuleType) -> None:
    lag = rivals.Lag(per_instance=100, pace=1.0, most=16)

    assert lag(seen(rivals, 0, 2, 190)) == 2, "a tenth is no difference"
    assert lag(seen(rivals, 10, 2, 500)) is None, "it looks every 15 seconds"
    assert lag(seen(rivals, 20, 2, 500)) == 5
    assert lag(seen(rivals, 40, 5, 2000)) == 10, "twice as many at the most"
    assert lag(seen(rivals, 60, 10, 50)) == 10, "no fewer than were wanted in five minutes"
    assert lag(seen(rivals, 341, 10, 50)) == 1


def test_the_rule_of_true_rates_waits_for_whole_windows(rivals: ModuleType) -> None:
    rule = rivals.TrueRateWindows(pace=10.0, most=16)

    assert rule(seen(rivals, 40, 2, 0, busy_s=1.4, started_s=None)) == 4, "it has long been stable"
    assert rule(seen(rivals, 115, 2, 0, busy_s=1.4)) is None, "stabilisation and window are 120 s at this pace"
    assert rule(seen(rivals, 125, 2, 0, busy_s=1.4)) == 4
    assert rule(seen(rivals, 126, 2, 0, busy_s=0.95)) is None, "that is within the boundary"
    assert rule(seen(rivals, 127, 4, 0, busy_s=0.1)) is None, "fewer only after a while"
    assert rule(seen(rivals, 500, 4, 0, busy_s=0.1)) == 2, "and not less than two fifths"


def test_in_simulated_time_the_autoscaler_does_what_is_asked_of_it() -> None:
    bench = _load("elastic")

    for one in bench.in_simulated_time(bench.trace_of(5.0), bench.autoscale_of(1.0), seeds=[1, 2]):
        assert one["p99_worst_ratio"] <= 2
        assert one["instance_seconds_vs_oracle"] <= 1.3
        assert one["scale_outs_beyond_oracle"] <= 2
        assert one["given_back"]
