"""Die at a named step, when a test asks for it.

`FERRYMAN_FAULT=after-sink:3` kills the process with SIGKILL when it reaches `after-sink` for the third
time. Without the variable, reaching a step costs one comparison.
"""

from __future__ import annotations

import os
import signal

STEPS = ("epoch", "before-sink", "after-sink", "before-manifest", "after-manifest", "snapshot", "retention")

_asked = os.environ.get("FERRYMAN_FAULT", "")
_seen = 0


def reach(step: str) -> None:
    """Pass a step, or die there if that was asked for."""
    if not _asked:
        return
    global _seen
    wanted, _, count = _asked.partition(":")
    if step == wanted:
        _seen += 1
        if _seen == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
