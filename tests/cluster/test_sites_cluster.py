"""Key groups and keys are sent to a host and a site of a standalone cluster, and that is where they are worked on."""

from __future__ import annotations

import json

import pytest
from driving import Run, hosts
from standalone import HOSTS, available, standalone

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not available(), reason="this machine has only one loopback address"),
]


def test_what_is_sent_to_a_host_or_a_site_is_worked_on_there(spark, tmp_path):
    cloud, edge = HOSTS
    (tmp_path / "sites.json").write_text(json.dumps([["cloud", cloud], ["edge", [f"{edge[:-1]}[{edge[-1]}]"], 20]]))
    wanted = {
        2: ({"groups": [0, 1, 2, 3], "to": edge}, "live"),
        3: ({"groups": [0, 1, 2, 3], "to": "mars"}, "live"),
        4: ({"groups": [0, 1, 2, 3, 4], "to": "cloud"}, "live"),
        5: ({"keys": ["s-1", "s-2"], "to": "edge"}, "live"),
        6: (2, "live"),
    }
    (tmp_path / "changes.json").write_text(json.dumps(wanted))

    with standalone(tmp_path / "standalone", cores=2) as cluster:
        run = Run(tmp_path, cluster.url, 4, 4000, 100, 4)
        with run.driver() as driver:
            driver.finish(timeout=450)

    run.check(spark)
    history = json.loads((tmp_path / "history.json").read_text())
    assert [change["phase"] for change in history] == ["done"] * 4, history
    refused = (tmp_path / "refused").read_text()
    assert "there is no host or site 'mars'" in refused
    assert f"{edge} (instances " in refused
    assert "cloud (instances " in refused
    log = Checkpoint(directory(str(tmp_path / "checkpoint")))
    placed = {epoch["epoch"]: hosts(epoch) for epoch in driver.epochs()}

    def at(change: int):
        """Give the routing table, and the host of each instance, of the first epoch after a change."""
        epoch = history[change]["switched_epoch"]
        return log.manifest(epoch).routing, placed[epoch]

    table, where = at(0)
    assert {where[table.owner[group]] for group in (0, 1, 2, 3)} == {edge}
    assert len({table.owner[group] for group in (0, 1, 2, 3)}) == 2, "they were not spread over the host's instances"
    table, where = at(1)
    assert {where[table.owner[group]] for group in (0, 1, 2, 3, 4)} == {cloud}
    assert history[1]["moved_bytes"] > 0
    table, where = at(2)
    pins = {pin.key: where[pin.instance] for pin in table.pins}
    assert set(history[2]["keys"]) >= {"s-1"} or set(history[2]["keys"]) >= {"s-2"}
    assert set(pins) == set(history[2]["keys"])
    assert set(pins.values()) == {edge}
    table, where = at(3)
    assert table.instances == 2
    assert set(where) == set(HOSTS), "an instance of each site was to stay"
