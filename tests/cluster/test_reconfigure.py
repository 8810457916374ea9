"""Live rescaling on a standalone cluster of two hosts: state really travels, and nobody can tell from the results."""

from __future__ import annotations

import json

import pytest
from driving import Run, hosts
from standalone import HOSTS, available, standalone

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import directory
from ferryman._testing.processes import processes

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not available(), reason="this machine has only one loopback address"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone"), cores=2) as cluster:
        yield cluster


def state_hosts() -> set[int]:
    return {one.id for one in processes().values() if "ferryman._serve.host" in one.command}


def test_a_rescale_carries_state_between_hosts_and_changes_nothing(spark, tmp_path, cluster):
    before = state_hosts()
    run = Run(tmp_path, cluster.url, 4, 2400, 100, 2)
    (tmp_path / "changes.json").write_text(json.dumps({3: (4, "live"), 14: (1, "live")}))

    with run.driver() as driver:
        driver.finish()

    run.check(spark)
    history = json.loads((tmp_path / "history.json").read_text())
    assert [one["phase"] for one in history] == ["done", "done"], history
    # One instance is on one host: whatever the other one had went over the line.
    assert history[1]["moved_bytes"] > 0
    log = Checkpoint(directory(str(tmp_path / "checkpoint")))
    assert list(dict.fromkeys(log.manifest(epoch).routing.instances for epoch in log.epochs())) == [2, 4, 1]
    placed = {one["epoch"]: hosts(one) for one in driver.epochs()}
    for change in history:
        last = placed[change["switched_epoch"]]
        assert len(last) == change["instances"][1]
        assert set(last) <= set(HOSTS)
    assert state_hosts() <= before, "a state host outlives its executor"


@pytest.mark.parametrize("strategy", ["push", "pause_resume", "batched"])
def test_other_strategies_carry_the_same_state(spark, tmp_path, cluster, strategy):
    run = Run(tmp_path, cluster.url, 4, 1600, 100, 2)
    (tmp_path / "changes.json").write_text(json.dumps({3: (1, strategy)}))

    with run.driver() as driver:
        driver.finish()

    run.check(spark)
    (change,) = json.loads((tmp_path / "history.json").read_text())
    if strategy != "batched":
        assert change["phase"] == "done", change
    assert change["moved_bytes"] > 0
    log = Checkpoint(directory(str(tmp_path / "checkpoint")))
    assert any(log.manifest(epoch).held for epoch in log.epochs()), "no row ever waited"
    assert not log.latest().held
