"""From keys as people name them to Spark's hashes of them, by which they are routed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.fold import rebuild
from ferryman._model.errors import InvalidPlan
from ferryman._model.key_groups import group_of
from ferryman._spark.plan.planner import Node, hash_of
from ferryman._state.heavy_keys import shown_keys
from ferryman._state.store.contract import HASH

Key = Any


@dataclass(frozen=True)
class NamedKey:
    """A key of some operators.

    Attributes
    ----------
    hash
        Spark's hash of it, by which it is routed.
    shown
        The key as people read it.
    operators
        Those whose keys it can be one of.
    asked
        Its place among the keys that were asked for.
    """

    hash: int
    shown: str
    operators: tuple[str, ...]
    asked: int


def listed(keys: Key | Iterable[Key]) -> list[Key]:
    """Take one key or several; a tuple is one key of several columns."""
    return list(keys) if isinstance(keys, (list, set, frozenset)) else [keys]


def find(
    spark: SparkSession,
    nodes: Mapping[str, Node],
    keys: Iterable[Key],
    operator: str | None = None,
    *,
    as_text: bool = False,
) -> list[NamedKey]:
    """Find the hashes of keys.

    Parameters
    ----------
    spark
        Computes them.
    nodes
        The operators of the job.
    keys
        The keys: a value, or a tuple with one for each column.
    operator
        Whose keys they are; if left out, every operator's that has keys of such a type.
    as_text
        Whether they came from a shell: values as text, several columns as a list in JSON.
    """
    if operator is not None and operator not in nodes:
        raise InvalidPlan(f"operator {operator!r} does not exist: the job has {', '.join(map(repr, nodes))}.")
    some = {name: node for name, node in nodes.items() if operator in (None, name)}
    columns: list[Column] = []
    fits: list[tuple[str, str, int]] = []
    for asked, key in enumerate(keys):
        before = len(fits)
        for name, node in some.items():
            values = _values(key, node.stream.spec.routed, as_text)
            if values is None:
                continue
            fields = [node.stream.parent.schema[column] for column in node.stream.spec.routed.names]
            typed = [F.lit(_plain(value)).cast(field.dataType) for value, field in zip(values, fields, strict=True)]
            columns.append(hash_of(fields, typed))
            fits.append((name, shown_keys(values)[0], asked))
        if len(fits) == before:
            known = "; ".join(
                f"{name!r} by {', '.join(f'{field.name} {field.type}' for field in node.stream.spec.routed)}"
                for name, node in some.items()
            )
            raise InvalidPlan(f"key {key!r} fits no operator. Keyed are {known}. Several columns make a tuple.")
    if not fits:
        raise InvalidPlan("no keys were given, so nothing moves. Give one at the least.")
    # Of a relation with one row Spark computes this without running a job.
    hashes = spark.sql("SELECT 1").select(*(column.alias(str(n)) for n, column in enumerate(columns))).collect()[0]
    found: dict[int, NamedKey] = {}
    for hash, (name, shown, asked) in zip(hashes, fits, strict=True):
        others = found[hash].operators if hash in found else ()
        found[hash] = NamedKey(hash, shown, (*others, name), asked)
    return list(found.values())


def with_state(
    keys: Sequence[NamedKey], known: Set[int], nodes: Mapping[str, Node], log: Checkpoint, epoch: int
) -> list[NamedKey]:
    """Keep the keys that operators have state of, or that are known; refuse one that nobody has: it is mistyped."""
    found = []
    for key in keys:
        tables = [table.name for name in key.operators for table in nodes[name].stream.spec.kept if not table.per_group]
        if key.hash in known or any(_present(log, table, epoch, key.hash) for table in tables):
            found.append(key)
    for key in keys:
        # A number may be a key of several types, and of one of them only there is state.
        if key.asked not in {other.asked for other in found}:
            raise InvalidPlan(
                f"key {key.shown!r} does not exist: {', '.join(map(repr, key.operators))} has no state of it as of "
                f"epoch {epoch}. Check how it is written; a key can be moved when its first row has been processed."
            )
    return found


def _present(log: Checkpoint, table: str, epoch: int, hash: int) -> bool:
    card = log.job_card()
    if not epoch or table not in card.tables:
        return False
    rows = rebuild(log, table, epoch, np.array([group_of(hash, card.groups)]))
    return bool(pc.any(pc.equal(rows.column(HASH), pa.scalar(hash, pa.int64()))).as_py())


def _values(key: Key, fields: pa.Schema, as_text: bool) -> list[pa.Array] | None:
    """Give the columns of a key in the types of an operator's; None where it does not fit."""
    try:
        if as_text:
            values = (key,) if len(fields) == 1 else tuple(map(str, json.loads(key)))
            found = [pa.array([value]).cast(field.type) for value, field in zip(values, fields, strict=True)]
        else:
            values = key if isinstance(key, tuple) else (key,)
            found = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
            if any(array[0].as_py() != value for array, value in zip(found, values, strict=True)):
                return None
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return found if all(array.null_count == 0 for array in found) else None


def _plain(value: pa.Array) -> Any:
    plain = value[0].as_py()
    return bytearray(plain) if isinstance(plain, bytes) else plain
