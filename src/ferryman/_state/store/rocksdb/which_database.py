"""How many databases a store has at the most, and in which of them a group is put: where it stays, the ledger says."""

from __future__ import annotations

import numpy as np

from ferryman._state.compiled import Ints

# More would only cost files and memory; groups that come one by one share.
_MOST_DATABASES = 32


def place(database: Ints, groups: Ints) -> Ints:
    """Choose databases for groups that come together: one, so that who takes them takes no other.

    Parameters
    ----------
    database
        The database of every group of the job, -1 for none.
    groups
        The groups that come.

    Returns
    -------
    array
        The database of each of `groups`; those that have one keep it.

    Examples
    --------
    >>> place(np.array([0, 0, -1, -1, -1]), np.array([2, 3]))
    array([1, 1])
    >>> place(np.array([0, 0, 1, 1, -1]), np.array([1, 4]))
    array([0, 0])
    """
    mine = np.array(database)[groups]
    some = mine if (mine >= 0).any() else np.array(database)
    sizes = np.bincount(some[some >= 0])
    if some is mine:
        number = int(sizes.argmax())
    else:
        number = len(sizes) if len(sizes) < _MOST_DATABASES else int(sizes.argmin())
    return np.where(mine < 0, number, mine)
