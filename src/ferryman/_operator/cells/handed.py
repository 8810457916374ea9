"""Values that were handed out and could be changed in place: such a change is an error, and not a loss."""

from __future__ import annotations

import copy
from typing import Any


class Handed:
    """Remember values of nested types as they were when they were handed out."""

    def __init__(self) -> None:
        self._values: dict[int, dict[Any, tuple[Any, Any]]] = {}

    def out(self, position: int, part: Any, value: Any) -> Any:
        """Hand a value out: of a key, and of a part of its state."""
        parts = self._values.setdefault(position, {})
        # One that is read again may have been changed since it was read first.
        if part not in parts or parts[part][0] is not value:
            parts[part] = (value, copy.deepcopy(value))
        return value

    def any(self, position: int) -> bool:
        """Tell whether anything of a key was handed out."""
        return position in self._values

    def written(self, position: int, part: Any = None) -> None:
        """Forget a value that was written; without a part, all of the key."""
        if part is None:
            self._values.pop(position, None)
        elif position in self._values:
            self._values[position].pop(part, None)

    def changed(self) -> int | None:
        """Find a key with a value that is not any more what was handed out."""
        for position, parts in self._values.items():
            if any(value != before for value, before in parts.values()):
                return position
        return None
