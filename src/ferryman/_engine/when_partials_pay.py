"""When partials pay: whose rows are aggregated before the shuffle, and where. Pure; `_spark.plan.partials` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ferryman._model.manifest import OperatorRecord

# Partials pay when the epoch before had this many rows, and this many rows to a key, or one key this part of them all.
_WORTH_ROWS = 20_000
_WORTH_RATIO = 3
_WORTH_PART = 0.2
# Of so many keys Spark's own code makes partials without running out of memory. If it did, it would add up floating
# numbers in another order, and that might differ when an epoch is redone.
_MOST_KEYS_IN_SPARK = 1_000_000


@dataclass(frozen=True)
class Partials:
    """That partials of an operator's rows are made: whether Spark may make them, and of about how many keys."""

    in_spark: bool
    keys: int


def worth_combining(newest: Mapping[str, OperatorRecord], *, held: bool) -> dict[str, Partials]:
    """Choose the operators for which partials pay, if they can have any.

    Only the committed epoch before decides, so that an epoch redone after a crash is redone the same way.

    Parameters
    ----------
    newest
        What each operator did in that epoch.
    held
        Whether rows wait, or are to: they are held as they came, and are processed as such.

    Examples
    --------
    >>> many = OperatorRecord(rows=30_000, keys=10_000, output=0)
    >>> spread = OperatorRecord(rows=30_000, keys=10_001, output=0)
    >>> skewed = OperatorRecord(rows=30_000, keys=10_001, output=0, heaviest=6_000)
    >>> list(worth_combining({"many": many, "spread": spread, "skewed": skewed}, held=False))
    ['many', 'skewed']
    >>> worth_combining({"many": many}, held=True)
    {}
    """
    if held:
        return {}
    return {
        name: Partials(record.keys <= _MOST_KEYS_IN_SPARK, record.keys)
        for name, record in newest.items()
        if record.rows >= _WORTH_ROWS
        and (record.rows >= _WORTH_RATIO * record.keys or record.heaviest >= _WORTH_PART * record.rows)
    }
