"""Tables that a job looks up: which version of each an epoch has.

A version is chosen when an epoch begins, is the same for all its tasks, and stands in its manifest. One that the epoch
before did not have is written down first, its rows and then the intent of the epoch; so an epoch that is done again
looks up the very same rows, whatever has become of the table since. Calls `Checkpoint`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from ferryman._engine.broadcast import MOST_BYTES
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.remote import masked
from ferryman._log.files.untrusted import first_line
from ferryman._model.errors import FerrymanError, LookupFailed
from ferryman._model.lookup_version import LookupVersion

log = logging.getLogger("ferryman")


class LookupTable(Protocol):
    """A table that a job looks up.

    Attributes
    ----------
    name
        By which the checkpoint knows it.
    columns
        Its columns, as they were declared.
    refresh_s
        After how long it is read again; None for not before the next start.
    """

    @property
    def name(self) -> str:
        """Give it."""

    @property
    def columns(self) -> pa.Schema:
        """Give them."""

    @property
    def refresh_s(self) -> float | None:
        """Give it."""

    def read(self) -> pa.Table:
        """Read it as it is now, with its columns as they were declared."""

    def use(self, rows: pa.Table) -> None:
        """Take these rows for it from now on."""


class Lookups:
    """Give each epoch its versions of the tables that a job looks up."""

    def __init__(self, checkpoint: Checkpoint, tables: Sequence[LookupTable]) -> None:
        self._checkpoint = checkpoint
        self._tables = tables
        self._read_at_ms: dict[str, int] = {}
        # The rows that were last read or written of each, by the checksum of their file.
        self._rows: dict[str, tuple[str, pa.Table]] = {}
        self._used: dict[str, LookupVersion] = {}

    def of_epoch(
        self,
        epoch: int,
        now_ms: int,
        committed: Mapping[str, LookupVersion],
        begun: Mapping[str, LookupVersion] | None,
    ) -> dict[str, LookupVersion]:
        """Choose the versions of an epoch; tables that are due are read for it.

        Parameters
        ----------
        committed
            Those of the epoch before.
        begun
            Those written down of the epoch when it was begun before, with none for what had not changed; None if it was
            not begun before.
        """
        versions = {}
        for table in self._tables:
            known = (begun or {}).get(table.name, committed.get(table.name))
            stays = begun is not None or not self._is_due(table, now_ms)
            versions[table.name] = known if known is not None and stays else self._read(table, epoch, now_ms, known)
        return versions

    def use(self, versions: Mapping[str, LookupVersion]) -> None:
        """Have the tables looked up as of these versions."""
        for table in self._tables:
            version = versions[table.name]
            if self._used.get(table.name) != version:
                table.use(self._rows_of(table, version))
                self._used[table.name] = version

    def _is_due(self, table: LookupTable, now_ms: int) -> bool:
        read_ms = self._read_at_ms.get(table.name)
        if read_ms is None or now_ms < read_ms:
            return True
        return table.refresh_s is not None and now_ms >= read_ms + table.refresh_s * 1000

    def _read(self, table: LookupTable, epoch: int, now_ms: int, known: LookupVersion | None) -> LookupVersion:
        try:
            rows = table.read()
        except FerrymanError:
            raise
        except Exception as error:
            raise LookupFailed(
                f"lookup {table.name!r}, epoch {epoch}: the table could not be read ({type(error).__name__}: "
                f"{masked(first_line(error))}). The epoch was not begun; nothing is lost. Start the job again when "
                "it can be read. To go on with older rows meanwhile, give lookup a function that returns them."
            ) from error
        if rows.nbytes > MOST_BYTES:
            raise LookupFailed(
                f"lookup {table.name!r}, epoch {epoch}: the table has {rows.nbytes >> 20} MB, and "
                f"{MOST_BYTES >> 20} MB is the most: all of it goes to every task. Give it fewer rows or columns, "
                "or make it a stream and join the two by key. The epoch was not begun; nothing is lost."
            )
        self._read_at_ms[table.name] = now_ms
        if known is not None and self._checkpoint.has_rows(known.file, rows):
            return known
        file = self._checkpoint.write_lookup(epoch, table.name, rows)
        self._rows[table.name] = file.checksum, rows
        log.info("lookup %r has %d rows from epoch %d on", table.name, rows.num_rows, epoch)
        return LookupVersion(epoch, file)

    def _rows_of(self, table: LookupTable, version: LookupVersion) -> pa.Table:
        checksum, rows = self._rows.get(table.name, ("", None))
        if rows is not None and checksum == version.file.checksum:
            return rows
        rows = self._checkpoint.read_delta(version.file)
        if rows.schema != table.columns:
            raise LookupFailed(
                f"lookup {table.name!r}: an epoch that was begun has to be done again with the table as it was then, "
                f"which had the columns {_listed(rows.schema)}. Now they are declared as {_listed(table.columns)}. "
                "Start the job once with the lookup as it was, stop it, and change it then; or give it another name."
            )
        return rows


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
