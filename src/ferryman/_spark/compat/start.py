"""Spark before there is a session: its home, its JVM, its settings, its Python workers. Calls nobody of ours."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession


def active_context() -> SparkContext | None:
    """Give the context of this process, and start none, as every public way does. Tried on 4.3."""
    return SparkContext._active_spark_context


def active_gateway() -> JavaGateway | None:
    """Give the line to the JVM that was started before, which outlives the session it was started for. Tried on 4.3."""
    return SparkContext._gateway


def submitted_gateway() -> JavaGateway | None:
    """Give the line to the JVM that spark-submit has started this process from; None where it has not. Tried on 4.3."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    SparkContext._ensure_initialized()
    return SparkContext._gateway


def launch(conf: SparkConf, **popen: Any) -> JavaGateway:
    """Start the JVM of the driver; `popen` is for its process, so that its stderr can be read. Tried on 4.3."""
    arguments: Mapping[str, Any] | None = popen or None
    return launch_gateway(conf, arguments)  # type: ignore[no-untyped-call]


def settings_of(gateway: JavaGateway) -> SparkConf:
    """Read the settings that the command line and Spark's files gave, before there is a context. Tried on 4.3."""
    return SparkConf(_jvm=gateway.jvm)


def default_filesystem(gateway: JavaGateway) -> str:
    """Read from Hadoop's files where paths without a scheme are, before there is a context. Tried on 4.3."""
    return str(gateway.jvm.org.apache.hadoop.conf.Configuration().get("fs.defaultFS") or "file:///")


def has_class(gateway: JavaGateway, name: str) -> bool:
    """Tell whether this release of Spark has a class: 4.1 and 4.3 keep some in different packages."""
    try:
        gateway.jvm.java.lang.Class.forName(name)
    except Py4JJavaError:
        return False
    return True


def spark_home() -> str:
    """Find where Spark is installed, as its scripts do. Tried on 4.3."""
    return _find_spark_home()


def options_of(builder: SparkSession.Builder) -> dict[str, str]:
    """Read what a builder of a session was told so far. Tried on 4.3."""
    return dict(builder._options)


def ships_class(name: str) -> bool:
    """Tell whether this release of Spark has a class of its SQL module, without a JVM to ask. Tried on 4.3."""
    for jar in Path(spark_home(), "jars").glob("spark-sql_*.jar"):
        with zipfile.ZipFile(jar) as classes:
            return f"{name.replace('.', '/')}.class" in classes.namelist()
    return False


def serve_workers() -> None:
    """Fork Python workers for an executor until it ends, as `python -m pyspark.daemon` does. Tried on 4.3.

    A worker whose executor has hung up ends quietly. PySpark's own prints a trace of that where users look, as when a
    session is stopped while the last bytes of a task are on their way.
    """
    from pyspark import daemon

    own: Any = daemon.worker

    def worker(sock: socket, authenticated: bool) -> int:
        try:
            return int(own(sock, authenticated))
        except (BrokenPipeError, ConnectionResetError):
            return 1

    daemon.worker = worker
    daemon.manager()
