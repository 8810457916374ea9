"""A crash that a check asks for at a line of a sink's own code: its process is killed, or an error is raised there.

A forked child is killed as a driver is, with nothing put in order. Where there is a session, which no child can share,
`Killed` is raised instead, and `finally` runs.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any


class Killed(BaseException):
    """The driver dies here."""


@dataclass(frozen=True)
class Moment:
    """When a line is about to run for the so-manieth time; 0: never."""

    line: str
    time: int


NEVER = Moment("", 0)


class LineCount:
    """Count how often the lines of some files run, and die at a moment.

    Parameters
    ----------
    files
        Whose lines count.
    at
        When to die.
    die
        What is called then.
    """

    def __init__(self, files: frozenset[str], at: Moment, die: Callable[[], object]) -> None:
        self.times: Counter[str] = Counter()
        self._files, self._at, self._die = files, at, die

    def __enter__(self) -> LineCount:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            self.times[line] += 1
            if self._at == Moment(line, self.times[line]):
                self._die()
        return self._line


def moments(times: Mapping[str, int]) -> list[Moment]:
    """Give the first and the last time of each line."""
    return [Moment(line, time) for line, most in times.items() for time in sorted({1, most})]


def files_of(sink: object) -> frozenset[str]:
    """Name the files that a sink and what it holds are written in, as far as they are of one package."""
    package = type(sink).__module__.partition(".")[0]
    kinds = {kind for part in (sink, *vars(sink).values()) for kind in type(part).__mro__}
    return frozenset(inspect.getfile(kind) for kind in kinds if kind.__module__.partition(".")[0] == package)


def raise_killed() -> None:
    """Die in this process."""
    raise Killed


def kill_self() -> None:
    """Die as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_child(call: Callable[[], str]) -> str | None:
    """Run a call in a forked child and give what it returns; None if it was killed.

    Raises
    ------
    AssertionError
        If it raised, with what that was.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        failed = 1
        try:
            text = call()
            failed = 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, f"{failed}{text}"[:60_000].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    if not said.startswith("0"):
        raise AssertionError(f"the driver failed: {said[1:]}")
    return said[1:]
