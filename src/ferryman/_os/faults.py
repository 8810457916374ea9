"""Die at a named step, when a test asks for it.

`FERRYMAN_FAULT=after-sink:3` kills the process with SIGKILL when it reaches `after-sink` for the third
time; `after-sink:3:stop` stops it there, as if it slept, until somebody sends it SIGCONT. Without the variable,
reaching a step costs two comparisons. A campaign that kills others than its own process sets `watcher`, which is
told of every step as it is reached.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

# The first comes once in a run, before its epochs.
STEPS = ("start", "epoch", "before-sink", "after-sink", "before-manifest", "after-manifest", "snapshot", "retention")
# The steps of a plan; `plan-switch` is the beginning of an epoch that switches.
PLAN_STEPS = ("plan-prepare", "plan-copy", "plan-catch-up", "plan-switch", "plan-release")
# The steps of a rewind, which no job runs beside.
REWIND_STEP = "rewind"
# Rows wait for key groups from here on, and nothing of these is on its way yet.
WAIT_STEP = "plan-wait"

# The steps of a block of an ingest log: it is written, it is synced; and then it may be acknowledged.
INGEST_STEPS = ("ingest-written", "ingest-durable")

watcher: Callable[[str], None] | None = None

_asked = os.environ.get("FERRYMAN_FAULT", "")
_seen = 0


def reach(step: str) -> None:
    """Pass a step, or die there if that was asked for."""
    if watcher is not None:
        watcher(step)
    if not _asked:
        return
    global _seen
    wanted, count, how, *_ = [*_asked.split(":"), "", ""]
    if step == wanted:
        _seen += 1
        if _seen == int(count or 1):
            os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
