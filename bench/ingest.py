"""The ingest log: messages per second that are durable, beside the broker's own rate; and kills that lose nothing.

The broker has the messages queued, and hands them over as fast as they are taken: to its own client, which acknowledges
at once and keeps nothing, and to the receiver, which has each on disk before. Then driver and broker are killed by
turns while messages come, and the output is compared with what the broker has acknowledged.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.mosquitto import PASSWORD, USER, Broker, NotToBeHad, Publisher, broker
from ferryman._log.files.directory import directory
from ferryman._os.processes import in_session, kill
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.mqtt_options import MqttOptions
from ferryman._serve.ingest.mqtt_receiver import SCHEMA, MqttReceiver
from ferryman._spark.sinks.parquet import listed

_JOB = Path(__file__).with_name("ingest_job.py")
_PATIENCE_S = 180.0


def run(*, rows: int = 50_000, rounds: int = 3, kills: int = 20) -> dict[str, Any]:
    """Measure, and kill; give the figures.

    Parameters
    ----------
    rows
        Messages of 100 bytes in a round.
    rounds
        How often each is measured.
    kills
        How often the driver is killed, every second time with the broker.
    """
    figures: list[tuple[float, float]] = []
    for _ in range(rounds):
        with broker(saves=False) as server, tempfile.TemporaryDirectory() as folder:
            figures.append((_broker_rate(server, rows), _ingest_rate(server, Path(folder), rows)))
    own, durable = (statistics.median(rates) for rates in zip(*figures, strict=True))
    with tempfile.TemporaryDirectory(prefix="ferryman-ingest-") as folder:
        counted = killed(Path(folder), kills=kills) if kills else {}
    return {
        "ingest_rows_per_s": round(durable),
        "ingest_rows_per_s_spread": [round(min(rate for _, rate in figures)), round(max(rate for _, rate in figures))],
        "broker_rows_per_s": round(own),
        "ingest_ratio_vs_broker": round(durable / own, 3),
        **{f"ingest_{name}": count for name, count in counted.items()},
    }


def _options(server: Broker, topic: str, client_id: str) -> MqttOptions:
    return MqttOptions(server=server.server, topics=[topic], username=USER, password=PASSWORD, client_id=client_id)


def _queue(server: Broker, rows: int, topic: str) -> None:
    """Have the broker keep messages for a session that is away."""
    publisher = Publisher(server)
    publisher.publish((f"{number:0100d}" for number in range(rows)), topic)
    _until(publisher.all_acknowledged, "the broker has them")
    publisher.end()


def _broker_rate(server: Broker, rows: int) -> float:
    """Take messages with the broker's own client, which acknowledges each at once and keeps nothing."""
    program = shutil.which("mosquitto_sub")
    if program is None:
        raise NotToBeHad("no mosquitto_sub on this machine: Debian's package mosquitto-clients has it")
    who = ["-p", str(server.port), "-u", USER, "-P", PASSWORD, "-i", "plain", "-t", "plain/#", "-q", "1"]
    kept = ["-V", "5", "-c", "-x", "4294967295", "-D", "connect", "receive-maximum", "5000"]
    command = [program, "-h", "127.0.0.1", *who, *kept]
    subprocess.run([*command, "-E"], check=True, timeout=_PATIENCE_S)
    _queue(server, rows, "plain/a")
    begun = time.perf_counter()
    subprocess.run([*command, "-C", str(rows)], check=True, stdout=subprocess.DEVNULL, timeout=_PATIENCE_S)
    return rows / (time.perf_counter() - begun)


def _ingest_rate(server: Broker, folder: Path, rows: int) -> float:
    """Take messages into an ingest log, on disk before they are acknowledged."""
    begin = partial(MqttReceiver, _options(server, "durable/#", "durable"))
    ingest = Ingest(folder, SCHEMA, begin, max_bytes=1 << 30)
    publisher = Publisher(server)

    def arrived() -> bool:
        publisher.publish(["hello"], "durable/a")
        ingest.check()
        return ingest.log.end > 0

    _until(arrived, "the receiver is connected", every=0.1)
    publisher.end()
    ingest.end()
    _queue(server, rows, "durable/a")
    begun = time.perf_counter()
    ingest = Ingest(folder, SCHEMA, begin, max_bytes=1 << 30)
    before = ingest.log.end
    _until(lambda: ingest.log.end >= before + rows, "all are durable", every=0.001)
    took = time.perf_counter() - begun
    ingest.end()
    return rows / took


def killed(folder: Path, *, kills: int) -> dict[str, int]:
    """Kill a driver with all its processes, every second time the broker too, while messages come; count."""
    with broker() as server:
        publisher = Publisher(server)
        sent = 0

        def send(count: int) -> None:
            nonlocal sent
            publisher.publish(str(number) for number in range(sent, sent + count))
            sent += count

        def begun() -> bool:
            send(1)
            return bool(_shown(folder))

        def all_there() -> bool:
            return publisher.all_acknowledged() and not _missing(publisher, _shown(folder))

        # The session begins with the first connection: what comes before that is for nobody.
        driver = _drive(folder, server)
        try:
            _until(begun, "the job is up", every=0.3)
            for number in range(kills):
                seen = len(_shown(folder))
                send(200)
                _until(lambda seen=seen: len(_shown(folder)) > seen, "rows come", every=0.1)
                send(200)
                if number % 2:
                    server.end(signal.SIGKILL)
                _kill(driver)
                if number % 2:
                    server.start()
                send(50)
                driver = _drive(folder, server)
            with contextlib.suppress(TimeoutError):
                _until(all_there, "all that was acknowledged is there", every=0.5)
        except TimeoutError as late:
            raise TimeoutError(f"{late}\n{(folder / 'driver.log').read_text()[-4000:]}") from late
        finally:
            _kill(driver)
            publisher.end()
        rows = _shown(folder)
        offsets = [row["offset"] for row in rows]
        again = {row["payload"] for row in rows if row["repeats"] is not None}
        return {
            "kills": kills,
            "acknowledged": len(publisher.acknowledged),
            "lost": len(_missing(publisher, rows)) + max(offsets) + 1 - len(set(offsets)),
            "doubled": len(offsets) - len(set(offsets)),
            "sent_again": len(rows) - len({row["payload"] for row in rows}),
            "marked": len(again),
        }


def _missing(publisher: Publisher, rows: list[dict[str, Any]]) -> set[str]:
    there = {row["payload"] for row in rows}
    begun = min(map(int, there), default=0)
    return {payload for payload in publisher.acknowledged if int(payload) >= begun} - there


def _drive(folder: Path, server: Broker) -> subprocess.Popen[bytes]:
    with open(folder / "driver.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, str(_JOB), str(folder), server.server, USER, PASSWORD],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _kill(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver with its JVM and its Python processes, at once."""
    for process in in_session(driver.pid):
        kill(process.id)
    driver.wait()


def _shown(folder: Path) -> list[dict[str, Any]]:
    """Give the rows of committed epochs."""
    try:
        names, _ = listed(directory(str(folder / "out")))
    except FileNotFoundError:
        return []
    return [row for name in names for row in pq.read_table(folder / "out" / name).to_pylist()]


def _until(condition: Callable[[], bool], what: str, every: float = 0.02) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {_PATIENCE_S:.0f} s")
        time.sleep(every)
