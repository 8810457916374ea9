"""Read and keep Spark's own log, below `spark/` in the checkpoint: what it writes down before and after a micro-batch.

    spark/metadata             the query's id
    spark/offsets/<batch>      how far the sources are to be read, written before the batch
    spark/commits/<batch>      the batch is done
    spark/sources/<n>/<m>      what a source notes for itself: the files it has found, where it began

Spark does not sync these, so after a power cut any of them may be empty, cut off or gone. A manifest has a copy of
what its batch needs, and with `fsync` the driver syncs them before a sink sees the epoch.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ferryman._log.files.checkpoint import Checkpoint, is_number
from ferryman._model.manifest import Manifest
from ferryman._model.spark_log import SparkLog

_VERSION = re.compile(rb"v[0-9]+")
_ONLY_VERSION = re.compile(rb"v[0-9]*\n?")


class SparkLogKeeper:
    """Take down, for each epoch, what Spark has written of its batch; with `sync`, see that it stays."""

    def __init__(self, checkpoint: Checkpoint, *, sync: bool) -> None:
        self._checkpoint = checkpoint
        self._sync = sync
        self._metadata = ""
        self._synced: set[str] = set()

    def take(self, batch: int, latest: Manifest | None) -> SparkLog:
        """Read what Spark has written of a batch, and sync it before anybody sees the epoch."""
        if not self._metadata:
            self._metadata = text_of(self._checkpoint, "spark/metadata") or ""
        offsets = {
            number: text for number, text in (latest.spark.offsets if latest else {}).items() if number == batch - 1
        }
        if (text := text_of(self._checkpoint, f"spark/offsets/{batch}")) is not None:
            offsets[batch] = text
        if self._sync:
            # Their folders are synced along; where Spark keeps checksums beside its files, these too.
            names = {f"spark/offsets/{batch}", "spark/metadata", *source_files(self._checkpoint)}
            new = names - self._synced
            self._checkpoint.directory.sync(sorted(file for name in new for file in (name, beside(name))))
            self._synced = names
        return SparkLog(offsets, self._metadata)


def bytes_of(checkpoint: Checkpoint, name: str) -> bytes | None:
    """Read a file of Spark's log; None where it is not there."""
    try:
        return bytes(checkpoint.directory.read(name))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise checkpoint.unreadable(name, error) from error


def text_of(checkpoint: Checkpoint, name: str) -> str | None:
    """Read a file of Spark's log; None where it is not there, or no text."""
    try:
        data = bytes_of(checkpoint, name)
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def beside(name: str) -> str:
    """Name the file in which Hadoop keeps the checksums of another."""
    folder, _, base = name.rpartition("/")
    return f"{folder}/.{base}.crc"


def batches(checkpoint: Checkpoint, side: str) -> list[int]:
    """List the micro-batches of `offsets` or `commits`, newest first."""
    return sorted((int(name) for name in checkpoint.directory.list(f"spark/{side}") if is_number(name)), reverse=True)


def source_files(checkpoint: Checkpoint) -> list[str]:
    """List what sources have noted for themselves."""
    listed, found = checkpoint.directory.list, []
    for folder in [f"spark/sources/{source}" for source in listed("spark/sources")]:
        try:
            found += [f"{folder}/{name}" for name in listed(folder)]
        except NotADirectoryError as error:
            raise checkpoint.unreadable(folder, error) from error
    return found


def source_number(name: str) -> int:
    """Read a source's own count off the name of what it noted; -1 where it has none."""
    number = name.rpartition("/")[2].removesuffix(".compact")
    return int(number) if is_number(number) else -1


def source_counts(checkpoint: Checkpoint) -> dict[int, int]:
    """Give how far each source's own notes go, by the source's number."""
    counts: dict[int, int] = {}
    for name in source_files(checkpoint):
        source = name.split("/")[2]
        if is_number(source):
            counts[int(source)] = max(source_number(name), counts.get(int(source), -1))
    return counts


def values_of(text: str) -> tuple[Any, ...]:
    """Give the offsets of each source in the text of an offsets file."""
    return tuple(_value(line) for line in text.splitlines()[2:])


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def file_counts(offsets: tuple[Any, ...]) -> dict[int, int]:
    """Give how far each source of files has counted its own notes, by the source's number."""
    return {
        source: offset["logOffset"]
        for source, offset in enumerate(offsets)
        if isinstance(offset, dict) and isinstance(offset.get("logOffset"), int)
    }


def torn(data: bytes) -> bool:
    """Tell whether a file of Spark's log is what a power cut left of it, as far as that can be seen."""
    # Kafka's begins with a zero for the sake of old versions.
    data = data.removeprefix(b"\0")
    if not data or b"\0" in data or _ONLY_VERSION.fullmatch(data):
        return True
    version, *lines = data.split(b"\n")
    return bool(_VERSION.fullmatch(version)) and not all(_parses(line) for line in lines)


def _parses(line: bytes) -> bool:
    # A source that has nothing yet is written as a dash; at the end of a file may be an empty line.
    if line in (b"-", b""):
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
