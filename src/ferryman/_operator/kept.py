"""Values that an operator still holds when it has come to the next key: what it does to them there is not meant."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from ferryman._model.errors import StateMisused
from ferryman._operator.run import Given
from ferryman._operator.value import Value


class Kept:
    """Remember values that are in another attribute as well, as they were when their key was done."""

    def __init__(self, declared: Iterable[Value[Any]]) -> None:
        self._mutable = {one.name for one in declared if one.mutable}
        self._found: dict[Any, list[tuple[str, str, Any, Any]]] = {}

    def look(self, own: Mapping[str, Any], key: Any) -> None:
        """Look for values of a key that is done, among the operator's other attributes."""
        held = {id(own[name]): name for name in self._mutable if type(own[name]).__hash__ is None}
        for name, one in own.items():
            if id(one) in held and name not in self._mutable:
                self._found.setdefault(key, []).append((held[id(one)], name, one, copy.deepcopy(one)))

    def back_at(self, key: Any, given: Given) -> None:
        """Come to a key again: what is done to its values now is meant, and what was done since was not."""
        self._refuse(key, self._found.pop(key, ()), given)

    def refuse_changed(self, given: Given) -> None:
        """Refuse that such a value was changed afterwards: it was done to another key than the one at hand."""
        for key, found in self._found.items():
            self._refuse(key, found, given)

    def _refuse(self, key: Any, found: Iterable[tuple[str, str, Any, Any]], given: Given) -> None:
        for state, name, value, before in found:
            if not _same(value, before):
                raise StateMisused(
                    f"operator {given.operator!r}, epoch {given.epoch}, state {state!r}: its value of key {key!r} was "
                    f"kept in self.{name} and changed there while another key was at hand. Use self.{state} in every "
                    "call, or keep a copy. The epoch was not committed; no state changed."
                )


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:
        # An array does not say in one word whether it is equal.
        return bool((one == other).all())
