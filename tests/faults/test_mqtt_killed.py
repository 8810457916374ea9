"""A driver is killed while messages come: each that the broker has acknowledged is in the output.

The output has each row of the ingest log once; a message that the broker has sent again is another row, and marked.
`ferryman bench connectors --parts ingest` does it twenty times, and kills the broker too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import ingest
from mqtt_broker import broker

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.mark.slow
def test_no_message_that_was_acknowledged_is_lost_and_no_row_comes_twice(tmp_path: Path) -> None:
    with broker(start=False):
        counted = ingest.killed(tmp_path, kills=1)

    assert (counted["lost"], counted["doubled"]) == (0, 0)
    assert counted["acknowledged"] >= 450
