"""On `local-cluster`: executors in JVMs of their own, each with a home of its own."""

from __future__ import annotations

import pytest
from driving import Run

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


def test_results_and_state_are_right_on_a_local_cluster(spark, tmp_path):
    run = Run(tmp_path, "local-cluster[2,1,1024]", cores=2, rows=400, per_epoch=100, instances=2)

    with run.driver() as driver:
        driver.finish()

    run.check(spark)
    epochs = driver.epochs()
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3, 4]
    assert all(len(operator["hosts"]) == 2 for epoch in epochs for operator in epoch["operators"].values())
