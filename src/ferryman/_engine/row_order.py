"""Put the rows of a task into the source's order, whatever order a shuffle brought them in.

What comes from one task before the shuffle is in order already, so there are few runs of rows, each in order, and it
is enough to order the runs: no row is looked at twice, and none is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._state.compiled import Ints

# More runs than this are not worth a slice each.
_MOST_RUNS = 1000


def ordered(
    rows: pa.Table, sequence: Ints, file: Ints | None = None, files: Sequence[int] = ()
) -> tuple[pa.Table, Ints]:
    """Give rows and their sequence numbers in order: by the age of their file, if they have one, then by sequence.

    Parameters
    ----------
    rows, sequence
        The rows, and the number of each in the order in which Spark read them.
    file
        What file each is of, by the hash of its name; None where that says nothing.
    files
        All files, oldest first. A row of a file that is not among them comes first.

    Examples
    --------
    >>> rows = pa.table({"a": [3, 4, 1, 2]})
    >>> ordered(rows, np.array([7, 8, 0, 1]))[0]["a"].to_pylist()
    [1, 2, 3, 4]
    >>> ordered(rows, np.array([7, 8, 0, 1]), np.array([50, 60, 60, 60]), [60, 50])[0]["a"].to_pylist()
    [1, 2, 4, 3]
    """
    breaks = sequence[1:] < sequence[:-1]
    if file is not None:
        breaks |= file[1:] != file[:-1]
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    if len(starts) == 1:
        return rows, sequence
    ends = np.append(starts[1:], len(sequence))
    # In the order of runs, each is to end before the next one of its age begins.
    age = np.zeros(len(starts), np.int64) if file is None else _ages(files, file[starts])
    turn = np.lexsort((sequence[starts], age))
    apart = sequence[starts[turn][1:]] - sequence[ends[turn][:-1] - 1]
    follows = (age[turn][1:] > age[turn][:-1]) | (apart > 0) | ((apart == 0) & (turn[1:] > turn[:-1]))
    if len(starts) <= _MOST_RUNS and follows.all():
        pieces = [(int(starts[run]), int(ends[run])) for run in turn]
        moved = pa.concat_tables([rows.slice(start, end - start) for start, end in pieces])
        return moved, np.concatenate([sequence[start:end] for start, end in pieces])
    order = np.lexsort((sequence, np.repeat(age, ends - starts)))
    return rows.take(pa.array(order)), sequence[order]


def _ages(files: Sequence[int], wanted: Ints) -> npt.NDArray[np.int64]:
    known = np.array(files, np.int64)
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    return np.where(known[order[place]] == wanted, order[place], -1)
