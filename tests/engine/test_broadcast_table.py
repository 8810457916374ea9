"""The driver's broadcast state says of which epoch it is: a snapshot may be made of it, beside the epoch under way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from written_log import KEY, STATE, local_log

from ferryman._engine.broadcast import Broadcast, BroadcastTable
from ferryman._state.tables import TableSpec


def test_the_newest_committed_version_is_given_with_its_epoch(tmp_path: Path) -> None:
    log = local_log(tmp_path, operators=("Rules",))
    spec = TableSpec(name="Rules", operator="Rules", key=KEY, state=STATE, backend="", broadcast=True)
    declared = Broadcast(None, ("sensor",), None)
    table = BroadcastTable(log.checkpoint, log.checkpoint.job_card(), spec, declared, 0)

    def update(number: int) -> None:
        rows = pa.table({"sensor": ["a"], "n": [number], "note": ["x"]}, schema=pa.schema([*KEY.fields, *STATE]))
        table.update(rows, number, log.routing, 0)

    def newest() -> tuple[list[int], int]:
        rows, epoch = table.newest
        return rows.column("n").to_pylist(), epoch

    assert newest() == ([], 0)
    update(1)
    assert newest() == ([], 0), "it is not committed"
    table.committed(1)
    assert newest() == ([1], 1)
    update(2)
    table.committed(2)
    assert newest() == ([2], 2)
