"""Compare what a job declares with what its checkpoint holds, and take on what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ferryman._log.files.cards import evolution_of, same_columns, schemas_of, with_evolution
from ferryman._model.card import JobCard, TableCard
from ferryman._model.errors import StateSchemaChanged
from ferryman._state.earlier_columns import ANY, fields_of, forgotten, names_of, unfit
from ferryman._state.tables import DUE_TIME

# An operator that cannot be called any more gives its calls up.
_TIMERS = "_timers"


def evolved(
    card: JobCard,
    wanted: Mapping[str, TableCard],
    dropped: Mapping[str, Sequence[str]],
    where: str,
    fixed: Collection[str] = (),
) -> dict[str, TableCard]:
    """Give the tables of a checkpoint after its job has declared them anew.

    Parameters
    ----------
    card
        What the checkpoint holds.
    wanted
        What the job declares.
    dropped
        The states that each operator gives up by name.
    where
        The checkpoint, for messages.
    fixed
        The operators whose state cannot be declared otherwise.

    Raises
    ------
    StateSchemaChanged
        If something that is held would be lost, or not fit.
    """
    tables = {}
    for name, old in card.tables.items():
        mine, gone = wanted.get(name), dropped.get(old.operator, ())
        if mine is not None:
            tables[name] = _taken_on(name, old, mine, gone, where, fixed=old.operator in fixed)
        elif name == f"{old.operator}.{DUE_TIME}":
            # The list of what is due goes and comes with what needs it.
            tables[name] = old
        elif name.removeprefix(f"{old.operator}.") in gone or old.dropped:
            tables[name] = replace(old, dropped=True)
        else:
            raise StateSchemaChanged(
                f"{where} holds {name!r}, and operator {old.operator!r} no longer declares such state. Put the "
                "declaration back, name it as the alias of the state that takes its place (alias=...), give it up by "
                "name (dropped = (...), or deleteIfExists in a processor), or start on a new checkpoint."
            )
    return {**tables, **{name: table for name, table in wanted.items() if name not in tables}}


def _taken_on(name: str, old: TableCard, mine: TableCard, gone: Sequence[str], where: str, *, fixed: bool) -> TableCard:
    if old.dropped:
        raise StateSchemaChanged(
            f"{where}: the state {name!r} was given up by an earlier start, and its old values are still in the files. "
            "Give the new state another name."
        )
    (old_key, before), (key, after) = schemas_of(old), schemas_of(mine)
    declared = evolution_of(mine)
    plain = () if declared.defaults is None else declared.defaults.column_names
    whole = declared.after(evolution_of(old), before.names)
    mine = with_evolution(mine, whole)
    _refuse_settings(old, mine, gone, where)
    _refuse_forgotten(before, after, mine, where)
    if same_columns(old, mine):
        return replace(mine, earlier=old.earlier)
    if fixed:
        raise StateSchemaChanged(
            f"operator {mine.operator!r} in {where} keeps {', '.join(before.names)}, and is now to keep "
            f"{', '.join(after.names)}. Declared aggregates cannot change: a new one would begin in the middle. Put "
            "them back, or give the operator another name (name=...) on a new checkpoint."
        )
    _refuse_given_up(name, old, mine, where)
    lines = _key_lines(old, mine) if not old_key.fields.equals(key.fields) else []
    lines += [
        f"  state {column!r}: {was} -> {now}"
        for column, was, now in unfit(
            before, after, mine.aliases, (*gone, _TIMERS), plain, name[len(old.operator) + 1 :]
        )
    ]
    if lines and any(path.endswith(f".{ANY}") for path in gone):
        listed = "\n".join(lines)
        raise StateSchemaChanged(
            f"operator {mine.operator!r} does not fit its state in {where}:\n{listed}\n"
            "A processor's state may gain fields, or lose some, or be widened; but not gain and lose in one start, as "
            "that may be a new name for what is kept. Leave the old field out in one start, and add the new one in the "
            "next. "
            "A state that is no longer declared must be given up with handle.deleteIfExists in `init`. Else put the "
            "declaration back, or start on a new checkpoint."
        )
    if lines:
        listed = "\n".join(lines)
        raise StateSchemaChanged(
            f"operator {mine.operator!r} does not fit its state in {where}:\n{listed}\n"
            "A state may gain fields and be widened. A new name needs alias=..., that of a dataclass's field "
            'field(metadata={"alias": ...}); a state that is given up must be named (dropped = (...), or '
            'deleteIfExists in a processor), and so must a field (dropped = ("state.field",)). Else put the '
            "declaration back, or start on a new checkpoint."
        )
    return replace(mine, earlier=tuple(dict.fromkeys((*old.earlier, old.schema))))


def _refuse_settings(old: TableCard, mine: TableCard, gone: Sequence[str], where: str) -> None:
    """Refuse what would be read otherwise than it was written, though the columns are the same."""
    lines = [
        f"  {state}: {was} -> {mine.settings[state]}"
        for state, was in old.settings.items()
        if state in mine.settings and mine.settings[state] != was and state not in gone
    ]
    if lines:
        listed = "\n".join(lines)
        raise StateSchemaChanged(
            f"operator {mine.operator!r} does not fit its state in {where}:\n{listed}\n"
            "What is kept was made under the old declaration and would give wrong results under the new one. Put it "
            "back, or declare a new state under another name and give the old one up (dropped = (...)), or start on a "
            "new checkpoint."
        )


def _refuse_forgotten(before: pa.Schema, after: pa.Schema, mine: TableCard, where: str) -> None:
    """Refuse to read fields of structs without the names that some files have them under."""
    for column in after:
        for name in (column.name, *mine.aliases.get(column.name, ())):
            if name in before.names:
                for field, earlier in forgotten(before.field(name).type, column.type):
                    raise StateSchemaChanged(
                        f"operator {mine.operator!r} in {where}: field {field!r} of {column.name!r} was called "
                        f"{earlier!r} once, and files still hold it under that name. Leave that alias in the class: "
                        f'field(metadata={{"alias": ...}}).'
                    )


def _refuse_given_up(name: str, old: TableCard, mine: TableCard, where: str) -> None:
    """Refuse a column or field, or an alias, that has the name of one that was given up: files hold its old values."""
    renamed = {older: new for new, names in mine.aliases.items() for older in names}
    held = {names[0] for schema in old.earlier for names in _named(replace(old, schema=schema), renamed)}
    before = {names[0]: names for names in _named(old, renamed)}
    for names in _named(mine, {}):
        # What it takes over now may have had some of its names itself.
        own = next((before[known] for known in names if known in before), ())
        again = [known for known in names if known in held and known not in before and known not in own]
        if again and again[0] == _TIMERS:
            raise StateSchemaChanged(
                f"operator {mine.operator!r} in {where} was started without `due`, which gave up the times it had "
                "asked to be called at; they are still in the files. Leave `due` out, or give the operator another "
                "name (name=...) or a new checkpoint."
            )
        if again:
            raise StateSchemaChanged(
                f"{where}: {again[0]!r} of {name!r} was given up by an earlier start, and its old values are still in "
                "the files. Give the new state another name, and no alias of that name."
            )


def _named(card: TableCard, renamed: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """List all columns of a table and the fields in them, by their paths: as each is called, and was called earlier.

    The fields also come under the name that their column has now.
    """
    for column in schemas_of(card)[1]:
        yield (column.name, *card.aliases.get(column.name, ()))
        for name in {column.name, renamed.get(column.name, column.name)}:
            for path, field in fields_of(column.type, name):
                above = path.rpartition(".")[0]
                yield tuple(f"{above}.{known}" for known in names_of(field))


def _key_lines(old: TableCard, mine: TableCard) -> list[str]:
    was, now = dict(old.key), dict(mine.key)
    names = [column for column in {**was, **now} if was.get(column) != now.get(column)]
    lines = [f"  key {column!r}: {was.get(column, 'not there')} -> {now.get(column, 'not there')}" for column in names]
    return lines or ["  the key's columns are in another order"]
