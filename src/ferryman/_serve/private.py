"""A place among the temporary files that nobody but its user can look into."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from ferryman._model.errors import InvalidConfiguration


def own_directory() -> Path:
    """Give a directory among the temporary files that nobody but this user can look into.

    Raises
    ------
    InvalidConfiguration
        If somebody else has made it, who could then read what is in it, and change it.
    """
    found = Path(tempfile.gettempdir()) / f"ferryman-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        found.mkdir(mode=0o700)
    mine = found.lstat()
    if mine.st_uid != os.getuid() or not stat.S_ISDIR(mine.st_mode):
        raise InvalidConfiguration(
            f"{found} belongs to somebody else, who could read and change what is put there. Remove it, or have "
            "temporary files elsewhere: set TMPDIR, or give Ferry(home=...)."
        )
    if mine.st_mode & 0o077:
        found.chmod(0o700)
    return found
