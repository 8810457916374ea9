"""What is aggregated before the shuffle: rows in chunks of always so many."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from ferryman._spark import combine

BERLIN = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin"))])


@pytest.mark.parametrize("size", [1, 7, 10, 23, 60])
def test_chunks_are_as_long_as_asked_and_in_utc_whatever_batches_come(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combine, "CHUNK_ROWS", 10)
    rows = pa.table([pa.array(range(53)), pa.array(range(53), BERLIN.field("at").type)], schema=BERLIN)

    chunks = list(combine._chunks(iter(rows.to_batches(size))))

    assert [chunk.num_rows for chunk in chunks] == [10, 10, 10, 10, 10, 3]
    assert {chunk.schema.field("at").type for chunk in chunks} == {pa.timestamp("us", "UTC")}
    whole = pa.concat_tables(chunks)
    assert whole.column("n").to_pylist() == list(range(53))
    assert whole.column("at")[5].as_py() == datetime(1970, 1, 1, microsecond=5, tzinfo=timezone.utc)
