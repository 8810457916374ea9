"""From the hash of a key to its key group: the one place that says how."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@overload
def group_of(hash: int, groups: int) -> int: ...
@overload
def group_of(hash: npt.NDArray[np.int64], groups: int) -> npt.NDArray[np.int64]: ...
def group_of(hash: int | npt.NDArray[np.int64], groups: int) -> int | npt.NDArray[np.int64]:
    """Give the key group of a key, or of each of many, as Spark's `pmod` does: never a negative one.

    Examples
    --------
    >>> group_of(7, 4), group_of(-7, 4)
    (3, 1)
    """
    return hash % groups
