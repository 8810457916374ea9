"""A stream of an ingest log receives nothing before it is known to be the log that the stream has read."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._serve.ingest.socket_receiver import SCHEMA
from ferryman._spark.sources.ingest_source import IngestFailed, IngestOptions, IngestStreamReader, OffsetRange


@pytest.fixture
def log_of_ten(tmp_path: Path) -> str:
    log = IngestLog(tmp_path, SCHEMA)
    log.append(pa.record_batch([["x"] * 10, ["me"] * 10, [None] * 10], schema=SCHEMA))
    log.close()
    return log.id


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("known", "offset"), [(True, 12), (False, 5)])
def test_a_log_that_is_not_the_one_that_was_read_receives_nothing(
    tmp_path: Path, log_of_ten: str, known: bool, offset: int, ends: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"address": f"127.0.0.1:{port}", "max_line_bytes": 100}
    settings = {"path": str(tmp_path), "max_bytes": "1048576", "keep_bytes": "0", "rows_per_epoch": "100"}
    reader = IngestStreamReader(IngestOptions.of({"kind": "socket", "settings": json.dumps(options), **settings}))
    if ends:
        reader.prepareForTriggerAvailableNow()
    log = log_of_ten if known else "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    with pytest.raises(IngestFailed, match="SourceRowsGone"):
        reader.latestOffset({"log": log, "offset": offset})
    # Whoever sends now would have rows in a log that nobody reads to there.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    IngestLog(tmp_path, SCHEMA).close()


def test_a_stream_that_ends_takes_what_is_durable_when_it_begins(tmp_path: Path, log_of_ten: str) -> None:
    settings = {"path": str(tmp_path), "max_bytes": "1048576", "keep_bytes": "0", "rows_per_epoch": "100"}
    options = {"address": "127.0.0.1:0", "max_line_bytes": 100}
    reader = IngestStreamReader(IngestOptions.of({"kind": "socket", "settings": json.dumps(options), **settings}))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"log": log_of_ten, "offset": 4}) == {"log": log_of_ten, "offset": 10}
    assert reader._ingest is not None
    reader._ingest.log.append(pa.record_batch([["y"], ["me"], [None]], schema=SCHEMA))
    assert reader.latestOffset({"log": log_of_ten, "offset": 10}) == {"log": log_of_ten, "offset": 10}
    reader.stop()


def test_tasks_read_without_what_the_receiver_was_told(tmp_path: Path, log_of_ten: str) -> None:
    settings = {"path": str(tmp_path), "max_bytes": "1048576", "keep_bytes": "0", "rows_per_epoch": "100"}
    options = {"kind": "socket", "settings": json.dumps({"address": "127.0.0.1:0"}), "token": "hidden-well", **settings}
    reader = IngestStreamReader(IngestOptions.of(options))
    sent = cloudpickle.dumps(reader)
    assert b"hidden-well" not in sent
    (batch,) = cloudpickle.loads(sent).read(OffsetRange(2, 5, log_of_ten))
    assert batch.column("offset").to_pylist() == [2, 3, 4]
