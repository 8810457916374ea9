"""Directories that nobody but their user can look into."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from ferryman._model.errors import InvalidConfiguration


def own_directory(inside: Path | None = None) -> Path:
    """Give a directory that nobody but this user can look into: among the temporary files, or inside of another one.

    Raises
    ------
    InvalidConfiguration
        If somebody else has made it, or could put another one in its place, and so read what is in it, and change it.
    """
    parent = Path(tempfile.gettempdir()) if inside is None else inside
    found = parent / f"ferryman-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        found.mkdir(mode=0o700, parents=True)
    mine, above = found.lstat(), parent.stat()
    if mine.st_uid != os.getuid() or not stat.S_ISDIR(mine.st_mode):
        raise InvalidConfiguration(
            f"{found} belongs to somebody else, who could read and change what is put there. Remove it, or have "
            "temporary files elsewhere: set TMPDIR, or give Ferry(home=...)."
        )
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise InvalidConfiguration(
            f"everybody may rename and remove what is in {parent}, and so put another directory in the place of "
            f"{found.name}. Take that right away (chmod o-w), set the sticky bit (chmod +t), or have homes elsewhere: "
            "Ferry(home=...)."
        )
    if mine.st_mode & 0o077:
        found.chmod(0o700)
    return found
