"""The Spark settings that matter to Ferryman, what each is worth, and where it applies.

Pure data, and the questions that decide whether a setting applies. Calls nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Where = Literal["everywhere", "local disk", "local disk, no RocksDB", "same python"]

DAEMON = "ferryman._spark.daemon"


@dataclass(frozen=True)
class Setting:
    """A setting whose absence costs something.

    Parameters
    ----------
    key
        Its name in Spark.
    want
        The value that `ferryman.session` gives it.
    default
        What Spark does when nobody sets it.
    why
        What it costs to go without.
    where
        Which sessions it is for.
    fits
        Whether a value the user chose will do as well; by default only `want` does.
    """

    key: str
    want: str
    default: str
    why: str
    where: Where = "everywhere"
    fits: Callable[[str], bool] | None = None

    def accepts(self, have: str) -> bool:
        """Tell whether a value will do."""
        return have == self.want or (self.fits is not None and self.fits(have))


def milliseconds(text: str) -> float:
    """Read a duration as Spark writes it: `3s`, `50ms`, `1min`, or a bare number of milliseconds."""
    parts = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if parts is None:
        return float("inf")
    scale = {"": 1, "us": 0.001, "ms": 1, "s": 1e3, "m": 6e4, "min": 6e4, "h": 3.6e6, "d": 8.64e7}
    return int(parts[1]) * scale.get(parts[2], float("inf"))


# The two names of Spark's file manager for plain filesystems, newest first; a release has one of them.
FILE_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)

RAW_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"
STORE = "spark.sql.streaming.stateStore.providerClass"

ADVISED = (
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "false",
        "rows go to Python over TCP; with the checkpoint settings this doubles the time of a small epoch",
    ),
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        FILE_MANAGERS[0],
        "Spark's own choice",
        "Spark's own bookkeeping of an epoch takes longer on a local disk",
        where="local disk",
        fits=lambda have: have in FILE_MANAGERS,
    ),
    Setting(
        "spark.hadoop.fs.file.impl",
        RAW_FILES,
        "org.apache.hadoop.fs.LocalFileSystem",
        "every file of Spark's own checkpoint gets a second one for a checksum, and costs a process more",
        where="local disk, no RocksDB",
    ),
    Setting(
        "spark.locality.wait",
        "50ms",
        "3s",
        "a task whose host is busy waits this long, in every epoch, before it goes to another",
        fits=lambda have: milliseconds(have) <= 500,
    ),
    Setting(
        "spark.python.worker.reuse",
        "true",
        "true",
        "every task starts a Python worker of its own and imports everything again",
    ),
    Setting(
        "spark.python.daemon.module",
        DAEMON,
        "pyspark.daemon",
        "each new Python worker imports pyarrow, pandas and numba anew",
        where="same python",
    ),
)

# A session of ours has these too, but going without them costs nobody anything.
COMFORT: Mapping[str, str] = {
    # The anchor alone says where an instance runs; where this is on, the plan of an epoch needs one anchor more.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# A laptop changes its address between networks, and nobody else has to reach a local session.
LOOPBACK: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def applies(setting: Setting, *, master: str, filesystem: str, same_python: bool, store: str) -> bool:
    """Tell whether a setting is for a session.

    Parameters
    ----------
    setting
        The setting.
    master
        The session's master.
    filesystem
        Its default filesystem, as a URI.
    same_python
        Whether its Python workers surely run in an environment that has Ferryman.
    store
        The class of Spark's own state store, for queries beside Ferryman.
    """
    if setting.where == "local disk, no RocksDB" and "RocksDB" in store:
        # Spark's RocksDB store casts the local filesystem to the one with checksums, and fails on any other.
        return False
    if setting.where.startswith("local disk"):
        # Spark's own file manager is the right one for HDFS and object stores.
        return filesystem.startswith("file:") and is_local(master)
    if setting.where == "same python":
        # Where there is no fork, Spark does not use a daemon.
        return same_python and is_local(master) and hasattr(os, "fork")
    return True


def is_local(master: str) -> bool:
    """Tell whether a master keeps everything on this machine: `local[n]` or `local-cluster[...]`."""
    return master.startswith("local")
