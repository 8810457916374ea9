"""A disk in trouble: a process that dies at a call, a disk that fills up, replies that are lost, names that come late.

Laid over another disk, so that what it does can be cut off from power too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ferryman._os.disk import Data, Disk


class Death(BaseException):
    """The process has ended here: nobody handles that, and whoever tries to tidy up is dead too."""


class FaultyDisk(Disk):
    """Pass calls on, as long as all goes well.

    Parameters
    ----------
    inner
        The disk below.
    die_at
        The call at which the process ends, counted from 1; a file that is written counts for three.
    die_after
        The renaming or linking after which it ends, counted from 1: a name that is given and not synced.
    space
        How many bytes there is room for; None for no end.
    lost_reply_at
        The renaming or linking that is done and then said to have failed, counted from 1.
    lost_as
        What is said then: EIO, or EEXIST as where the call was sent again.
    late
        How many listings leave out the last name.
    deaf
        Which syncs are not done: told the path, and the last call that was none.
    unfenced
        Which names can be given again though they are taken: told the path.
    watcher
        Told of every call before it is made, what it is and for which path; it may keep the process waiting there.
    """

    def __init__(
        self,
        inner: Disk,
        *,
        die_at: int | None = None,
        die_after: int | None = None,
        space: int | None = None,
        lost_reply_at: int | None = None,
        lost_as: int = errno.EIO,
        late: int = 0,
        deaf: Callable[[str, str], bool] = lambda path, before: False,
        unfenced: Callable[[str], bool] = lambda path: False,
        watcher: Callable[[str, str], None] = lambda what, path: None,
    ) -> None:
        self.inner = inner
        self.calls = 0
        self.dead = False
        self.die_at = die_at
        self.die_after = die_after
        self.space = space
        self.late = late
        self.lost_reply_at = lost_reply_at
        self._lost_as = lost_as
        self._deaf = deaf
        self._unfenced = unfenced
        self._watcher = watcher
        self.named = 0
        self._before = ""

    def _call(self, what: str, path: str) -> None:
        self.calls += 1
        if not self.dead:
            self._watcher(what, path)
        if self.dead or self.calls == self.die_at:
            self.dead = True
            raise Death
        self._before = what

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        self._call("mkdir", path)
        self.inner.mkdir(path)

    def create(self, path: str, data: Data, *, sync: bool) -> None:
        """Write a file: nothing, half of it, all of it, and then it is synced."""
        view = memoryview(data)
        self._call("create", path)
        if self.space is not None and len(view) > self.space:
            self.inner.create(path, bytes(view[: self.space]), sync=False)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.die_at == self.calls + 1:
            self.inner.create(path, bytes(view[: len(view) // 2]), sync=False)
        self._call("create", path)
        if self.die_at == self.calls + 1:
            self.inner.create(path, data, sync=False)
        self._call("create", path)
        self.inner.create(path, data, sync=sync and not self._deaf(path, "create"))
        if self.space is not None:
            self.space -= len(view)

    def append(self, path: str, file: int, data: Data) -> None:
        """Write to the end of a file: nothing, half of it, or all."""
        view = memoryview(data)
        self._call("append", path)
        if self.space is not None and len(view) > self.space:
            self.inner.append(path, file, view[: self.space])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.die_at == self.calls + 1:
            self.inner.append(path, file, view[: len(view) // 2])
        self._call("append", path)
        self.inner.append(path, file, view)
        if self.space is not None:
            self.space -= len(view)

    def sync_bytes(self, path: str, file: int) -> None:
        """Sync an open file, unless that is one of the syncs that are not done."""
        self._call("append", path)
        if not self._deaf(path, "append"):
            self.inner.sync_bytes(path, file)

    def replace(self, path: str, name: str) -> None:
        """Rename a file."""
        self._call("replace", name)
        self.inner.replace(path, name)
        self._reply(name)

    def link(self, path: str, name: str) -> None:
        """Give a file one more name."""
        self._call("link", name)
        if self._unfenced(name) and os.path.exists(name):
            self.inner.unlink(name)
        self.inner.link(path, name)
        self._reply(name)

    def _reply(self, name: str) -> None:
        self.named += 1
        if self.named == self.die_after:
            self.die_at = self.calls + 1
        if self.named == self.lost_reply_at:
            raise OSError(self._lost_as, os.strerror(self._lost_as), name)

    def unlink(self, path: str) -> None:
        """Take a name away; that of a file under way is part of the call before."""
        self._call(self._before if os.path.basename(path).startswith(".") else "unlink", path)
        self.inner.unlink(path)

    def remove(self, path: str) -> None:
        """Take a folder away: nothing of it, a part, all."""
        self._call("remove", path)
        if self.die_at == self.calls + 1:
            for folder, _, files in os.walk(path):
                for name in files[::2]:
                    self.inner.unlink(os.path.join(folder, name))
        self._call("remove", path)
        self.inner.remove(path)

    def sync(self, path: str) -> None:
        """Sync, unless that is one of those that are not done."""
        before = self._before
        self._call(before, path)
        if not self._deaf(path, before):
            self.inner.sync(path)

    def list(self, path: str) -> list[str]:
        """List a folder; the last name may come late."""
        self._call("list", path)
        names = self.inner.list(path)
        if self.late and names:
            self.late -= 1
            names.remove(max(names))
        return names
