"""Write to a table of a database, exactly once, over any driver that follows Python's DB-API.

    ferryman_epochs       whose rows each table has: job, sink, term, and the newest epoch that is in it
    readings_staged       rows that are written and not committed, with their epoch and attempt
    readings              the table: rows of committed epochs, and no others

Writing an epoch puts its rows aside. Committing it moves them and notes the epoch, in one transaction, which begins by
making sure that this run is still the newest. Calls nobody of ours.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ferryman._model.errors import (
    CorruptCheckpoint,
    ForeignCheckpoint,
    InvalidConfiguration,
    SinkAhead,
    SinkMissing,
    Superseded,
)
from ferryman._model.json_values import Misshapen, text, texts, whole

if TYPE_CHECKING:
    from ferryman._engine.sink import SinkStart

EPOCHS = "ferryman_epochs"
_CREATE = (
    f"CREATE TABLE {EPOCHS} (target VARCHAR(200) PRIMARY KEY, sink VARCHAR(64), job VARCHAR(64), "
    "term BIGINT, epoch BIGINT)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
# What every database takes in a statement.
_MOST_VALUES = 900
# How drivers mark a value's place.
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class DatabaseSink:
    """Write to a table of a database, exactly once: all rows, or the newest of each key."""

    whole = True
    skips_silence = False
    told = True

    def __init__(self, connect: Callable[[], Any], table: str, *, key: str | Sequence[str] = ()) -> None:
        self.label = "database"
        self._key = [key] if isinstance(key, str) else list(key)
        if unfit := [name for name in (table, *self._key) if not _NAME.fullmatch(name)]:
            raise InvalidConfiguration(
                f"sinks.database cannot use the name {unfit[0]!r}: letters, digits and _ are what every database takes "
                "without quotes, and one dot after a schema."
            )
        self._connect = connect
        self._table, self._staged = table, f"{table}_staged"
        self._term = 0
        # The newest epoch that is in the table.
        self._noted = 0
        # A connection, and the thread that it is for: some drivers' are for one alone.
        self._open: tuple[Any, int] | None = None

    def claim(self, job_id: str) -> int:
        """Refuse the table of another job; learn the sink's own identity, and the newest term."""
        if (claimed := self._claimed()) is None:
            # Another start may be faster with either.
            with contextlib.suppress(Exception), self._transaction() as does:
                does.change(_CREATE)
            with contextlib.suppress(Exception), self._transaction() as does:
                does.change(f"INSERT INTO {EPOCHS} VALUES (?, ?, ?, 0, 0)", self._table, uuid.uuid4().hex, job_id)
            with self._transaction() as does:
                claimed = self._claim_of(does)
        if claimed is None:
            raise SinkMissing(f"nothing can be put into {EPOCHS}. See whether this user may write to that table.")
        sink, job, term = claimed
        if job != job_id:
            raise ForeignCheckpoint(
                f"the table {self._table} has the output of a job with another checkpoint; its epochs would be mixed "
                f"with those of this job. Write to another table. If that job is gone for good, empty the table and "
                f"delete its row from {EPOCHS}."
            )
        self._refuse_without_transactions()
        self.label = f"database:{sink}"
        return int(term)

    def _refuse_without_transactions(self) -> None:
        """Refuse a driver that commits by itself, or a database that knows no transactions: few say so."""
        probe = f"probe-{uuid.uuid4().hex}"
        # Who may only change the row that somebody has put there for it cannot try, and is believed.
        with contextlib.suppress(Exception), self._transaction() as does:
            does.change(f"INSERT INTO {EPOCHS} VALUES (?, '-', '-', 0, 0)", probe)
            raise _RolledBack
        with self._transaction() as does:
            stayed = does.rows(f"SELECT target FROM {EPOCHS} WHERE target = ?", probe)
            if stayed:
                does.change(f"DELETE FROM {EPOCHS} WHERE target = ?", probe)
        if stayed:
            raise InvalidConfiguration(
                f"sinks.database: what is put into {EPOCHS} stays when it is rolled back, so a reader could see a part "
                "of an epoch. Have the connection commit when it is told to, and not by itself (autocommit off); or "
                "write to a database that has transactions."
            )

    def _claimed(self) -> tuple[str, str, int] | None:
        with contextlib.suppress(Exception), self._transaction() as does:
            return self._claim_of(does)
        return None

    def _claim_of(self, does: _Transaction) -> tuple[str, str, int] | None:
        rows = does.rows(f"SELECT sink, job, term FROM {EPOCHS} WHERE target = ?", self._table)
        return rows[0] if rows else None

    def begin(self, start: SinkStart) -> None:
        """Keep older runs out from now on; refuse a checkpoint that has fewer epochs than the table, or more."""
        self._term = start.term
        with self._transaction() as does:
            does.change(
                f"UPDATE {EPOCHS} SET term = ? WHERE target = ? AND term <= ?", self._term, self._table, self._term
            )
            epoch = self._newest(does)
        if epoch > start.epoch and start.written_in(epoch) is not None:
            raise Superseded(f"{self._table} has rows of epoch {epoch}, which came after this start. Start it again.")
        if epoch > start.epoch:
            raise SinkAhead(
                f"the table {self._table} has rows up to epoch {epoch} of this job, and the checkpoint goes to epoch "
                f"{start.epoch}: it was restored from a backup, or rewound. Rows of a database cannot be taken back. "
                "Restore the table from a backup of the same time, or write to another table."
            )
        if epoch < (before := _noted_before(start.written)):
            raise SinkMissing(
                f"the table {self._table} has had rows up to epoch {before} of this job, and now has them up to epoch "
                f"{epoch}: it was restored from a backup. Restore the checkpoint from one of the same time, or the "
                "rows in between would be missing for good."
            )
        self._noted = epoch
        self._stage()

    def _newest(self, does: _Transaction) -> int:
        """Give the newest epoch that is in the table; refuse what an older run does."""
        rows = does.rows(f"SELECT term, epoch FROM {EPOCHS} WHERE target = ?", self._table)
        if not rows:
            raise SinkMissing(f"the row of {self._table} in {EPOCHS} is gone. Restore it, or write to another table.")
        term, epoch = rows[0]
        if term > self._term:
            raise Superseded(f"run {term} of this job writes to {self._table}, and this is run {self._term}.")
        return int(epoch)

    def _stage(self) -> None:
        """Make the table that rows are put aside in, where it is not there; with the types that the database has."""
        with contextlib.suppress(Exception), self._transaction() as does:
            does.rows(f"SELECT 1 FROM {self._staged} WHERE 1 = 0")
            return
        with self._transaction() as does:
            does.change(
                f"CREATE TABLE {self._staged} AS SELECT noted.epoch AS ferryman_epoch, noted.sink AS ferryman_attempt, "
                f"shown.* FROM {EPOCHS} noted, {self._table} shown WHERE 1 = 0"
            )

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows to the driver and put them aside."""
        return self.write_table(rows.toArrow(), epoch)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Put the rows aside under a name of this attempt's own; of a view, the newest of each key."""
        names, values = self._values(rows)
        attempt = uuid.uuid4().hex
        if values:
            with self._transaction() as does:
                self._newest(does)
                does.insert(
                    self._staged,
                    ["ferryman_epoch", "ferryman_attempt", *names],
                    [(epoch, attempt, *row) for row in values],
                )
        written = {"epoch": epoch, "attempt": attempt, "rows": len(values), "columns": names, "noted": self._noted}
        return {**written, "path": self._table}

    def _values(self, rows: pa.Table) -> tuple[list[str], list[tuple[Any, ...]]]:
        names = list(rows.column_names)
        if unknown := [name for name in self._key if name not in names]:
            raise InvalidConfiguration(
                f"sinks.database(key={self._key}): the rows have no column {unknown[0]!r}, but {', '.join(names)}."
            )
        if unfit := [name for name in names if not _NAME.fullmatch(name)]:
            raise InvalidConfiguration(f"sinks.database: the rows have a column {unfit[0]!r}. Give it another name.")
        values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        if not self._key:
            return names, values
        places = [names.index(name) for name in self._key]
        return names, list({tuple(row[place] for place in places): row for row in values}.values())

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Move the attempt's rows into the table and note the epoch, in one transaction, unless that was done."""
        if not (known := self._known(written)):
            return
        with self._transaction() as does:
            # First, so that another run waits here, and then finds that it was done.
            noted = does.change(
                f"UPDATE {EPOCHS} SET epoch = ? WHERE target = ? AND epoch < ? AND term <= ?",
                *(known.epoch, self._table, known.epoch, self._term),
            )
            if noted:
                self._move(does, known)
            newest = self._newest(does)
        self._noted = newest

    def _move(self, does: _Transaction, known: _Written) -> None:
        """Move what was put aside into the table; in a view it takes the place of the rows with its keys."""
        [(aside,)] = does.rows(f"SELECT COUNT(*) FROM {self._staged} WHERE ferryman_attempt = ?", known.attempt)
        if aside != known.rows:
            raise SinkMissing(
                f"{self._staged} has {aside} of the {known.rows} rows of epoch {known.epoch}, which is committed. "
                "Restore the database and the checkpoint from backups of the same time."
            )
        if self._key:
            self._take_out(does, known.attempt)
        columns = ", ".join(known.columns)
        does.change(
            f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {self._staged} WHERE ferryman_attempt = ?",
            known.attempt,
        )
        # What else was begun for the epoch can never be committed now.
        does.change(f"DELETE FROM {self._staged} WHERE ferryman_epoch <= ?", known.epoch)

    def _take_out(self, does: _Transaction, attempt: str) -> None:
        """Take out the rows with the keys of what was put aside."""
        # By a list of keys, so that an index on them is used and no other row is looked at.
        key = ", ".join(self._key)
        place = key if len(self._key) == 1 else f"({key})"
        does.change(
            f"DELETE FROM {self._table} WHERE {place} IN (SELECT {key} FROM {self._staged} WHERE ferryman_attempt = ?)",
            attempt,
        )
        # To SQL, no null is in a list.
        null = " OR ".join(f"{name} IS NULL" for name in self._key)
        [(nulls,)] = does.rows(f"SELECT COUNT(*) FROM {self._staged} WHERE ferryman_attempt = ? AND ({null})", attempt)
        if nulls:
            same = " AND ".join(
                f"(aside.{name} = {self._table}.{name} OR (aside.{name} IS NULL AND {self._table}.{name} IS NULL))"
                for name in self._key
            )
            does.change(
                f"DELETE FROM {self._table} WHERE ({null}) AND EXISTS "
                f"(SELECT 1 FROM {self._staged} aside WHERE aside.ferryman_attempt = ? AND {same})",
                attempt,
            )

    def _known(self, written: dict[str, Any]) -> _Written | None:
        """Read what `write` gave, as the manifest has it; None if there were no rows."""
        try:
            known = _Written(
                epoch=whole(written["epoch"], "epoch"),
                rows=whole(written["rows"], "rows"),
                attempt=text(written["attempt"], "attempt"),
                columns=texts(written["columns"], "columns"),
            )
            if not all(_NAME.fullmatch(name) for name in known.columns):
                raise Misshapen("its columns have names that none can have")
        except (KeyError, TypeError, Misshapen) as error:
            raise CorruptCheckpoint(
                f"what the checkpoint says of the table {self._table} is not what a database sink has written: its "
                "newest manifest is altered. Restore the whole checkpoint directory from one backup."
            ) from error
        return known if known.rows else None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[_Transaction]:
        """Begin a transaction; commit it, or roll it back and let go of the connection."""
        thread = threading.get_ident()
        if self._open is None or self._open[1] != thread:
            self._open = _connected(self._connect), thread
        connection = self._open[0]
        try:
            yield _Transaction(connection)
            connection.commit()
        except BaseException:
            self._open = None
            with contextlib.suppress(Exception):
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()
            raise


