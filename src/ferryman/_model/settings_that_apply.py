"""Which of the advised settings apply to a session: by its master, filesystem, Python and state store. Pure."""

from __future__ import annotations

import os

from ferryman._model.advised_settings import Setting


def applies(setting: Setting, *, master: str, filesystem: str, same_python: bool, store: str) -> bool:
    """Tell whether a setting is for a session.

    Parameters
    ----------
    setting
        The setting.
    master
        The session's master.
    filesystem
        Its default filesystem, as a URI.
    same_python
        Whether its Python workers surely run in an environment that has Ferryman.
    store
        The class of Spark's own state store, for queries beside Ferryman.
    """
    if setting.where == "local disk, no RocksDB" and "RocksDB" in store:
        # Spark's RocksDB store casts the local filesystem to the one with checksums, and fails on any other.
        return False
    if setting.where.startswith("local disk"):
        # Spark's own file manager is the right one for HDFS and object stores.
        return filesystem.startswith("file:") and is_local(master)
    if setting.where == "same python":
        # Where there is no fork, Spark does not use a daemon.
        return same_python and is_local(master) and hasattr(os, "fork")
    return True


def is_local(master: str) -> bool:
    """Tell whether a master keeps everything on this machine: `local[n]` or `local-cluster[...]`."""
    return master.startswith("local")
