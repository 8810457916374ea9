"""Write to a Delta table, exactly once: the rows of committed epochs, and no others, are in the table.

    _delta_log/                             Delta's own log; an epoch's transaction has the epoch and the run's term
    ferryman/000000042/000000042123-000007-1f0c9a3e/part-....parquet    rows of epoch 42123, written by run 7
    _ferryman/ferryman.json                 which job writes here by this name, and the sink's own identity

Spark's tasks write an epoch's files where they stay. Nobody sees them before the log has them, and the log gets them
when the epoch is committed, by one transaction that also has its number. Calls `DeltaWriter`.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ferryman._engine.delta_columns import DataFile, columns_for_delta
from ferryman._engine.delta_table import DeltaWriter, Noted, check_shape, library
from ferryman._log.files.directory import NotPlain, directory
from ferryman._model.errors import (
    CorruptCheckpoint,
    ForeignCheckpoint,
    InvalidConfiguration,
    SinkAhead,
    SinkMissing,
    Superseded,
)
from ferryman._model.json_values import Misshapen, mapped, text, texts, whole
from ferryman._spark.compat.conversion import spark_schema
from ferryman._spark.sinks.task_files import write_files

if TYPE_CHECKING:
    from ferryman._engine.sink import SinkStart

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ATTEMPT = re.compile(r"([0-9]{12,15})-([0-9]{6,12})-[0-9a-f]{8}")
_FILE = re.compile(r"[^./\x00-\x1f\x7f\\][^/\x00-\x1f\x7f\\]*\.parquet")


class DeltaSink:
    """Write to a Delta table, exactly once: all rows, or the newest of each key."""

    whole = True
    beside = True
    skips_silence = False
    told = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str | Sequence[str] = (),
        name: str = "",
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if name and not _NAME.fullmatch(name):
            raise InvalidConfiguration(f"sinks.delta(name={name!r}): a name has letters, digits, '_' and '-'.")
        library()
        self.label = "delta"
        self._key = [key] if isinstance(key, str) else list(key)
        self._name = f"ferryman-{name}" if name else "ferryman"
        self._path = os.fspath(path).rstrip("/")
        self._place = directory(self._path)
        self._table = DeltaWriter(self._place, self._name, storage_options or {})
        self._term = 0
        # The newest epoch that is in the table.
        self._noted = 0
        self._left: list[str] = []

    @property
    def where(self) -> str:
        """Give the table's directory as people may read it, without a password."""
        return self._place.uri

    @property
    def _owner(self) -> str:
        return f"_ferryman/{self._name}.json"

    def claim(self, job_id: str) -> int:
        """Refuse the rows of another job by this name; learn the sink's own identity, and the newest term."""
        noted = self._table.noted()
        used = noted is not None and bool(noted.epoch or noted.term)
        mine = json.dumps({"job": job_id, "sink": uuid.uuid4().hex}).encode()
        if not self._place.exists(self._owner):
            # Looked at once more: another start may just have claimed it, and begun to write.
            if used and not self._place.exists(self._owner):
                raise ForeignCheckpoint(
                    f"{self.where} has rows of a writer {self._name!r}, and no {self._owner} that tells whose they "
                    "are. Restore that file; or give this sink a name of its own: sinks.delta(..., name=...)."
                )
            self._place.write_new(self._owner, mine)
        owner = self._owned_by()
        if owner is None and not used:
            # A power cut left the name and not the bytes, before anything was written.
            self._place.write(self._owner, mine)
            owner = self._owned_by()
        if owner is None:
            raise CorruptCheckpoint(
                f"{self._owner} in {self.where} is damaged, so nobody can tell whose rows these are. Restore the file."
            )
        job, sink = owner
        if job != job_id:
            raise ForeignCheckpoint(
                f"the Delta table {self.where} has the output of a job with another checkpoint, by the name "
                f"{self._name!r}; its epochs would be mixed with those of this job. Several jobs may write to one "
                "table: give this one a name of its own, sinks.delta(..., name=...)."
            )
        self.label = f"delta:{sink}"
        return noted.term if noted is not None else 0

    def _owned_by(self) -> tuple[str, str] | None:
        """Read whose rows these are, and the sink's own identity; None where that is damaged."""
        try:
            raw = mapped(json.loads(self._place.read(self._owner).to_pybytes()), "an owner")
            return text(raw["job"], "job"), text(raw["sink"], "sink")
        except (ValueError, LookupError, TypeError, RecursionError, NotPlain):
            return None

    def begin(self, start: SinkStart) -> None:
        """Keep older runs out from now on; refuse a checkpoint that has fewer epochs than the table, or more."""
        self._place = directory(self._path, fsync=start.fsync)
        self._place.sync([self._owner])
        self._term = start.term
        self._table.take(start.term)
        noted = self._table.noted() or Noted(0, 0)
        if noted.epoch > start.epoch and start.written_in(noted.epoch) is not None:
            raise Superseded(f"{self.where} has rows of epoch {noted.epoch}, after this start. Start it again.")
        # Of that number, an epoch may be another by now: one that has written nothing here.
        without = noted.epoch == start.epoch > 0 and not start.written
        if noted.epoch > start.epoch or without:
            raise SinkAhead(
                f"the Delta table {self.where} has rows up to epoch {noted.epoch} of this job, and the checkpoint goes "
                f"to epoch {start.epoch}{', without them' if without else ''}: it was restored from a backup, or "
                "rewound. Others may have built on these "
                "rows, so they are not taken back. Write to another table; or, to have the epochs again behind those, "
                "give the sink another name: sinks.delta(..., name=...)."
            )
        if noted.epoch < (before := _noted_before(start.written)):
            raise SinkMissing(
                f"the Delta table {self.where} has had rows up to epoch {before} of this job, and now has them up to "
                f"epoch {noted.epoch}: it was deleted, or restored from a backup. Restore the checkpoint from one of "
                "the same time, or the rows in between would be missing for good."
            )
        self._noted = noted.epoch
        # What a driver has begun that died; another may still be at it.
        folders = {_folder(self._name, epoch).rpartition("/")[0] for epoch in (start.epoch, start.epoch + 1)}
        known = start.written.get("attempt")
        self._left = [
            f"{folder}/{name}"
            for folder in sorted(folders)
            for name in self._place.list(folder)
            if _ATTEMPT.fullmatch(name) and _epoch(name) >= start.epoch and name != known
        ]

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Have tasks write the epoch's files; rows that are to be merged come to the driver."""
        if self._key:
            return self.write_table(rows.toArrow(), epoch)
        attempt = self._attempt(epoch)
        told = write_files(rows, self._place.address, _below(self._name, attempt))
        return self._written(attempt, columns_for_delta(rows.schema.json()), told)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Write the rows as one file; of those that are to be merged, the newest of each key."""
        attempt = self._attempt(epoch)
        if self._key:
            rows = self._newest(rows)
        if rows.num_rows:
            out = pa.BufferOutputStream()
            pq.write_table(rows, out, store_schema=False)
            self._place.write(f"{_below(self._name, attempt)}/rows.parquet", out.getvalue())
        told = ["rows.parquet"] if rows.num_rows else []
        return self._written(attempt, columns_for_delta(spark_schema(rows.schema).json()), told)

    def _newest(self, rows: pa.Table) -> pa.Table:
        if unknown := [name for name in self._key if name not in rows.column_names]:
            raise InvalidConfiguration(
                f"sinks.delta(key={self._key}): the rows have no column {unknown[0]!r}, but "
                f"{', '.join(rows.column_names)}."
            )
        for place, field in enumerate(rows.schema):
            if field.name in self._key and pa.types.is_floating(field.type):
                rows = rows.set_column(place, field, _as_numbers(rows.column(place)))
        keys = rows.select(self._key).append_column("ferryman_place", pa.array(range(rows.num_rows), pa.int64()))
        last = keys.group_by(self._key).aggregate([("ferryman_place", "max")])
        places = last.column("ferryman_place_max")
        return rows.take(places.take(pc.array_sort_indices(places)))

    def _attempt(self, epoch: int) -> str:
        return f"{epoch:012d}-{self._term:06d}-{uuid.uuid4().hex[:8]}"

    def _written(self, attempt: str, columns: str, told: Sequence[str]) -> dict[str, Any]:
        """Say what an attempt has written, all of which stays from now on; `commit` takes it.

        Parameters
        ----------
        told
            The files that count: a task that ran twice has written another.
        """
        files = [self._file(f"{_below(self._name, attempt)}/{name}") for name in told]
        self._table.check(files, columns, merged=bool(self._key))
        self._place.sync(file.path for file in files)
        return {
            "attempt": attempt,
            "files": [
                {"name": file.path.rpartition("/")[2], "size": file.size, "rows": file.rows, "nulls": dict(file.nulls)}
                for file in files
            ],
            "columns": columns,
            "key": self._key,
            "noted": self._noted,
            "path": self.where,
        }

    def _file(self, path: str) -> DataFile:
        """Look at a Parquet file's own description of itself."""
        with self._place.open(path) as file:
            size, footer = file.size(), pq.read_metadata(file)
        nulls: dict[str, int] = {}
        for place in range(footer.num_columns):
            chunks = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
            told = [
                chunk.statistics.null_count for chunk in chunks if chunk.statistics and chunk.statistics.has_null_count
            ]
            # Of a nested column that would be those of its parts.
            if len(told) == len(chunks) and chunks and "." not in chunks[0].path_in_schema:
                nulls[chunks[0].path_in_schema] = sum(told)
        return DataFile(path=path, size=size, rows=footer.num_rows, nulls=nulls)

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Put the attempt's files into the table's log, unless the epoch is there."""
        # As it was written, whatever this sink is now: files that were added are the table's own.
        attempt, files, columns, key = self._known(epoch, written)
        if files and self._noted < epoch:
            gone = [file.path for file in files if not self._place.exists(file.path)]
            if gone and ((noted := self._table.noted()) is None or noted.epoch < epoch):
                raise SinkMissing(
                    f"{gone[0]} in {self.where} is gone, and epoch {epoch}, which is committed, has rows there. "
                    "Restore the table and the checkpoint from backups of the same time."
                )
            if key and not gone:
                rows = pa.concat_tables([self._rows(file.path) for file in files])
                self._table.merge(rows, columns, key, epoch=epoch, term=self._term)
            elif not gone:
                self._table.add(files, columns, epoch=epoch, term=self._term)
            self._noted = epoch
        if key and files:
            self._place.remove(_below(self._name, attempt))
        # What else was begun for the epoch can never be committed now.
        for other in [path for path in self._left if _epoch(path.rpartition("/")[2]) <= epoch]:
            self._left.remove(other)
            if not other.endswith(attempt):
                self._place.remove(other)

    def _rows(self, path: str) -> pa.Table:
        with self._place.open(path) as file:
            return pq.read_table(file)

    def _known(self, epoch: int, written: Mapping[str, Any]) -> tuple[str, list[DataFile], str, list[str]]:
        """Read what `write` gave, as the manifest has it, and nothing that leads out of it."""
        try:
            attempt, columns = text(written["attempt"], "attempt"), text(written["columns"], "columns")
            if not _ATTEMPT.fullmatch(attempt) or _epoch(attempt) != epoch:
                raise Misshapen("it is of another epoch")
            check_shape(columns)
            key = list(texts(written["key"], "key"))
            files = []
            for told in written["files"]:
                name = text(told["name"], "name")
                if not _FILE.fullmatch(name):
                    raise Misshapen("a file has a name that none can have")
                files.append(
                    DataFile(
                        path=f"{_below(self._name, attempt)}/{name}",
                        size=whole(told["size"], "size"),
                        rows=whole(told["rows"], "rows"),
                        nulls={str(column): whole(count, "nulls") for column, count in told["nulls"].items()},
                    )
                )
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, Misshapen) as error:
            raise CorruptCheckpoint(
                f"what the checkpoint says of epoch {epoch} in {self.where} is not what a Delta sink has written: "
                f"manifests/{epoch:012d}.json is altered. Restore the whole checkpoint directory from one backup."
            ) from error
        return attempt, files, columns, key

    def version_at(self, epoch: int) -> int | None:
        """Give the version of the table that has the rows of all epochs up to one; None if it has none of them yet.

        Delta forgets what is older than the retention of its log.
        """
        return self._table.version_at(epoch)


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write equal numbers in one way, as Spark and Delta compare them: there is one zero, and one that is no number."""
    zero, none = pa.scalar(0.0, column.type), pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), none, pc.add(column, zero))


