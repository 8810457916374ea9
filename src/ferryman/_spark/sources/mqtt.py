"""Messages of an MQTT broker as a stream, by an ingest log. Calls `ingest`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ferryman._log.ingest.ingest_log import MAX_BYTES
from ferryman._model.errors import InvalidConfiguration
from ferryman._serve.ingest.mqtt_options import MqttOptions, paho
from ferryman._spark.sources.ingest_source import DEFAULT_ROWS_PER_EPOCH, ingest


def mqtt(
    spark: SparkSession,
    server: str,
    *,
    topics: str | Sequence[str],
    log: str | Path,
    username: str = "",
    password: str = "",
    tls: str = "",
    protocol: str = "5",
    client_id: str = "",
    in_flight: int = 5000,
    connect_within_s: float = 30.0,
    max_bytes: int = MAX_BYTES,
    keep_bytes: int | None = None,
    rows_per_epoch: int = DEFAULT_ROWS_PER_EPOCH,
) -> DataFrame:
    """Stream the messages of an MQTT broker, each of which is on disk before it is acknowledged.

    Columns are `offset long`, `topic string`, `payload binary`, `qos int`, `retained boolean`, `received timestamp` and
    `repeats long`: the offset of the message that this one repeats, where the broker sent it again because it had no
    acknowledgement. `where("repeats IS NULL")` leaves these out.

    Parameters
    ----------
    spark
        The session to read with.
    server
        `host:port` of the broker.
    topics
        A topic filter, or several.
    log
        The directory of the ingest log: on a disk of the driver's that stays, and that executors can read. One log
        belongs to one stream of one job.
    username, password
        Who asks.
    tls
        `system` to trust the authorities that this system knows, or a file of certificates.
    protocol
        `5`, or `3.1.1`.
    client_id
        By what the broker knows the session; by default after the log.
    in_flight
        How many messages the broker may send before one of them is acknowledged.
    connect_within_s
        How long the first connection may take before the job fails. Later ones are tried until they succeed.
    max_bytes
        How large the log may be; when it is full, nothing is acknowledged.
    keep_bytes
        How much of what is committed is kept; by default a sixteenth of `max_bytes`.
    rows_per_epoch
        The most rows of one epoch.

    Returns
    -------
    DataFrame
        A streaming DataFrame.

    Raises
    ------
    InvalidConfiguration
        With every option that is wrong.

    Examples
    --------
    >>> from ferryman.sources import mqtt
    >>> readings = mqtt(spark, "localhost:1883", topics="fleet/#", log="/tmp/ferryman-doc/readings")
    >>> readings.columns
    ['offset', 'topic', 'payload', 'qos', 'retained', 'received', 'repeats']
    """
    paho()
    options = MqttOptions(
        server=server,
        topics=[topics] if isinstance(topics, str) else list(topics),
        username=username,
        client_id=client_id,
        protocol=protocol,
        tls=tls,
        in_flight=in_flight,
        connect_within_s=connect_within_s,
    )
    if not options.topics:
        raise InvalidConfiguration.of(["topics: none are given; '#' is all of them"])
    settings = {name: value for name, value in asdict(options).items() if name != "password"}
    return ingest(
        spark,
        "mqtt",
        log,
        settings,
        max_bytes=max_bytes,
        keep_bytes=keep_bytes,
        rows_per_epoch=rows_per_epoch,
        secrets={"password": password},
    )
