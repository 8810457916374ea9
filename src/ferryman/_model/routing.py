"""Who owns which key group, and the keys that are pinned elsewhere. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferryman._model.json_values import MOST_GROUPS, Misshapen, flag, listed, long, mapped, text, whole
from ferryman._model.key_groups import group_of


@dataclass(frozen=True, order=True)
class Pin:
    """Route one key to an instance, wherever its key group is.

    Attributes
    ----------
    hash
        Spark's hash of the key.
    instance
        Who owns it.
    key
        The key as people read it.
    hot
        Whether it was pinned because it was hot, and is to go back when it is not.
    """

    hash: int
    instance: int
    key: str
    hot: bool = False

    @classmethod
    def parse(cls, raw: Any) -> Pin:
        """Read a pin back from JSON."""
        pin = cls(**mapped(raw, "a pin"))
        long(pin.hash, "hash")
        whole(pin.instance, "instance", high=MOST_GROUPS - 1)
        text(pin.key, "key")
        flag(pin.hot, "hot")
        return pin


@dataclass(frozen=True)
class RoutingTable:
    """Map every key group to an instance, and pinned keys to theirs; a changed map has a new version.

    State is kept by key group all the same: whoever owns a key of a group has the whole group in its home.

    Attributes
    ----------
    version
        Grows with every change.
    instances
        How many there are.
    owner
        The instance of each key group.
    pins
        The keys that are not where their group is, in the order of their hashes.

    Examples
    --------
    >>> table = RoutingTable.even(version=1, groups=8, instances=2)
    >>> table.owner
    (0, 0, 0, 0, 1, 1, 1, 1)
    >>> RoutingTable.parse(table.json()) == table
    True
    """

    version: int
    instances: int
    owner: tuple[int, ...]
    pins: tuple[Pin, ...] = ()

    @classmethod
    def even(cls, version: int, groups: int, instances: int) -> RoutingTable:
        """Give each instance one contiguous run of groups, all about as long."""
        return cls(version, instances, tuple(group * instances // groups for group in range(groups)))

    def json(self) -> dict[str, Any]:
        """Write the table with its runs of equal owners folded."""
        runs: list[list[int]] = []
        for owner in self.owner:
            if runs and runs[-1][0] == owner:
                runs[-1][1] += 1
            else:
                runs.append([owner, 1])
        raw: dict[str, Any] = {"version": self.version, "instances": self.instances, "runs": runs}
        if self.pins:
            raw["pins"] = [asdict(pin) for pin in self.pins]
        return raw

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> RoutingTable:
        """Read a table back from JSON; its runs are bounded before they are laid out."""
        raw = mapped(raw, "routing")
        instances = whole(raw["instances"], "instances", 1, MOST_GROUPS)
        runs = [
            (whole(instance, "instance", high=MOST_GROUPS - 1), whole(length, "length", 1, MOST_GROUPS))
            for instance, length in listed(raw["runs"], "runs")
        ]
        if not 1 <= sum(length for _, length in runs) <= MOST_GROUPS:
            raise Misshapen(f"runs does not cover 1 to {MOST_GROUPS} key groups")
        owner = tuple(instance for instance, length in runs for _ in range(length))
        pins = tuple(sorted(Pin.parse(pin) for pin in listed(raw.get("pins", []), "pins")))
        return cls(whole(raw["version"], "version"), instances, owner, pins)

    @property
    def pinned(self) -> dict[int, int]:
        """Give the instance of every pinned key, by its hash."""
        return {pin.hash: pin.instance for pin in self.pins}

    def group(self, hash: int) -> int:
        """Give the key group of a key."""
        return group_of(hash, len(self.owner))

    def owner_of(self, hash: int) -> int:
        """Give the instance that owns a key."""
        return self.pinned.get(hash, self.owner[self.group(hash)])

    def workers(self) -> dict[int, frozenset[int]]:
        """Give, for every group that has pinned keys, the instances that own keys of it; its other keys' comes too.

        Examples
        --------
        >>> RoutingTable(1, 3, (0, 1), (Pin(4, 2, "k"),)).workers()
        {0: frozenset({0, 2})}
        """
        found: dict[int, frozenset[int]] = {}
        for pin in self.pins:
            group = self.group(pin.hash)
            found[group] = found.get(group, frozenset({self.owner[group]})) | {pin.instance}
        return found
