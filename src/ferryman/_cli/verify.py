"""`ferryman verify`: check every file of a checkpoint, and that each kept epoch can be rebuilt."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from ferryman._cli.printed_tables import print_table, ranges, shown, size
from ferryman._cli.state import Json, Path, when
from ferryman._log.check.verify import Report
from ferryman._log.check.verify import verify as verify_checkpoint
from ferryman._log.files.open_checkpoint import opened


def verify(path: Path, as_json: Json = False) -> None:
    """Check every checksum of a checkpoint, and that each epoch can be rebuilt. Ends with 1 if there is a fault."""
    with opened(path) as checkpoint, _progress() as on_progress:
        report = verify_checkpoint(checkpoint, on_progress)
    if as_json:
        typer.echo(json.dumps(report.json()))
    else:
        _print(Console(highlight=False), report)
    if not report.sound:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show progress beside the result, which may be piped: a bar on a terminal, else a line now and then."""
    errors = Console(stderr=True, highlight=False)
    if not errors.is_terminal:
        yield _Lines(errors)
        return
    with Progress(
        "checking", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=errors, transient=True
    ) as bar:
        task = bar.add_task("checking", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Print a line of progress every few seconds; nothing where all is over before that."""

    def __init__(self, out: Console, every_s: float = 5.0) -> None:
        self._out = out
        self._every_s = every_s
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= self._every_s:
            self._last = now
            self._out.print(f"checked {done / max(total, 1):.0%} of {size(total)}", soft_wrap=True)


def _print(out: Console, report: Report) -> None:
    def line(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    line(f"{report.checkpoint}: job {report.job or 'unknown'}, {report.files:,} files, {size(report.bytes)} checked")
    line(f"epochs kept: {ranges(report.epochs)}; can be rebuilt: {ranges(report.rebuildable)}")
    line(f"snapshots: {ranges(report.snapshots)}")
    if report.orphans:
        harm = "they do no harm, and retention deletes them" if report.sound else "leave them where they are"
        line(f"{report.orphans:,} files that no readable manifest names; {harm}")
    for note in report.mended:
        line(f"mended{when(note.time_ms)}: {shown(note.file)} was damaged or missing, and was written anew")
    if report.sound:
        line("sound: every file is as it was written, and every epoch kept can be rebuilt")
        return
    out.print()
    print_table(
        out,
        "1 fault" if len(report.faults) == 1 else f"{len(report.faults):,} faults",
        ["file", "fault", "epochs damaged", "what to do"],
        [[fault.file, fault.what, ranges(fault.damages), fault.remedy] for fault in report.faults],
    )
