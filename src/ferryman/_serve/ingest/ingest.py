"""An ingest log that is being filled: one process writes to it and receives for it, for as long as its stream runs.

A process that is killed leaves a log that the next one opens; the kernel gives its lock back. Calls `Receiver`s.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._model.errors import SourceRowsGone
from ferryman._serve.ingest.receiver import Begin

# A driver that was killed leaves processes behind for a moment.
_PATIENCE_S = 20.0


class Ingest:
    """Fill an ingest log.

    Parameters
    ----------
    path
        Where it is.
    schema
        The columns of its rows.
    begin
        Begins to receive.
    max_bytes, keep_bytes
        As `IngestLog` has them.
    read
        Which log its stream has read, and up to which offset; None if it has read nothing yet.

    Raises
    ------
    SourceRowsGone
        It is not the log that was read. Nothing was received.
    """

    def __init__(
        self,
        path: str | Path,
        schema: pa.Schema,
        begin: Begin,
        *,
        max_bytes: int,
        keep_bytes: int = 0,
        read: tuple[str, int] | None = None,
    ) -> None:
        self.log = IngestLog(path, schema, max_bytes=max_bytes, keep_bytes=keep_bytes, patience_s=_PATIENCE_S)
        self._commit = GroupCommit(self.log, schema)
        try:
            if read is not None:
                # Before anything is received: new rows would take the offsets that were read, and be read by nobody.
                self._look(*read)
            self._receiver = begin(self.log, self._commit)
        except BaseException:
            self._commit.end()
            self.log.close()
            raise

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        error = self._commit.error or self._receiver.error
        if error is not None:
            raise error

    def committed(self, log: str, offset: int) -> None:
        """Learn up to which offset of which log epochs are committed: these rows may go, and those that wait have room.

        Raises
        ------
        SourceRowsGone
            It is not the log that was read.
        """
        self._look(log, offset)
        self.log.trim(offset)
        self._commit.trimmed()

    def _look(self, log: str, offset: int) -> None:
        if log != self.log.id:
            raise SourceRowsGone(
                f"the job has read another ingest log than the one that is at {self.log.path} now: that was deleted or "
                "replaced. Put it back, or start with a new checkpoint."
            )
        if offset > self.log.end:
            raise SourceRowsGone(
                f"the job has read the ingest log {self.log.path} up to offset {offset}, and the log ends at "
                f"{self.log.end}: it was restored from a backup, or its end was lost on a disk that does not keep what "
                "was synced. Rows in between are nowhere else. Restore the newest log, or start with a new checkpoint."
            )

    def end(self) -> None:
        """Receive nothing more, and let another do it."""
        self._receiver.end()
        self._commit.end()
        self.log.close()
