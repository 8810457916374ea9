"""Run an operator row by row that has more than values: lists, maps and the like, and calls at a time."""

from __future__ import annotations

import copy
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._model.errors import OperatorFailed, StateMisused
from ferryman._operator.cells import Cells
from ferryman._operator.cells.variables import VALUE
from ferryman._operator.declare.operator import Operator
from ferryman._operator.declare.two_inputs import TwoInputs
from ferryman._operator.run.key_values import KeyValues
from ferryman._operator.run.output_tables import output_tables
from ferryman._operator.run.python_columns import Misfit, key_values
from ferryman._operator.run.runner import Given, Made
from ferryman._operator.run.user_calls import refuse_undeclared, rows_by_key, user_calls
from ferryman._operator.types.collections import PerInstance
from ferryman._operator.types.views import SynopsisView, TaskView
from ferryman._operator.types.windows import WindowView
from ferryman._state.tables import GROUP, Parts


@dataclass(frozen=True, kw_only=True)
class StatefulRunner:
    """Run a user's `Operator` class.

    Its values are attributes of the object, as in `RowRunner`; its other states are views that are made once per task
    and see the key at hand. `broadcasts` says how many columns of each broadcast state are its key.
    """

    operator: type[Operator]
    input: tuple[str, ...] | TwoInputs
    values: tuple[str, ...]
    states: tuple[str, ...]
    state: pa.Schema
    output: pa.Schema
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)
    broadcasts: Mapping[str, int] = field(default_factory=dict)

    def run(self, given: Given) -> Made:
        """Call `process` for every row and `finish` for every key that had some; then `due` for what is due."""
        task = _Task(self, given)
        with user_calls(given, task.subject):
            task.all()
        try:
            return task.made()
        except Misfit as misfit:
            raise misfit.named(given.operator, given.epoch, f"key {task.keys[misfit.position]!r}") from misfit


