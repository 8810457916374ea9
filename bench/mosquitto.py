"""A Mosquitto on loopback that can be stopped, killed and started again, and who publishes to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

USER, PASSWORD = "ferry", "s3cret"
_PATIENCE_S = 60


class NotToBeHad(Exception):
    """What is needed cannot be had on this machine; the message says why."""


class Broker:
    """A broker that keeps what it has acknowledged, whatever ends it."""

    def __init__(self, folder: Path, program: str, port: int) -> None:
        self._folder, self._program, self.port = folder, program, port
        self.server = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._folder / "log", "ab") as log:
            command = [self._program, "-c", str(self._folder / "conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.01)
        raise RuntimeError(f"the broker did not start:\n{(self._folder / 'log').read_text()[-4000:]}")

    def end(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def broker(*, start: bool = True, saves: bool = True) -> Iterator[Broker]:
    """Run a broker; with `saves` it writes down each change before it acknowledges it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    program, passwords = shutil.which("mosquitto", path=path), shutil.which("mosquitto_passwd", path=path)
    if program is None or passwords is None:
        raise NotToBeHad("no MQTT broker on this machine: Debian's package mosquitto has one")
    folder = Path(tempfile.mkdtemp(prefix="ferryman-mqtt-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "data").mkdir()
    (folder / "passwords").touch(mode=0o600)
    subprocess.run([passwords, "-b", folder / "passwords", USER, PASSWORD], check=True, capture_output=True)
    # As root it would become another user, who may not read here.
    user = "user root\n" if os.getuid() == 0 else ""
    saved = "autosave_interval 1\nautosave_on_changes true\n" if saves else ""
    (folder / "conf").write_text(
        f"{user}listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {folder}/passwords\n"
        f"persistence true\npersistence_location {folder}/data/\n{saved}"
        "max_queued_messages 0\nlog_type error\nlog_type warning\n"
    )
    running = Broker(folder, program, port)
    try:
        if start:
            running.start()
        yield running
    finally:
        running.end(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


class Publisher:
    """Publish at QoS 1, through any number of restarts of the broker; know what it has acknowledged."""

    def __init__(self, server: Broker) -> None:
        import paho.mqtt.client as mqtt

        self._client: Any = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False)
        self._client.username_pw_set(USER, PASSWORD)
        self._client.reconnect_delay_set(0.1, 0.5)
        self._client.max_inflight_messages_set(1000)
        self._client.on_publish = self._on_publish
        self._open: dict[int, str] = {}
        self._answered: set[int] = set()
        self._acknowledged: set[str] = set()
        self._client.connect("127.0.0.1", server.port)
        self._client.loop_start()

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        self._answered.add(mid)

    def publish(self, payloads: Iterable[str], topic: str = "fleet/a") -> None:
        for payload in payloads:
            self._open[self._client.publish(topic, payload, qos=1).mid] = payload

    @property
    def acknowledged(self) -> set[str]:
        """Give the payloads that the broker has acknowledged."""
        for mid in self._open.keys() & self._answered.copy():
            self._answered.discard(mid)
            self._acknowledged.add(self._open.pop(mid))
        return self._acknowledged

    def all_acknowledged(self) -> bool:
        return bool(self.acknowledged) and not self._open

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
