"""Receivers: they take rows from a broker or from callers, and acknowledge what is durable in an ingest log.

`ingest` puts log and receiver together, `mqtt_receiver`, `http_receiver` and `socket_receiver` are the kinds there are.
Calls `_log.ingest`; knows nothing of Spark.
"""
