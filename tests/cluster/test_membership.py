"""Hosts that are announced to go, vanish, and come: the job goes on, right, and uses the hosts there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from driving import Run, hosts, warmed
from standalone import HOSTS, available, standalone
from until import until

from ferryman._os.processes import below, kill, processes
from ferryman._spark.session.local_cluster import MASTER, join

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not available(3), reason="this machine has too few loopback addresses"),
]

ROWS, PER_EPOCH = 1200, 100
DECOMMISSIONED, JOINED, WARM = 250, 650, 950


def test_a_host_goes_by_announcement_and_another_joins_and_nobody_can_tell_from_the_results(spark, tmp_path):
    place = tmp_path / "standalone"
    with standalone(place, cores=2) as cluster:
        # More cores than there are, so that an executor on a new host is wanted.
        run = Run(tmp_path, cluster.url, 6, ROWS, PER_EPOCH, 2)
        run.stop_at(DECOMMISSIONED)
        run.stop_at(JOINED)
        run.stop_at(WARM)
        conf = {
            "spark.decommission.enabled": "true",
            "spark.storage.decommission.enabled": "true",
            "spark.scheduler.minRegisteredResourcesRatio": "0.6",
        }
        with run.driver(**conf) as driver:
            at = driver.inside(DECOMMISSIONED)
            gone = cluster.worker(at["host"])
            gone.decommission()
            driver.until(lambda: "ecommission" in master_log(place), "the master to know")
            run.go_on(DECOMMISSIONED)
            driver.inside(JOINED)
            driver.until(lambda: not gone.executors(), "the end of the executor that was decommissioned")
            new = join(place, cluster, cores=2, ends_with_us=True)
            driver.until(
                lambda: any("Registered BlockManager" in log.read_text() for log in new.work.glob("app-*/*/stderr")),
                "an executor on the new host",
            )
            run.go_on(JOINED)
            driver.inside(WARM)
            driver.until(lambda: warmed(new), "the new executor to be warm")
            run.go_on(WARM)
            driver.finish()

        run.check(spark)
        epochs = {epoch["epoch"]: epoch for epoch in driver.epochs()}
        (stays,) = (host for host in HOSTS if host != gone.host)
        assert set(hosts(epochs[1])) == set(HOSTS)
        # The epoch in which it was announced may have begun there; later ones have no choice.
        assert set(hosts(epochs[JOINED // PER_EPOCH])) == {stays}
        assert set(hosts(epochs[ROWS // PER_EPOCH])) == {stays, new.host}, "the new host was given nothing"


def master_log(place: Path) -> str:
    return (place / MASTER / "log").read_text(errors="replace")


STARTS = """
import sys, time
from pathlib import Path
from ferryman._spark.session.local_cluster import standalone
with standalone(Path(sys.argv[1]), hosts=1, cores=1, memory="512m") as cluster:
    print(cluster.workers[0].pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's end")
def test_a_cluster_ends_with_the_process_that_started_it_however_that_ends(tmp_path):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path / "c")], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert starter.stdout is not None
    try:
        worker = int(starter.stdout.readline())
        family = [process.id for process in below(starter.pid)]
        assert worker in family
    finally:
        kill(starter.pid)
        starter.wait()
    until(lambda: not set(family) & set(processes()), "the end of the cluster")