class _RolledBack(Exception):
    """Ends a transaction that is only to be tried."""


@dataclass(frozen=True)
class _Written:
    """What an attempt has written, as the manifest tells it."""

    epoch: int
    rows: int
    attempt: str
    columns: tuple[str, ...]


def _noted_before(written: Mapping[str, Any]) -> int:
    """Give the newest epoch that was in the table before an epoch, as a manifest has it."""
    noted = written.get("noted", 0)
    return noted if isinstance(noted, int) else 0


def _connected(connect: Callable[[], Any]) -> Any:
    connection = connect()
    # In sqlite3 that is said by no isolation level; elsewhere that means the database's own.
    own = getattr(connection, "isolation_level", "") is None and type(connection).__module__ == "sqlite3"
    if own or getattr(connection, "autocommit", False) is True:
        raise InvalidConfiguration(
            "sinks.database needs connections that commit when they are told to, and this one commits by itself. Leave "
            "autocommit out of the function that connects."
        )
    if (style := _style(connection)) not in _MARKS:
        raise InvalidConfiguration(
            f"sinks.database marks values in statements by {', '.join(_MARKS)}, and this driver wants {style} (its "
            "paramstyle). Use another driver of the database."
        )
    return connection


def _style(connection: Any) -> str:
    """Tell how a connection's driver marks values, as the module of its class says, or a package that this is in."""
    for kind in type(connection).__mro__:
        name = kind.__module__
        while name:
            if isinstance(style := getattr(sys.modules.get(name), "paramstyle", None), str):
                return style
            name = name.rpartition(".")[0]
    return "qmark"


