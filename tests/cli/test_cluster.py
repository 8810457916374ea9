"""`ferryman cluster`: up, used, down, and nothing of it is left."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ferryman._cli import app
from ferryman._os.processes import processes
from ferryman._spark.session.local_cluster import available

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(not available(), reason="only one loopback address"),
]


def test_a_cluster_comes_up_and_goes_down(tmp_path):
    place = str(tmp_path / "a cluster")
    up = CliRunner().invoke(app, ["cluster", "up", "--dir", place, "--hosts", "1", "--cores", "1", "--memory", "512m"])
    assert up.exit_code == 0, up.output
    started = [
        process["pid"] for process in json.loads((tmp_path / "a cluster" / "cluster.json").read_text())["processes"]
    ]
    try:
        assert "spark://127.0.0.1:" in up.output
        assert len(started) == 2
        assert set(started) <= set(processes())
        again = CliRunner().invoke(app, ["cluster", "up", "--dir", place])
        assert again.exit_code == 1
        assert "holds a cluster already" in again.output
    finally:
        down = CliRunner().invoke(app, ["cluster", "down", "--dir", place])
    assert down.exit_code == 0, down.output
    assert not set(started) & set(processes())
    again = CliRunner().invoke(app, ["cluster", "down", "--dir", place])
    assert again.exit_code == 1
    assert "holds no cluster" in again.output
