"""What the tests of plans share."""

from __future__ import annotations

import math

import pytest

from ferryman._engine import express_or_shuffle
from ferryman._spark.api import assembly


@pytest.fixture
def tied(monkeypatch):
    """Have jobs tie their instances to executors, as on a cluster: the session's own is the only one there is."""
    monkeypatch.setattr(assembly, "_several_hosts", lambda spark: True)
    # On a busy machine everything takes long, and tests tell how epochs should go.
    monkeypatch.setattr(express_or_shuffle, "MOST_READING_MS", math.inf)


@pytest.fixture(params=["one host", pytest.param("several hosts", marks=pytest.mark.slow)])
def hosts(request):
    """Run a test as on one host, and as on several."""
    if request.param == "several hosts":
        request.getfixturevalue("tied")
