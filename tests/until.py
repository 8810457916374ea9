"""Wait for a condition, as everything does that has no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T], what: str, timeout: float = 120, log: Path | None = None, every: float = 0.02
) -> T:
    """Wait until a condition gives something true, and return that; fail if it takes too long, and show a log."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s\n{log.read_text()[-4000:] if log else ''}")
        time.sleep(every)
    return found
