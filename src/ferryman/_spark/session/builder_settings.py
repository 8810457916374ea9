"""Set up a builder of a session of one's own as `ferryman.session` sets up its own.

No JVM is started, so that who is given the builder next can still ask for jars, memory or another master. So what the
command line and Spark's files say is read here; where a JVM is there already, it is asked. Calls `session_settings`.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from ferryman._engine.remote_session import refuse_remote
from ferryman._model.settings_that_apply import is_local
from ferryman._spark.compat.start import (
    active_context,
    active_gateway,
    default_filesystem,
    has_class,
    options_of,
    settings_of,
    ships_class,
    spark_home,
    submitted_gateway,
)
from ferryman._spark.session.session import prepare_environment
from ferryman._spark.session.session_settings import MASTER, defaults

_SHUFFLE = "spark.sql.shuffle.partitions"
_FILESYSTEM = "spark.hadoop.fs.defaultFS"
_LOCAL = "file:///"
# Where Hadoop's own files may be, which name the default filesystem.
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set on a builder what `ferryman.session` sets, where nobody has said otherwise, and give it back.

    What the builder was told, spark-submit and spark-defaults.conf come first. Where a session runs already in this
    process nothing is set: it keeps what it has, and a job on it says what it lacks.

    Parameters
    ----------
    builder
        What `SparkSession.builder` gives. It can be told more afterwards.

    Examples
    --------
    >>> import ferryman
    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.builder.appName("sensors").master("local[2]")
    >>> spark = ferryman.configure(builder).getOrCreate()
    >>> spark.range(3).count()
    3
    """
    told = options_of(builder)
    refuse_remote(told)
    if active_context() is not None:
        return builder
    prepare_environment()
    gateway = active_gateway() or submitted_gateway()
    if gateway is not None:
        there = settings_of(gateway)
        given = {**dict(there.getAll()), **told}
        filesystem = given.get(_FILESYSTEM) or default_filesystem(gateway)
        known: Callable[[str], bool] = partial(has_class, gateway)
    else:
        given = {**_of_files(), **_of_command(), **told}
        filesystem = given.get(_FILESYSTEM) or ("" if _hadoop_is_set_up() else _LOCAL)
        known = ships_class
    chosen = {"spark.master": MASTER} if "spark.master" not in given else {}
    chosen |= defaults(given.get, filesystem, known)
    if _SHUFFLE not in given and is_local(given.get("spark.master", MASTER)):
        chosen[_SHUFFLE] = str(_cores(given.get("spark.master", MASTER)))
    for name, value in chosen.items():
        builder.config(name, value)
    return builder


def _of_files() -> Mapping[str, str]:
    """Read spark-defaults.conf, as far as it matters: a name and a value in a line, with or without `=`."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME") or spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.strip().replace("=", " ", 1).split(None, 1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _of_command() -> Mapping[str, str]:
    """Read what PYSPARK_SUBMIT_ARGS says."""
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    found = {}
    for word, value in itertools.pairwise([*words, ""]):
        option, equals, beside = word.partition("=")
        if equals and option.startswith("--"):
            word, value = option, beside
        if word in ("--conf", "-c") and "=" in value:
            name, _, setting = value.partition("=")
            found[name] = setting
        elif word == "--master":
            found["spark.master"] = value
    return found


def _hadoop_is_set_up() -> bool:
    folders = [os.environ[name] for name in _HADOOP if os.environ.get(name)]
    return any(Path(folder, "core-site.xml").exists() for folder in folders)


def _cores(master: str) -> int:
    """Count the cores of a local master: `local`, `local[2]`, `local[*,4]`, `local-cluster[2,1,1024]`."""
    asked = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster"):
        return int(asked[0]) * int(asked[1])
    if asked[0] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(asked[0] or 1)
