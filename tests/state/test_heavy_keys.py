"""Which keys have a considerable part of the rows, and how they are shown."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ferryman._state.heavy_keys import heavy
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.tables import PANE


def test_a_key_of_windows_is_shown_as_the_user_has_it() -> None:
    schema = KeySchema(
        pa.schema([(PANE, pa.timestamp("us")), ("shop", pa.string()), ("till", pa.int64())]), entries=True
    )
    columns = [pa.array([0, 60], pa.timestamp("us")), pa.array(["north", "north"]), pa.array([7, 7])]
    keys = Keys.of(schema, np.array([5, 5]), columns)
    found = heavy(keys, np.repeat([0, 1], 30))
    assert [(key.hash, key.key, key.rows) for key in found] == [(5, "north, 7", 30), (5, "north, 7", 30)]
