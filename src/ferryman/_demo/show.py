"""Tell a run on the terminal: live where there is one, plain lines where the output is piped."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ferryman._demo.history import History

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LINE_EVERY_S = 2.0


class Show:
    """Show a run as it goes: what happens stands above, where it stands is kept up to date below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.time()
        self._phase = ""
        self._spinner = Spinner("dots", style="cyan")
        self._said_at, self._said_of = 0.0, 0
        self._live = Live(console=console, refresh_per_second=10, transient=True) if console.is_terminal else None

    def __enter__(self) -> Show:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def phase(self, what: str) -> None:
        """Say what is being done, until told otherwise; empty for the stream's plain flow."""
        self._phase = what
        if what and self._live is None:
            self._line(what)

    def happened(self, what: str, *, bad: bool = False) -> None:
        """Leave a line standing."""
        if self._live is None:
            self._line(what)
        else:
            clock = Text(f"{time.time() - self._began:6.1f} s  ", style="dim")
            self._console.print(clock + Text(what, style="bold red" if bad else ""))

    def update(self, history: History) -> None:
        """Show where the run stands."""
        if self._live is not None:
            self._live.update(self._panel(history))
        elif history.epoch != self._said_of and time.time() - self._said_at > _LINE_EVERY_S:
            self._said_at, self._said_of = time.time(), history.epoch
            self._line(", ".join(f"{name} {value}" for name, value in _standing(history).items()))

    def _line(self, what: str) -> None:
        # Not through rich, which would break long lines to a width that nobody reads at.
        print(f"{time.time() - self._began:6.1f} s  {what}", file=self._console.file, flush=True)

    def _panel(self, history: History) -> RenderableType:
        figures = Table.grid(expand=True)
        values = _standing(history)
        for name in values:
            figures.add_column(justify="center", ratio=2 if name == "rows" else 1, no_wrap=True)
        figures.add_row(*(Text(value, style="bold") for value in values.values()))
        figures.add_row(*(Text(name, style="dim") for name in values))
        self._spinner.update(text=Text(self._phase or "the stream flows"))
        bar = Table.grid(expand=True)
        bar.add_row(ProgressBar(history.fleet.rows, history.committed, complete_style="cyan", finished_style="green"))
        line = _sparkline(history, max(20, self._console.width - 20))
        return Panel(
            Group(figures, Text(), bar, line, self._spinner),
            title="ferryman demo",
            border_style="red" if self._phase else "cyan",
        )


def _standing(history: History) -> dict[str, str]:
    now = time.time()
    return {
        "epoch": f"{history.epoch:,}",
        "rows": f"{history.committed:,} of {history.fleet.rows:,}",
        "rows/s": f"{history.rows_per_s(now):,.0f}",
        "epoch ms": f"{history.epochs[-1].duration_ms:,.0f}" if history.epochs else "-",
        "state keys": f"{history.keys:,}",
        "waiting": f"{max(0, history.due(now) - history.committed):,}",
    }


def _sparkline(history: History, width: int) -> Text:
    """Draw rows per second over the run so far, two columns a second, kills in red."""
    step = 0.5
    first = max(history.began, time.time() - width * step)
    columns = [0.0] * width
    for epoch in history.epochs:
        if epoch.at >= first:
            columns[min(width - 1, int((epoch.at - first) / step))] += epoch.rows
    top = max(columns) or 1.0
    line = Text.assemble(("rows/s  ", "dim"))
    killed = {int((kill.at - first) / step) for kill in history.kills}
    for position, value in enumerate(columns):
        if position in killed:
            line.append("✗", style="bold red")
        else:
            line.append(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))], style="cyan")
    return line


