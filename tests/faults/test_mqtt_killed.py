"""Driver and broker are killed while messages come: each that the broker has acknowledged is in the output.

The output has each row of the ingest log once; a message that the broker has sent again is another row, and marked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from mqtt_broker import PASSWORD, USER, Broker, Publisher, broker
from until import until

from ferryman._log.files.directory import directory
from ferryman._spark.sinks.parquet import listed

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
DRIVE = Path(__file__).with_name("ingest_drive.py")


def drive(root: Path, server: Broker, **environment: str) -> subprocess.Popen[bytes]:
    with open(root / "driver.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, str(DRIVE), str(root), server.server, USER, PASSWORD],
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_all(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver with its JVM and its Python processes, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def shown(root: Path) -> list[dict[str, object]]:
    """Give the rows of committed epochs."""
    try:
        names, _ = listed(directory(str(root / "out")))
    except FileNotFoundError:
        return []
    return [row for name in names for row in pq.read_table(root / "out" / name).to_pylist()]


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_no_message_that_was_acknowledged_is_lost_and_no_row_comes_twice(tmp_path: Path, kills: int) -> None:
    with broker() as mosquitto:
        publisher = Publisher(mosquitto)
        sent = 0

        def send(count: int) -> bool:
            nonlocal sent
            publisher.publish(str(number) for number in range(sent, sent + count))
            sent += count
            return True

        # The session begins with the first connection: what comes before that is for nobody.
        driver = drive(tmp_path, mosquitto)
        until(lambda: send(1) and shown(tmp_path), "the job is up", log=tmp_path / "driver.log", every=0.3)
        for number in range(kills):
            seen = len(shown(tmp_path))
            send(200)
            until(lambda seen=seen: len(shown(tmp_path)) > seen, "rows come", log=tmp_path / "driver.log")
            send(200)
            if number % 2:
                mosquitto.end(signal.SIGKILL)
            kill_all(driver)
            if number % 2:
                mosquitto.start()
            send(50)
            driver = drive(tmp_path, mosquitto)
        until(publisher.all_acknowledged, "the broker has all", log=tmp_path / "driver.log")

        def missing() -> set[str]:
            rows = shown(tmp_path)
            begun = min(int(str(row["payload"])) for row in rows)
            wanted = {payload for payload in publisher.acknowledged if int(payload) >= begun}
            return wanted - {str(row["payload"]) for row in rows}

        until(lambda: not missing(), "all that was acknowledged is there", log=tmp_path / "driver.log", every=0.5)
        kill_all(driver)
        publisher.end()
    offsets = sorted(int(str(row["offset"])) for row in shown(tmp_path))
    assert offsets == list(range(len(offsets)))
    assert len(publisher.acknowledged) >= 400 * kills
