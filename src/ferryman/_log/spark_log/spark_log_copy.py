"""Keep Spark's log on the driver's own disk where the checkpoint is in an object store, and a copy of it in there.

Spark writes its log through Hadoop, which knows object stores only by libraries that a session may not have, and which
renames where such a store has to copy. So Spark writes to a folder of this machine. What is in the checkpoint counts:
a run begins with a copy of that, and brings what Spark has noted of a batch there before anything of the batch is done.
So a batch that is not in the checkpoint was seen by nobody, and Spark plans it anew. Calls `Checkpoint` and terms.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ferryman._log.files.checkpoint import Checkpoint, is_number
from ferryman._log.spark_log.log_files import bytes_of, source_files, source_number
from ferryman._model.errors import FerrymanError, InvalidConfiguration

# Requests on their way at a time.
_AT_ONCE = 16
_ROOT = "spark"


class SparkLogCopy:
    """Spark's log as one run has it.

    Parameters
    ----------
    place
        A folder of the run's own; what is in it goes.
    look
        Raises `Superseded` if the run is not the newest any more.
    """

    def __init__(self, checkpoint: Checkpoint, place: Path, look: Callable[[], None]) -> None:
        self._checkpoint = checkpoint
        self._place = place
        self._look = look
        # What is in the checkpoint, as this run knows it.
        self._there: set[str] = set()

    @property
    def uri(self) -> str:
        """Give what Spark is to be told."""
        return (self._place / _ROOT).absolute().as_uri()

    def fetch(self) -> None:
        """Begin with what the checkpoint has."""
        shutil.rmtree(self._place, ignore_errors=True)
        (self._place / _ROOT).mkdir(parents=True, mode=0o700)
        listed = self._checkpoint.directory.list
        names = [f"{_ROOT}/{side}/{name}" for side in ("offsets", "commits") for name in listed(f"{_ROOT}/{side}")]
        names += [*source_files(self._checkpoint), f"{_ROOT}/metadata"]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ferryman-fetch") as pool:
            found = list(pool.map(self._fetched, names))
        self._there = {name for name, there in zip(names, found, strict=True) if there}

    def _fetched(self, name: str) -> bool:
        data = bytes_of(self._checkpoint, name)
        if data is None:
            return False
        path = self._place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True

    def keep(self) -> None:
        """Bring what Spark has noted since to the checkpoint, and forget there what Spark has forgotten."""
        here = self._here()
        new = sorted(here - self._there, key=_order)
        # A batch's offsets come last: where they are, what they count on is there too.
        first, last = [name for name in new if not _is_offsets(name)], [name for name in new if _is_offsets(name)]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ferryman-keep") as pool:
            list(pool.map(self._put, first))
        for name in last:
            self._put(name)
        # Who cleans up a disk also takes what is old and needed.
        if gone := sorted(name for name in self._there - here if _is_forgotten(name, here)):
            self._checkpoint.directory.delete(gone)
        self._there = here

    def keep_commits(self) -> None:
        """Bring what Spark has committed to the checkpoint when a run ends: nothing that was only begun."""
        # Without them the next run only looks at a batch that is done.
        with suppress(FerrymanError, OSError):
            for name in sorted(self._here() - self._there, key=_order):
                if name.startswith(f"{_ROOT}/commits/"):
                    self._checkpoint.directory.write_new(name, (self._place / name).read_bytes())

    def _here(self) -> set[str]:
        root = self._place / _ROOT
        if (root / "state").exists():
            raise InvalidConfiguration(
                f"a stream of this job has state of Spark's own, and the checkpoint {self._checkpoint.directory.uri} "
                "is in an object store, where Spark's log and state are not written. Take the stateful step (such as "
                "dropDuplicates or groupBy) out of what is given to ferry.stream, and do it with Ferryman; or keep the "
                "checkpoint on a disk."
            )
        files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {path.relative_to(self._place).as_posix() for path in files}

    def _put(self, name: str) -> None:
        data = (self._place / name).read_bytes()
        if self._checkpoint.directory.write_new(name, data):
            return
        if bytes_of(self._checkpoint, name) != data:
            # Of a run that was late, if this one is the newest; else of the one that took over.
            self._look()
            self._checkpoint.directory.write(name, data)


def _is_offsets(name: str) -> bool:
    return name.startswith(f"{_ROOT}/offsets/")


def _is_forgotten(name: str, here: Collection[str]) -> bool:
    """Tell whether Spark itself forgets a file: it has newer batches, or what a source has put together since."""
    folder = name.rpartition("/")[0]
    if folder in (f"{_ROOT}/offsets", f"{_ROOT}/commits"):
        kind = ""
    elif folder.startswith(f"{_ROOT}/sources/"):
        kind = ".compact"
    else:
        return False
    beside = (other for other in here if other.startswith(f"{folder}/") and other.endswith(kind))
    return source_number(name) < max(map(source_number, beside), default=-1)


def _order(name: str) -> tuple[int, str]:
    number = name.rpartition("/")[2]
    return (int(number) if is_number(number) else -1, name)
