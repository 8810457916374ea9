"""A few cases of the fault campaign, `ferryman bench faults`: each takes a minute, so only two are tests."""

from __future__ import annotations

import pytest
from standalone import available, standalone

from ferryman._cli.bench import _load

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not available(), reason="this machine has only one loopback address"),
]

CASES = [
    ("live", "copy", "source host", "killed"),
    ("pause_resume", "catch-up", "driver", "killed"),
]


def test_whatever_is_struck_the_plan_ends_and_nothing_is_wrong_or_left(tmp_path):
    faults, report = _load("faults"), _load("report")
    todo = [faults.Case(*case) for case in CASES]
    with standalone(tmp_path / "cluster") as cluster:
        said = faults.campaign(cluster, tmp_path, todo, report.Progress())
        left = faults.left_on(cluster)

    ended = [line for line in said if "ended" in line]
    assert [line["case"] for line in ended] == [case.name for case in todo]
    assert {line["ended"] for line in ended} <= set(faults.ENDS), ended
    assert [line for line in ended if not line["right"] or line["leaks"]] == []
    assert [line for line in said if line.get("left")] == []
    assert left == []


def test_a_campaign_of_pairs_has_every_pair():
    faults = _load("faults")
    some = faults.cases(pairs=True, how=["killed"])
    whole = faults.cases(how=["killed"])

    assert len(whole) == 8 * 5 * 5
    assert 5 * len(some) == len(whole)
    for one, other in (("strategy", "phase"), ("strategy", "victim"), ("victim", "phase")):
        found, wanted = ({(getattr(case, one), getattr(case, other)) for case in cases} for cases in (some, whole))
        assert found == wanted
