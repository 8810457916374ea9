"""The note that an epoch has begun of which no batch of Spark's tells all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ferryman._model.json_values import MOST_TIME_MS, flag, groups_of, whole
from ferryman._model.lookup_version import LookupVersion, parse_versions
from ferryman._model.routing import RoutingTable


class Intent(NamedTuple):
    """An epoch that was begun, and what no batch of Spark's tells of it.

    Attributes
    ----------
    epoch, time_ms
        The epoch, and its time.
    silent
        Whether it came because no data did.
    held
        The key groups whose rows wait in it.
    routing
        The routing table that it switches to, if it does.
    term
        The run that began it; 0 where no run was counted.
    lookups
        The versions of tables that it looks up, if they are not those of the epoch before.
    """

    epoch: int
    time_ms: int
    silent: bool
    held: frozenset[int]
    routing: RoutingTable | None = None
    term: int = 0
    lookups: Mapping[str, LookupVersion] = {}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Intent:
        """Read it back from JSON. An earlier version only wrote silent epochs in which nothing waited."""
        return cls(
            whole(raw["epoch"], "epoch"),
            whole(raw["time_ms"], "time_ms", high=MOST_TIME_MS),
            flag(raw.get("silent", True), "silent"),
            frozenset(groups_of(raw.get("held", []))),
            RoutingTable.parse(raw["routing"]) if "routing" in raw else None,
            whole(raw.get("term", 0), "term"),
            parse_versions(raw.get("lookups", {})),
        )
