"""The ledger of an lmdb store: the epoch of each group's main, in the same transactions as the rows.

So a main is never torn: a kill leaves the old rows with the old epoch. Calls lmdb.
"""

from __future__ import annotations

import lmdb
import numpy as np

from ferryman._state.compiled import Ints

_KEY = b"epochs"


def read(transaction: lmdb.Transaction, ledger: lmdb._Database, groups: int) -> Ints:
    """Give the epoch of each main as a transaction sees it; -1 for none."""
    found = transaction.get(_KEY, db=ledger)
    if found is None:
        return np.full(groups, -1, np.int64)
    epochs: Ints = np.frombuffer(found, np.int64).copy()
    return epochs


def write(transaction: lmdb.Transaction, ledger: lmdb._Database, epochs: Ints) -> None:
    """Record the epoch of each main."""
    transaction.put(_KEY, epochs.tobytes(), db=ledger)
