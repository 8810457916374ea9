"""On a standalone cluster of two hosts: right results, each instance at home, whatever is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driving import Run, hosts, warmed
from standalone import HOSTS, Cluster, Worker, available, standalone

from ferryman._os.processes import kill

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not available(), reason="this machine has only one loopback address"),
]

CORES = 2
INSTANCES = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone"), cores=CORES) as cluster:
        yield cluster


def run_on(cluster: Cluster, place: Path, *, rows: int, per_epoch: int, express: bool) -> Run:
    (place / "options.json").write_text(json.dumps({"express": express}))
    return Run(place, cluster.url, CORES * len(HOSTS), rows, per_epoch, INSTANCES)


def kill_executor(worker: Worker) -> None:
    (executor,) = worker.executors()
    assert kill(executor.id)


def registered(worker: Worker) -> int:
    """Count the executors on a host that have ever been ready for a driver's tasks and blocks."""
    logs = worker.work.glob("app-*/*/stderr")
    return sum("Registered BlockManager" in log.read_text(errors="replace") for log in logs)


def test_an_executor_killed_inside_a_task_changes_nothing(spark, tmp_path, cluster):
    # By a shuffle: a task that is tied to a host waits for the executor that comes there in place of the killed one.
    run = run_on(cluster, tmp_path, rows=300, per_epoch=100, express=False)
    run.stop_at(150)

    with run.driver() as driver:
        at = driver.inside(150)
        kill_executor(cluster.worker(at["host"]))
        driver.finish()

    run.check(spark)
    _, second, _ = (line["operators"]["Trail"]["hosts"][at["instance"]] for line in driver.epochs())
    assert second != at["host"], "it went on from its state where that could only come from the checkpoint directory"


@pytest.mark.slow
@pytest.mark.parametrize(
    "conf",
    [{}, {"spark.shuffle.reduceLocality.enabled": "true"}],
    ids=["our settings", "a shuffle that wants its tasks elsewhere"],
)
def test_every_instance_stays_on_its_host_and_results_and_state_are_right(spark, tmp_path, cluster, conf):
    run = run_on(cluster, tmp_path, rows=500, per_epoch=100, express=False)

    with run.driver(**conf) as driver:
        driver.finish()

    run.check(spark)
    placed = [hosts(epoch) for epoch in driver.epochs()]
    assert len(placed) == 5
    assert len(placed[0]) == INSTANCES
    assert set(placed[0]) == set(HOSTS)
    assert placed == placed[:1] * len(placed)


@pytest.mark.slow
@pytest.mark.parametrize("express", [True, False], ids=["express", "shuffle"])
def test_executors_killed_inside_a_task_and_at_any_moment_change_nothing(spark, tmp_path, cluster, express):
    run = run_on(cluster, tmp_path, rows=1200, per_epoch=80, express=express)
    first, second, third = 200, 500, 740
    for row in (first, second, third):
        run.stop_at(row)

    with run.driver() as driver:
        at = driver.inside(first)
        lost = cluster.worker(at["host"])
        other = next(candidate for candidate in cluster.workers if candidate is not lost)
        assert [len(worker.homes("Trail")) for worker in cluster.workers] == [1, 1]
        before = registered(lost)
        kill_executor(lost)
        driver.inside(second)
        # The replacement has to be there, or the next epoch cannot use it.
        driver.until(lambda: registered(lost) > before, "a new executor")
        run.go_on(second)
        driver.inside(third)
        driver.until(lambda: warmed(lost), "the new executor to be warm")
        run.go_on(third)
        epoch = third // run.per_epoch + 1
        driver.until(lambda: any(line["epoch"] > epoch for line in driver.epochs()), "another epoch")
        kill_executor(other)
        driver.finish()

    run.check(spark)
    by_epoch = {line["epoch"]: line for line in driver.epochs()}
    # The instance went on from its state, on a host that could only have it from the checkpoint directory.
    assert hosts(by_epoch[1])[at["instance"]] == lost.host
    assert by_epoch[first // run.per_epoch + 1]["operators"]["Trail"]["hosts"][at["instance"]] == other.host
    assert set(hosts(by_epoch[epoch + 1])) == set(HOSTS), "the new executor was not given its share"


@pytest.mark.slow
def test_a_driver_killed_while_its_tasks_run_on_the_cluster_changes_nothing(spark, tmp_path, cluster):
    run = run_on(cluster, tmp_path, rows=500, per_epoch=100, express=True)
    run.stop_at(250)

    with run.driver() as driver:
        driver.inside(250)
        driver.kill()
    # The task is still there, in the middle of epoch 3, when the next driver begins.
    with run.driver() as driver:
        driver.finish()

    run.check(spark)
    assert [line["epoch"] for line in driver.epochs()] == [1, 2, 3, 4, 5]
