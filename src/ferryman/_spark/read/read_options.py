"""What `spark.read.format("ferryman")` is asked for: its options, checked, with the epochs fixed once and for all.

They are fixed when a DataFrame is loaded, so that it shows one epoch however often it is used, in a join with itself
too. Nothing but the path is needed to read; every task opens the checkpoint by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from ferryman._log.files.cards import schemas_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.open_checkpoint import opened
from ferryman._log.scan.changed_entries import CHANGE_FIELDS
from ferryman._log.scan.epochs_kept import epoch_to_read, epochs_to_read
from ferryman._log.scan.keys_asked import KeysAsked
from ferryman._model.card import JobCard
from ferryman._model.errors import InvalidConfiguration, UnknownOption
from ferryman._spark.compat.conversion import spark_schema

_OPTIONS = ("path", "table", "epoch", "changesFrom", "changesTo", "keys")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is read of a checkpoint.

    Attributes
    ----------
    address
        What the checkpoint is opened by, in any process.
    epoch
        Whose state; of changes, the last epoch.
    first
        The first epoch of changes; None where the state itself is read.
    keys
        The keys that are wanted, as they were written; None for all.
    """

    address: str
    table: str
    epoch: int
    first: int | None
    keys: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Asked:
        """Check the options, and fix the epochs."""
        _refuse_unknown(options)
        path = options.get("path")
        if not path:
            raise InvalidConfiguration('no path was given. Write spark.read.format("ferryman").load(CHECKPOINT).')
        epoch, first, last = (_number(options, name) for name in ("epoch", "changesFrom", "changesTo"))
        if (first is None and last is not None) or (first is not None and epoch is not None):
            raise InvalidConfiguration(
                "epoch is for the state as of one epoch; changesFrom, and with it changesTo, for what epochs have "
                "changed. Give the one or the other."
            )
        with opened(path) as checkpoint:
            card = checkpoint.job_card()
            table = _table(checkpoint, card, options.get("table"))
            keys = options.get("keys")
            if keys is not None:
                KeysAsked.parse(keys, card, table)
            if first is None:
                newest = epoch_to_read(checkpoint, epoch)
            else:
                first, newest = epochs_to_read(checkpoint, first, last)
            return cls(address=checkpoint.directory.address, table=table, epoch=newest, first=first, keys=keys)

    def columns(self) -> pa.Schema:
        """Give the columns that are read: of changes the epoch and what it did, the key, the state."""
        with opened(self.address) as checkpoint:
            key, state = schemas_of(checkpoint.job_card().tables[self.table])
        return pa.schema([*(CHANGE_FIELDS if self.first is not None else ()), *key.fields, *state]).remove_metadata()

    def schema(self) -> StructType:
        """Give them as Spark has them."""
        return spark_schema(self.columns())


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _OPTIONS}
    for name in options:
        if name.lower() not in known:
            close = difflib.get_close_matches(name.lower(), known, 1)
            meant = f" (did you mean {known[close[0]]!r}?)" if close else ""
            raise UnknownOption(f'format("ferryman") has no option {name!r}{meant}. It has: {", ".join(_OPTIONS)}.')


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19 and int(text)):
        raise InvalidConfiguration(f"{name}={text!r}: an epoch is a whole number from 1 on.")
    return int(text)


def _table(checkpoint: Checkpoint, card: JobCard, asked: str | None) -> str:
    """Give the table that was asked for; that of the only operator where none was."""
    known = ", ".join(sorted(card.tables)) or "none"
    if asked is None:
        operators = [name for name, table in card.tables.items() if name == table.operator]
        if len(operators) == 1:
            return operators[0]
        raise UnknownOption(f'{checkpoint.directory.uri} has the tables {known}: say which, by .option("table", NAME).')
    if asked not in card.tables:
        raise UnknownOption(f"{checkpoint.directory.uri} has no table {asked!r}; it has: {known}. Check the name.")
    return asked
