"""Declare the state of a job's operators: write the card of a new checkpoint, or take on what a held one allows.

Whoever starts on a checkpoint comes through here, a job and the testing harness alike, so that both refuse the same.
Calls `Checkpoint` and `_log.files.card_evolution`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from ferryman._engine.operator_spec import OperatorSpec
from ferryman._log.files.card_evolution import evolved
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.card import JobCard, TableCard
from ferryman._model.errors import InvalidConfiguration, OperatorsChanged
from ferryman._model.json_values import MOST_LETTERS
from ferryman._operator.run.aggregate_runner import AggregateRunner


def declare(
    checkpoint: Checkpoint,
    specs: Sequence[OperatorSpec],
    *,
    job: str,
    groups: int,
    check: Callable[[JobCard], None] = lambda card: None,
    where: str | None = None,
) -> JobCard:
    """Give the card of a job as it is declared now; write it where the checkpoint is new.

    One that has changed is written with the first epoch: a start that fails before that leaves all as it was for the
    earlier declaration.

    Parameters
    ----------
    specs
        The operators of the job.
    job, groups
        The job's name and its key groups, where the checkpoint is new.
    check
        Refuses a start by the card that is held, or that would be written.
    where
        The checkpoint, for messages; if left out, its place.

    Raises
    ------
    OperatorsChanged
        If the checkpoint holds state of an operator that the job no longer has.
    StateSchemaChanged
        If something that is held would be lost, or not fit.
    """
    wanted = _tables(specs)
    while (card := checkpoint.card()) is None:
        first = JobCard(uuid.uuid4().hex, job, groups, wanted)
        check(first)
        if checkpoint.create_first(first):
            return first
        # Another start was faster: then this one is the second.
    check(card)
    where = where or checkpoint.directory.uri
    _refuse_gone(card, [spec.name for spec in specs], where)
    fixed = {spec.name for spec in specs if isinstance(spec.runner, AggregateRunner)}
    return replace(card, tables=evolved(card, wanted, {spec.name: spec.dropped for spec in specs}, where, fixed))


def _tables(specs: Sequence[OperatorSpec]) -> dict[str, TableCard]:
    """Describe the tables of some operators, by name."""
    names = Counter(table.name for spec in specs for table in spec.tables)
    if twice := [name for name, n in names.items() if n > 1]:
        raise InvalidConfiguration(
            f"two operators keep state called {twice[0]!r}. Give one of them another name (name=...)."
        )
    if long := [name for name in (*(spec.name for spec in specs), *names) if len(name) > MOST_LETTERS]:
        raise InvalidConfiguration(
            f"{long[0]!r} is too long for a name: those of operators, and of what they keep, stand in file names and "
            f"have at most {MOST_LETTERS} letters. Give the operator a shorter one (name=...)."
        )
    return {
        table.name: card_of(spec.name, table.key, table.state, table.evolution, table.settings)
        for spec in specs
        for table in spec.tables
    }


def _refuse_gone(card: JobCard, names: Sequence[str], where: str) -> None:
    """Refuse a job that lacks an operator which the checkpoint holds state of."""
    gone, new = sorted(set(card.operators) - set(names)), sorted(set(names) - set(card.operators))
    if gone:
        hint = f" If {gone[0]!r} is now called {new[0]!r}, pass name={gone[0]!r} to keep its state." if new else ""
        raise OperatorsChanged(
            f"{where} holds state of the operators {', '.join(map(repr, gone))}, which the job no longer has."
            f"{hint} To drop state, start on a new checkpoint."
        )