def show_result(console: Console, result: dict[str, Any]) -> None:
    """Print the table that proves it, and the figures of the run."""
    if not console.is_terminal:
        # A pipe has no width; the table has one that it needs.
        console = Console(file=console.file, width=120, no_color=True)
    console.print()
    console.print(_operators(result["operators"]))
    console.print(_figures(result))
    for answer in result["operators"]:
        if not answer["equal"]:
            console.print(Text(f"{answer['operator']}: {_why(answer)}", style="bold red"))
    for text in result["missing"]:
        console.print(Text(text, style="bold red"))
    if result["equal"]:
        console.print(Text("Equal in every row, bit for bit: nothing lost, nothing counted twice.", style="bold green"))
    elif all(answer["equal"] for answer in result["operators"]):
        console.print(Text("NOT PROVED", style="bold red"))
    else:
        console.print(Text("NOT EQUAL", style="bold red"))


def _operators(answers: list[dict[str, Any]]) -> Table:
    """Lay the operators side by side: eighty columns hold three of them, and one with all its figures in a row not."""
    table = Table(title="The stream, and a plain Spark batch over the same readings", box=box.SIMPLE_HEAD)
    table.add_column("")
    for answer in answers:
        table.add_column(f"{answer['operator']}\n({answer['kind']})", justify="right")
    for title, name in (
        ("rows in", "rows_in"),
        ("  plain Spark", "expected_rows_in"),
        ("rows out", "rows_out"),
        ("state keys", "state_keys"),
        ("total", "total_of"),
        ("  stream", "total"),
        ("  plain Spark", "expected_total"),
        ("rows that differ", "wrong_rows"),
        ("state that differs", "wrong_state"),
    ):
        table.add_row(title, *(_cell(answer.get(name)) for answer in answers))
    verdicts = [("yes", "bold green") if answer["equal"] else ("NO", "bold red") for answer in answers]
    table.add_row(Text("equal", style="bold"), *(Text(word, style=style) for word, style in verdicts))
    return table


def _cell(value: float | str | None) -> str:
    return "?" if value is None else value if isinstance(value, str) else f"{value:,}"


def _figures(result: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    rows = {
        "epochs": f"{result['epochs']} committed, {result['snapshots']} snapshot{'s' * (result['snapshots'] != 1)}",
        "state": f"{result['state']['keys']:,} keys, {_size(result['state']['bytes'])}; "
        f"the checkpoint on disk {_size(result['state']['checkpoint_bytes'])}",
    }
    if result.get("epoch_ms"):
        rows["epoch time"] = f"p50 {result['epoch_ms']['p50']:,.0f} ms, p99 {result['epoch_ms']['p99']:,.0f} ms"
    for kill in result.get("kills", ()):
        rows[f"{kill['victim']} killed"] = _recovery(kill)
    if "wall_s" in result:
        rows["took"] = f"{result['wall_s']:.0f} s"
    rows["chart"] = result.get("chart") or "none: install ferryman[chart] for one"
    rows["everything in"] = result["out"]
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), value)
    return table


def _recovery(kill: dict[str, Any]) -> str:
    redone = {"Python worker": "its task was run again", "driver": "the epoch under way was redone"}[kill["victim"]]
    parts = [f"after epoch {kill['after_epoch']}"] + ([redone] if kill["redone"] else [])
    if kill["recovery_s"] is not None:
        parts.append(f"next epoch {kill['recovery_s']:.1f} s after the kill")
    if kill["victim"] == "driver" and kill["caught_up_s"] is not None:
        parts.append(f"caught up after {kill['caught_up_s']:.1f} s")
    return ", ".join(parts)


def _why(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"])
    reasons = []
    if answer["rows_in"] != answer["expected_rows_in"]:
        reasons.append(f"took in {answer['rows_in']:,} rows of {answer['expected_rows_in']:,}")
    if answer["rows_out"] != answer["committed_rows_out"]:
        reasons.append(
            f"its sink shows {answer['rows_out']:,} rows, and {answer['committed_rows_out']:,} were committed"
        )
    if answer["wrong_rows"]:
        reasons.append(f"{answer['wrong_rows']:,} rows of its sink are not those of the batch")
    if answer["wrong_state"] or answer["total"] != answer["expected_total"]:
        reasons.append(f"{answer['wrong_state']:,} rows of its state are not those of the batch")
    return "; ".join(reasons)


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
