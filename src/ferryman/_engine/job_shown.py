"""Show a person how a job goes: as HTML in a notebook, as a table on a terminal, as lines where the output is piped."""

from __future__ import annotations

import contextlib
import html
import importlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

from ferryman._engine.progress import EpochProgress

# Rows per second are those of the newest epochs, about so many seconds of them.
_SPAN_MS = 10_000
_NEWEST = 200
_AGAIN_S = 0.5
COLUMNS = ("operator", "rows", "keys", "output", "late", "busy ms")


class Showable(Protocol):
    """What is shown of a job."""

    name: str

    @property
    def active(self) -> bool:
        """Tell whether it runs."""

    @property
    def epoch(self) -> int:
        """Give the newest committed epoch."""

    @property
    def instances(self) -> int:
        """Give the number of instances."""

    def progress(self) -> list[EpochProgress]:
        """List the epochs of this run."""

    def exception(self) -> BaseException | None:
        """Give the error that it has failed with."""

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition holds."""


@dataclass(frozen=True, kw_only=True)
class JobTable:
    """What there is to show of a job at one time.

    Attributes
    ----------
    state
        Whether it runs, has ended or has failed, and with what.
    operators
        For each operator what it did in the newest epoch, as `COLUMNS` says.
    """

    name: str
    state: str
    epoch: int
    rows_per_s: float
    instances: int
    operators: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, job: Showable) -> JobTable:
        """Look at a job."""
        epochs = job.progress()[-_NEWEST:]
        active, error = job.active, job.exception()
        failed = None if error is None else f"failed: {_first_line(str(error))}"
        return cls(
            name=job.name,
            state=failed or ("runs" if active else "has ended"),
            epoch=job.epoch,
            rows_per_s=rows_per_s(epochs),
            instances=job.instances,
            operators=tuple(_row(name, facts) for name, facts in (epochs[-1].operators if epochs else {}).items()),
        )

    def head(self) -> str:
        """Say in one line how it goes."""
        several = "1 instance" if self.instances == 1 else f"{self.instances} instances"
        return f"{self.name} {self.state}: epoch {self.epoch}, {self.rows_per_s:,.0f} rows/s, {several}"

    def html(self) -> str:
        """Write it for a notebook; what comes from the job is text there and nothing else."""
        cells = [_cells("th", COLUMNS), *(_cells("td", row) for row in self.operators)]
        table = f"<table>{''.join(cells)}</table>" if self.operators else ""
        return f"<div><b>{html.escape(self.head())}</b>{table}</div>"


def rows_per_s(epochs: Sequence[EpochProgress]) -> float:
    """Give the rows per second of the newest of some epochs.

    They count from the commit of the one before the first of them; the first epoch of a run alone by how long it took.
    """
    if not epochs:
        return 0.0
    newest = epochs[-1]
    recent = [epoch for epoch in epochs[1:] if epoch.committed_ms > newest.committed_ms - _SPAN_MS]
    if not recent:
        return newest.rows / max(newest.duration_ms, 1.0) * 1000
    before = epochs[len(epochs) - len(recent) - 1]
    return sum(epoch.rows for epoch in recent) / max(newest.committed_ms - before.committed_ms, 1) * 1000


def _first_line(text: str) -> str:
    """Give the first line of an error, without what would steer a terminal."""
    line = text.strip().partition("\n")[0][:300]
    return "".join(character if character.isprintable() else "?" for character in line)


def _row(name: str, facts: Any) -> tuple[str, ...]:
    counts = (f"{facts[column]:,}" for column in ("rows", "keys", "output", "late"))
    return (name, *counts, f"{max(facts['busy_ms'], default=0.0):,.0f}")


def _cells(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"


@contextlib.contextmanager
def live(out: IO[str]) -> Iterator[Callable[[JobTable], None]]:
    """Give what shows a job again and again, in the place where it was shown before if there is one."""
    if (update := in_notebook()) is not None:
        yield update
    elif out.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(file=out), auto_refresh=False) as place:
            yield lambda table: place.update(_rich(table), refresh=True)
    else:
        said: list[str] = []

        def line(table: JobTable) -> None:
            if said[-1:] != [table.head()]:
                said[:] = [table.head()]
                print(table.head(), file=out, flush=True)

        yield line


def in_notebook() -> Callable[[JobTable], None] | None:
    """Give what updates a display of a notebook; None where there is none."""
    if "IPython" not in sys.modules:
        return None
    # Not by `import`: it has types in some versions only.
    own: Any = importlib.import_module("IPython")
    page: Any = importlib.import_module("IPython.display")
    # A shell of IPython's in a terminal has no kernel.
    if getattr(own.get_ipython(), "kernel", None) is None:
        return None
    handles: list[Any] = []

    def update(table: JobTable) -> None:
        shown = page.HTML(table.html())
        if handles:
            handles[0].update(shown)
        else:
            handles.append(page.display(shown, display_id=True))

    return update


def _rich(table: JobTable) -> Any:
    from rich.markup import escape
    from rich.table import Table

    shown = Table(*COLUMNS, title=escape(table.head()), title_justify="left")
    for row in table.operators:
        shown.add_row(*map(escape, row))
    return shown


class Watched:
    """How a job is shown; part of `Job`."""

    def watch(self: Showable, timeout: float | None = None) -> bool:
        """Show how the job goes until it ends, twice a second; tell whether it has ended.

        In a notebook and on a terminal that is a table that is written anew in its place, elsewhere a line where
        something has changed. Ctrl-C, or the stop button of a notebook, ends the showing, and the job goes on. Unlike
        `wait`, nothing is raised when the job fails: its error is shown.

        Parameters
        ----------
        timeout
            How many seconds to show it for; until it ends if left out.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with live(sys.stdout) as show, contextlib.suppress(KeyboardInterrupt):
            while True:
                ended = not self.active
                show(JobTable.of(self))
                left_s = min(_AGAIN_S, deadline - time.monotonic())
                if ended or left_s <= 0:
                    break
                self.wait_for(lambda: not self.active, left_s)
        return not self.active

    def _repr_html_(self: Showable) -> str:
        return JobTable.of(self).html()
