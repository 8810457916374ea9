"""Make a SparkSession that is set up for Ferryman.

Calls `java`, `jvm_stderr`, `class_archive`, `session_settings` and `advice`. Every setting here is a default: what the
user, spark-submit or spark-defaults.conf says comes first.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ferryman._engine.starting import session_took
from ferryman._engine.starting_shown import shown
from ferryman._model.advised_settings import COMFORT
from ferryman._model.settings_that_apply import is_local
from ferryman._os import java
from ferryman._spark.compat.start import (
    active_context,
    active_gateway,
    default_filesystem,
    has_class,
    settings_of,
    spark_home,
)
from ferryman._spark.session import class_archive, jvm_stderr
from ferryman._spark.session.advice import Advice, advise, check
from ferryman._spark.session.session_settings import defaults
from ferryman._state import kernels
from pyspark_ferryman import DefaultSource

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

__all__ = ["Advice", "advise", "check", "session"]

_log = logging.getLogger("ferryman")

_BARS = "spark.ui.showConsoleProgress"
_SHUFFLE = "spark.sql.shuffle.partitions"


def session(
    app_name: str = "ferryman",
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Get a SparkSession that is tuned for Ferryman, and quiet.

    A session that is running already is returned as it is, wherever it runs, after a warning if that is not the master
    asked for, and advice on what it lacks.

    Parameters
    ----------
    app_name
        The name of the application.
    master
        Where to run. By default what spark-submit or Spark's configuration files say, else `local[*,4]`: all cores, and
        a task is tried four times.
    conf
        Spark settings of your own; they come before everything else.

    Examples
    --------
    >>> import ferryman
    >>> spark = ferryman.session("sensors", "local[2]")
    >>> spark.range(3).count()
    3
    """
    chosen = {"spark.app.name": app_name, **({"spark.master": master} if master else {}), **(conf or {})}
    if active_context() is not None:
        builder = SparkSession.builder
        for key, value in chosen.items():
            # Only these can change in a session that runs; Spark would print a warning about the others.
            if key.startswith("spark.sql."):
                builder = builder.config(key, value)
        running = builder.getOrCreate()
        if "spark.master" in chosen and chosen["spark.master"] != running.sparkContext.master:
            _log.warning(
                "A session is running already in this process, on %s, and not on %s, which was asked for. A process "
                "has one: stop it first if this is to be another.",
                running.sparkContext.master,
                chosen["spark.master"],
            )
        advise(running)
        return running
    began = time.perf_counter()
    with shown("java"):
        gateway = active_gateway() or _start(chosen)
    there = time.perf_counter()
    session_took("java", (there - began) * 1000)
    with shown("session"):
        spark = _of(gateway, chosen)
    session_took("session", (time.perf_counter() - there) * 1000)
    return spark


def _of(gateway: JavaGateway, chosen: Mapping[str, str]) -> SparkSession:
    """Make the session of a JVM."""
    # Read after the start: only now has spark-submit put in what the command line and the files say.
    settings = settings_of(gateway)
    for key, value in chosen.items():
        settings.set(key, value)
    filesystem = settings.get("spark.hadoop.fs.defaultFS") or default_filesystem(gateway)
    for key, value in defaults(settings.get, filesystem, partial(has_class, gateway)).items():
        settings.setIfMissing(key, value)
    context = SparkContext(conf=settings, gateway=gateway)
    spark = SparkSession.builder.getOrCreate()
    if not settings.contains(_SHUFFLE) and is_local(context.master or ""):
        # Only the running session knows how many cores `local[*]` is.
        spark.conf.set(_SHUFFLE, str(context.defaultParallelism))
    if any(letter.isspace() for letter in os.environ.get("PYSPARK_DRIVER_PYTHON", "")):
        # Spark finds sources by itself only where it finds Python, which it does not behind an unquoted space.
        spark.dataSource.register(DefaultSource)
    return spark


def prepare_environment() -> None:
    """Have the JVM find Java, this Python and this Spark, when it is started."""
    # Workers would otherwise run whatever `python3` is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Spark's scripts look for it with an unquoted $PYSPARK_DRIVER_PYTHON, which fails in a path with a space.
    os.environ.setdefault("SPARK_HOME", spark_home())
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        java.ensure()


def _start(chosen: Mapping[str, str]) -> JavaGateway:
    """Start the JVM."""
    prepare_environment()
    early = SparkConf(loadDefaults=False)
    for key, value in chosen.items():
        early.set(key, value)
    # Later is too late: spark-submit turns it on for what it takes for a shell.
    early.setIfMissing(_BARS, COMFORT[_BARS])
    # Until the JVM is there, this process has nothing else to do.
    threading.Thread(target=kernels.warm, name="ferryman-kernels", daemon=True).start()
    with class_archive.mapped(early.get("spark.driver.extraJavaOptions") or "") as archive:
        try:
            return jvm_stderr.launch(early)
        except PySparkRuntimeError:
            if archive is None:
                raise
    gateway = jvm_stderr.launch(early)
    # Whatever it is that Java does not like: it goes without, and the next one too.
    archive.unlink(missing_ok=True)
    return gateway
