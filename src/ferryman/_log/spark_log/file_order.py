"""In which order the rows of several files count: that of the files' age, and of one age, of their names.

That is what a user means by it; Spark itself reads the largest file first. Which files a micro-batch reads Spark's
source of files writes down before it begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import xxhash

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.untrusted import Unsound
from ferryman._log.spark_log.log_files import bytes_of, file_counts
from ferryman._model.errors import CorruptCheckpoint
from ferryman._model.json_values import long, mapped, text

# Spark's source of files adds one for a micro-batch.
_MOST_NOTES = 100_000
_VERSION = re.compile(rb"v[0-9]+")


def files_by_age(checkpoint: Checkpoint, before: tuple[Any, ...], offsets: tuple[Any, ...]) -> list[str]:
    """List the files of a batch that goes from some offsets to others, oldest first; those of one age by name.

    They are named as Spark's `input_file_name` names them. Empty where there are no sources of files, or their notes
    are not there any more.
    """
    from_counts, found = file_counts(before), []
    for source, count in file_counts(offsets).items():
        first = from_counts.get(source, -1) + 1
        if count - first > _MOST_NOTES or first < 0:
            raise CorruptCheckpoint(
                f"spark/offsets in {checkpoint.directory.uri} has a batch that begins with note {first} of source "
                f"{source} and ends with {count}, which is more than a batch can have: it is altered. Restore the "
                "whole checkpoint directory from one backup."
            )
        for number in range(first, count + 1):
            found += list(_noted(checkpoint, source, number))
    return [path for _, path in sorted(found)]


def _noted(checkpoint: Checkpoint, source: int, number: int) -> Iterator[tuple[int, str]]:
    """Read what a source noted under a number: files with their times. Every tenth note repeats all before it."""
    for name in (f"spark/sources/{source}/{number}", f"spark/sources/{source}/{number}.compact"):
        data = bytes_of(checkpoint, name)
        if data is None:
            continue
        end = len(data)
        # From the end, as a note that repeats others has its own last.
        while end > 0:
            start = data.rfind(b"\n", 0, end)
            line, end = data[start + 1 : end], start
            # The first line has the version, the last may be empty.
            if not line or (start < 0 and _VERSION.fullmatch(line)):
                continue
            with checkpoint.sound(name):
                batch, time_ms, path = _note(line)
            if batch != number:
                return
            yield time_ms, path
        return


def _note(line: bytes) -> tuple[int, int, str]:
    try:
        note = mapped(json.loads(line), "a note")
        return long(note["batchId"], "batchId"), long(note["timestamp"], "timestamp"), text(note["path"], "path")
    except (ValueError, KeyError, RecursionError) as error:
        raise Unsound("has a note of a file that Spark has not written") from error


def hashes(paths: Sequence[str]) -> tuple[int, ...]:
    """Hash the names of files as Spark's `xxhash64` does."""
    found = (xxhash.xxh64_intdigest(path.encode(), seed=42) for path in paths)
    return tuple(digest - (1 << 64) if digest >= 1 << 63 else digest for digest in found)
