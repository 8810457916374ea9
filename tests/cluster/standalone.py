"""The cluster the tests run on."""

from __future__ import annotations

from ferryman._spark.session.local_cluster import Cluster, Worker, addresses, available, standalone

__all__ = ["HOSTS", "Cluster", "Worker", "available", "standalone"]

HOSTS = addresses(2)
