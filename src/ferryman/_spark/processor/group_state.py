"""A function of `applyInPandasWithState` as a processor: one value and at most one timer per key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.compat.group_state import GroupChange, change_of, group_state

TIME_MODES = {
    GroupStateTimeout.NoTimeout: "None",
    GroupStateTimeout.ProcessingTimeTimeout: "ProcessingTime",
    GroupStateTimeout.EventTimeTimeout: "EventTime",
}


class GroupStateProcessor(StatefulProcessor):
    """Call a function as Spark does, with its `GroupState`."""

    def __init__(
        self, function: Callable[..., Any], state: StructType, timeout: str, input: list[str], *, watermark: bool
    ) -> None:
        self._function = function
        self._schema = state
        self._timeout = timeout
        self._input = input
        self._watermark = watermark

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._state = handle.getValueState("state", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        return self._call(key, rows, timerValues, timed_out=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        import pandas as pd

        # Spark gives a list here, not an iterator.
        return self._call(key, [pd.DataFrame(columns=self._input)], timerValues, timed_out=True)

    def _call(self, key: Any, rows: Iterable[Any], time: Any, *, timed_out: bool) -> Iterator[Any]:
        group = group_state(
            self._state.get(),
            self._schema,
            now_ms=time.getCurrentProcessingTimeInMs(),
            watermark_ms=time.getCurrentWatermarkInMs() if self._watermark else None,
            timeout=self._timeout,
            timed_out=timed_out,
        )
        yield from self._function(key, rows, group)
        self._keep(change_of(group))

    def _keep(self, change: GroupChange) -> None:
        """Keep what a call has changed; one that changed nothing leaves the timeout before as well."""
        if change.removed:
            self._state.clear()
        elif change.value is not None:
            self._state.update(change.value)
        elif change.timeout_ms is None:
            return
        if self._timeout != GroupStateTimeout.NoTimeout:
            for timer in list(self._handle.listTimers()):
                self._handle.deleteTimer(timer)
        if change.timeout_ms is not None:
            # A timeout is over when the time is past it, a timer when the time has come to it.
            self._handle.registerTimer(change.timeout_ms + 1)

    def close(self) -> None:
        pass


def time_mode(timeout: str, label: str) -> str:
    """Give the time mode of a timeout."""
    if timeout not in TIME_MODES:
        raise InvalidConfiguration(
            f"operator {label!r}: timeoutConf={timeout!r}. Give GroupStateTimeout.NoTimeout, ProcessingTimeTimeout or "
            "EventTimeTimeout."
        )
    return TIME_MODES[timeout]
