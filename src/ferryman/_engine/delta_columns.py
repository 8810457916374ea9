"""Whether a Delta table takes an epoch's rows as they are: their columns, their nulls, and what else a table may ask.

Columns are JSON as Spark writes it, which is how Delta's own log has them. Calls nobody of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ferryman._model.errors import InvalidConfiguration, SchemaDrift

_PRIMITIVE = re.compile(
    r"byte|short|integer|long|float|double|boolean|string|binary|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)"
)
# What a table may ask of its writers that whoever only adds whole files does by itself.
_KEPT_BY_ADDING = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "deletionVectors", "timestampNtz",
    "v2Checkpoint", "vacuumProtocolCheck", "inCommitTimestamp", "domainMetadata",
}  # fmt: skip


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that is to be in the table.

    Attributes
    ----------
    path
        Below the table's directory.
    nulls
        How many nulls each column has.
    """

    path: str
    size: int
    rows: int
    nulls: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """What a table expects of rows.

    Attributes
    ----------
    where
        Its directory, as people may read it.
    columns, partitions, properties, features
        As its log has them; the features are those that writers must know.
    """

    where: str
    columns: Sequence[Mapping[str, Any]]
    partitions: Sequence[str]
    properties: Mapping[str, str]
    features: Sequence[str]


def check_types(columns: str) -> None:
    """Refuse columns of types that Delta does not have."""
    if unfit := sorted(_unfit(json.loads(columns))):
        raise InvalidConfiguration(f"sinks.delta: Delta has no type {unfit[0]!r}. Cast the column, or leave it out.")


def check_columns(table: TableShape, columns: str) -> None:
    """Refuse columns that the table does not have, or of another type."""
    have = {field["name"]: field for field in table.columns}
    for field in json.loads(columns)["fields"]:
        name, kind = field["name"], field["type"]
        if name not in have:
            raise SchemaDrift(
                f"the rows have a column {name!r}, and the Delta table {table.where} has not: it has "
                f"{', '.join(have)}. Nothing of the epoch is in the table. Add the column to it "
                "(DeltaTable(path).alter.add_columns), or leave it out of the rows; then start the job again."
            )
        if _bare(have[name]["type"]) != _bare(kind):
            raise SchemaDrift(
                f"the column {name!r} of the Delta table {table.where} has the type {_told(have[name]['type'])}, and "
                f"the rows have {_told(kind)}. Nothing of the epoch is in the table. Cast the column of the rows, or "
                "write to another table."
            )


def check_files(table: TableShape) -> None:
    """Refuse files that cannot be added to the table as they are."""
    if (asks := _asks(table)) is not None:
        raise InvalidConfiguration(
            f"the Delta table {table.where} {asks}, and sinks.delta adds files that Spark has written without regard "
            "to that. Write to a table without it; or give key=, and Delta itself merges the rows."
        )


def check_merged(table: TableShape) -> None:
    """Refuse a table in which no row can be replaced."""
    if table.properties.get("delta.appendOnly", "").lower() == "true":
        raise InvalidConfiguration(
            f"the Delta table {table.where} takes no other rows in the place of those that it has (delta.appendOnly), "
            "and sinks.delta(..., key=...) gives it such. Leave key= out, or write to another table."
        )


def check_nulls(table: TableShape, files: Sequence[DataFile], columns: str, *, merged: bool) -> None:
    """Refuse nulls where the table takes none. What merged rows lack, the rows that they change have."""
    here = {field["name"] for field in json.loads(columns)["fields"]}
    for field in table.columns:
        name = field["name"]
        # Of a nested column nobody has counted them: files are not added without that, and Delta looks when it merges.
        nulls = any(file.nulls.get(name, 0 if merged else 1) for file in files)
        if not field["nullable"] and (nulls or (name not in here and not merged)):
            raise SchemaDrift(
                f"the column {name!r} of the Delta table {table.where} takes no nulls, and the rows have some. Nothing "
                "of the epoch is in the table. Leave these rows out, or have the table take nulls "
                "(DeltaTable(path).alter.drop_column_not_null)."
            )


def _asks(table: TableShape) -> str | None:
    """Say what a table asks of those who add files, and whoever does not look cannot keep."""
    if table.partitions:
        return f"is partitioned by {', '.join(table.partitions)}"
    if rules := sorted(name for name in table.properties if name.startswith("delta.constraints.")):
        return f"has the constraint {rules[0].removeprefix('delta.constraints.')}"
    if table.properties.get("delta.columnMapping.mode", "none") != "none":
        return "maps its columns to other names"
    if ruled := [
        field["name"] for field in table.columns if any(key.startswith("delta.") for key in field["metadata"])
    ]:
        return f"has a rule for the column {ruled[0]}"
    if features := sorted(set(table.features) - _KEPT_BY_ADDING):
        return f"has the feature {features[0]}"
    inner = json.dumps([field["type"] for field in table.columns])
    if any(mark in inner for mark in ('"nullable": false', '"containsNull": false', '"valueContainsNull": false')):
        return "takes no nulls in a nested column"
    return None


def _unfit(kind: Any) -> Iterable[str]:
    """Find types that Delta does not have."""
    if isinstance(kind, str):
        return [] if _PRIMITIVE.fullmatch(kind) else [kind]
    inner = {
        "struct": lambda: [field["type"] for field in kind["fields"]],
        "array": lambda: [kind["elementType"]],
        "map": lambda: [kind["keyType"], kind["valueType"]],
    }.get(kind.get("type"))
    return [str(kind.get("type"))] if inner is None else [unfit for part in inner() for unfit in _unfit(part)]


def _bare(kind: Any) -> Any:
    """Give a type without remarks, as one that takes nulls everywhere."""
    if not isinstance(kind, dict):
        return kind
    flags = {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in kind}
    bare: dict[str, Any] = {"metadata": {}} if "metadata" in kind else {}
    return (
        {
            name: [_bare(part) for part in value] if isinstance(value, list) else _bare(value)
            for name, value in kind.items()
        }
        | flags
        | bare
    )


def _told(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def columns_for_delta(columns: str) -> str:
    """Give Spark's columns as a table has them that takes whatever may come: nulls everywhere, and no remarks."""
    return json.dumps(_bare(json.loads(columns)))
