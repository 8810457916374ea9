"""Express epochs on a standalone cluster of two hosts: the same bytes as by a shuffle, each instance at home."""

from __future__ import annotations

import json

import fleet
import pytest
from driving import Run, hosts
from standalone import HOSTS, available, standalone

from ferryman._engine.express_or_shuffle import MOST_ROWS
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not available(), reason="this machine has only one loopback address"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone"), cores=2) as cluster:
        yield cluster


def manifests(run):
    """Give what the manifests of a job say that may not depend on how its epochs went."""
    log = Checkpoint(directory(str(run.place / "checkpoint")))
    for epoch in log.epochs():
        manifest = log.manifest(epoch)
        yield manifest.operators, manifest.tables, manifest.watermarks, manifest.held, manifest.routing


@pytest.mark.slow
def test_small_epochs_go_by_express_and_nobody_can_tell_from_the_files(spark, tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("FLEET_SOURCE", str(tmp_path / "source"))
    found = {}
    for express in (True, False):
        place = tmp_path / str(express)
        place.mkdir()
        (place / "options.json").write_text(json.dumps({"express": express, "retain": 100}))
        run = Run(place, cluster.url, 4, 500, 100, 3, fleet.ALL)
        with run.driver() as driver:
            driver.finish()
        run.check(spark)
        found[express] = list(manifests(run))
        epochs = driver.epochs()
        placed = [hosts(epoch) for epoch in epochs]
        assert set(placed[0]) == set(HOSTS)
        assert placed == placed[:1] * 5, "an instance has left its host"
        # A busy machine may take so long to read that later ones go by a shuffle.
        assert epochs[0]["route"] == ("express" if express else "shuffle")
    assert found[True] == found[False]


@pytest.mark.slow
def test_an_epoch_that_is_too_large_is_done_by_a_shuffle(spark, tmp_path, cluster):
    size = MOST_ROWS + 500
    run = Run(tmp_path, cluster.url, 4, 2 * size, size, 2, ("trail",))
    with run.driver() as driver:
        driver.finish()
    run.check(spark)
    first, second = driver.epochs()
    assert (first["route"], second["route"]) == ("shuffle", "shuffle")
    assert "more rows than express takes" in first["why"]
    assert "express is tried again" in second["why"]
