"""The page on migrating says of every method which test shows it: that test must have called it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from processor.beside import RUNS
from processor.calls import FERRYMAN, SPARK
from processor.page import BESIDE, claims


@pytest.fixture(autouse=True)
def what_the_page_says_was_really_called(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare what the user's code called, on each engine, with what the page says that the test shows."""
    RUNS.clear()
    yield
    called = {engine: {call for run in RUNS for call in run.calls[engine].all()} for engine in (SPARK, FERRYMAN)}
    for method, status in claims(request.node.name):
        for engine in (SPARK, FERRYMAN) if status == BESIDE else (FERRYMAN,):
            assert method in called[engine], (
                f"the page says of {method} {status!r}, and {request.node.name} does not call it on {engine}, where it "
                f"calls {', '.join(sorted(called[engine]))}"
            )
