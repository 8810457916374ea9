"""Call a user's operator, key by key: the rows it is given, and what is said when it fails or does what it must not."""

from __future__ import annotations

import contextlib
import gc
from collections import namedtuple
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._model.errors import FerrymanError, OperatorFailed, StateMisused
from ferryman._operator.declare.two_inputs import TwoInputs
from ferryman._operator.run.python_columns import to_list
from ferryman._operator.run.runner import Given
from ferryman._state.aggregates.kernels import frozen, group


@contextlib.contextmanager
def user_calls(given: Given, subject: Callable[[], str]) -> Iterator[None]:
    """Call user code, and say what it was at when it raised: `subject` gives "for key ... ", or nothing."""
    # Millions of short-lived tuples would wake the cycle collector again and again for nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    except FerrymanError:
        raise
    except Exception as error:
        raise OperatorFailed(
            f"operator {given.operator!r} raised {type(error).__name__}: {error} {subject()}in epoch {given.epoch}. "
            "The epoch was not committed and no state changed. Fix the operator and start the job again: it redoes the "
            "epoch from the same input."
        ) from error
    finally:
        if collecting:
            gc.enable()


def rows_by_key(given: Given, names: tuple[str, ...] | TwoInputs) -> tuple[Iterator[Any], list[int]]:
    """Give the rows as named tuples, key by key, and how many each key has."""
    order, starts = group(frozen(np.empty(0, np.bool_)), frozen(given.index), len(given.present))
    if isinstance(names, TwoInputs):
        return names.rows(given.rows.take(pa.array(order))), np.diff(starts).tolist()
    row = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    rows = given.rows.select(list(names)).take(pa.array(order))
    # tuple.__new__ fills a named tuple without a Python call for every row.
    make = partial(tuple.__new__, row)
    return map(make, zip(*(to_list(column) for column in rows.columns), strict=True)), np.diff(starts).tolist()


def refuse_undeclared(given: Given, names: set[str]) -> None:
    """Refuse attributes that `process` has set and nobody declared: they would go from key to key, and be lost."""
    mine = sorted(name for name in names if not name.startswith("_"))
    if mine:
        raise StateMisused(
            f"operator {given.operator!r}, epoch {given.epoch}: `process` sets self.{mine[0]}, which is not declared. "
            f"The next key would see it, and after the epoch it is lost. Declare it ({mine[0]} = Value(...)), use a "
            "local variable, or set it in __init__ if it is the same for all keys. The epoch was not committed."
        )
