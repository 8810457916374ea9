"""A history of deltas that every process can compute for itself, and a writer that applies it.

Run as a script, it opens a store and advances groups epoch by epoch, saying so before each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from ferryman._model.errors import StaleTask
from ferryman._state import store
from ferryman._state.keys import Keys, KeySchema

GROUPS = 8
KEYS = 20_000
STATE = pa.schema([("n", pa.int64()), ("x", pa.float64())])
IDS = np.arange(KEYS)
HASHES = (IDS.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
KINDS = {
    "word": KeySchema(pa.schema([("k", pa.int64())])),
    "string": KeySchema(pa.schema([("k", pa.string())])),
    "composite": KeySchema(pa.schema([("k", pa.string()), ("j", pa.int32())])),
}


def key_columns(kind: str, ids: np.ndarray) -> list[pa.Array]:
    words = pa.array(ids, pa.int64())
    text = pa.array([f"key-{each}" + "y" * (each % 9) for each in ids.tolist()], pa.string())
    return {"word": [words], "string": [text], "composite": [text, words.cast(pa.int32())]}[kind]


def keys_of(kind: str, ids: np.ndarray = IDS) -> Keys:
    return Keys.of(KINDS[kind], HASHES[ids], key_columns(kind, ids))


def open_store(backend: str, directory: Path, kind: str) -> store.Store:
    return store.open(backend, directory, KINDS[kind], STATE, GROUPS)


def touched(epoch: int) -> np.ndarray:
    return IDS[(IDS * 7 + epoch) % 3 == 0]


def deleted(ids: np.ndarray, epoch: int) -> np.ndarray:
    return (ids + epoch) % 5 == 0


def values_at(epoch: int) -> np.ndarray:
    """Give the value of every key after an epoch; -1 for a key that is not there."""
    values = np.full(KEYS, -1, np.int64)
    for each in range(1, epoch + 1):
        ids = touched(each)
        values[ids] = np.where(deleted(ids, each), -1, each * 1000 + ids)
    return values


def delta_of(kind: str, epoch: int) -> pa.Table:
    ids = touched(epoch)
    gone = deleted(ids, epoch)
    n = pa.array(epoch * 1000 + ids, mask=gone)
    columns = [pa.array(HASHES[ids]), pa.array(gone), *key_columns(kind, ids), n, n.cast(pa.float64())]
    return pa.Table.from_arrays(columns, schema=store.delta_schema(KINDS[kind], STATE))


def part_at(kind: str, epoch: int) -> pa.Table:
    values = values_at(epoch)
    ids = IDS[values >= 0]
    n = pa.array(values[ids])
    columns = [pa.array(HASHES[ids]), *key_columns(kind, ids), n, n.cast(pa.float64())]
    return pa.Table.from_arrays(columns, schema=store.part_schema(KINDS[kind], STATE))


def values_found(opened: store.Store, kind: str) -> np.ndarray:
    found = opened.lookup(keys_of(kind))
    n = found.state.column("n").combine_chunks()
    assert (found.present == n.is_valid().to_numpy(zero_copy_only=False)).all()
    return n.fill_null(-1).to_numpy()


def main(backend: str, directory: str, kind: str, groups: str, first: str, last: str) -> None:
    opened = open_store(backend, Path(directory), kind)
    mine = np.array([int(each) for each in groups.split(",")])
    deltas = {epoch: delta_of(kind, epoch) for epoch in range(int(first), int(last) + 1)}
    for epoch, delta in deltas.items():
        print(epoch, flush=True)
        try:
            opened.apply(delta, mine, epoch)
        except StaleTask:
            print("stale", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
