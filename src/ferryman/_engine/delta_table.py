"""A Delta table as a sink needs it: the files of an epoch and the number of the epoch in one transaction of its log.

Delta keeps a number per application in a table's log, the newest one that was written. A writer has two: the epoch, and
the term of the run that wrote it. Of two transactions with the same application that begin at one version of the table,
Delta takes only one; the other looks again at what is there. Calls `deltalake`, which knows Delta's log without Spark.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from ferryman._engine.delta_columns import (
    DataFile,
    TableShape,
    check_columns,
    check_files,
    check_merged,
    check_nulls,
    check_types,
)
from ferryman._log.files.directory import Directory
from ferryman._log.files.remote_options import plain_uri
from ferryman._log.files.untrusted import first_line
from ferryman._model.errors import InvalidConfiguration, SchemaDrift, SinkMissing, Superseded

if TYPE_CHECKING:
    import deltalake

# How Delta says that rows break a constraint, or are null where they must not be.
_BROKEN = re.compile("validation check|[Ii]nvariant|[Cc]onstraint")
# How often a transaction is tried, as others may write to the table too.
_TRIES = 20


def library() -> Any:
    """Give the library that writes Delta tables."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise InvalidConfiguration(
            "sinks.delta needs deltalake, which is not installed: pip install 'ferryman[delta]'."
        ) from error
    return deltalake


def check_shape(columns: str) -> None:
    """Raise a ValueError where some JSON is not the columns of a table."""
    from deltalake import Schema

    # What is nested too deep for `json` is so for others.
    json.loads(columns)
    Schema.from_json(columns)


@dataclass(frozen=True)
class Noted:
    """What a table has of a writer: the newest epoch that is in it, and the newest term; 0 if none."""

    epoch: int
    term: int


