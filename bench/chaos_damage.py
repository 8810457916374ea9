"""Flip bits in files of a checkpoint at rest, one file at a time: what is promised is promised for one damage.

A file is damaged until the job has mended it, or retention has forgotten it; before that no other one is.
"""

from __future__ import annotations

import re
from pathlib import Path

_EPOCH = re.compile(r"^(\d{12})")


class Damage:
    """What was damaged, and what became of it."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._open: tuple[Path, bytes] | None = None
        self.mended = self.forgotten = 0

    def settled(self) -> bool:
        """Tell whether nothing is damaged any more."""
        if self._open is None:
            return True
        file, damaged = self._open
        try:
            if file.read_bytes() == damaged:
                return False
            self.mended += 1
        except FileNotFoundError:
            self.forgotten += 1
        self._open = None
        return True

    def flip(self, folder: str, chance: float) -> str:
        """Flip a bit in a file; say in which, or nothing where none may be damaged now."""
        if not self.settled():
            return ""
        covered = max((_of(file) for file in self._files("snapshots", ".json")), default=0)
        if folder == "snapshot":
            # A list of the newest, and its files; older epochs have their files there too.
            files = [file for file in self._files("snapshots", "") if _of(file) == covered]
        else:
            files = [file for file in self._files(f"{folder}s", "") if _of(file) < covered]
        if not covered or not files:
            return ""
        file = files[int(chance * len(files))]
        try:
            whole = bytearray(file.read_bytes())
            at = int(chance * 1e6) % (len(whole) * 8)
            whole[at // 8] ^= 1 << at % 8
            with file.open("r+b") as damaged:
                damaged.seek(at // 8)
                damaged.write(whole[at // 8 : at // 8 + 1])
        except (OSError, ZeroDivisionError):
            # Retention was faster.
            return ""
        self._open = file, bytes(whole)
        return f"{file.parent.name}/{file.name}, bit {at}"

    def _files(self, folder: str, ending: str) -> list[Path]:
        listed = (self._checkpoint / folder).glob(f"[0-9]*{ending}")
        return sorted(file for file in listed if _EPOCH.match(file.name) and not file.name.startswith("."))


def _of(file: Path) -> int:
    found = _EPOCH.match(file.name)
    return int(found[1]) if found else 0