def _epoch(attempt: str) -> int:
    return int(attempt.partition("-")[0])


def _folder(name: str, epoch: int) -> str:
    """Give the folder of an epoch's attempts: a thousand epochs have one, so that none is long."""
    return f"{name}/{epoch // 1000:09d}/{epoch:012d}"


def _below(name: str, attempt: str) -> str:
    return f"{_folder(name, _epoch(attempt)).rpartition('/')[0]}/{attempt}"


def _noted_before(written: Mapping[str, Any]) -> int:
    """Give the newest epoch that was in the table before an epoch, as a manifest has it."""
    noted = written.get("noted", 0)
    return noted if isinstance(noted, int) else 0


def delta(
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str] = (),
    name: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSink:
    """Write to a Delta table, exactly once: an epoch is one transaction, and no reader sees a part of it.

    Parameters
    ----------
    path
        The table's directory, or its URI. If there is no table it is made, with the columns of the rows.
    key
        Keep the newest row of each key: rows are merged in the driver. If left out, all rows are added, and the tasks
        write them.
    name
        What the writer is called in the table's log: `ferryman-NAME`. Jobs that write to one table need one each.
    storage_options
        How to reach the table's store, by the names that deltalake has for that.
    """
    return DeltaSink(path, key=key, name=name, storage_options=storage_options)