class DeltaWriter:
    """One of the writers of a Delta table.

    Parameters
    ----------
    place
        The table's directory.
    name
        What the application is called in the table's log.
    options
        How to reach its store, by the names that deltalake has for that.
    """

    def __init__(self, place: Directory, name: str, options: Mapping[str, str]) -> None:
        self._place, self._name = place, name
        self._uri, known = plain_uri(place.address)
        self._options = {**known, **options}
        self._opened: deltalake.DeltaTable | None = None
        # The newest epoch that the table was seen with.
        self._seen = 0

    def noted(self) -> Noted | None:
        """Tell what the table has of this writer; None if there is no table."""
        table = self._table()
        return None if table is None else self._noted(table)

    def take(self, term: int) -> None:
        """Keep the transactions of older runs out from now on; of a table that is not there yet, nothing is."""

        def change(table: deltalake.DeltaTable | None, properties: Any) -> None:
            if table is not None:
                table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

        self._transact(change, "take over", term=term)

    def add(self, files: Sequence[DataFile], columns: str, *, epoch: int, term: int) -> None:
        """Add the files of an epoch, unless that is in the table; make the table, if it is not there."""
        from deltalake import Schema
        from deltalake.transaction import AddAction, create_table_with_add_actions

        adds = [
            AddAction(
                path=quote(file.path),
                size=file.size,
                partition_values={},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=json.dumps({"numRecords": file.rows, "nullCount": dict(file.nulls)}),
            )
            for file in files
        ]
        schema = Schema.from_json(columns)

        def change(table: deltalake.DeltaTable | None, properties: Any) -> None:
            if table is None:
                create_table_with_add_actions(
                    self._uri, schema, adds, storage_options=self._options or None, commit_properties=properties
                )
            else:
                self._check(table, files, columns, merged=False)
                table.create_write_transaction([*adds], "append", table.schema(), commit_properties=properties)

        self._transact(change, f"add epoch {epoch}", term=term, epoch=epoch)

    def merge(self, rows: pa.Table, columns: str, keys: Iterable[str], *, epoch: int, term: int) -> None:
        """Put rows of an epoch in the place of those with the same keys, unless that is done."""
        from deltalake import DeltaTable, Schema

        # Where no key is null, plain equality lets Delta join by hash.
        equal = {key: "IS NOT DISTINCT FROM" if rows.column(key).null_count else "=" for key in keys}
        same = " AND ".join(f"(new.{_quoted(key)} {sign} old.{_quoted(key)})" for key, sign in equal.items())
        values = {_quoted(name): f"new.{_quoted(name)}" for name in rows.column_names}

        def change(table: deltalake.DeltaTable | None, properties: Any) -> None:
            if table is None:
                schema = Schema.from_json(columns)
                table = DeltaTable.create(self._uri, schema, storage_options=self._options or None)
            self._check(table, [], columns, merged=True)
            merger = table.merge(
                rows, same, source_alias="new", target_alias="old", commit_properties=properties, streamed_exec=False
            )
            merger.when_matched_update(values).when_not_matched_insert(values).execute()

        self._transact(change, f"merge epoch {epoch}", term=term, epoch=epoch)

    def check(self, files: Sequence[DataFile], columns: str, *, merged: bool) -> None:
        """Refuse rows that the table, if it is there, does not take as they are."""
        check_types(columns)
        try:
            check_shape(columns)
        except ValueError as error:
            raise InvalidConfiguration(
                f"sinks.delta: Delta cannot have these columns ({first_line(error)}). Rename or cast them."
            ) from error
        if (table := self._table()) is not None:
            self._check(table, files, columns, merged=merged)

    def _check(self, table: deltalake.DeltaTable, files: Sequence[DataFile], columns: str, *, merged: bool) -> None:
        shape = TableShape(
            where=self._place.uri,
            columns=json.loads(table.schema().to_json())["fields"],
            partitions=table.metadata().partition_columns,
            properties=table.metadata().configuration,
            features=table.protocol().writer_features or [],
        )
        check_columns(shape, columns)
        check_nulls(shape, files, columns, merged=merged)
        if merged:
            check_merged(shape)
        else:
            check_files(shape)

    def version_at(self, epoch: int) -> int | None:
        """Give the version of the table that has the rows of an epoch, and of none after it."""
        table = self._table()
        for entry in table.history() if table is not None else []:
            with contextlib.suppress(ValueError, TypeError, LookupError):
                note = json.loads(entry["userMetadata"])
                if note["writer"] == self._name and note["epoch"] <= epoch:
                    return int(entry["version"])
        return None

    def _table(self) -> deltalake.DeltaTable | None:
        lake = library()
        if self._opened is not None:
            try:
                # Of a table with many files, only what is new is read.
                self._opened.update_incremental()
                # One that was deleted has no news either.
                if self._place.exists(f"_delta_log/{self._opened.version():020d}.json"):
                    return self._opened
            except lake.exceptions.DeltaError:
                pass
            self._opened = None
        try:
            self._opened = lake.DeltaTable(self._uri, storage_options=self._options or None)
        except lake.exceptions.TableNotFoundError:
            return None
        return self._opened

    def _noted(self, table: deltalake.DeltaTable) -> Noted:
        return Noted(table.transaction_version(self._name) or 0, table.transaction_version(self._term_of) or 0)

    @property
    def _term_of(self) -> str:
        return f"{self._name}-term"

    def _transact(
        self,
        change: Callable[[deltalake.DeltaTable | None, Any], None],
        what: str,
        *,
        term: int,
        epoch: int = 0,
    ) -> None:
        """Change the table at the version it has, unless that is done; again if another was faster."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        numbers = [Transaction(self._term_of, term), *([Transaction(self._name, epoch)] if epoch else [])]
        note = json.dumps({"writer": self._name, "epoch": epoch}) if epoch else None
        properties = CommitProperties(
            custom_metadata={"userMetadata": note} if note else None,
            max_commit_retries=_TRIES,
            app_transactions=numbers,
        )
        for left in reversed(range(_TRIES)):
            table = self._table()
            noted = self._noted(table) if table is not None else Noted(0, 0)
            if noted.epoch < self._seen:
                raise SinkMissing(
                    f"the Delta table {self._place.uri} has had rows up to epoch {self._seen}, and now has them up to "
                    f"epoch {noted.epoch}: it was deleted, or another is in its place. Restore it; or write to another "
                    "table."
                )
            self._seen = noted.epoch
            if noted.term > term:
                raise Superseded(f"run {noted.term} of this job writes to {self._place.uri}, and this is run {term}.")
            if (epoch and noted.epoch >= epoch) or (not epoch and noted.term == term):
                return
            try:
                change(table, properties)
                return
            except CommitFailedError as error:
                failed: Exception = error
            except DeltaError as error:
                if epoch and _BROKEN.search(str(error)):
                    raise SchemaDrift(
                        f"{self._failed(what, error)}. Rows of epoch {epoch}, which is committed, break a rule of the "
                        "table, which takes none of them. Take the rule away (DeltaTable(path).alter.drop_constraint, "
                        "drop_column_not_null), start the job again, and the epoch comes; then leave such rows out."
                    ) from error
                # Another has made the table meanwhile.
                if table is not None:
                    raise ConnectionError(self._failed(what, error)) from error
                failed = error
            if not left:
                raise ConnectionError(f"{self._failed(what, failed)}; tried {_TRIES} times") from failed

    def _failed(self, what: str, error: Exception) -> str:
        return f"the Delta table {self._place.uri} could not {what}: {first_line(error)}"


def _quoted(name: str) -> str:
    """Write the name of a column as Delta's expressions have it."""
    return f"`{name.replace('`', '``')}`"
