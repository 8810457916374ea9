"""Stores: the main copies of key groups on local disk, behind one contract with several backends.

`contract` says what a store does; each backend is a folder with the same file names. `home`, `locks`,
`record_keys` and `record_values` are what the backends share. Only this package and the log touch the disk.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ferryman._model.errors import UnknownOption
from ferryman._state import flat
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import DELETED, HASH, Found, Store, delta_schema, part_schema
from ferryman._state.words import fits_word

BACKENDS = ("columnar", "lmdb", "rocksdb")

__all__ = ["BACKENDS", "DELETED", "HASH", "Found", "Store", "choose", "delta_schema", "open", "part_schema"]


def choose(key: KeySchema, state: pa.Schema) -> str:
    """Name the backend for a table: columnar if it has one row per key and narrow columns, else lmdb."""
    narrow = not key.entries and all(fits_word(each) for each in flat.schema(state).types)
    return "columnar" if narrow else "lmdb"


def open(backend: str, directory: Path, key: KeySchema, state: pa.Schema, groups: int) -> Store:
    """Open the store of an operator, empty if the directory holds one of another schema or boot.

    Parameters
    ----------
    backend
        "columnar", "lmdb" or "rocksdb".
    directory
        The operator's own directory in the home; made if it is missing.
    key, state
        The columns of the key and of the state.
    groups
        The number of key groups of the job.
    """
    # Each backend brings its own libraries, and a worker needs one of them.
    if backend == "columnar":
        from ferryman._state.store.columnar.store import ColumnarStore

        return ColumnarStore(directory, key, state, groups)
    if backend == "lmdb":
        from ferryman._state.store.lmdb.store import LmdbStore

        return LmdbStore(directory, key, state, groups)
    if backend == "rocksdb":
        try:
            from ferryman._state.store.rocksdb.store import RocksdbStore
        except ModuleNotFoundError as error:
            if error.name != "rocksdict":
                raise
            raise UnknownOption(
                "The rocksdb backend needs the package rocksdict, which this Python does not have. Install it on every "
                'host that runs Python workers: pip install "ferryman[rocksdb]"'
            ) from error
        return RocksdbStore(directory, key, state, groups)
    raise UnknownOption(f"There is no store backend {backend!r}. Use 'columnar', 'lmdb' or 'rocksdb'.")
