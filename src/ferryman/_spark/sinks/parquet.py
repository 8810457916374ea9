"""Write Parquet files, exactly once: the files of committed epochs, and no others, are in the sink's directory.

    000000000042-000007-1f0c9a3e-00000.parquet    rows of epoch 42, written by run 7
    _ferryman/000000000042-000007.json            the list of the epoch's files: all of them are there
    _ferryman/attempts/000000000043-000007-.../   an epoch under way; readers of Parquet pass such folders over
    _ferryman/owner.json                          which job's rows these are, and the sink's own identity

Every attempt at an epoch has a folder of its own, so nobody can spoil another's: not a driver that wakes up after it
was taken over, nor a write that outlives its epoch. Committing an epoch is moving the files of the one attempt that
the manifest names; whoever does it, and however often, the same files are in the same place. Calls `Directory`.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ferryman._log.files.directory import Directory, NotPlain, directory
from ferryman._log.files.untrusted import first_line
from ferryman._model.errors import CorruptCheckpoint, ForeignCheckpoint, SinkMissing, Superseded
from ferryman._model.json_values import text
from ferryman._spark.sinks.task_files import read_files, write_files

if TYPE_CHECKING:
    from ferryman._engine.sink import SinkStart

OWNER = "_ferryman/owner.json"
ATTEMPTS = "_ferryman/attempts"

_LIST = re.compile(r"([0-9]{12,15})-([0-9]{6,12})\.json")
_FILE = re.compile(r"[^./\x00-\x1f\x7f\\][^/\x00-\x1f\x7f\\]*\.parquet")
_ATTEMPT = re.compile(r"([0-9]{12,15})-([0-9]{6,12})-[0-9a-f]{8}")


class ParquetSink:
    """Write Parquet files, exactly once.

    `spark.read.parquet(path)` and any other reader find the rows of committed epochs. For a moment, while an epoch's
    files are moved, they may find a part of its rows; `read_parquet` never does.
    """

    whole = True
    beside = True
    skips_silence = False
    told = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path).rstrip("/")
        self.label = "parquet"
        self._directory = directory(self.path)
        self._term = 0
        self._listed = False
        self._left: list[str] = []

    @property
    def where(self) -> str:
        """Give the directory as people may read it, without a password."""
        return self._directory.uri

    def claim(self, job_id: str) -> int:
        """Refuse the output of another checkpoint; learn the sink's own identity."""
        mine = json.dumps({"job": job_id, "sink": uuid.uuid4().hex}).encode()
        if not self._directory.exists(OWNER):
            # Looked at once more: another start may just have claimed it, and begun to write.
            if self._used() and not self._directory.exists(OWNER):
                raise ForeignCheckpoint(
                    f"{self.where} has rows, and no {OWNER} that tells whose they are: this job could take away what "
                    "another has written. Restore that file, or write to another directory, or remove this one."
                )
            self._directory.write_new(OWNER, mine)
        owner = self._owner()
        if owner is None and not self._used():
            # A power cut left the name and not the bytes, before anything was written.
            self._directory.write(OWNER, mine)
            owner = self._owner()
        if owner is None:
            raise CorruptCheckpoint(
                f"{OWNER} in {self.where} is damaged, so nobody can tell whose rows these are. Restore the file, or "
                "write to another directory."
            )
        if owner["job"] != job_id:
            raise ForeignCheckpoint(
                f"{self.where} holds the output of a job with another checkpoint; its epochs would be mixed with those "
                "of this job. Write to another directory, or remove that one."
            )
        self.label = f"parquet:{owner['sink']}"
        return self.newest_term()

    def newest_term(self) -> int:
        """Give the greatest term that is known here."""
        return max((term for _, term in _lists(self._directory)), default=0)

    def _used(self) -> bool:
        shown = (name.rpartition("-")[0] for name in self._directory.list("") if name.endswith(".parquet"))
        return bool(
            _lists(self._directory) or self._directory.list(ATTEMPTS) or any(_ATTEMPT.fullmatch(name) for name in shown)
        )

    def _owner(self) -> dict[str, str] | None:
        """Read whose rows these are; None where that is damaged."""
        try:
            owner = json.loads(self._directory.read(OWNER).to_pybytes())
            return {name: text(owner[name], name) for name in ("job", "sink")}
        except (ValueError, LookupError, TypeError, RecursionError, NotPlain):
            return None

    def begin(self, start: SinkStart) -> None:
        """Take back epochs that a restored checkpoint no longer has, and show again those that it has again."""
        self._directory = directory(self.path, fsync=start.fsync)
        self._directory.keep(["_ferryman", ATTEMPTS])
        self._directory.sync([OWNER])
        self._term = start.term
        lists = _lists(self._directory)
        later = {epoch_term: name for epoch_term, name in lists.items() if epoch_term[0] > start.epoch}
        self._refuse_early(later, start)
        for name in later.values():
            written = _read_list(self._directory, name)
            self._directory.move({there: here for here, there in _moves(written).items()})
            self._directory.delete([name])
        self._listed = len(lists) > len(later)
        for attempt in self._attempts():
            epoch = _epoch(attempt)
            known = start.written_in(epoch) if epoch <= start.epoch else None
            if known is not None and self._known(epoch, known)["attempt"] == attempt:
                # It was taken back by a start on an older backup.
                self.commit(epoch, dict(known))
            elif known is not None:
                self._directory.remove(f"{ATTEMPTS}/{attempt}")
        self._left = self._attempts()

    def _refuse_early(self, later: Iterable[tuple[int, int]], start: SinkStart) -> None:
        """Refuse a start that has looked at the checkpoint before later epochs, which are here, were committed."""
        for epoch, term in later:
            # A list is written after its manifest: where there is one, the epoch counts. Of an epoch that is forgotten
            # by now, the term tells that a newer run was here.
            if term > start.term or start.written_in(epoch) is not None:
                raise Superseded(
                    f"{self.where} has rows of epoch {epoch} by run {term} of this job, and this start, run "
                    f"{start.term}, had looked at the checkpoint before that was committed. Start the job again, once."
                )

    @property
    def place(self) -> Directory:
        """Give the directory."""
        return self._directory

    def is_claimed(self, job_id: str, label: str) -> bool:
        """Tell whether this is a sink of a job, by the name that its manifests know; nothing is written."""
        owner = self._owner() if self._directory.exists(OWNER) else None
        return owner is not None and owner["job"] == job_id and label == f"parquet:{owner['sink']}"

    def attempts_after(self, epoch: int) -> list[str]:
        """Name the attempts at later epochs, committed by nobody."""
        return [name for name in self._attempts() if _epoch(name) > epoch]

    def _attempts(self) -> list[str]:
        return [name for name in self._directory.list(ATTEMPTS) if _ATTEMPT.fullmatch(name)]

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Write the epoch's files into a folder of this attempt's own."""
        attempt = self.attempt(epoch)
        if self._directory.remote:
            told = write_files(rows, self._directory.address, f"{ATTEMPTS}/{attempt}")
            return self.written(attempt, rows.schema.json(), told)
        rows.write.parquet(f"{self._directory.spark_uri}/{ATTEMPTS}/{attempt}")
        return self.written(attempt, rows.schema.json())

    def attempt(self, epoch: int) -> str:
        """Name a new attempt at an epoch; its files go into the folder of that name."""
        return f"{epoch:012d}-{self._term:06d}-{uuid.uuid4().hex[:8]}"

    def written(self, attempt: str, schema: str, told: list[str] | None = None) -> dict[str, Any]:
        """Say what an attempt has written, all of which stays from now on; `commit` takes it.

        Parameters
        ----------
        told
            The files of those tasks that count; None where nothing else can be in the folder.
        """
        folder = f"{ATTEMPTS}/{attempt}"
        files = told
        if files is None:
            files = [name for name in self._directory.list(folder) if name.endswith(".parquet")]
        if len(files) == 1 and self._listed and not self._rows(f"{folder}/{files[0]}"):
            # Spark writes a file of no rows for their columns, which others have told before.
            files = []
        self._directory.sync(f"{folder}/{name}" for name in files)
        return {"attempt": attempt, "files": files, "schema": schema, "path": self._directory.spark_uri}

    def _rows(self, name: str) -> int:
        with self._directory.open(name) as file:
            return int(pq.read_metadata(file).num_rows)

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Move the attempt's files to where readers look, and list them."""
        attempt = self._known(epoch, written)["attempt"]
        try:
            self._directory.move(_moves(written))
        except FileNotFoundError as error:
            raise SinkMissing(
                f"{self.where}: files of epoch {epoch}, which is committed, are gone ({error}). Restore the directory, "
                "or the checkpoint and this directory, from one backup."
            ) from error
        # Before the list: as long as there is none, nobody takes the files back to where this is deleted.
        self._directory.remove(f"{ATTEMPTS}/{attempt}")
        if written["files"]:
            self._directory.write(_list_of(attempt), json.dumps(written).encode())
            self._listed = True
        # What else was begun for the epoch can never be committed now.
        for other in [name for name in self._left if _epoch(name) == epoch]:
            self._left.remove(other)
            if other != attempt:
                self._directory.remove(f"{ATTEMPTS}/{other}")

    def _known(self, epoch: int, written: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse what a manifest says of an epoch here and no sink has written: it would have other folders removed."""
        if not _is_sound(written) or _epoch(written["attempt"]) != epoch:
            raise CorruptCheckpoint(
                f"what the checkpoint says of epoch {epoch} in {self.where} is not what a Parquet sink has written: "
                f"manifests/{epoch:012d}.json is altered. Restore the whole checkpoint directory from one backup."
            )
        return written

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the rows of all committed epochs as a DataFrame."""
        return read_parquet(spark, self.path)


def _epoch(attempt: str) -> int:
    return int(attempt.partition("-")[0])


def _is_sound(written: Any) -> bool:
    """Tell whether some JSON is what an attempt has written, and names nothing outside of its folder."""
    return (
        isinstance(written, dict)
        and isinstance(attempt := written.get("attempt"), str)
        and _ATTEMPT.fullmatch(attempt) is not None
        and isinstance(written.get("schema"), str)
        and isinstance(files := written.get("files"), list)
        and all(isinstance(file, str) and _FILE.fullmatch(file) for file in files)
    )


def _list_of(attempt: str) -> str:
    return f"_ferryman/{attempt.rpartition('-')[0]}.json"


def _moves(written: Mapping[str, Any]) -> dict[str, str]:
    """Say where the files of an attempt go when it is committed."""
    attempt = written["attempt"]
    return {
        f"{ATTEMPTS}/{attempt}/{name}": f"{attempt}-{number:05d}.parquet"
        for number, name in enumerate(written["files"])
    }


def _lists(place: Directory) -> dict[tuple[int, int], str]:
    """Find the lists of committed epochs, by epoch and term."""
    found = ((_LIST.fullmatch(name), name) for name in place.list("_ferryman"))
    return {(int(match[1]), int(match[2])): f"_ferryman/{name}" for match, name in found if match}


def _read_list(place: Directory, name: str) -> dict[str, Any]:
    """Read a list, and believe nothing of it that would lead out of the sink's directory."""
    try:
        written = json.loads(place.read(name).to_pybytes())
        sound = _is_sound(written) and _list_of(written["attempt"]) == name
    except (ValueError, RecursionError, NotPlain):
        sound = False
    if not sound:
        raise CorruptCheckpoint(
            f"{name} in {place.uri} is damaged, or not a list that a Ferryman Parquet sink wrote. Restore the file."
        )
    return dict(written)


def listed(place: Directory) -> tuple[list[str], str | None]:
    """Name the files of committed epochs, oldest first, with the columns of the newest; None where there is none."""
    lists = [_read_list(place, name) for _, name in sorted(_lists(place).items())]
    return [name for written in lists for name in _moves(written).values()], lists[-1]["schema"] if lists else None


def read_parquet(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Read what a Parquet sink wrote: the rows of whole committed epochs, and no others."""
    place = directory(os.fspath(path).rstrip("/"))
    names, raw = listed(place)
    if raw is None:
        raise ForeignCheckpoint(
            f"{place.uri} holds no committed epoch of a Ferryman Parquet sink. Check the path, or wait for the first "
            "epoch."
        )
    schema = _columns(place, raw)
    if place.remote and names:
        return read_files(spark, place.address, names, schema)
    files = [f"{place.spark_uri}/{name}" for name in names]
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


def _columns(place: Directory, raw: str) -> StructType:
    """Read the columns that a list tells; a type of a user's own would have Spark import what it names."""
    try:
        tree = json.loads(raw)
        level = [tree]
        while level:
            if any(isinstance(part, dict) and part.get("type") == "udt" for part in level):
                raise ValueError("it has a type of a user's own")
            level = [
                inner
                for outer in level
                if isinstance(outer, (dict, list))
                for inner in (outer.values() if isinstance(outer, dict) else outer)
            ]
        return StructType.fromJson(tree)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, PySparkException) as error:
        raise CorruptCheckpoint(
            f"the newest list of files in {place.uri}/_ferryman does not tell the columns of the rows "
            f"({first_line(error)}). Restore the file, or read the directory with spark.read.parquet."
        ) from error
