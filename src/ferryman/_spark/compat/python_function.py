"""A Python function as the JVM has it, made with one call. Calls nobody of ours.

PySpark makes a dozen: it sends the environment of its workers and the list of shipped files anew for every function.
"""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession

# The versions on which the few calls of this package were tried; others get PySpark's own.
FEW_CALLS = pyspark.__version__.startswith("4.3.")
# What is larger than this is sent by a broadcast variable, and that is left to PySpark.
MOST_BYTES = 1 << 20


class PythonFunctions:
    """Make functions for the Python workers of one application. Tried on 4.3.

    Parameters
    ----------
    environment
        What workers get beside PySpark's own. Who has the same environment shares the workers.
    """

    def __init__(self, spark: SparkSession, environment: dict[str, str] | None = None) -> None:
        context: Any = spark.sparkContext
        self._context = context
        self._more = environment or {}
        self._sent: Any = None
        self._jvm = context._jvm
        self._class = self._jvm.SimplePythonFunction
        self._none = self._jvm.java.util.ArrayList()

    def of(self, command: bytes) -> Any:
        """Give the function of a command that uses no broadcast variables."""
        context = self._context
        # Files that were shipped meanwhile are added to these.
        known = (dict(context.environment), list(context._python_includes))
        if self._sent != known:
            self._environment, self._includes = self._jvm.java.util.HashMap(), self._jvm.java.util.ArrayList()
            self._environment.putAll({**known[0], **self._more})
            self._includes.addAll(known[1])
            self._sent = known
        return self._class(
            bytearray(command),
            self._environment,
            self._includes,
            context.pythonExec,
            context.pythonVer,
            self._none,
            context._javaAccumulator,
        )
