"""What a task tells the driver it did. Frozen, bytes in and out, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ferryman._model.delta import DeltaRef
from ferryman._model.held_rows import HeldRows


@dataclass(frozen=True)
class HeavyKey:
    """A key that has a considerable part of a task's rows: its hash, what people read, and how many rows."""

    hash: int
    key: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Tell what the task of an instance did in an epoch.

    Attributes
    ----------
    operator, epoch, instance, host
        Whose task it was, and where.
    rows, keys, output, late
        How many it worked on, put out, and left out as late.
    busy_ms
        How long it took.
    deltas
        What it wrote, by table.
    watermarks
        How far event time has come in its rows, by the name of the watermark.
    next_due
        When the next thing is due; None if nothing is.
    load
        The rows of each key group.
    heavy
        The keys with many of the rows.
    held
        The rows that it put aside; None if none.
    rebuilt
        How many key groups it had to rebuild from the checkpoint.
    rebuilt_bytes
        How many bytes it read there for that.
    grown
        By how many bytes the state of each key group has grown.
    width
        How many bytes a row of its input had in the mean.
    times
        Times of its rows' events, in ms, that are evenly spread over them; none where the operator knows of no such.
    damaged
        Files of the checkpoint that it found damaged or missing, and did without.
    """

    operator: str
    epoch: int
    instance: int
    host: str = ""
    rows: int = 0
    keys: int = 0
    output: int = 0
    late: int = 0
    busy_ms: float = 0.0
    deltas: Mapping[str, DeltaRef] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    next_due: int | None = None
    load: Mapping[int, int] = field(default_factory=dict)
    heavy: tuple[HeavyKey, ...] = ()
    held: HeldRows | None = None
    rebuilt: int = 0
    rebuilt_bytes: int = 0
    grown: Mapping[int, int] = field(default_factory=dict)
    width: int = 0
    times: tuple[int, ...] = ()
    damaged: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        # Not by `asdict`, which takes as long as a good part of a small epoch's work.
        return {
            **vars(self),
            "deltas": {table: vars(ref) for table, ref in self.deltas.items()},
            "heavy": [vars(key) for key in self.heavy],
            "held": None if self.held is None else self.held.json(),
        }

    def encode(self) -> bytes:
        """Give it as bytes that travel."""
        return json.dumps(self.json()).encode()


@dataclass(frozen=True, kw_only=True)
class PartialsReceipt:
    """Tell what a task saw that made partials of an operator's rows before the shuffle; `part` is its number."""

    operator: str
    epoch: int
    part: int
    rows: int
    heavy: tuple[HeavyKey, ...]
    width: int

    def encode(self) -> bytes:
        """Give it as bytes that travel."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, kw_only=True)
class TooMuch:
    """Tell that an express task gave up, as so many rows, or bytes, were more than it may take."""

    rows: int
    size: int

    def encode(self) -> bytes:
        """Give it as bytes that travel."""
        return json.dumps({"too_much": asdict(self)}).encode()


@dataclass(frozen=True, kw_only=True)
class RowsLeft:
    """Tell that rows were to stay with their instance, and some are another's: those that an operator was to read."""

    operator: str

    def encode(self) -> bytes:
        """Give it as bytes that travel."""
        return json.dumps({"rows_left": asdict(self)}).encode()


def decode(data: bytes) -> Receipt | PartialsReceipt:
    """Read a receipt back, of either kind.

    Examples
    --------
    >>> receipt = Receipt(operator="A", epoch=1, instance=0, load={7: 3}, heavy=(HeavyKey(7, "k", 3),))
    >>> decode(receipt.encode()) == receipt
    True
    """
    raw = json.loads(data)
    if "part" not in raw:
        return _receipt(raw)
    raw["heavy"] = tuple(HeavyKey(**key) for key in raw["heavy"])
    return PartialsReceipt(**raw)


def encode_all(receipts: Sequence[Receipt]) -> bytes:
    """Give the receipts of an express task as bytes that travel."""
    return json.dumps([receipt.json() for receipt in receipts]).encode()


def decode_all(data: bytes) -> list[Receipt] | TooMuch | RowsLeft:
    """Read what an express task has told.

    Examples
    --------
    >>> receipt = Receipt(operator="A", epoch=1, instance=0, load={7: 3}, heavy=(HeavyKey(7, "k", 3),))
    >>> decode_all(encode_all([receipt])) == [receipt]
    True
    >>> decode_all(TooMuch(rows=20_000, size=320_000).encode())
    TooMuch(rows=20000, size=320000)
    >>> decode_all(RowsLeft(operator="B").encode())
    RowsLeft(operator='B')
    """
    raw = json.loads(data)
    if isinstance(raw, list):
        return [_receipt(receipt) for receipt in raw]
    return TooMuch(**raw["too_much"]) if "too_much" in raw else RowsLeft(**raw["rows_left"])


def _receipt(raw: dict[str, Any]) -> Receipt:
    raw["heavy"] = tuple(HeavyKey(**key) for key in raw["heavy"])
    raw["deltas"] = {table: DeltaRef(**ref) for table, ref in raw["deltas"].items()}
    raw["held"] = None if raw["held"] is None else HeldRows.parse(raw["held"])
    raw["times"], raw["damaged"] = tuple(raw["times"]), tuple(raw["damaged"])
    for by_group in ("load", "grown"):
        raw[by_group] = {int(group): number for group, number in raw[by_group].items()}
    return Receipt(**raw)
