"""Run several operators with their instances side by side, each instance in a task of its own, round after round.

The rows of an operator are parted by instance here, and one round of tasks runs it. What it puts out comes back, is
parted again, and goes to the next round. An operator that reads another's rows by the same key runs in the same round,
in the task that made them, once it was seen that these rows stay with their instance. The task looks every time; where
one row is another instance's, nothing of that round counts, and it is done again in two.

Who runs the tasks of a round is the caller's matter. Calls `express_epoch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._engine.control import Control
from ferryman._engine.express_epoch import Hashes, OutputOf, Parts, Step, as_read, owners_of, parted
from ferryman._model.receipt import Receipt, RowsLeft, TooMuch


@dataclass(frozen=True)
class Round:
    """What the tasks of a round are to do.

    Attributes
    ----------
    steps
        The operators.
    came
        The rows of each operator whose rows come from outside, by instance.
    wanted
        Whose rows to bring back.
    most_bytes
        What each task may put out.
    """

    steps: Sequence[Step]
    came: Mapping[str, Parts]
    wanted: Sequence[OutputOf]
    most_bytes: int


@dataclass(frozen=True)
class Ran:
    """What came of tasks: their receipts, and of each the rows that were wanted, in the order of instances."""

    receipts: Sequence[Receipt]
    tables: Sequence[Sequence[pa.Table]]


RunRound = Callable[[Round], "Ran | TooMuch | RowsLeft"]


class Rounds:
    """Operators that run in rounds, and what is known of the rows between them.

    Parameters
    ----------
    steps
        The operators; who reads of another comes after it.
    wanted
        Whose rows to give in the end.
    """

    def __init__(self, steps: Sequence[Step], wanted: Sequence[OutputOf]) -> None:
        self._steps = steps
        self._wanted = wanted
        keys = {step.spec.name: step.spec.routed.names for step in steps}
        self._may_stay = {
            name for name, reads in _reads(steps).items() if reads is not None and keys[name] == keys[reads.operator]
        }
        # The operators that have been seen to read rows of their own instance only.
        self._stay: set[str] = set()

    def run(
        self,
        controls: Mapping[str, Control],
        came: pa.Table,
        hashes: Mapping[str, Hashes],
        run_round: RunRound,
        *,
        most_bytes: int,
    ) -> tuple[list[pa.Table], list[Receipt]] | TooMuch:
        """Run the operators; give what is wanted, and the receipts.

        Parameters
        ----------
        controls
            What the tasks of each must know.
        came
            The rows that came, in the source's order.
        hashes
            Spark's hashes of their keys, for each operator that reads them.
        run_round
            Runs the tasks of a round.
        most_bytes
            What all tasks may put out together.
        """
        instances = len(controls[self._steps[0].spec.name].tokens)
        made: dict[OutputOf, list[pa.Table]] = {}
        receipts: list[Receipt] = []
        todo, left = list(self._steps), most_bytes
        while todo:
            now = self._first(todo, alone=instances == 1)
            runs = {step.spec.name for step in now}
            later = [step for step in todo if step.spec.name not in runs]
            parts: dict[str, Parts] = {}
            for step in now:
                name, control = step.spec.name, controls[step.spec.name]
                if step.reads is None:
                    parts[name] = parted(control, came.select(step.spec.input.names), hashes[name])
                elif step.reads in made:
                    rows, keys = as_read(step.spec, pa.concat_tables(made[step.reads]))
                    parts[name] = parted(control, rows, keys)
                    self._learn(name, owners_of(control, keys), made[step.reads])
            wanted = self._brought(now, later)
            # Each task has its share: whoever is fuller must not bring more here than all of them may.
            told = run_round(Round(now, parts, wanted, left // instances))
            if isinstance(told, TooMuch):
                return told
            if isinstance(told, RowsLeft):
                self._may_stay.discard(told.operator)
                self._stay.discard(told.operator)
                continue
            receipts += told.receipts
            for number, output in enumerate(wanted):
                made[output] = [tables[number] for tables in told.tables]
                left -= sum(table.nbytes for table in made[output])
            todo = later
        return [pa.concat_tables(made[output]) for output in self._wanted], receipts

    def _first(self, todo: Sequence[Step], *, alone: bool) -> list[Step]:
        """Give those that run now: what they read has come, or is made in the task that they run in."""
        now: dict[str, Step] = {}
        waits = {step.spec.name for step in todo}
        for step in todo:
            above = None if step.reads is None else step.reads.operator
            if above not in waits or (above in now and (alone or step.spec.name in self._stay)):
                now[step.spec.name] = step
        return list(now.values())

    def _brought(self, now: Sequence[Step], later: Sequence[Step]) -> list[OutputOf]:
        """Say whose rows are to come back: those that are wanted in the end, or by a later round."""
        ran = {step.spec.name for step in now}
        read = (reads for reads in _reads(later).values() if reads is not None)
        return list(dict.fromkeys(output for output in (*self._wanted, *read) if output.operator in ran))

    def _learn(self, name: str, owners: Hashes, made: Sequence[pa.Table]) -> None:
        """See whether the rows that an operator reads are all of the instances that made them."""
        if name in self._may_stay and len(made) > 1 and len(owners):
            makers = np.repeat(np.arange(len(made)), [table.num_rows for table in made])
            if (owners == makers).all():
                self._stay.add(name)
            else:
                self._may_stay.discard(name)


def _reads(steps: Sequence[Step]) -> dict[str, OutputOf | None]:
    return {step.spec.name: step.reads for step in steps}
