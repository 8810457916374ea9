"""Find the files that a micro-batch reads, and their order: Spark's source of files writes them down before it begins.

Spark itself reads the largest file first. What a user means by the order of files is their age.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.spark_log import file_counts


def files_by_age(checkpoint: Checkpoint, before: tuple[Any, ...], offsets: tuple[Any, ...]) -> list[str]:
    """List the files of a batch that goes from some offsets to others, oldest first; those of one age by name.

    They are named as Spark's `input_file_name` names them. Empty where there are no sources of files, or their notes
    cannot be read.
    """
    from_counts, found = file_counts(before), []
    for source, count in file_counts(offsets).items():
        for number in range(from_counts.get(source, -1) + 1, count + 1):
            found += list(_noted(checkpoint, source, number))
    return [path for _, path in sorted(found)]


def _noted(checkpoint: Checkpoint, source: int, number: int) -> Iterator[tuple[int, str]]:
    """Read what a source noted under a number: files with their times. Every tenth note repeats all before it."""
    for name in (f"spark/sources/{source}/{number}", f"spark/sources/{source}/{number}.compact"):
        try:
            data = bytes(checkpoint.directory.read(name))
        except OSError:
            continue
        end = len(data)
        # From the end, as a note that repeats others has its own last.
        while end > 0:
            start = data.rfind(b"\n", 0, end)
            try:
                one = json.loads(data[start + 1 : end])
                if one["batchId"] != number:
                    return
                yield int(one["timestamp"]), str(one["path"])
            except (ValueError, KeyError, TypeError):
                # The first line has the version, the last may be empty.
                pass
            end = start
        return
