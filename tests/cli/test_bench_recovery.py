"""`ferryman bench recovery`: what its figures are made of."""

from __future__ import annotations

from datetime import datetime, timezone
from types import ModuleType

import pyarrow as pa
import pytest

from ferryman._cli.bench import _load

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return _load("recovery_executor")


def test_a_group_processes_again_when_a_row_is_out_that_was_due_after_the_loss(bench: ModuleType) -> None:
    load = _load("open_loop").Load(keys=10, size=1, rate=10.0, groups=2)
    kept = _load("open_loop").Kept(load, BEGAN)
    since = BEGAN.timestamp()
    # Row 20 is due two seconds after the beginning.
    kept.parts = [
        (1, since + 1.9, pa.table({"id": [10], "group": [0]})),
        (2, since + 2.5, pa.table({"id": [19, 21], "group": [0, 1]})),
        (3, since + 4.0, pa.table({"id": [25, 26], "group": [0, 1]})),
    ]

    assert _load("losses").again(load, kept, BEGAN, since + 2.0) == {1: 0.5, 0: 2.0}


def test_the_figures_that_are_promised_are_told_from_medians(bench: ModuleType) -> None:
    def losses(*seconds: float, epochs: int = 1) -> list[dict[str, float]]:
        return [{"all_s": some, "epochs": epochs, "rebuilt_bytes": 0} for some in seconds]

    told = bench.headline(
        {
            "executor": {"ferryman": losses(1.0, 1.2, 9.0), "spark": losses(6.0, 12.0, 5.0)},
            "replicas": {
                "once": losses(1.0, 2.0, 1.0, epochs=2),
                "twice": losses(1.1, 1.1, 5.0),
                "throughput": {"ratio": 0.97},
            },
        }
    )

    assert told == {
        "ratio_vs_spark_restart": 0.2,
        "replica_failover_epochs": 2,
        "replica_rebuilt_bytes": 0,
        "replica_growth_when_state_doubles": 1.1,
        "replicas_throughput_ratio": 0.97,
    }
