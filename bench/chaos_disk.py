"""A disk that is full while a file is there: FERRYMAN_DISK=bench.chaos_disk:at_will:FILE in the processes of a job."""

from __future__ import annotations

import errno
import os

from ferryman._os.disk import Data, Disk


class FullAtWill(Disk):
    """Have no room while a file is there."""

    def __init__(self, sign: str) -> None:
        self._sign = sign

    def create(self, path: str, data: Data, *, sync: bool) -> None:
        """Write a file, or the first half of it."""
        if os.path.exists(self._sign):
            super().create(path, memoryview(data)[: len(memoryview(data)) // 2], sync=False)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().create(path, data, sync=sync)

    def link(self, path: str, name: str) -> None:
        """Give a file one more name, which takes room too."""
        if os.path.exists(self._sign):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        super().link(path, name)


def at_will(sign: str) -> Disk:
    """Give the disk."""
    return FullAtWill(sign)
