"""A host of three is lost: only what was on it moves, to who stands by or to all others; and all rows are exact."""

from __future__ import annotations

import json

import pytest
from driving import Run, hosts
from standalone import available, standalone

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._os.processes import kill

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not available(3), reason="this machine has too few loopback addresses"),
]

PER_EPOCH = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone"), hosts=3, cores=1) as cluster:
        yield cluster


@pytest.mark.slow
def test_what_was_lost_between_two_epochs_is_restored_by_all_others_while_only_its_rows_wait(spark, tmp_path, cluster):
    run = Run(tmp_path, cluster.url, 3, 4000, PER_EPOCH, 3)
    (tmp_path / "options.json").write_text(json.dumps({"groups": 12, "retain": 100}))
    (tmp_path / "between").write_text("12")

    with run.driver() as driver:
        driver.until((tmp_path / "paused").exists, "a pause between two epochs")
        before = driver.epochs()[-1]
        lost = cluster.worker(hosts(before)[1])
        (executor,) = lost.executors()
        kill(executor.id)
        driver.finish()

    run.check(spark)
    history = json.loads((tmp_path / "history.json").read_text())
    assert [change["kind"] for change in history[:1]] == ["recovery"]
    recovery = history[0]
    assert recovery["phase"] == "done", recovery["reason"]
    log = Checkpoint(directory(str(tmp_path / "checkpoint")))
    table, after = (log.manifest(epoch).routing for epoch in (before["epoch"], recovery["switched_epoch"]))
    mine = [group for group, owner in enumerate(table.owner) if owner == 1]
    assert {after.owner[group] for group in mine} == {0, 1, 2}
    assert all(after.owner[group] == owner for group, owner in enumerate(table.owner) if owner != 1)
    # Those that stay were never elsewhere, and nobody had to rebuild what the state hosts have restored.
    later = [epoch for epoch in driver.epochs() if before["epoch"] < epoch["epoch"] <= recovery["switched_epoch"] + 1]
    for epoch in later:
        assert [hosts(epoch)[stays] for stays in (0, 2)] == [hosts(before)[stays] for stays in (0, 2)]
        assert {operator["rebuilt"] for operator in epoch["operators"].values()} == {0}
    waited = set().union(*(held.groups for held in log.manifest(before["epoch"] + 1).held.get("Trail", ())))
    assert waited <= set(mine)


@pytest.mark.slow
@pytest.mark.parametrize("express", [True, False], ids=["express", "shuffle"])
def test_the_next_host_of_the_ring_takes_over_what_it_stands_by_for(spark, tmp_path, cluster, express):
    stopped = 550
    run = Run(tmp_path, cluster.url, 3, 1200, PER_EPOCH, 3)
    (tmp_path / "options.json").write_text(json.dumps({"replicas": 1, "groups": 12, "express": express}))
    run.stop_at(stopped)

    with run.driver() as driver:
        at = driver.inside(stopped)
        told = tmp_path / "replicated"
        driver.until(lambda: told.exists() and int(told.read_text()) == stopped // PER_EPOCH, "replicas of all")
        (executor,) = cluster.worker(at["host"]).executors()
        kill(executor.id)
        run.go_on(stopped)
        driver.finish()

    run.check(spark)
    epochs = {epoch["epoch"]: epoch for epoch in driver.epochs()}
    struck = stopped // PER_EPOCH + 1
    ring = sorted(set(hosts(epochs[1])))
    heir = ring[(ring.index(at["host"]) + 1) % 3]
    assert hosts(epochs[struck + 1])[at["instance"]] == heir, "another host has taken over"
    if express:
        # What was under way Spark runs again where there is room first, and that need not be the heir. Its state comes
        # from who keeps it all the same. The other operator may have been done before.
        assert epochs[struck]["operators"]["Trail"]["hosts"][at["instance"]] in {*ring} - {at["host"]}
    for epoch in (struck, struck + 1):
        assert {operator["rebuilt"] for operator in epochs[epoch]["operators"].values()} == {0}
    stay = [instance for instance in range(3) if instance != at["instance"]]
    for epoch in (1, struck - 1, struck + 1):
        assert [hosts(epochs[epoch])[instance] for instance in stay] == [
            hosts(epochs[1])[instance] for instance in stay
        ]
