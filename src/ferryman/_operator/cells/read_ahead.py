"""Read entries ahead: keys are worked on in order, so whoever reads one's entries will soon read the next one's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ferryman._state.tables import ALL_ROWS, Entries

_MOST_KEYS = 1024
_MOST_ROWS = 1 << 16


class ReadAhead:
    """Read the entries of keys in runs that grow while they are of use."""

    def __init__(self, entries: Entries, keys: int) -> None:
        self._entries = entries
        self._keys = keys
        self._run = 1
        self._begin = 0
        self._end = 0
        self._part: pa.Table | None = None
        self._bounds: list[int] = []

    def entries(self, position: int, limit: int = ALL_ROWS) -> pa.Table:
        """Give the entries of the key at a position, as a part; of each key at most `limit`."""
        if not self._begin <= position < self._end:
            # A reader that came on from the last run gets a longer one; one that jumps begins anew.
            self._run = min(self._run * 2, _MOST_KEYS) if position == self._end else 1
            self._read(position, limit)
        assert self._part is not None, "it was read"
        first, end = self._bounds[position - self._begin : position - self._begin + 2]
        return self._part.slice(first, end - first)

    def _read(self, position: int, limit: int) -> None:
        end = min(position + self._run, self._keys)
        found = self._entries.of(range(position, end), limit)
        self._part, self._begin, self._end = found.part, position, end
        self._bounds = np.searchsorted(found.index, np.arange(end - position + 1)).tolist()
        if found.part.num_rows > _MOST_ROWS:
            self._run = max(self._run // 4, 1)
