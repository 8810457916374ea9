"""How a benchmark says what it does and what it found: progress, facts of the machine, JSON, a table."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Result = dict[str, Any]


class Progress:
    """Show the step under way: a live line on a terminal, a plain line each when piped."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show a step while it runs, and how long it took."""
        began = time.perf_counter()
        if self._console.is_terminal:
            with self._console.status(what):
                yield
        else:
            print(what, flush=True)
            yield
        self.say(f"{what}: {time.perf_counter() - began:.1f} s")

    def say(self, what: str) -> None:
        """Leave a line standing."""
        if self._console.is_terminal:
            self._console.print(what, highlight=False)
        else:
            print(what, flush=True)


def cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment() -> Result:
    """Gather what a reader needs to judge a figure."""
    return {
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("ferryman", "pyspark", "pyarrow", "numpy", "numba")},
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def result_of(benchmark: str, parameters: Mapping[str, object], environment: Result) -> Result:
    """Begin a result with what was run, and on what."""
    words = ["ferryman", "bench", benchmark]
    for name, value in parameters.items():
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            option = f"--{name.replace('_', '-')}"
            words += ([option] if item else []) if isinstance(item, bool) else [option, shlex.quote(str(item))]
    return {
        "benchmark": benchmark,
        "command": " ".join(words),
        "parameters": dict(parameters),
        "environment": environment,
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Take the smallest value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, round(percent / 100 * len(ordered) + 0.5) - 1))]


def spread(values: Sequence[float]) -> Result:
    """Say where values lie: median, extremes and how many."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


def write_json(result: Result, path: Path) -> None:
    """Write a result so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(path.name + ".part")
    written.write_text(json.dumps(result, indent=2) + "\n")
    written.replace(path)


def show(title: str, rows: Sequence[Mapping[str, object]], console: Console | None = None) -> None:
    """Print rows as a table, with every column that a row has."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    # Piped, rich assumes 80 columns and would fold figures.
    (console or Console(width=None if sys.stdout.isatty() else 140)).print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
