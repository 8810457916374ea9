"""Start the JVM without the lines that every Spark start prints and that nobody needs.

Calls `compat`. What matters still reaches the terminal: errors, and whatever Python workers print.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf

from ferryman._spark.compat import start

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

# Java itself prints these, before any logging is set up, about options that Spark's launcher gives it.
_NOISE = re.compile(rb"^WARNING: (Using incubator modules: |package \S+ not in java\.)")


def launch(conf: SparkConf) -> JavaGateway:
    """Start the JVM of the driver, or connect to the one that spark-submit started.

    Parameters
    ----------
    conf
        The settings that have to be known before the JVM runs; Spark's own and the user's.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return start.launch(conf)
    if not _logs_as_the_user_wants(conf):
        ours = Path(__file__).with_name("log4j2.properties").as_uri()
        options = conf.get("spark.driver.extraJavaOptions", "")
        conf.set("spark.driver.extraJavaOptions", f"{options} -Dlog4j2.configurationFile={ours}".strip())
    read, write = os.pipe()
    # Running before the JVM does: whatever keeps the JVM from starting has to be seen.
    reader = threading.Thread(target=_pass_on, args=(read,), name="ferryman-jvm-stderr", daemon=True)
    reader.start()
    try:
        gateway = start.launch(conf, stderr=write)
    except BaseException:
        os.close(write)
        reader.join(timeout=5)
        raise
    os.close(write)
    return gateway


def _logs_as_the_user_wants(conf: SparkConf) -> bool:
    """Tell whether the user has set up Spark's logging."""
    if "log4j" in (conf.get("spark.driver.extraJavaOptions") or ""):
        return True
    home = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    return any(Path(home).glob("log4j2.*"))


def _pass_on(read: int) -> None:
    """Copy the JVM's stderr to ours, without the noise, until the JVM ends."""
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            if _NOISE.match(line) is None:
                try:
                    os.write(2, line)
                except OSError:
                    # Our stderr is gone; the JVM must still be able to write, or it would stand still.
                    continue
