"""What a user can choose of the autoscaler, and decisions as they are kept."""

from __future__ import annotations

import pytest

from ferryman._model.errors import InvalidConfiguration
from ferryman._model.json_values import Misshapen
from ferryman._scale.decision import Decision
from ferryman._scale.options import Autoscale

DECISION = Decision(time_ms=1, epoch=7, kind="scale out", before=1, after=2, why="so", figures={"rows_per_s": 1.5})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        Autoscale(
            min=0,
            max=2.5,  # type: ignore[arg-type]
            target=2,
            policy="ds2",  # type: ignore[arg-type]
            window="soon",
            scale_in_after=None,  # type: ignore[arg-type]
            most_moved=-1,
            dry_run="yes",  # type: ignore[arg-type]
        )

    for name in ("min", "max", "target", "policy", "window", "scale_in_after", "most_moved", "dry_run"):
        assert f"- {name}=" in caught.value.message


def test_less_than_the_least_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="less than min=4"):
        Autoscale(min=4, max=2)


def test_a_decision_is_read_as_it_was_written() -> None:
    assert Decision.parse(DECISION.json()) == DECISION


@pytest.mark.parametrize(
    "change",
    [{"kind": "explode"}, {"before": -1}, {"after": "2"}, {"figures": {"a": [1]}}, {"dry_run": 1}, {"strange": 1}],
    ids=lambda change: next(iter(change)),
)
def test_a_decision_that_is_none_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(Misshapen):
        Decision.parse({**DECISION.json(), **change})
