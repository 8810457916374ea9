"""Describe tables on the job's card, and give back what a card describes: keys, columns, how earlier files are read."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from ferryman._log.files.untrusted import check_schema, one_row, reading
from ferryman._model.card import TableCard
from ferryman._state.earlier_columns import Evolution
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import DELETED, HASH


def encode_schema(schema: pa.Schema) -> str:
    """Write an Arrow schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Read an Arrow schema written by `encode_schema`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def check_card(card: TableCard) -> None:
    """Refuse a table's card that nothing can be read by: its schemas, and what it says of columns."""
    with reading("a table's card"):
        for schema in (card.schema, *card.earlier):
            fields = decode_schema(schema)
            check_schema(fields)
            if any(name in fields.names for name in (HASH, DELETED)):
                raise ValueError(f"{HASH} and {DELETED} are columns of its own")
        names = decode_schema(card.schema).names
        if not card.key or names != [name for name, _ in (*card.key, *card.state)]:
            raise ValueError("its columns are not those of its schema")
        for schema in card.earlier:
            if len(decode_schema(schema)) < len(card.key):
                raise ValueError("an earlier schema has fewer columns than the key")
            schemas_of(replace(card, schema=schema))
        schemas_of(card)
        evolution_of(card)


def card_of(
    operator: str,
    key: KeySchema,
    state: pa.Schema,
    evolution: Evolution | None = None,
    settings: Mapping[str, str] | None = None,
) -> TableCard:
    """Describe a table."""
    names = [tuple((field.name, str(field.type)) for field in schema) for schema in (key.fields, state)]
    evolution = evolution or Evolution()
    aliases = {name: tuple(names) for name, names in evolution.aliases.items()}
    schema = encode_schema(pa.schema([*key.fields, *state]))
    return TableCard(
        operator=operator,
        key=names[0],
        state=names[1],
        schema=schema,
        entries=key.entries,
        defaults=_packed(evolution),
        aliases=aliases,
        nulls=key.nulls,
        settings=settings or {},
    )


def with_evolution(card: TableCard, evolution: Evolution) -> TableCard:
    """Give a table's card with another evolution."""
    aliases = {name: tuple(names) for name, names in evolution.aliases.items()}
    return replace(card, defaults=_packed(evolution), aliases=aliases)


def _packed(evolution: Evolution) -> str:
    if evolution.defaults is None:
        return ""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, evolution.defaults.schema) as writer:
        writer.write_table(evolution.defaults)
    return base64.b64encode(sink.getvalue()).decode()


def schemas_of(card: TableCard) -> tuple[KeySchema, pa.Schema]:
    """Give back the key and state schemas of a table's card."""
    fields = list(decode_schema(card.schema))
    return KeySchema(pa.schema(fields[: len(card.key)]), card.entries, card.nulls), pa.schema(fields[len(card.key) :])


def evolution_of(card: TableCard) -> Evolution:
    """Give back how files of earlier declarations of a table are read."""
    defaults = one_row(pa.py_buffer(base64.b64decode(card.defaults))) if card.defaults else None
    return Evolution(defaults, card.aliases)


def same_columns(card: TableCard, other: TableCard) -> bool:
    """Tell whether two cards describe the same columns; the bytes of a schema may differ between versions of Arrow."""
    return (card.key, card.state) == (other.key, other.state) and decode_schema(card.schema).equals(
        decode_schema(other.schema)
    )
