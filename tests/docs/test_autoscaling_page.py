"""What the page on autoscaling says of its measurements is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferryman._cli.bench import _load

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")


def measured(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["elastic", "elastic-contenders"])
def test_the_contenders_are_as_they_were_measured(name: str) -> None:
    if f"{name}.json" not in PAGE:
        pytest.skip("the page does not show it")
    result = measured(name)

    assert _load("elastic_chart").table(result) in PAGE
    assert result["command"].split(" --flat")[0] in PAGE
    assert all(one["exactly_once"] for one in result["contenders"].values())


def test_the_predictions_are_as_they_were_measured() -> None:
    result = measured("simulation")

    assert _load("simulation").table(result) in PAGE
    assert result["command"].split(" --scen")[0] in PAGE
