"""Executors come and go with the instances of a job, and nobody can tell from its results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fleet
import pytest
from standalone import Cluster, available, standalone
from until import until

from ferryman._os.processes import end_with_parent

DRIVE = Path(__file__).with_name("drive_pool.py")
PARTS = ("trail", "words")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not available(3), reason="this machine has too few loopback addresses"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three hosts with room for an executor each."""
    with standalone(tmp_path_factory.mktemp("standalone"), hosts=3, cores=1, memory="600m") as cluster:
        yield cluster


def run(cluster: Cluster, files: Path, options: dict[str, Any], steps: list[Any], **told: Callable[[], None]) -> Any:
    """Run a job through steps; where it tells of one, do something; give what came of it."""
    with (files / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(DRIVE), str(files), cluster.url, json.dumps(options), json.dumps(steps)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    try:
        for name, act in told.items():
            until(lambda name=name: (files / name).exists() or process.poll() is not None, name, 400, files / "log")
            assert process.poll() is None, (files / "log").read_text()[-4000:]
            act()
            (files / f"{name}.go").touch()
        assert process.wait(400) == 0, (files / "log").read_text()[-4000:]
    finally:
        process.kill()
        process.wait()
    result = json.loads((files / "result.json").read_text())
    assert not result["failed"], (result["failed"], result["steps"], result["decisions"], result["scaling"])
    return result


def check(spark: Any, files: Path, result: Any) -> None:
    """Compare output and state with what they should be; and nothing was owned by whoever did not have its state."""
    found = fleet.found(spark, str(files / "checkpoint"), str(files / "out"), PARTS)
    assert found == fleet.expected(result["rows"], PARTS)
    rebuilt = [epoch["epoch"] for epoch in result["epochs"] for of in epoch["operators"].values() if of["rebuilt"]]
    assert set(rebuilt) <= {1}, "state was made anew from the checkpoint"


def hosts(result: Any) -> list[int]:
    """Count the hosts of each epoch, and leave out repetitions."""
    counts = [len({host for of in epoch["operators"].values() for host in of["hosts"]}) for epoch in result["epochs"]]
    return [count for count, before in zip(counts, [0, *counts], strict=False) if count != before]


def test_executors_come_before_instances_and_go_after_them_and_what_is_not_there_is_done_without(
    spark, tmp_path, cluster
):
    options = {"pool": {"min": 1, "max": 5, "patience": 10, "give_back_after": 1}}
    steps = [
        ["executors", 1],
        # Two more than the cluster has room for.
        ["wish", 5],
        ["said", "3 of 5 executors are there: the cluster gives no more"],
        ["hosts", 3],
        ["epochs", 5],
        ["wish", 1],
        ["hosts", 1],
        ["executors", 1],
        ["epochs", 2],
        ["tell", "one"],
    ]

    def one() -> None:
        until(lambda: sum(len(worker.executors()) for worker in cluster.workers) == 1, "one executor", 30)

    result = run(cluster, tmp_path, options, steps, one=one)

    check(spark, tmp_path, result)
    assert any("3 of 5 executors are there" in decision for decision in result["decisions"]), result["decisions"]
    assert {change["phase"] for change in result["history"]} == {"done"}
    assert hosts(result)[-2:] == [3, 1]
    assert "asked again" in (tmp_path / "log").read_text(), "a warning says so"


def test_instances_follow_the_executors_and_leave_one_that_is_decommissioned(spark, tmp_path, cluster):
    options = {"pool": {"min": 1, "max": 2, "instances_each": 2, "give_back_after": 1}, "scaled_by_hand": True}
    steps = [
        ["executors", 1],
        ["rescale", 4],
        ["hosts", 2],
        ["state_hosts", 2],
        ["epochs", 3],
        ["tell", "decommission"],
        ["left", 1],
        ["hosts", 2],
        ["epochs", 2],
        ["rescale", 2],
        ["hosts", 1],
        ["executors", 1],
        ["epochs", 2],
    ]

    def decommission() -> None:
        next(worker for worker in reversed(cluster.workers) if worker.executors()).decommission()

    result = run(cluster, tmp_path, options, steps, decommission=decommission)

    check(spark, tmp_path, result)
    kinds = [change["kind"] for change in result["history"] if change["phase"] == "done"]
    # Over two hosts; over two again when another executor has come; away from one that is to be given back.
    assert kinds.count("rehost") >= 3, result["history"]
    assert hosts(result)[-1] == 1


def test_executors_of_one_host_come_and_go_where_they_share_its_home(spark, tmp_path):
    options = {"pool": {"min": 1, "max": 3, "give_back_after": 1}, "home": str(tmp_path / "home")}
    steps = [
        ["executors", 1],
        ["wish", 3],
        ["instances", 3],
        ["executors", 3],
        ["epochs", 5],
        ["wish", 1],
        ["instances", 1],
        ["executors", 1],
        ["epochs", 2],
    ]
    with standalone(tmp_path / "standalone", hosts=1, cores=3, memory="1600m") as cluster:
        result = run(cluster, tmp_path, options, steps)

    check(spark, tmp_path, result)
    assert [decision.partition(",")[0] for decision in result["decisions"]] == ["scale out", "done", "scale in", "done"]
