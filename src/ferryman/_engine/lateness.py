"""Which rows of an epoch are late, and what of event time a task goes by and reports.

A row is late if its time is not after where the watermark was in the epoch before: one exactly there is late too. For
an operator that goes by windows, it is late if the last window that it falls into had ended by then. Where the
watermark comes to after an epoch is `_model.watermarks`.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ferryman._engine.control import Control
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.windows_due import without_over


def in_time(times: pa.ChunkedArray, late_ms: int) -> pa.ChunkedArray:
    """Tell which rows are not late, by their times.

    A row without a time is never late: it is for the operator to say what such a row means.

    Examples
    --------
    >>> times = pa.chunked_array([pa.array([999_999, 1_000_000, 1_000_001, None], pa.timestamp("us", "UTC"))])
    >>> in_time(times, 1000).to_pylist()
    [False, False, True, True]
    """
    return pc.fill_null(pc.greater(times, late_bound(times, late_ms)), True)


def late_bound(times: pa.ChunkedArray, late_ms: int) -> pa.Scalar:
    """Give up to where rows are late, as a time of the rows' own type."""
    return pa.scalar(late_ms * 1000, pa.timestamp("us", "UTC")).cast(times.type)


def without_late(spec: OperatorSpec, control: Control, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Part the rows into those to work on and those that are not waited for any more."""
    if spec.time.late is None or control.late_ms is None or not rows.num_rows:
        return rows, rows.slice(0, 0)
    if spec.time.panes is not None:
        timely = without_over(spec, control.late_ms, rows)
    else:
        timely = in_time(rows.column(spec.time.late), control.late_ms)
    return rows.filter(timely), rows.filter(pc.invert(timely))


def watermarks_seen(spec: OperatorSpec, rows: pa.Table) -> dict[str, int]:
    """Find how far event time has come in these rows, for each watermark that is to be reported.

    One that was declared before its stream was parted is reported once for each part.
    """
    found: dict[str, int] = {}
    for name, column, delay_ms, _ in spec.time.watermarks:
        latest = pc.max(rows.column(column)).cast(pa.timestamp("us", "UTC")).value if rows.num_rows else None
        if latest is not None:
            time_ms = latest // 1000 - delay_ms
            found[name] = max(time_ms, found.get(name, time_ms))
    return found


def from_the_beginning(spec: OperatorSpec, control: Control) -> Control:
    """Let the watermark be at the beginning of time, for an operator that has one, while no row has moved it."""
    since = spec.time.since_ms
    if since is None:
        return control
    watermark_ms, late_ms = (
        since if time_ms is None else max(time_ms, since) for time_ms in (control.watermark_ms, control.late_ms)
    )
    return replace(control, watermark_ms=watermark_ms, late_ms=late_ms)


def earliest(spec: OperatorSpec, control: Control, rows: pa.Table) -> int | None:
    """Find where event time begins, for an operator that goes by it before there is a watermark."""
    if control.watermark_ms is not None or spec.time.late is None or not rows.num_rows:
        return None
    time = pc.min(rows.column(spec.time.late)).cast(pa.timestamp("us", "UTC")).value
    return None if time is None else int(time // 1000)
