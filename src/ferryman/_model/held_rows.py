"""Rows that wait for the state of their key groups, as manifests list them. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from ferryman._model.delta import DeltaRef
from ferryman._model.json_values import Misshapen, groups_of, listed, mapped, whole


@dataclass(frozen=True)
class HeldRows:
    """Rows that were read and are not yet processed, as the state of their key groups is on its way.

    Attributes
    ----------
    file
        The file they are in.
    epoch
        The epoch that read them.
    groups
        The key groups of which it holds rows that still wait.
    rows
        How many rows each of these groups has in it; about as many where an earlier version did not count them.

    Examples
    --------
    >>> held = HeldRows(DeltaRef("held/1", 0, 5, 100, ""), 1, (3, 4), (2, 3))
    >>> held.only({4}).rows
    (3,)
    >>> HeldRows.parse(held.json()) == held
    True
    """

    file: DeltaRef
    epoch: int
    groups: tuple[int, ...]
    rows: tuple[int, ...]

    def only(self, groups: Set[int]) -> HeldRows:
        """Leave out the rows of all other groups, which do not wait any more."""
        left = [(group, rows) for group, rows in zip(self.groups, self.rows, strict=True) if group in groups]
        return replace(self, groups=tuple(group for group, _ in left), rows=tuple(rows for _, rows in left))

    def json(self) -> dict[str, Any]:
        """Write them as JSON values."""
        counted = {"groups": list(self.groups), "rows": list(self.rows)}
        return {"file": asdict(self.file), "epoch": self.epoch, **counted}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> HeldRows:
        """Read them back from JSON."""
        raw = mapped(raw, "held rows")
        file, groups = DeltaRef.parse(raw["file"]), groups_of(raw["groups"])
        rows = listed(raw.get("rows", [file.rows // max(1, len(groups))] * len(groups)), "rows")
        if len(rows) != len(groups):
            raise Misshapen("rows and groups are not of one length")
        return cls(file, whole(raw["epoch"], "epoch"), groups, tuple(whole(count, "rows") for count in rows))
