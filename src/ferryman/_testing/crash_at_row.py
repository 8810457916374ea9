"""A crash that a test asks for at a row: the operator gets the rows before it, and dies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import SEQUENCE
from ferryman._operator.run.runner import Given, Made, Runner


class Crash(Exception):
    """The crash that `Harness.epoch` was asked for."""


def dying_at(spec: OperatorSpec, rows: pa.Table, row: int) -> tuple[OperatorSpec, pa.Table]:
    """Give an operator that dies when it has run, and those of the rows that come before the one it dies at."""
    return replace(spec, runner=_Dies(spec.runner)), rows.filter(pc.less(rows.column(SEQUENCE), row))


@dataclass(frozen=True)
class _Dies:
    """Run an operator on the rows before the one it dies at, and die: nothing is written."""

    runner: Runner

    def run(self, given: Given) -> Made:
        self.runner.run(given)
        raise Crash(f"a task of epoch {given.epoch} died in the middle of its rows")
