"""How a streaming DataFrame that reads Kafka was declared, as its plan has it. Calls nobody of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError


def kafka_options(leaf: Any, names: Sequence[str]) -> dict[str, str] | None:
    """Give some of the options of a streaming source of a plan; None if it does not read Kafka. Tried on 4.3."""
    try:
        if leaf.sourceName() != "kafka":
            return None
        options = leaf.extraOptions()
        found = {name: options.get(name) for name in names}
    except Py4JError:
        # It is of another kind, and has no such thing.
        return None
    return {name: value for name, value in found.items() if value is not None}
