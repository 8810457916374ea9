"""Aliasing: values that user code still has in its hands and could change in place, where no state would change.

Such a change is an error, and not a loss. A value that was handed out is remembered as it was, and looked at again
in the end.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Mapping
from typing import Any

from ferryman._model.errors import StateMisused


class Aliases:
    """Remember values, by owner and by part of what the owner has, as they were when they were handed out."""

    def __init__(self) -> None:
        self._values: dict[Any, dict[Hashable, tuple[Any, Any]]] = {}

    def hand_out(self, owner: Any, part: Hashable, value: Any) -> Any:
        """Hand a value out."""
        parts = self._values.setdefault(owner, {})
        # One that is read again may have been changed since it was read first.
        if part not in parts or parts[part][0] is not value:
            parts[part] = (value, copy.deepcopy(value))
        return value

    def any(self, owner: Any) -> bool:
        """Tell whether anything of an owner was handed out."""
        return owner in self._values

    def forget(self, owner: Any, part: Hashable = None) -> None:
        """Forget a value that was written; without a part, all of the owner."""
        if part is None:
            self._values.pop(owner, None)
        elif owner in self._values:
            self._values[owner].pop(part, None)

    def changed(self) -> tuple[Any, Hashable] | None:
        """Find an owner with a part that is not any more what was handed out."""
        for owner in self._values:
            if (part := self.changed_of(owner)) is not None:
                return owner, part
        return None

    def changed_of(self, owner: Any) -> Hashable:
        """Find such a part of one owner; None if there is none."""
        parts = self._values.get(owner, {})
        return next((part for part, (value, before) in parts.items() if not _same(value, before)), None)


class AttributeAliases:
    """Find values of a key that are in another attribute of the operator as well, when it has come to the next key."""

    def __init__(self, mutable: Collection[str], where: str) -> None:
        self._mutable = mutable
        self._where = where
        self._aliases = Aliases()

    def look(self, attributes: Mapping[str, Any], key: Any) -> None:
        """Look for values of a key that is done, among the operator's other attributes."""
        states = {id(attributes[name]): name for name in self._mutable if type(attributes[name]).__hash__ is None}
        for name, value in attributes.items():
            if id(value) in states and name not in self._mutable:
                self._aliases.hand_out(key, (states[id(value)], name), value)

    def back_at(self, key: Any) -> None:
        """Come to a key again: what is done to its values now is meant, and what was done since was not."""
        self._refuse(key, self._aliases.changed_of(key))
        self._aliases.forget(key)

    def refuse_changed(self) -> None:
        """Refuse that such a value was changed afterwards: it was done to another key than the one at hand."""
        if (found := self._aliases.changed()) is not None:
            self._refuse(*found)

    def _refuse(self, key: Any, part: Any) -> None:
        if part is not None:
            state, name = part
            raise StateMisused(
                f"{self._where}, state {state!r}: its value of key {key!r} was kept in self.{name} and changed there "
                f"while another key was at hand. Use self.{state} in every call, or keep a copy. The epoch was not "
                "committed; no state changed."
            )


def _same(value: Any, before: Any) -> bool:
    try:
        return bool(value == before)
    except ValueError:
        # An array does not say in one word whether it is equal.
        return bool((value == before).all())
