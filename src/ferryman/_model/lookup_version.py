"""Which version of a table that is looked up an epoch has. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferryman._model.delta import DeltaRef
from ferryman._model.json_values import label, mapped, whole


@dataclass(frozen=True)
class LookupVersion:
    """Name a version of a table that is looked up.

    Attributes
    ----------
    since
        The first epoch that has it.
    file
        Where its rows are: in a file as a delta's, of instance 0.
    """

    since: int
    file: DeltaRef

    @classmethod
    def parse(cls, raw: Any) -> LookupVersion:
        """Read it back from JSON."""
        values = mapped(raw, "a version")
        return cls(whole(values["since"], "since"), DeltaRef.parse(values["file"]))


def versions_json(versions: Mapping[str, LookupVersion]) -> dict[str, Any]:
    """Write versions as JSON values, by the names of their lookups."""
    return {name: asdict(version) for name, version in versions.items()}


def parse_versions(raw: Any) -> dict[str, LookupVersion]:
    """Read versions back from JSON."""
    return {label(name, "lookup"): LookupVersion.parse(version) for name, version in mapped(raw, "lookups").items()}
