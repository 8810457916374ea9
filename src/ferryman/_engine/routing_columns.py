"""The columns that travel with a row from the source to its task, and how wide rows are."""

from __future__ import annotations

import pyarrow as pa

from ferryman._state.store.contract import HASH

TOKEN = "_token"
SEQUENCE = "_seq"
ROUTING_COLUMNS = (HASH, SEQUENCE, TOKEN)
# The hash of the name of the file that a row is from, where a micro-batch has several.
FILE = "_ferryman_file"
# The partition of the micro-batch that a row is in: the last column of what the source gives.
PART = "_ferryman_part"


def width(rows: pa.Table) -> int:
    """Give how many bytes a row of these has in the mean."""
    return int(-(-rows.nbytes // rows.num_rows)) if rows.num_rows else 0
