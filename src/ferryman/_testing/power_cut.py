"""Cut the power: make of a directory one of those it could be after the machine has lost what it had not synced.

As nasty as POSIX allows. Bytes that were not synced may be there, or not, in part, or as zeros. Every name in a
folder that was not synced may be what it is now, what it was when the folder was synced last, or anything in
between, whatever the other names are. A file's bytes and its name are two things, and so are a folder's name and
the names in it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

from ferryman._testing.unsynced_disk import NOTES, names_in

Found = tuple[int, bool] | None


class _Remains:
    """What may remain, by the notes of a journal."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        # By the folder's number and a name: what that has stood for since the folder was synced, oldest first.
        self.names: dict[int, dict[str, list[Found]]] = {}
        # By the file's number: how many of its bytes were synced.
        self.synced: dict[int, int] = {}
        for line in (journal / NOTES).read_text().splitlines():
            self._learn(*json.loads(line))

    def _learn(self, kind: str, number: int, *what: Any) -> None:
        if kind == "bytes":
            self.synced[number] = what[0]
        elif kind == "folder":
            self.names[number] = {name: [_found(file)] for name, file in what[0].items()}
        else:
            name, found = what
            self._now(number, name, _found(found))

    def _now(self, folder: int, name: str, found: Found) -> None:
        values = self.names.setdefault(folder, {}).setdefault(name, [None])
        if values[-1] != found:
            values.append(found)

    def see(self, path: str) -> None:
        """Learn what is there now, of whoever wrote past the journal, and of calls that were not noted any more."""
        number = os.stat(path).st_ino
        present = names_in(path)
        for name in {*present, *self.names.get(number, {})}:
            self._now(number, name, present.get(name))
        for name, (_, folder) in present.items():
            if folder:
                self.see(os.path.join(path, name))


def power_cut(root: Path, journal: Path, seed: int) -> None:
    """Cut the power: rebuild the root as it may be afterwards, and begin a new journal.

    No process may use the root any more.
    """
    chance = random.Random(seed)
    remains = _Remains(journal)
    remains.see(str(root))
    # Where files are now: a file has kept one of its names, or the journal has kept the file.
    places = {path.stat().st_ino: path for path in journal.iterdir() if path.name.isdigit()}
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder) / name
            found = path.lstat()
            # A pipe or a lock's socket has nothing to keep.
            if stat.S_ISREG(found.st_mode):
                places[found.st_ino] = path
    # Between two syncs a disk may have written nothing, or all, or some; each is worth a try.
    luck = chance.choice([0.0, 0.25, 0.5, 0.75, 1.0])
    made = root.with_name(f"{root.name}.cut")
    _rebuild(remains, places, root.stat().st_ino, made, f"{seed}", luck)
    for old in root.iterdir():
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for new in made.iterdir():
        new.rename(root / new.name)
    made.rmdir()
    shutil.rmtree(journal)


def _rebuild(remains: _Remains, places: dict[int, Path], folder: int, made: Path, seed: str, luck: float) -> None:
    made.mkdir()
    for name, values in remains.names.get(folder, {}).items():
        # By the name, so that files under way, which are called anything, do not change what becomes of the others.
        chance = random.Random(f"{seed}/{name}")
        found = values[-1] if chance.random() < luck else chance.choice(values[:-1] or values)
        if found is None:
            continue
        number, is_folder = found
        if is_folder:
            _rebuild(remains, places, number, made / name, f"{seed}/{name}", luck)
        elif number in places:
            data = places[number].read_bytes()
            (made / name).write_bytes(_torn(data, remains.synced.get(number, 0), chance, luck))


def _torn(data: bytes, synced: int, chance: random.Random, luck: float) -> bytes:
    """Give what is left of a file of which so many bytes were synced."""
    if synced >= len(data) or chance.random() < luck:
        return data
    sound = chance.randint(synced, len(data))
    return chance.choice([data[:synced], data[:sound], data[:sound] + bytes(len(data) - sound)])


def _found(raw: Any) -> Found:
    return None if raw is None else (raw[0], raw[1])
