"""A broker of Kafka on loopback, from Maven's repository, into the environment."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

BROKER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.kafka:kafka-tools:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
    "org.apache.logging.log4j:log4j-core:2.25.1",
)
# Spark's connector has no release for Spark 4.3 everywhere yet; these run on it. Each comes without what it asks for.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
PATIENCE_S = 120


class NotToBeHad(Exception):
    """What is needed cannot be had on this machine; the message says why."""


def connector() -> list[Path]:
    """Give the files of Spark's connector."""
    return jars("kafka-connector", CONNECTOR, alone=True)


def jars(name: str, artifacts: Sequence[str], *, alone: bool = False) -> list[Path]:
    """Give the files of some artifacts, with those they need or alone; the first who asks brings them."""
    folder = Path(sys.prefix) / "ferryman-jars" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _bring(folder, artifacts, alone=alone)
    return sorted(folder.glob("*.jar"))


def _bring(folder: Path, artifacts: Sequence[str], *, alone: bool) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NotToBeHad("no Maven on this machine: Debian's package maven has it")
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        (draft / "pom.xml").write_text(_pom(artifacts, alone=alone))
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={draft / 'jars'}"]
        done = subprocess.run(command, cwd=draft, capture_output=True, text=True, timeout=600)
        if done.returncode:
            said = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it says nothing")
            raise NotToBeHad(f"Maven cannot bring {artifacts[0]}: {said[:300]}")
        (draft / "jars").rename(folder)
    except subprocess.TimeoutExpired as late:
        raise NotToBeHad(f"Maven does not bring {artifacts[0]} within {late.timeout:.0f} s") from late
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _pom(artifacts: Sequence[str], *, alone: bool) -> str:
    every = "<groupId>*</groupId><artifactId>*</artifactId>"
    without = f"<exclusions><exclusion>{every}</exclusion></exclusions>" if alone else ""
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{without}"
        "</dependency>"
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>ferryman</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{listed}</dependencies></project>"
    )


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """Run a broker; give where it is."""
    classes = ":".join(map(str, jars("kafka", BROKER)))
    java = shutil.which("java")
    if java is None:
        raise NotToBeHad("no Java on this machine")
    folder = Path(tempfile.mkdtemp(prefix="ferryman-kafka-"))
    ports = _free_ports(2)
    (folder / "server.properties").write_text(_settings(folder, *ports))
    options = ["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    properties = str(folder / "server.properties")
    with open(folder / "log", "wb") as log:
        said = {"stdout": log, "stderr": subprocess.STDOUT}
        tool = [java, *options, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties]
        subprocess.run(tool, check=True, timeout=PATIENCE_S, **said)
        process = subprocess.Popen([java, *options, "kafka.Kafka", properties], **said)
    try:
        _wait(process, ports[0], folder / "log")
        yield f"127.0.0.1:{ports[0]}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]


def _settings(folder: Path, port: int, controller: int) -> str:
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not start:\n{log.read_text()[-4000:]}")
