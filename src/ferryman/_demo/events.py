"""How a child of the demo talks to its supervisor: JSON lines, on a channel that only it writes to."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any


class Channel:
    """Take over stdout for events, and end the process when the supervisor is gone.

    Whatever else prints (Spark, Java, a Python worker) goes to stderr, which the supervisor keeps in a file.
    """

    def __init__(self) -> None:
        # Not inheritable, so the end of the channel is the end of this process and not of the JVM below it.
        self._lines = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        threading.Thread(target=_end_with_supervisor, name="ferryman-demo-supervisor", daemon=True).start()

    def say(self, event: str, **facts: Any) -> None:
        """Send one event."""
        self._lines.write(json.dumps({"event": event, "at": time.time(), **facts}) + "\n")


def _end_with_supervisor() -> None:
    # The supervisor never writes: reading ends only when it is gone, by whatever way. Not through sys.stdin,
    # whose lock an ending interpreter would wait for.
    os.read(0, 1)
    os._exit(1)
