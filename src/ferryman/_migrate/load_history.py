"""What the parts of a job cost of late: recorded once per epoch, from its manifest and the receipts of its tasks.

All that is told of load is a view of this one record: previews and reports (`load_report`), hot keys (`hot_keys`), the
order of copies (`copier`) and the weight of state.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ferryman._migrate.backlog import Backlog
from ferryman._migrate.hot_keys import is_cool, is_hot
from ferryman._migrate.orders import Cargo
from ferryman._migrate.placement import Load
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import Receipt
from ferryman._model.routing import RoutingTable

# How fast the load of long ago is forgotten: after an epoch this part of it is left.
KEPT = 0.9
# What has less than this part of all rows is forgotten.
_LEAST = 1e-3
# Of how many epochs it is remembered how much they added: of fewer, the more key groups there are.
_REMEMBERED = 1 << 21
# What an instance is taken to do in a second before anybody has seen one work.
_ROWS_PER_S = 200e3


def busy_s(receipts: Iterable[Receipt]) -> float:
    """Give for how long an epoch's instances were at work: operators one after the other, their instances at once.

    Examples
    --------
    >>> some = [("A", 10.0), ("A", 30.0), ("B", 20.0)]
    >>> busy_s([Receipt(operator=name, epoch=1, instance=0, busy_ms=busy_ms) for name, busy_ms in some])
    0.05
    """
    longest: dict[str, float] = {}
    for receipt in receipts:
        longest[receipt.operator] = max(receipt.busy_ms / 1000, longest.get(receipt.operator, 0.0))
    return sum(longest.values())


class LoadHistory:
    """Remember the load of key groups and of heavy keys; the longer ago, the less it counts.

    Whoever looks at one thing while an epoch is recorded has what was before it, or after. Who needs several that
    belong together takes a `view`.

    Parameters
    ----------
    groups
        How many key groups there are.
    latest
        The manifest of the newest committed epoch.

    Attributes
    ----------
    epoch
        The newest epoch that was recorded.
    backlog
        What waits after it.
    hosts
        The host of each instance in it; empty before there was one.
    grown
        By how many bytes the state of key groups grew in epochs of late.
    keys, shown
        The rows of late of heavy keys, and these as people read them, by their hashes.
    hot_for, cool_for
        For how many epochs with rows keys have been hot, and those that are pinned for it have been cool.
    """

    def __init__(self, groups: int, latest: Manifest | None = None) -> None:
        self.epoch = latest.epoch if latest else 0
        self.backlog = Backlog().after(latest) if latest else Backlog()
        self.hosts: tuple[str, ...] = ()
        self.grown: dict[int, Mapping[int, int]] = {}
        self.keys: dict[int, float] = {}
        self.shown: dict[int, str] = {}
        self.hot_for: dict[int, int] = {}
        self.cool_for: dict[int, int] = {}
        self._rows = np.zeros(groups)
        self._busy_ms = np.zeros(groups)
        self._busy_keys: dict[int, float] = {}
        self._weight = 0.0

    def record(self, manifest: Manifest, receipts: Sequence[Receipt]) -> None:
        """Take in an epoch that was committed: what its tasks say of it, and what waits after it."""
        self.epoch = manifest.epoch
        self.backlog = self.backlog.after(manifest)
        if receipts:
            hosts = {receipt.instance: receipt.host for receipt in receipts}
            self.hosts = tuple(hosts[instance] for instance in sorted(hosts))
            self._record_grown(manifest.epoch, receipts)
        # An epoch without rows tells nothing of load.
        if any(receipt.load for receipt in receipts):
            self._record_load(receipts)
            self._record_heat(receipts, manifest.routing)

    def view(self) -> LoadHistory:
        """Give what is known now, to look at while epochs are recorded; under the lock that they are recorded under."""
        # What an epoch changes it makes anew, but for what has grown.
        view = copy.copy(self)
        view.grown = dict(self.grown)
        return view

    def load(self, table: RoutingTable, *, busy: bool = False) -> Load:
        """Give what groups and pinned keys cost, in rows of late, or in milliseconds of work on them."""
        groups, known = (self._busy_ms.copy(), self._busy_keys) if busy else (self._rows.copy(), self.keys)
        keys = {}
        for pin in table.pins:
            keys[pin.hash] = known.get(pin.hash, 0.0)
            groups[table.group(pin.hash)] -= keys[pin.hash]
        return Load(np.maximum(groups, 0.0).tolist(), keys)

    @property
    def rows(self) -> float:
        """Give all rows of late."""
        return float(self._rows.sum())

    @property
    def epochs(self) -> float:
        """Give over how many epochs' worth a load sums up: less than all, as those of long ago count less."""
        return self._weight or 1.0

    def cargo(self, groups: Iterable[int], sizes: Sequence[float], bytes_per_s: float) -> list[Cargo]:
        """Say what is known now of groups that are to be copied.

        The backlog of a group is what waits for it, and what the next epoch is likely to add, which nobody has read.

        Parameters
        ----------
        groups
            The groups.
        sizes
            About how many bytes each key group has.
        bytes_per_s
            How fast the line is.
        """
        backlog, rows = self.backlog, self.rows
        row_s = float(self._busy_ms.sum()) / 1000 / rows if rows else 1 / _ROWS_PER_S
        ahead = self._rows / self.epochs
        found = []
        for group in groups:
            waiting = backlog.rows.get(group, 0) + float(ahead[group])
            since = backlog.since.get(group, float("inf"))
            # Less than a millisecond makes no difference to anybody, and sizes are not known that well.
            copy_s = round(sizes[group] / bytes_per_s, 3)
            found.append(
                Cargo(
                    group=group,
                    bytes=int(sizes[group]),
                    backlog=round(waiting),
                    arrived=since,
                    demanded=since,
                    copy_s=copy_s,
                    work_s=waiting * row_s,
                )
            )
        return found

    def _record_grown(self, epoch: int, receipts: Sequence[Receipt]) -> None:
        grown: dict[int, int] = {}
        for receipt in receipts:
            for group, bytes in receipt.grown.items():
                grown[group] = grown.get(group, 0) + bytes
        self.grown[epoch] = grown
        if len(self.grown) > max(16, _REMEMBERED // len(self._rows)):
            self.grown.pop(min(list(self.grown)), None)

    def _record_load(self, receipts: Sequence[Receipt]) -> None:
        groups, busy_groups = self._rows * KEPT, self._busy_ms * KEPT
        keys = {hash: rows * KEPT for hash, rows in self.keys.items()}
        busy_keys = {hash: ms * KEPT for hash, ms in self._busy_keys.items()}
        shown = dict(self.shown)
        for receipt in receipts:
            # A row costs what a row of its task costs, so that it costs more where all is slow.
            each = receipt.busy_ms / (sum(receipt.load.values()) or 1)
            for group, rows in receipt.load.items():
                groups[group] += rows
                busy_groups[group] += rows * each
            for heavy in receipt.heavy:
                keys[heavy.hash] = keys.get(heavy.hash, 0.0) + heavy.rows
                busy_keys[heavy.hash] = busy_keys.get(heavy.hash, 0.0) + heavy.rows * each
                shown[heavy.hash] = heavy.key
        least = groups.sum() * _LEAST
        self._rows, self._busy_ms, self._weight = groups, busy_groups, self._weight * KEPT + 1
        self.keys = {hash: rows for hash, rows in keys.items() if rows > least}
        self._busy_keys = {hash: busy_keys.get(hash, 0.0) for hash in self.keys}
        self.shown = {hash: shown[hash] for hash in self.keys}

    def _record_heat(self, receipts: Sequence[Receipt], table: RoutingTable) -> None:
        fair = self.rows / table.instances
        now = {heavy.hash for receipt in receipts for heavy in receipt.heavy}
        hot = {hash for hash, rows in self.keys.items() if is_hot(rows, fair) and hash in now}
        cool = {pin.hash for pin in table.pins if pin.hot and is_cool(self.keys.get(pin.hash, 0.0), fair)}
        self.hot_for = {hash: self.hot_for.get(hash, 0) + 1 for hash in hot}
        self.cool_for = {hash: self.cool_for.get(hash, 0) + 1 for hash in cool}
