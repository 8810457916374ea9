"""Times without a zone in frames, in the nights when clocks are set: which hour is meant that comes twice, or never.

Those inside of nested values are in `nested_times`.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._operator.run.python_columns import Misfit


def in_session_zone(times: pa.Array, values: Any, field: pa.Field, timezone: str) -> pa.Array:
    """Put a zone to times without one, as Spark does: an hour that comes twice is the second, by the winter's clock.

    Times that pandas keeps as Python's own objects Spark takes for UTC. An hour that the clock leaves out is none.
    """
    if values.dtype == object:
        return pc.assume_timezone(times, "UTC")
    before, after = (
        pc.assume_timezone(times, timezone, ambiguous="latest", nonexistent=side) for side in ("earliest", "latest")
    )
    left_out = pc.fill_null(pc.not_equal(before, after), False)
    if pc.any(left_out).as_py():
        raise misfit(values, left_out, field)
    return after


def misfit(values: Any, wrong: pa.Array, field: pa.Field) -> Misfit:
    """Name the first value of a frame's column that does not fit."""
    position = pc.index(wrong, True).as_py()
    return Misfit(position, pd.Series(values).iloc[position], field, "column")
