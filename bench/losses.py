"""Kill an executor of this session, and tell when each key group processes again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np

from bench.open_loop import Kept, Load
from ferryman._os.processes import below, kill

PATIENCE_S = 300.0


def again(load: Load, kept: Kept, start: datetime, lost: float) -> dict[int, float]:
    """Tell when each group has first put out a row that was due after the loss, in seconds after it."""
    found: dict[int, float] = {}
    for _, at, part in sorted([*kept.parts], key=lambda part: part[1]):
        if at >= lost:
            due = part["id"].to_numpy() / load.rate + start.timestamp() >= lost
            for group in np.unique(part["group"].to_numpy()[due]).tolist():
                found.setdefault(group, at - lost)
    return found


def executors() -> dict[str, Any]:
    """Find the executors of this session, by host."""
    found = {}
    for process in below(os.getpid()):
        words = process.command.split()
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and "--hostname" in words:
            found[words[words.index("--hostname") + 1]] = process
    return found


def kill_executor(host: str) -> float:
    """Kill the executor on a host; give when."""
    process = executors()[host]
    now = time.time()
    if not kill(process.id):
        raise RuntimeError(f"the executor on {host} had ended already")
    return now


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds, but not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the stream does not come back")
        time.sleep(0.05)
