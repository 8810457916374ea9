"""Stores: the main copies of key groups on local disk, behind one contract with several backends.

`contract` says what a store does, `choice` which one a table is kept in. Each backend is a folder with the same file
names; `store_identity`, `locks`, `record_keys` and `record_values` are what they share. Only this package and the log
touch the disk.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from ferryman._model.errors import UnknownOption
from ferryman._state.keys import KeySchema
from ferryman._state.store.choice import GENERAL, choose
from ferryman._state.store.contract import DELETED, HASH, Found, Store, delta_schema, part_schema

# Every store there is, by name, and where it is: each brings its own libraries, and a worker needs one of them.
BACKENDS: Mapping[str, tuple[str, str]] = {
    "columnar": ("ferryman._state.store.columnar.store", "ColumnarStore"),
    "lmdb": ("ferryman._state.store.lmdb.store", "LmdbStore"),
    "rocksdb": ("ferryman._state.store.rocksdb.store", "RocksdbStore"),
}
__all__ = ["BACKENDS", "DELETED", "GENERAL", "HASH", "Found", "Store", "choose", "delta_schema", "open", "part_schema"]


def open(backend: str, directory: Path, key: KeySchema, state: pa.Schema, groups: int) -> Store:
    """Open the store of an operator, empty if the directory holds one of another schema or boot.

    Parameters
    ----------
    backend
        The name of one of `BACKENDS`.
    directory
        The operator's own directory in the home; made if it is missing.
    key, state
        The columns of the key and of the state.
    groups
        The number of key groups of the job.
    """
    if backend not in BACKENDS:
        raise UnknownOption(f"There is no store backend {backend!r}. Use {listed(BACKENDS)}.")
    module, name = BACKENDS[backend]
    try:
        store: Callable[[Path, KeySchema, pa.Schema, int], Store] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "rocksdict":
            raise
        raise UnknownOption(
            "The rocksdb backend needs the package rocksdict, which this Python does not have. Install it on every "
            'host that runs Python workers: pip install "ferryman[rocksdb]"'
        ) from error
    return store(directory, key, state, groups)


def listed(backends: Iterable[str]) -> str:
    """Name some stores in a sentence.

    >>> listed(BACKENDS)
    "'columnar', 'lmdb' or 'rocksdb'"
    """
    *others, final = map(repr, backends)
    return f"{', '.join(others)} or {final}"
