"""What holds a job back is named, with a reason; and nothing where nothing does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ferryman._scale.bottleneck import Bottleneck, find
from ferryman._scale.metrics_window import MetricsWindow

# Two instances that work half of every second, in an epoch that takes 0.6 s of it.
WELL = MetricsWindow(
    instances=2,
    epochs=6,
    seconds=5.0,
    rate=1000.0,
    took_s=0.6,
    interval_s=1.0,
    busy_s=0.5,
    even_s=0.5,
    fixed_s=0.0,
    row_s=0.0005,
    sinks_s=0.0,
    overhead_s=0.1,
    usual_overhead_s=0.1,
    backlog=None,
    own_backlog=0,
    held_back=False,
    late_ms=None,
    key=0.0,
    operators={},
    delta_bytes=0.0,
)
FULL = replace(WELL, rate=1800.0, took_s=1.0, busy_s=0.9)


@pytest.mark.parametrize(
    ("window", "bottleneck", "why"),
    [
        (WELL, Bottleneck.NOTHING, "50% of the time"),
        (replace(WELL, row_s=None), Bottleneck.NOTHING, "no rows"),
        (FULL, Bottleneck.INSTANCES, "90% of the time"),
        (replace(WELL, backlog=100_000), Bottleneck.INSTANCES, "100 s to catch up"),
        (replace(FULL, rate=3000.0, backlog=5_000), Bottleneck.INSTANCES, "that grows"),
        (replace(WELL, took_s=1.3), Bottleneck.INSTANCES, "epochs grow"),
        (replace(FULL, key=0.98), Bottleneck.HOT_KEY, "98%"),
        (replace(FULL, key=0.98, instances=1), Bottleneck.INSTANCES, "90%"),
        (replace(FULL, key=0.6), Bottleneck.INSTANCES, "90%"),
        (replace(WELL, took_s=1.5, sinks_s=0.9), Bottleneck.SINK, "900 of the 1500 ms"),
        (replace(WELL, took_s=1.5, overhead_s=1.0), Bottleneck.DRIVER, "100 in the best"),
        (
            replace(WELL, took_s=0.99, overhead_s=0.6, usual_overhead_s=0.5, held_back=True),
            Bottleneck.SMALL_EPOCHS,
            "the source gives no more",
        ),
    ],
)
def test_it_is_named_and_the_reason_told(window: MetricsWindow, bottleneck: Bottleneck, why: str) -> None:
    finding = find(window)

    assert finding.bottleneck is bottleneck
    assert why in str(finding)


def test_what_is_usual_is_looked_for_in_more_epochs() -> None:
    slow = replace(WELL, took_s=1.5, overhead_s=1.0, usual_overhead_s=0.9)

    assert find(slow).bottleneck is Bottleneck.SMALL_EPOCHS
    assert find(slow, WELL).bottleneck is Bottleneck.DRIVER


def test_nothing_is_said_while_nothing_is_known() -> None:
    assert find(None).bottleneck is Bottleneck.NOTHING


def test_a_backlog_is_caught_up_with_in_the_time_that_is_spare() -> None:
    assert replace(WELL, backlog=10_000).catch_up_s == pytest.approx(10)
    assert replace(WELL, backlog=10_000, rate=3000.0).catch_up_s == math.inf
    assert WELL.catch_up_s is None
