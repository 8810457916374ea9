"""Sinks: where a job writes the rows of its epochs.

>>> from ferryman import sinks
>>> sinks.memory().rows()
[]
"""

from ferryman._spark.sinks.database import database
from ferryman._spark.sinks.delta import delta
from ferryman._spark.sinks.kafka import kafka
from ferryman._spark.sinks.mqtt import mqtt
from ferryman._spark.sinks.sinks import Sink, SinkStart, console, foreach, memory, none, parquet, read_parquet

__all__ = [
    "Sink",
    "SinkStart",
    "console",
    "database",
    "delta",
    "foreach",
    "kafka",
    "memory",
    "mqtt",
    "none",
    "parquet",
    "read_parquet",
]
