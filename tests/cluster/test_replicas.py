"""Standing replicas on a standalone cluster of two hosts: what is there already does not travel, nor is it rebuilt."""

from __future__ import annotations

import json

import pytest
from driving import Run, hosts
from standalone import available, standalone

from ferryman._os.processes import kill

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not available(), reason="this machine has only one loopback address"),
]

ROWS, PER_EPOCH, STOPPED, LATER = 1200, 100, 450, 1050


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone"), cores=2) as cluster:
        yield cluster


def replicated(run: Run) -> int:
    told = run.place / "replicated"
    return int(told.read_text()) if told.exists() else -1


def test_a_plan_finds_at_a_standby_what_it_would_have_to_copy(spark, tmp_path, cluster):
    run = Run(tmp_path, cluster.url, 4, ROWS, PER_EPOCH, 2)
    (tmp_path / "options.json").write_text(json.dumps({"replicas": 1}))
    stopped = STOPPED // PER_EPOCH + 1
    (tmp_path / "changes.json").write_text(json.dumps({stopped: (1, "replicate")}))
    run.stop_at(STOPPED)

    with run.driver() as driver:
        driver.inside(STOPPED)
        driver.until(lambda: replicated(run) == STOPPED // PER_EPOCH, "replicas of all that is committed")
        run.go_on(STOPPED)
        driver.finish()

    run.check(spark)
    history = json.loads((tmp_path / "history.json").read_text())
    (change,) = history
    assert change["phase"] == "done"
    epochs = {epoch["epoch"]: epoch for epoch in driver.epochs()}
    before, after = epochs[stopped], epochs[change["switched_epoch"]]
    assert len(set(hosts(before))) == 2
    assert len(hosts(after)) == 1
    assert change["moved_bytes"] == 0, "it was there already"
    assert {operator["rebuilt"] for operator in after["operators"].values()} == {0}, "the new owner did not find it"


def test_a_host_that_is_lost_leaves_a_standby_that_need_not_rebuild(spark, tmp_path, cluster):
    run = Run(tmp_path, cluster.url, 4, ROWS, PER_EPOCH, 2)
    (tmp_path / "options.json").write_text(json.dumps({"replicas": 1, "groups": 8}))
    run.stop_at(STOPPED)
    run.stop_at(LATER)

    with run.driver() as driver:
        at = driver.inside(STOPPED)
        driver.until(lambda: replicated(run) == STOPPED // PER_EPOCH, "replicas of all that is committed")
        (executor,) = cluster.worker(at["host"]).executors()
        kill(executor.id)
        run.go_on(STOPPED)
        driver.inside(LATER)
        driver.until(lambda: replicated(run) == LATER // PER_EPOCH, "replicas again, whoever stands by now")
        run.go_on(LATER)
        driver.finish()

    run.check(spark)
    epoch = next(line for line in driver.epochs() if line["epoch"] == STOPPED // PER_EPOCH + 1)
    assert epoch["operators"]["Trail"]["hosts"][at["instance"]] != at["host"], "its instance was not on the standby"
    assert {operator["rebuilt"] for operator in epoch["operators"].values()} == {0}
