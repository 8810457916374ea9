"""Sources of rows: whatever Spark reads is one; these are the ones Ferryman adds.

`generator` streams seeded rows that can be read again at any time; `generated` reads the same rows as
a batch, which is what an independent check of a stream's results needs. `mqtt`, `http` and
`socket` stream what cannot be read again, by an ingest log.
"""

from ferryman._spark.sources.generator import generated, generator
from ferryman._spark.sources.http_and_socket import http, socket
from ferryman._spark.sources.mqtt import mqtt

__all__ = ["generated", "generator", "http", "mqtt", "socket"]