class _Transaction:
    """Run statements on a connection, with values marked as its driver has them."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._mark = _MARKS[_style(connection)]

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Give the rows of a query."""
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(statement.replace("?", self._mark), values)
            return list(cursor.fetchall())

    def change(self, statement: str, *values: Any) -> int:
        """Change rows; say how many."""
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(statement.replace("?", self._mark), values)
            return int(cursor.rowcount)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, many with each statement: a driver that sends them singly takes several times as long."""
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        row = f"({', '.join([self._mark] * len(columns))})"
        most = max(1, _MOST_VALUES // len(columns))
        with contextlib.closing(self._connection.cursor()) as cursor:
            for first in range(0, len(rows), most):
                some = rows[first : first + most]
                cursor.execute(head + ", ".join([row] * len(some)), [value for each in some for value in each])


def database(connect: Callable[[], Any], table: str, *, key: str | Sequence[str] = ()) -> DatabaseSink:
    """Write to a table of a database, exactly once, over any DB-API driver.

    Parameters
    ----------
    connect
        Makes a connection: `lambda: psycopg.connect("...")`.
    table
        The table, which has to be there, with the columns of the rows.
    key
        The columns that a row of a view has its place by: the newest takes the place of the one before. If left out,
        all rows are added.
    """
    return DatabaseSink(connect, table, key=key)
