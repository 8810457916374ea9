"""Several drivers in one process, of which one moves at a time: each has a thread, and stops at calls to its disk.

Who goes on, and for how long, is decided outside. So a history of two drivers is the same each time it is run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ferryman._os.disk import Disk, use_disk
from ferryman._testing.faulty_disk import FaultyDisk


class Driver:
    """A driver that moves while somebody waits in `go`, and stops where it was told to, or at its end.

    Parameters
    ----------
    live
        What it does; it is told who it is.
    inner
        The disk below its own.
    trouble
        What its disk is like, for `FaultyDisk`; empty if all goes well.
    without
        What its disk leaves out, likewise.

    Attributes
    ----------
    stop
        At which call to its disk it stops, or at which look: told what it is, and the path or what comes next; None for
        none.
    at_look, where
        Whether it stands before a look, and the path or step that it stands at.
    undisturbed
        Whether it does not stop for now, whatever was asked for.
    slept, disturbed
        Whether others have moved since it fell asleep, or while it stopped for a moment.
    goes_far
        Whether it goes so far that what a sleeper knows is forgotten when that wakes up.
    starting, number
        Whether its run has not begun yet, and its term once it has.
    ended, error
        Whether it has come to its end, and what it ended with.
    """

    def __init__(self, live: Callable[[Driver], None], inner: Disk, trouble: Mapping[str, Any], **without: Any) -> None:
        self.disk = FaultyDisk(inner, watcher=self.pass_by, **trouble, **without)
        self.trouble = trouble
        self.stop: Callable[[str, str], bool] | None = None
        self.at_look, self.where = False, ""
        self.undisturbed = False
        self.slept = False
        self.disturbed = False
        self.goes_far = False
        self.starting = True
        self.number = 0
        self.ended = False
        self.error: BaseException | None = None
        self._live = live
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def go(self) -> None:
        """Let it move until it stops or ends."""
        use_disk(self.disk)
        if not self._thread.ident:
            self._thread.start()
        else:
            self._turn.release()
        self._back.acquire()
        if self.ended:
            self._thread.join()

    def die(self) -> None:
        """End it where it stands, as with its machine."""
        self.disk.dead = True
        self.go()

    def _run(self) -> None:
        try:
            self._live(self)
        except BaseException as error:
            # Whoever waits for it looks at this.
            self.error = error
        self.ended = True
        self._back.release()

    def pass_by(self, what: str, where: str) -> None:
        """Stop here, if that was asked for."""
        if self.undisturbed or self.stop is None or not self.stop(what, where):
            return
        self.stop = None
        self.at_look, self.where = what == "look", where
        self._back.release()
        self._turn.acquire()
        self.at_look = False
