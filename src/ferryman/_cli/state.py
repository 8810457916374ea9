"""`ferryman state`: what is in a checkpoint. Reads the checkpoint directory alone; needs no Spark and no job."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console

from ferryman._cli.printed_tables import print_table, ranges, shown, size
from ferryman._log.check.describe import Description, describe, first_rows
from ferryman._log.files.open_checkpoint import opened
from ferryman._state.store.record_values import plain_type
from ferryman._state.words import one_array

Path = Annotated[str, typer.Argument(help="The checkpoint directory: a path, or a URI.", metavar="PATH")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def state(
    path: Path,
    operator: Annotated[str | None, typer.Option(help="Print rows of this operator's state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many rows, in the order of the key.")] = 20,
    epoch: Annotated[int | None, typer.Option(min=1, help="As of this epoch; by default the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Show what is in a checkpoint: operators, epochs, keys per group, rows."""
    with opened(path) as checkpoint:
        found = describe(checkpoint, epoch)
        rows = first_rows(checkpoint, operator, found.epoch, limit) if operator else None
    if as_json:
        raw = found.json()
        if rows is not None:
            raw["rows"] = [dict(zip(rows.column_names, row, strict=True)) for row in _values(rows)]
        typer.echo(json.dumps(raw, default=_plain))
        return
    out = Console(highlight=False)
    if rows is not None and operator is not None:
        _print_rows(out, found, operator, rows)
    else:
        _print_summary(out, found)


def _print_summary(out: Console, found: Description) -> None:
    epochs = "none yet" if found.first is None else f"{found.first}-{found.last}"
    facts = [
        ("job", found.job),
        ("checkpoint", found.checkpoint),
        ("format", found.format),
        ("epochs kept", epochs),
        ("snapshots", ranges(found.snapshots)),
        ("shown as of", f"epoch {found.epoch}{when(found.time_ms)}"),
        ("Spark micro-batch", found.batch if found.batch >= 0 else "none yet"),
        ("source offsets", "; ".join(_compact(offset) for offset in found.offsets) or "none"),
        ("key groups", found.groups),
        ("instances", f"{found.instances} (routing version {found.routing_version})"),
    ]
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        out.print(f"{name:<{width}}{shown(str(value))}", markup=False, soft_wrap=True)
    out.print()
    print_table(
        out,
        "state",
        ["table", "key", "state", "rows", "rows per group (min/median/max)", "deltas", "snapshots"],
        [
            [
                table.name,
                _columns(table.key),
                _columns(table.state),
                table.rows,
                "/".join(f"{value:g}" for value in table.spread().values()),
                size(table.delta_bytes),
                size(table.snapshot_bytes),
            ]
            for table in found.tables
        ],
    )


def _print_rows(out: Console, found: Description, operator: str, rows: pa.Table) -> None:
    total = next(table.rows for table in found.tables if table.name == operator)
    title = f"{operator}, epoch {found.epoch}: {rows.num_rows:,} of {total:,} keys"
    print_table(out, title, rows.column_names, _values(rows))


def _values(rows: pa.Table) -> list[list[object]]:
    """Give rows as Python's values; times that Python has none for, as the numbers they are."""
    return [list(row) for row in zip(*map(_column, rows.columns), strict=True)]


def _column(column: pa.ChunkedArray) -> list[object]:
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError, KeyError, TypeError):
        whole = one_array(column, column.type)
        return list(whole.view(plain_type(whole.type)).to_pylist())


def _columns(columns: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns) or "none"


def when(time_ms: int | None) -> str:
    """Write a time for people, after a comma; nothing where there is none."""
    if time_ms is None:
        return ""
    return f", {datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _compact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _plain(value: Any) -> str:
    """Write what JSON has no type for: binary in hex, all else as Python prints it."""
    return value.hex() if isinstance(value, bytes) else str(value)
