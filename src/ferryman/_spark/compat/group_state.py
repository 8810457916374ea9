"""The `GroupState` of `applyInPandasWithState`, which Spark makes and reads by its fields. Calls nobody of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class GroupChange:
    """What a function has done to its `GroupState`.

    Attributes
    ----------
    removed
        Whether it took the state away.
    value
        The state it set; None if it set none.
    timeout_ms
        The time it wants to be called at; None if it set none.
    """

    removed: bool
    value: tuple[Any, ...] | None
    timeout_ms: int | None


def group_state(
    value: tuple[Any, ...] | None,
    schema: StructType,
    *,
    now_ms: int,
    watermark_ms: int | None,
    timeout: str,
    timed_out: bool,
) -> GroupState:
    """Make the `GroupState` that Spark would hand to a function, whose constructor is Spark's own. Tried on 4.3."""
    return GroupState(
        value if value is not None else (),  # type: ignore[arg-type]
        now_ms,
        GroupState.NO_TIMESTAMP if watermark_ms is None else watermark_ms,
        timeout,
        timed_out,
        watermark_ms is not None,
        value is not None,
        False,
        False,
        # Spark does not tell a function of the timeout before.
        GroupState.NO_TIMESTAMP,
        b"",
        schema,
    )


def change_of(group: GroupState) -> GroupChange:
    """Tell what a function has done to its `GroupState`, which Spark reads from its fields. Tried on 4.3."""
    timed = group._timeout_timestamp != GroupState.NO_TIMESTAMP
    return GroupChange(
        removed=group._removed,
        value=tuple(group._value) if group._updated and not group._removed else None,
        timeout_ms=int(group._timeout_timestamp) if timed else None,
    )
