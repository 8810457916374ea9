"""Print tables: drawn on a terminal, plain columns when piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_table(out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers to the right."""
    title, columns, listed = shown(title), [shown(name) for name in columns], [list(row) for row in rows]
    numeric = [bool(listed) and all(isinstance(row[at], int | float) for row in listed) for at in range(len(columns))]
    texts = [[_text(cell) for cell in row] for row in listed]
    out.print(title, style="bold", markup=False, soft_wrap=True)
    if out.is_terminal:
        table = Table(box=box.ROUNDED)
        for name, right in zip(columns, numeric, strict=True):
            table.add_column(escape(name), justify="right" if right else "left", overflow="fold")
        for row in texts:
            table.add_row(*map(escape, row))
        out.print(table)
        return
    widths = [max(map(len, cells)) for cells in zip(columns, *texts, strict=True)]
    for row in [list(columns), *texts]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        out.print("  ".join(cells).rstrip(), markup=False, soft_wrap=True)


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers with their runs folded.

    Examples
    --------
    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    >>> ranges([])
    'none'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs) or "none"


def size(count: int) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> size(999), size(12_345), size(7_000_000_000)
    ('999 B', '12.3 kB', '7.0 GB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _text(cell: object) -> str:
    return "null" if cell is None else shown(str(cell))


def shown(text: str) -> str:
    r"""Write text so that it cannot steer a terminal: what has no shape of its own, as Python would write it.

    Examples
    --------
    >>> shown("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    )
