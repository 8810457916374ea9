"""Directories that nobody but their user can look into."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import tempfile
from pathlib import Path

from ferryman._model.errors import InvalidConfiguration


def own_directory(inside: Path | None = None, *, given: bool = False) -> Path:
    """Give a directory that nobody but this user can look into: among the temporary files, or inside of another one.

    Parameters
    ----------
    inside
        Where to have it; it is made if it is not there.
    given
        Whether a cluster's manager gives that place to this user. It runs the user's processes, so what is above the
        place may be its own.

    Raises
    ------
    InvalidConfiguration
        If somebody else has made it, or could put another one in its place, and so read what is in it, and change it.
    """
    parent = Path(tempfile.gettempdir()) if inside is None else inside
    parent.mkdir(parents=True, exist_ok=True)
    # A link may lead elsewhere the next time; where it leads now is what is looked at, and used.
    parent = parent.resolve()
    found = parent / f"ferryman-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        found.mkdir(mode=0o700)
    mine = found.lstat()
    if mine.st_uid != os.getuid() or not stat.S_ISDIR(mine.st_mode):
        raise InvalidConfiguration(
            f"{found} belongs to somebody else, who could read and change what is put there. Remove it, or have "
            "temporary files elsewhere: set TMPDIR, or give Ferry(home=...)."
        )
    for above in (parent, *parent.parents):
        _refuse_replaceable(above, found, owned=above == parent or not given)
    if mine.st_mode & 0o077:
        found.chmod(0o700)
    return found


def _refuse_replaceable(above: Path, found: Path, *, owned: bool) -> None:
    """Refuse a directory in which somebody else may rename things; with `owned`, also one that is somebody else's."""
    status = above.stat()
    if owned and status.st_uid not in (0, os.getuid()):
        raise InvalidConfiguration(
            f"{above} belongs to another user (uid {status.st_uid}), who may put another directory in the place of "
            f"{found}, and so read and change what is put there. Have homes and temporary files in a place of your "
            "own: Ferry(home=...), TMPDIR."
        )
    if status.st_mode & stat.S_ISVTX:
        return
    others = bool(status.st_mode & stat.S_IWOTH)
    if others or (status.st_mode & stat.S_IWGRP and not _is_alone_in(status.st_gid)):
        who, right = ("everybody", "o-w") if others else (f"the group {status.st_gid}", "g-w")
        raise InvalidConfiguration(
            f"{who} may rename and remove what is in {above}, and so put another directory in the place of {found}. "
            f"Take that right away (chmod {right}), set the sticky bit (chmod +t), or have homes elsewhere: "
            "Ferry(home=...)."
        )


def _is_alone_in(gid: int) -> bool:
    """Tell whether a group is this user's own, as many systems give one to each: of the same name, with no others."""
    try:
        me, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return me.pw_gid == gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}
