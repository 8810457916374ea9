"""A job's card: the first file of a checkpoint, which says what is in all the others. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ferryman._model.json_values import MOST_GROUPS, flag, label, listed, mapped, text, texts, whole

FORMAT = 2
GROUPS = 256
# More of them no query has.
_MOST_LEAVES = 10_000


@dataclass(frozen=True, kw_only=True)
class TableCard:
    """Describe a table of an operator's state to whoever reads it: key and state columns, as Arrow type names.

    The first table of an operator has its name and a row per key. The others, for lists, maps and the like,
    have more columns in their key after those of the operator's: the subkey.

    Attributes
    ----------
    entries
        Whether a key has several rows.
    nulls
        Whether a null in a key is a value like any other.
    defaults
        What columns have in files that were written before they were declared: base64 of an Arrow IPC stream with one
        row; empty for nulls.
    aliases
        The earlier names of columns, by the new one.
    earlier
        The schemas that files of earlier declarations may have.
    dropped
        Whether the operator does not declare it any more.
    settings
        What of the declaration the columns do not show, and what is kept depends on: the size of a sketch, the
        clock that timers go by.
    """

    operator: str
    key: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    schema: str  # base64 of the Arrow IPC schema: the exact types, for Ferryman itself
    entries: bool = False
    defaults: str = ""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    dropped: bool = False
    nulls: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> TableCard:
        """Read a card back from JSON."""
        raw = mapped(raw, "a table")
        pairs = {
            side: tuple((text(name, "a column"), text(kind, "a type")) for name, kind in listed(raw[side], side))
            for side in ("key", "state")
        }
        settings = mapped(raw.get("settings", {}), "settings")
        return cls(
            operator=label(raw["operator"], "operator"),
            key=pairs["key"],
            state=pairs["state"],
            schema=text(raw["schema"], "schema"),
            entries=flag(raw["entries"], "entries"),
            defaults=text(raw["defaults"], "defaults"),
            aliases={name: texts(names, "aliases") for name, names in mapped(raw["aliases"], "aliases").items()},
            earlier=texts(raw["earlier"], "earlier"),
            dropped=flag(raw["dropped"], "dropped"),
            nulls=flag(raw.get("nulls", False), "nulls"),
            settings={name: text(value, "a setting") for name, value in settings.items()},
        )


@dataclass(frozen=True)
class SourceCard:
    """Describe a source of a job: its name, and of how many of Spark's streaming sources it is made."""

    name: str
    leaves: int

    @classmethod
    def parse(cls, raw: Any) -> SourceCard:
        """Read it back from JSON."""
        raw = mapped(raw, "a source")
        return cls(text(raw["name"], "name"), whole(raw["leaves"], "leaves", 1, _MOST_LEAVES))


@dataclass(frozen=True)
class JobCard:
    """Describe a job: what `ferryman.json`, the first file of a checkpoint, holds.

    Attributes
    ----------
    sources
        The job's sources in the places at which Spark counts their offsets, those that are left out now among them;
        empty where it has only ever had one, without a name.
    """

    id: str
    job: str
    groups: int
    tables: Mapping[str, TableCard]
    format: int = FORMAT
    sources: tuple[SourceCard, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> JobCard:
        """Read a job's card back from JSON."""
        listed_tables = mapped(raw["tables"], "tables")
        tables = {label(name, "table"): TableCard.parse(table) for name, table in listed_tables.items()}
        groups = whole(raw["groups"], "groups", 1, MOST_GROUPS)
        sources = tuple(SourceCard.parse(source) for source in listed(raw.get("sources", []), "sources"))
        if len({source.name for source in sources}) < len(sources):
            raise ValueError("two sources have one name")
        name, job = text(raw["id"], "id"), text(raw["job"], "job")
        return cls(name, job, groups, tables, whole(raw["format"], "format"), sources)

    @property
    def operators(self) -> tuple[str, ...]:
        """List the operators."""
        return tuple(dict.fromkeys(table.operator for table in self.tables.values()))