class _Task:
    """One task of such an operator."""

    def __init__(self, runner: StatefulRunner, given: Given) -> None:
        self._runner = runner
        self._given = given
        self._values = KeyValues(runner.operator, runner.values, given)
        self._called: set[int] = set()
        self._cleared: set[int] = set()
        states = runner.operator.states()
        columns = pa.schema([column for column in runner.state if column.name not in runner.values])
        self._tasks: dict[str, Any] = {name: state for name, state in states.items() if isinstance(state, PerInstance)}
        self._cells = Cells(
            [states[name].variable() for name in runner.states if name not in self._tasks],
            given,
            columns,
            by_event_time=runner.operator.by_event_time,
        )
        # What is kept may have another name than the attribute.
        self._names = {states[name].stored_as: name for name in runner.states}
        self._views: dict[str, Any] = {
            self._names[kept]: states[self._names[kept]].view(cell) for kept, cell in self._cells.by_name.items()
        } | {name: TaskView(self._merged(name, task)) for name, task in self._tasks.items()}
        self.keys = key_values(given.keys)
        stored = self._values.stored
        self._now: list[tuple[Any, ...]] = list(zip(*stored, strict=True)) if stored else [()] * len(given.present)
        self._out: list[Any] = []
        self._ends: list[tuple[int, int]] = []

    def all(self) -> None:
        """Make all calls."""
        runner, given, focus = self._runner, self._given, self._cells.focus
        self._cells.look_at_expired()
        user = runner.operator()
        user.__dict__.update(self._views)
        for name, table in given.broadcasts.items():
            user.__dict__[name.rpartition(".")[2]] = _by_key(table, runner.broadcasts[name])
        user.__dict__["now_ms"] = given.time.now_ms
        user.__dict__["watermark_ms"] = given.time.watermark_ms
        user.__dict__["_timers"] = self._cells.timers
        for view in self._views.values():
            if isinstance(view, WindowView):
                view.until = given.time.late_ms if runner.operator.by_event_time else self._until
        known = {*user.__dict__, *runner.values}
        rows, counts = rows_by_key(given, runner.input)
        finish = None if runner.operator.finish is Operator.finish else user.finish
        process, keep = user.process, self._keep
        for position, count in enumerate(counts):
            if not count:
                continue
            focus.position = position
            self._begin(user, position)
            key = self.keys[position]
            for row in islice(rows, count):
                keep(process(key, row))
            if finish is not None:
                keep(finish(key))
            self._end(user, position)
        self._due(user)
        for view in self._views.values():
            if isinstance(view, SynopsisView):
                view.flush()
        focus.position = None
        refuse_undeclared(given, set(user.__dict__) - known)
        self._values.aliases.refuse_changed()
        for name, view in self._views.items():
            if user.__dict__.get(name) is not view:
                raise self._misused(
                    f"`process` assigns to self.{name}, which is no value. Use its methods: clear(), or "
                    + (f"self.{name}.value = ..." if name in self._tasks else "append, add, [...] = ...")
                )
        if (mutated := self._cells.mutated()) is not None:
            kept, position = mutated
            raise self._misused(
                f"key {self.keys[position]!r}, state {self._names[kept]!r}: a value that was read was changed in "
                "place, which changes no state. Set it again"
            )
        self._parts_made = self._new_parts()

    def _due(self, user: Operator) -> None:
        """Call for every time that has come, those asked for in this epoch as well, in the order of time."""
        focus, until = self._cells.focus, self._until
        waiting = {**dict.fromkeys(self._given.time.due, True), **focus.due}
        for at, position, what in sorted(due for due, there in waiting.items() if there):
            view = self._views.get(self._names.get(what, ""))
            mine = self._cells.timers if not what else view if isinstance(view, WindowView) else None
            if until is None or at > until or mine is None or not focus.due.get((at, position, what), True):
                continue
            focus.position = position
            self._begin(user, position)
            key = self.keys[position]
            if isinstance(mine, WindowView):
                for span, result in mine.close(at):
                    self._keep(user.closed(key, span, result))
            elif mine.has(position, at):
                mine.delete(at)
                self._keep(user.due(key, at))
            self._end(user, position)

    @property
    def _until(self) -> int | None:
        time = self._given.time
        return time.watermark_ms if self._runner.operator.by_event_time else time.now_ms

    def _keep(self, rows: Any) -> None:
        if rows is not None:
            self._out.extend(rows)

    def _begin(self, user: Operator, position: int) -> None:
        if position in self._called and not self._values.comparable:
            self._values.aliases.back_at(self.keys[position])
        seen = bool(self._given.present[position]) or position in self._called
        values = self._now[position] if seen else self._values.fresh()
        user.__dict__.update(zip(self._runner.values, values, strict=True))
        self._before = values if seen else None

    def _end(self, user: Operator, position: int) -> None:
        self._ends.append((len(self._out), position))
        self._called.add(position)
        own = user.__dict__
        now = tuple(own[name] for name in self._runner.values)
        if (own.pop("_cleared", False) or position in self._cleared) and now == self._values.defaults:
            self._cleared.add(position)
        else:
            self._cleared.discard(position)
        if not self._values.comparable:
            self._values.aliases.look(own, self.keys[position])
        self._now[position] = now
        gone = position in self._cleared and bool(self._given.present[position])
        if gone or (self._values.names and not (self._values.comparable and self._before == now)):
            self._cells.focus.changed[position] = 1

    def _misused(self, what: str) -> StateMisused:
        given = self._given
        return StateMisused(
            f"operator {given.operator!r}, epoch {given.epoch}: {what}. The epoch was not committed; no state changed."
        )

    def _merged(self, name: str, task: PerInstance) -> Any:
        parts = task.record().tuples(_fields(self._given.parts[f"{self._given.operator}.{task.stored_as}"]))
        self._parts = {**getattr(self, "_parts", {}), name: copy.deepcopy([part[0] for part in parts])}
        try:
            return reduce(task.merge, (part[0] for part in parts)) if parts else task.create()
        except Exception as error:
            raise self._failed_in("merge" if parts else "create", name, error) from error

    def _new_parts(self) -> dict[str, Parts]:
        """Give the parts of the values of the instance, where they are not what they were."""
        found = {}
        groups = self._given.groups.tolist()
        for name, task in self._tasks.items():
            value = self._views[name].value
            if not groups:
                # Nothing was processed here but pinned keys: an instance whose groups are on their way has no rows.
                if value != task.create():
                    raise ValueError(
                        f"state {name!r} was changed on an instance that owns no key group to keep it in, only pinned "
                        "keys. Leave the instance a key group of its own: job.rebalance() gives it one"
                    )
                continue
            try:
                parts = [value] if task.split is None else task.split(value, len(groups))
            except Exception as error:
                raise self._failed_in("split", name, error) from error
            table = self._given.parts[f"{self._given.operator}.{task.stored_as}"]
            held = table.column(GROUP).to_pylist()
            if len(parts) > len(groups):
                raise ValueError(f"the split of state {name!r} gave {len(parts)} parts for {len(groups)} key groups")
            into = groups[: len(parts)]
            if parts == self._parts[name] and held == into:
                continue
            gone = [group for group in held if group not in into]
            record = task.record()
            values = record.columns([*((part,) for part in parts), *[None] * len(gone)], f"state {name!r}: field")
            mask = pa.array([False] * len(parts) + [True] * len(gone))
            state = pa.StructArray.from_arrays(values, fields=list(record.fields), mask=mask)
            found[f"{self._given.operator}.{task.stored_as}"] = Parts([*into, *gone], mask.to_pylist(), [state])
        return found

    def _failed_in(self, what: str, state: str, error: Exception) -> OperatorFailed:
        given = self._given
        return OperatorFailed(
            f"operator {given.operator!r}, state {state!r}: its `{what}` raised {type(error).__name__}: {error} in "
            f"epoch {given.epoch}. The epoch was not committed and no state changed. Fix the function and start the "
            "job again: it redoes the epoch from the same input."
        )

    def made(self) -> Made:
        """Turn what changed into columns."""
        changed = np.flatnonzero(np.frombuffer(self._cells.focus.changed, np.uint8)).tolist()
        try:
            values = self._values.columns([self._now[position] for position in changed])
        except Misfit as misfit:
            misfit.position = changed[misfit.position]
            raise
        ends, keys = [end for end, _ in self._ends], [self.keys[position] for _, position in self._ends]
        runner = self._runner
        output, aside = output_tables(self._given, self._out, ends, keys, runner.output, runner.sides)
        named = dict(zip(self._runner.values, values, strict=True))
        made = self._cells.made(output, named, self._runner.state, self._held(changed))
        return replace(made, sides=aside, changes={**made.changes, **self._parts_made})

    def _held(self, changed: list[int]) -> list[bool]:
        """Tell which keys need their row for their values: a value that was set to None is no default."""
        blank = all(default is None for default in self._values.defaults)

        def held(position: int) -> bool:
            # Defaults may go with the rest of a key that was cleared, or of which the rest has expired.
            if position in self._called and not blank and position not in self._cleared:
                return True
            there = position in self._called or bool(self._given.present[position])
            return there and self._now[position] != self._values.defaults

        return [bool(self._values.names) and held(position) for position in changed]

    def subject(self) -> str:
        """Say which key the operator is at."""
        position = self._cells.focus.position
        return "" if position is None else f"for key {self.keys[position]!r} "


def _fields(rows: pa.Table) -> list[pa.Array]:
    value = rows.column(VALUE).combine_chunks()
    return [value.field(number) for number in range(value.type.num_fields)]


def _by_key(table: pa.Table, keys: int) -> Mapping[Any, Any]:
    """Give a broadcast state as a read-only dict: from key to a named tuple of the other columns."""
    row = namedtuple("Row", table.column_names[keys:], rename=True)  # type: ignore[misc]
    lists = [column.to_pylist() for column in table.columns]
    found = key_values([column.combine_chunks() for column in table.columns[:keys]])
    return MappingProxyType(dict(zip(found, map(row._make, zip(*lists[keys:], strict=True)), strict=True)))
