"""The Spark settings that Ferryman advises and its own sessions have, and what each is worth.

Pure data; which of them apply to a session says `settings_that_apply`. Calls nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Where = Literal["everywhere", "local disk", "local disk, no RocksDB", "same python"]

DAEMON = "ferryman._spark.session.warm_workers"


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
