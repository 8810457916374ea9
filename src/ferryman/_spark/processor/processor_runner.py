"""Call a user's `StatefulProcessor`: key by key on rows, then on the timers that are due."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from ferryman._engine.lateness import in_time, late_bound
from ferryman._model.errors import FerrymanError, LateOutput, OperatorFailed, StateMisused
from ferryman._operator.cells import Cells
from ferryman._operator.run.python_columns import Misfit
from ferryman._operator.run.runner import Given, Made
from ferryman._spark.plan.user_code import Shared, unpickled
from ferryman._spark.processor.declared_state import DeclaredState
from ferryman._spark.processor.input_frames import Batches, key_frames
from ferryman._spark.processor.output_frames import Frames
from ferryman._spark.processor.processor_handle import Handle
from ferryman._spark.processor.processor_keys import expired_keys, input_keys
from ferryman._spark.processor.processor_rows import OutputRows, input_rows
from ferryman._state.aggregates.kernels import frozen, group
from ferryman._state.zones import in_zone

# The column that carries the rows of the initial state into the first epoch.
INITIAL = "_initial"


@dataclass(frozen=True, kw_only=True)
class ProcessorRunner:
    """Run a `StatefulProcessor`, on rows or on pandas frames.

    The processor travels pickled, and every task makes its own: what it keeps in itself does not outlive the task. With
    `group_state` it is a function of applyInPandasWithState, which Spark hands keys and numbers of other types.
    `event_time` is the column of its output that hands the watermark on, `deleted` are states that are declared in
    vain, `batches` says how many rows a frame has at the most, `by_name` whether its columns go by their names, and
    `shared` are the broadcast variables of Spark that the processor uses.
    """

    processor: bytes
    pandas: bool
    key: tuple[str, ...]
    input: tuple[str, ...]
    declared: tuple[DeclaredState, ...]
    state: pa.Schema
    output: pa.Schema
    time_mode: str
    initial: bool = False
    timezone: str = "UTC"
    group_state: bool = False
    event_time: str | None = None
    deleted: frozenset[str] = frozenset()
    batches: Batches = field(default_factory=Batches)
    by_name: bool = True
    shared: Shared = ()

    def run(self, given: Given) -> Made:
        """Call the processor for every key that has rows, then for every timer that is due."""
        variables = Cells([state.variable() for state in self.declared], given, self.state)
        call = _Call(self, given, variables)
        collecting = gc.isenabled()
        gc.disable()
        try:
            call.all()
        except FerrymanError:
            raise
        except Exception as error:
            raise call.failed(error) from error
        finally:
            if collecting:
                gc.enable()
        return self._made(given, variables, call)

    def frames(self, rows: pa.Table, counts: list[int]) -> Iterator[pd.DataFrame]:
        """Make pandas frames of rows: one for each key, by the number of its rows."""
        return key_frames(rows, counts, self.timezone, group_state=self.group_state)

    def _made(self, given: Given, variables: Cells, call: _Call) -> Made:
        if (mutated := variables.mutated()) is not None:
            raise StateMisused(
                f"operator {given.operator!r}, state {mutated[0]!r}, key {call.keys[mutated[1]]!r}, epoch "
                f"{given.epoch}: a value that was handed out was changed in place, which changes no state. Make a new "
                "value and pass it to `update`. The epoch was not committed."
            )
        output = call.made.table()
        call.refuse_late(output)
        try:
            return variables.made(output)
        except Misfit as misfit:
            raise misfit.named(given.operator, given.epoch, f"key {call.keys[misfit.position]!r}") from misfit


class _Call:
    """One task's calls of a processor."""

    def __init__(self, runner: ProcessorRunner, given: Given, variables: Cells) -> None:
        self._runner = runner
        self._given = given
        self._variables = variables
        self._focus = variables.focus
        self.keys: list[Any] = input_keys(given.keys, runner.timezone, pandas=runner.pandas, numpy=runner.group_state)
        time = given.time
        self._values = (
            TimerValues()
            if runner.time_mode == "none" and not runner.group_state
            else TimerValues(time.now_ms, time.watermark_ms if time.watermark_ms is not None else 0)
        )
        self._doing = "init"
        # How many rows there were after each key.
        self._ends: list[tuple[int, int]] = []
        self.made = (
            Frames(runner.output, given, runner.timezone, self._whose, by_name=runner.by_name)
            if runner.pandas
            else OutputRows(runner.output, given, self._whose)
        )

    def all(self) -> None:
        """Make the calls, and take what they put out."""
        runner, variables = self._runner, self._variables
        variables.look_at_expired()
        user: StatefulProcessor = unpickled(runner.processor, runner.shared)
        user.init(Handle(runner.declared, runner.deleted, variables))
        self._initial(user)
        self._rows(user)
        self._timers(user)
        self._doing = "close"
        user.close()

    def _initial(self, user: StatefulProcessor) -> None:
        """Hand over the initial state: rows that come in the first epoch, before all others."""
        rows, index = self._given.rows, self._given.index
        if not self._runner.initial or not rows.num_rows:
            return
        mask = rows.column(INITIAL).is_valid().to_numpy()
        if not mask.any():
            return
        self._doing = "handleInitialState"
        struct = rows.column(INITIAL).combine_chunks().filter(pa.array(mask))
        table = pa.Table.from_arrays([struct.field(i) for i in range(struct.type.num_fields)], names=struct.type.names)
        order = np.argsort(index[mask], kind="stable")
        positions = index[mask][order]
        table = table.take(pa.array(order))
        initial: Iterator[Any] = input_rows(in_zone(table, self._runner.timezone))
        if self._runner.pandas:
            # As Spark does: the rows of a key in one frame, or several where there are many.
            positions, counts = np.unique(positions, return_counts=True)
            pieces = self._runner.batches.pieces(counts.tolist(), table)
            positions = np.repeat(positions, [len(lengths) for lengths in pieces])
            initial = self._runner.frames(table, list(chain.from_iterable(pieces)))
        for position, rows_given in zip(positions.tolist(), initial, strict=True):
            self._focus.position = position
            user.handleInitialState(self.keys[position], rows_given, self._values)
        self._focus.position = None

    def _grouped(self) -> tuple[pa.Table, list[int], list[int]]:
        """Give the rows key by key, which keys have rows, and how many each."""
        rows, index = self._given.rows, self._given.index
        if self._runner.initial and rows.num_rows:
            data = rows.column(INITIAL).is_null().to_numpy()
            rows, index = rows.filter(pa.array(data)), index[data]
        order, starts = group(frozen(np.empty(0, np.bool_)), frozen(index), len(self._given.present))
        counts = np.diff(starts)
        positions = np.flatnonzero(counts)
        taken = rows.select(list(self._runner.input)).take(pa.array(order))
        return taken, positions.tolist(), counts[positions].tolist()

    def _rows(self, user: StatefulProcessor) -> None:
        self._doing = "handleInputRows"
        table, positions, counts = self._grouped()
        focus, keys, values, handle = self._focus, self.keys, self._values, user.handleInputRows
        rows: Iterator[Any]
        if self._runner.pandas:
            pieces = self._runner.batches.pieces(counts, table)
            rows = self._runner.frames(table, list(chain.from_iterable(pieces)))
            counts = [len(lengths) for lengths in pieces]
        else:
            rows = input_rows(in_zone(table, self._runner.timezone))
        for position, count in zip(positions, counts, strict=True):
            focus.position = position
            mine: Iterator[Any] = islice(rows, count)
            some = handle(keys[position], mine, values)
            if some is not None:
                self.made.extend(some)
            # It may have left rows unread.
            deque(mine, maxlen=0)
            self._ends.append((len(self.made), position))
        focus.position = None

    def _timers(self, user: StatefulProcessor) -> None:
        """Call for every timer up to now, those set in this epoch as well, in the order of time.

        As with Spark, what such a call sets or deletes changes nothing about who is called in this epoch.
        """
        timers, time = self._variables.timers, self._given.time
        if timers is None:
            return
        self._doing = "handleExpiredTimer"
        until = time.watermark_ms if self._runner.time_mode == "eventtime" else time.now_ms
        due = {(at, position) for at, position, what in time.due if not what}
        due |= {(at, position) for (at, position, what), there in self._focus.due.items() if there and not what}
        keys = self.keys if self._runner.group_state else expired_keys(self._given.keys, self._runner.key)
        called = [(at, at_key) for at, at_key in due if until is not None and at <= until and timers.has(at_key, at)]
        for at, position in sorted(called):
            self._focus.position = position
            some = user.handleExpiredTimer(
                key=keys[position], timerValues=self._values, expiredTimerInfo=ExpiredTimerInfo(at)
            )
            if some is not None:
                self.made.extend(some)
            if not self._runner.group_state:
                # A function has its timeout until it changes something.
                timers.delete(at)
            self._ends.append((len(self.made), position))
        self._focus.position = None

    def refuse_late(self, output: pa.Table) -> None:
        """Refuse output that the next operator would leave out as late, as Spark does."""
        name, late_ms = self._runner.event_time, self._given.time.late_ms
        if name is None or late_ms is None:
            return
        times = output.column(name)
        number = pc.index(in_time(times, late_ms), False).as_py()
        if number < 0:
            return
        raise LateOutput(
            f"operator {self._given.operator!r}, epoch {self._given.epoch}: {self._whose(number)}it gave a row with "
            f"{name!r} {times[number]}, which is not after the watermark, {late_bound(times, late_ms)}, so the "
            "operators after it would leave the row out as late. Give rows a later time, or do not name the column in "
            "eventTimeColumnName, or give the watermark a longer delay. The epoch was not committed."
        )

    def _whose(self, number: int) -> str:
        """Tell for which key a row was given, by its number; one to come is of the key at hand."""
        place = bisect_right(self._ends, number, key=lambda end: end[0])
        position = self._ends[place][1] if place < len(self._ends) else self._focus.position
        return "" if position is None else f"for key {self.keys[position]!r} "

    def failed(self, error: Exception) -> OperatorFailed:
        """Say what the user's code was doing when it raised."""
        position = self._focus.position
        subject = f"for key {self.keys[position]!r}" if position is not None else "with no key at hand"
        return OperatorFailed(
            f"operator {self._given.operator!r} raised {type(error).__name__}: {error} in {self._doing}, {subject} in "
            f"epoch {self._given.epoch}. The epoch was not committed and no state changed. Fix the processor and start "
            "the job again: it redoes the epoch from the same input."
        )
