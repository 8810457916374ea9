"""What callers send by HTTP or over a socket as a stream, by an ingest log. Calls `ingest`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ferryman._log.ingest.ingest_log import MAX_BYTES
from ferryman._serve.ingest.http_receiver import HttpOptions
from ferryman._serve.ingest.receiver_address import split
from ferryman._spark.sources.ingest_source import DEFAULT_ROWS_PER_EPOCH, ingest


def http(
    spark: SparkSession,
    address: str,
    *,
    log: str | Path,
    token: str = "",
    max_body_bytes: int = 1 << 20,
    max_bytes: int = MAX_BYTES,
    keep_bytes: int | None = None,
    rows_per_epoch: int = DEFAULT_ROWS_PER_EPOCH,
) -> DataFrame:
    """Stream the bodies of POST requests, each of which is on disk before it is answered with 200.

    Columns are `offset long`, `path string`, `body binary`, `content_type string`, `request_id string` (the header
    `Idempotency-Key`) and `received timestamp`. Any other answer than 200 means: send it again.

    Parameters
    ----------
    spark
        The session to read with.
    address
        `host:port` to listen on, on the driver's machine.
    log
        The directory of the ingest log: on a disk of the driver's that stays, and that executors can read. One log
        belongs to one stream of one job.
    token
        What callers must send as `Authorization: Bearer`; needed where others than this machine can reach the address.
    max_body_bytes
        The largest body.
    max_bytes, keep_bytes, rows_per_epoch
        As for `mqtt`.

    Returns
    -------
    DataFrame
        A streaming DataFrame.

    Examples
    --------
    >>> from ferryman.sources import http
    >>> http(spark, "127.0.0.1:8080", log="/tmp/ferryman-doc/posted").columns
    ['offset', 'path', 'body', 'content_type', 'request_id', 'received']
    """
    split(address)
    HttpOptions(address=address, token=token, max_body_bytes=max_body_bytes)
    return ingest(
        spark,
        "http",
        log,
        {"address": address, "max_body_bytes": max_body_bytes},
        max_bytes=max_bytes,
        keep_bytes=keep_bytes,
        rows_per_epoch=rows_per_epoch,
        secrets={"token": token},
    )


def socket(
    spark: SparkSession,
    address: str,
    *,
    log: str | Path,
    max_line_bytes: int = 1 << 20,
    max_bytes: int = MAX_BYTES,
    keep_bytes: int | None = None,
    rows_per_epoch: int = DEFAULT_ROWS_PER_EPOCH,
) -> DataFrame:
    """Stream the lines that callers send over TCP.

    Columns are `offset long`, `value string`, `sender string` and `received timestamp`. There is no acknowledgement: a
    line that was sent and is not in the log when the driver is killed is lost, and nobody is told.

    Parameters
    ----------
    spark
        The session to read with.
    address
        `host:port` to listen on, on the driver's machine. Whoever can reach it may send.
    log
        As for `http`.
    max_line_bytes
        The longest line; a longer one ends its connection.
    max_bytes, keep_bytes, rows_per_epoch
        As for `mqtt`.

    Returns
    -------
    DataFrame
        A streaming DataFrame.

    Examples
    --------
    >>> from ferryman.sources import socket
    >>> socket(spark, "127.0.0.1:9999", log="/tmp/ferryman-doc/lines").columns
    ['offset', 'value', 'sender', 'received']
    """
    split(address)
    return ingest(
        spark,
        "socket",
        log,
        {"address": address, "max_line_bytes": max_line_bytes},
        max_bytes=max_bytes,
        keep_bytes=keep_bytes,
        rows_per_epoch=rows_per_epoch,
        secrets={},
    )
