"""Show a person how far a start is: a bar on a terminal, a line for each step where the output is piped.

`FERRYMAN_PROGRESS` is 1 to show it always, 0 for never. Otherwise it is shown on a terminal, and where a script goes on
from a checkpoint; not in a notebook, a shell or a test. It goes to stderr.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from ferryman._engine.starting import STEPS, Started, Starting

SETTING = "FERRYMAN_PROGRESS"
_LOOK_S = 0.1


def wanted() -> bool | None:
    """Tell whether somebody wants to see it; None if only a restart is of interest."""
    asked = os.environ.get(SETTING, "")
    if asked in ("0", "1"):
        return asked == "1"
    script = hasattr(sys.modules.get("__main__"), "__file__")
    if not script or {"pytest", "ipykernel"} & sys.modules.keys():
        return False
    return True if sys.stderr.isatty() else None


@contextmanager
def shown(step: str) -> Iterator[None]:
    """Show a step that comes before there is a job."""
    if not wanted():
        yield
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(STEPS[step]):
            yield
    else:
        _line(sys.stderr, STEPS[step])
        yield


def follow(job: str, starting: Starting) -> None:
    """Show a start on a thread of its own until it is over, if somebody wants to see it."""
    if (wanted() is True) or (wanted() is None and starting.after):
        show = _bar if sys.stderr.isatty() else _lines
        threading.Thread(target=show, args=(job, starting), name="ferryman-starting", daemon=True).start()


def _lines(job: str, starting: Starting) -> None:
    _follow(starting, lambda text: _line(sys.stderr, f"{job}: {text}"))


def _bar(job: str, starting: Starting) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(job, total=None)

        def update(text: str) -> None:
            now = starting.look()
            progress.update(task, description=f"{job}: {text}", completed=now.restored, total=now.groups or None)

        _follow(starting, update)


def _follow(starting: Starting, say: Callable[[str], None]) -> None:
    said = ""
    while not starting.over.wait(_LOOK_S):
        text = described(starting.look())
        if text != said:
            say(text)
            said = text
    now = starting.look()
    # One that has failed says so itself.
    if not now.step:
        say(described(now))


def described(now: Started) -> str:
    """Say how far a start is.

    Examples
    --------
    >>> described(Started(step="first epoch", steps_ms={}, after=7, redone=8, groups=512, restored=256))
    'doing epoch 8 again; restored 256 of 512 key groups'
    >>> described(Started(step="", steps_ms={"java": 700.0, "first epoch": 1500.0}, after=7))
    'goes on after epoch 7; started in 2.2 s (java 0.7, first epoch 1.5)'
    """
    if not now.step:
        parts = ", ".join(f"{step} {took / 1000:.1f}" for step, took in now.steps_ms.items())
        went_on = f"goes on after epoch {now.after}" if now.after else "runs"
        return f"{went_on}; started in {now.total_ms / 1000:.1f} s ({parts})"
    text = STEPS[now.step]
    if now.step == "first epoch":
        text = text if now.redone is None else f"doing epoch {now.redone} again"
        text += f"; restored {now.restored} of {now.groups} key groups" if now.groups else ""
    return text


def _line(out: IO[str], text: str) -> None:
    print(f"ferryman: {text}", file=out, flush=True)
