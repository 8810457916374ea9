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
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ferryman._log.directory import Directory, directory
from ferryman._model.errors import ForeignCheckpoint, SinkMissing, Superseded

if TYPE_CHECKING:
    from ferryman._spark.sinks import SinkStart

OWNER = "_ferryman/owner.json"
ATTEMPTS = "_ferryman/attempts"

_LIST = re.compile(r"([0-9]{12,})-([0-9]{6,})\.json")
_ATTEMPT = re.compile(r"([0-9]{12,})-([0-9]{6,})-[0-9a-f]{8}")


class ParquetSink:
    """Write Parquet files, exactly once.

    `spark.read.parquet(path)` and any other reader find the rows of committed epochs. For a moment, while an epoch's
    files are moved, they may find a part of its rows; `read_parquet` never does.
    """

    whole = True
    told = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path).rstrip("/")
        self.label = "parquet"
        self._directory = directory(self.path)
        self._term = 0
        self._stale: list[str] = []

    def claim(self, job_id: str) -> int:
        """Refuse the output of another checkpoint; learn the sink's own identity."""
        mine = json.dumps({"job": job_id, "sink": uuid.uuid4().hex}).encode()
        if not self._directory.write_new(OWNER, mine) and not self._directory.read(OWNER).size and not self._used():
            # A power cut left the name and not the bytes, before anything was written.
            self._directory.write(OWNER, mine)
        owner = self._owner()
        if owner.get("job") != job_id:
            raise ForeignCheckpoint(
                f"{self.path} holds the output of a job with another checkpoint; its epochs would be mixed with those "
                "of this job. Write to another directory, or remove that one."
            )
        self.label = f"parquet:{owner['sink']}"
        return max((term for _, term in _lists(self._directory)), default=0)

    def _used(self) -> bool:
        return bool(_lists(self._directory) or self._directory.list(ATTEMPTS))

    def _owner(self) -> dict[str, str]:
        try:
            owner = json.loads(self._directory.read(OWNER).to_pybytes())
            return {name: str(owner[name]) for name in ("job", "sink")}
        except (ValueError, KeyError, TypeError) as error:
            raise ForeignCheckpoint(
                f"{OWNER} in {self.path} is damaged, so nobody can tell whose rows these are. Restore the file, or "
                "write to another directory."
            ) from error

    def begin(self, start: SinkStart) -> None:
        """Take back epochs that a restored checkpoint no longer has: the files go where they came from."""
        self._directory = directory(self.path, fsync=start.fsync)
        self._directory.keep(["_ferryman", ATTEMPTS])
        self._directory.sync([OWNER])
        self._term = start.term
        for (epoch, term), name in _lists(self._directory).items():
            if epoch > start.epoch:
                if term > start.term:
                    raise Superseded(
                        f"{self.path} has rows of epoch {epoch} by run {term} of this job, and this is run "
                        f"{start.term}: a newer one has taken over. Start a job once only."
                    )
                written = _read_list(self._directory, name)
                self._directory.move({there: here for here, there in _moves(written).items()})
                self._directory.delete([name])
        self._stale = [name for name in self._directory.list(ATTEMPTS) if _ATTEMPT.fullmatch(name)]

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Write the epoch's files into a folder of this attempt's own."""
        attempt = f"{epoch:012d}-{self._term:06d}-{uuid.uuid4().hex[:8]}"
        folder = f"{ATTEMPTS}/{attempt}"
        rows.write.parquet(f"{self._directory.spark_uri}/{folder}")
        files = [name for name in self._directory.list(folder) if name.endswith(".parquet")]
        self._directory.sync(f"{folder}/{name}" for name in files)
        return {"attempt": attempt, "files": files, "schema": rows.schema.json(), "path": self._directory.uri}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Move the attempt's files to where readers look, and list them."""
        attempt = str(written["attempt"])
        listed = f"_ferryman/{attempt.rpartition('-')[0]}.json"
        try:
            self._directory.move(_moves(written))
        except FileNotFoundError as error:
            raise SinkMissing(
                f"{self.path}: files of epoch {epoch}, which is committed, are gone ({error}). Restore the directory, "
                "or the checkpoint and this directory, from one backup."
            ) from error
        self._directory.write(listed, json.dumps(written).encode())
        self._directory.remove(f"{ATTEMPTS}/{attempt}")
        # What was begun for an epoch that is committed now can never be.
        for stale in self._stale:
            if stale != attempt and int(stale.partition("-")[0]) <= epoch:
                self._directory.remove(f"{ATTEMPTS}/{stale}")
        self._stale = [stale for stale in self._stale if int(stale.partition("-")[0]) > epoch]

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the rows of all committed epochs as a DataFrame."""
        return read_parquet(spark, self.path)


def _moves(written: dict[str, Any]) -> dict[str, str]:
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
        sound = _ATTEMPT.fullmatch(written["attempt"]) and isinstance(written["schema"], str)
        sound = sound and all(isinstance(one, str) and "/" not in one for one in written["files"])
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ForeignCheckpoint(
            f"{name} in {place.uri} is damaged, or not a list that a Ferryman Parquet sink wrote. Restore the file."
        )
    return dict(written)


def read_parquet(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Read what a Parquet sink wrote: the rows of whole committed epochs, and no others."""
    place = directory(os.fspath(path).rstrip("/"))
    lists = [_read_list(place, name) for _, name in sorted(_lists(place).items())]
    if not lists:
        raise ForeignCheckpoint(
            f"{path} holds no committed epoch of a Ferryman Parquet sink. Check the path, or wait for the first epoch."
        )
    schema = StructType.fromJson(json.loads(lists[-1]["schema"]))
    files = [f"{place.spark_uri}/{name}" for one in lists for name in _moves(one).values()]
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)
