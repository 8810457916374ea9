"""Find the newest manifest, also where listings lag behind."""

from __future__ import annotations

from collections.abc import Sequence

from ferryman._log.files.directory import Directory


def newest_manifest(directory: Directory, listed: Sequence[int]) -> int:
    """Give the newest committed epoch, from those that a listing of manifests has, in order; 0 before the first.

    A mounted disk may list a new name late, but it finds a file by its name: a job that took an older manifest for
    the newest would have its sinks take back what is committed.
    """
    newest = listed[-1] if listed else 0
    while directory.exists(f"manifests/{newest + 1:012d}.json"):
        newest += 1
    return newest
