"""Run an interval join: the rows of two streams that have one key, and times not too far apart.

Each side's rows are kept, by the key and a running number, until no row of the other side can come that makes a pair
with them: the watermark says when. A table has the numbers that each key's rows have, and when the first of them goes.
All of it is done in columns, on the keys that came or have something due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._operator.declare.two_inputs import INPUT
from ferryman._operator.run.interval_pairs import pairs
from ferryman._operator.run.runner import Given, Made
from ferryman._state.compiled import Ints
from ferryman._state.tables import DUE_TIME, DUE_WHAT, POSITION, Changes
from ferryman._state.words import Mask

LEFT, RIGHT = "left", "right"
DUE = "due"
MATCHED = "_matched"
_NEVER = np.int64((1 << 63) - 1)

STATE = pa.schema(
    [(f"{side}_{what}", pa.int64()) for side in (LEFT, RIGHT) for what in ("first", "next")] + [(DUE, pa.int64())]
)


@dataclass(frozen=True, kw_only=True)
class JoinSide:
    """One side of a join.

    Attributes
    ----------
    name
        `left` or `right`.
    columns
        The columns that are kept of its rows, as the operator's input has them.
    time
        Which of them is the event time.
    lasts_us
        How long after its time a row can make a pair with one that comes; negative where it must be later.
    alone
        Whether a row that makes no pair is put out in the end.
    once
        Whether a row is gone once it has made a pair.
    """

    name: str
    columns: tuple[str, ...]
    time: str
    lasts_us: int
    alone: bool
    once: bool

    @property
    def flagged(self) -> bool:
        """Tell whether it is kept of a row that it has made a pair."""
        return self.alone and not self.once


@dataclass(frozen=True, kw_only=True)
class JoinRunner:
    """Run an interval join.

    Attributes
    ----------
    left, right
        The sides.
    lower_us, upper_us
        By how much the time of the right row is later than that of the left one.
    pairs, semi, newest
        What is put out: all pairs; each left row that makes one; or of the pairs of a left row the one with the newest
        right row, as soon as no newer one can come.
    columns
        What each column of the output is of: the key's (by its place, with the side whose key it shows, or None where
        it is that of both), or a side's, by its name in the input.
    grid_ms
        To how many milliseconds it is rounded when rows go, where nothing is put out then.
    """

    left: JoinSide
    right: JoinSide
    lower_us: int
    upper_us: int
    pairs: bool
    semi: bool
    newest: bool
    columns: tuple[tuple[str | None, int | str], ...]
    output: pa.Schema
    grid_ms: int

    def run(self, given: Given) -> Made:
        """Join the rows of an epoch with each other and with those that are kept; let go of what is not needed."""
        return _Join(self, given).made()


class _Kept:
    """The rows of one side that an epoch looks at: those that were kept, then those that came."""

    def __init__(self, side: JoinSide, given: Given, known: Mapping[str, Ints], wanted: Mask, valid: Mask) -> None:
        self.side = side
        self.first, self.next = known[f"{side.name}_first"].copy(), known[f"{side.name}_next"].copy()
        self.wanted = wanted
        keys = np.flatnonzero(wanted)
        counts = self.next[keys] - self.first[keys]
        positions = np.repeat(keys, counts)
        numbers = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts) + self.first[positions]
        entries = given.entries[f"{given.operator}.{side.name}"]
        found = entries.at(positions, {POSITION: pa.array(numbers)})
        there = np.flatnonzero(found.present)
        old = found.state if len(there) == len(positions) else found.state.take(pa.array(there))
        mine = given.rows.column(INPUT).to_numpy() == (side.name == RIGHT)
        came = given.rows.filter(pa.array(mine)).select(list(side.columns))
        self.old = len(there)
        self.positions = np.concatenate([positions[there], given.index[mine]])
        self.numbers = np.concatenate([numbers[there], np.full(came.num_rows, -1, np.int64)])
        kept = old.select(list(range(len(side.columns)))).rename_columns(list(side.columns))
        self.rows = pa.concat_tables([kept.cast(came.schema), came]).combine_chunks()
        times = self.rows.column(side.time)
        self.timed = np.asarray(times.is_valid().to_numpy(), bool) & valid[self.positions]
        self.times = np.asarray(times.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)
        self.matched = np.zeros(len(self.positions), bool)
        if side.flagged and self.old:
            self.matched[: self.old] = old.column(MATCHED).to_numpy(zero_copy_only=False)
        self.paired = np.zeros(len(self.positions), bool)

    def pair(self, places: Ints) -> None:
        """Learn which rows have made a pair."""
        self.paired[places] = True

    def expiry(self) -> Ints:
        """Give when each row goes, in milliseconds: as soon as the watermark has come there."""
        expiry: Ints = -(-(np.clip(self.times, -(1 << 61), 1 << 61) + self.side.lasts_us) // 1000)
        return expiry

    def dead(self, watermark_ms: int | None) -> Mask:
        """Tell which rows can make no pair any more that counts."""
        gone: Mask = ~self.timed
        if watermark_ms is not None:
            gone = gone | (self.expiry() <= watermark_ms)
        if self.side.once:
            gone |= self.paired
        return gone


class _Join:
    """One epoch of one instance."""

    def __init__(self, runner: JoinRunner, given: Given) -> None:
        self._runner, self._given = runner, given
        self._watermark = given.time.watermark_ms
        total = len(given.present)
        self._known: dict[str, Ints] = {
            name: np.asarray(given.state.column(name).fill_null(0).to_numpy(), np.int64) for name in STATE.names
        }
        due = given.state.column(DUE)
        self._due = np.asarray(due.fill_null(int(_NEVER)).to_numpy(), np.int64)
        self._is_due = self._due <= (self._watermark if self._watermark is not None else -_NEVER)
        valid = np.ones(total, bool)
        for column in given.keys:
            valid &= np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        came = given.rows.column(INPUT).to_numpy()
        has = [np.bincount(given.index[came == side], minlength=total) > 0 for side in (0, 1)]
        self.left = _Kept(runner.left, given, self._known, self._is_due | has[1], valid)
        self.right = _Kept(runner.right, given, self._known, self._is_due | has[0], valid)

    def made(self) -> Made:
        """Find the pairs, then what is left over; and say what changes."""
        given, left, right = self._given, self.left, self.right
        ours, others = self._newest() if self._runner.newest else self._pairs()
        left.pair(ours)
        right.pair(others)
        found = [(ours, others)] if self._runner.pairs else []
        if self._runner.semi:
            mine = np.flatnonzero(left.paired)
            found.append((mine, np.full(len(mine), -1, np.int64)))
        changes: dict[str, Changes] = {}
        earliest = np.full(len(given.present), _NEVER, np.int64)
        for kept in (left, right):
            dead = kept.dead(self._watermark)
            if kept.side.alone:
                lone = np.flatnonzero(dead & ~kept.paired & ~kept.matched)
                none = np.full(len(lone), -1, np.int64)
                found.append((lone, none) if kept is left else (none, lone))
            change = self._changes(kept, dead)
            if change is not None:
                changes[f"{given.operator}.{kept.side.name}"] = change
            stays = ~dead
            np.minimum.at(earliest, kept.positions[stays], kept.expiry()[stays])
        due = self._next_due(earliest)
        if (listed := self._due_changes(due)) is not None:
            changes[f"{given.operator}.{DUE_TIME}"] = listed
        state, positions, deleted = self._state(due)
        return Made(output=self._output(found), state=state, positions=positions, deleted=deleted, changes=changes)

    def _pairs(self) -> tuple[Ints, Ints]:
        """Give all pairs with a row that came: what came on the left with all, and what was kept with what came."""
        left, right, runner = self.left, self.right, self._runner
        lefts, rights = np.flatnonzero(left.timed), np.flatnonzero(right.timed)
        came, kept, new = lefts[lefts >= left.old], lefts[lefts < left.old], rights[rights >= right.old]
        found = []
        for ours, others in ((came, rights), (kept, new)):
            a, b = pairs(
                left.positions[ours], left.times[ours], right.positions[others], right.times[others],
                runner.lower_us, runner.upper_us,
            )  # fmt: skip
            found.append((ours[a], others[b]))
        return np.concatenate([ours for ours, _ in found]), np.concatenate([others for _, others in found])

    def _newest(self) -> tuple[Ints, Ints]:
        """Give each left row that goes now, with the newest of the right rows that it makes a pair with."""
        left, right, runner = self.left, self.right, self._runner
        goes, rights = np.flatnonzero(left.timed & left.dead(self._watermark)), np.flatnonzero(right.timed)
        ours, others = pairs(
            left.positions[goes], left.times[goes], right.positions[rights], right.times[rights],
            runner.lower_us, runner.upper_us,
        )  # fmt: skip
        # They come in the order of time.
        last = np.append(ours[1:] != ours[:-1], True)[: len(ours)]
        return goes[ours[last]], rights[others[last]]

    def _changes(self, kept: _Kept, dead: Mask) -> Changes | None:
        """Give numbers to the rows that came and stay; take out those that go; where many have gone, number anew."""
        side, old, total = kept.side, kept.old, len(self._given.present)
        is_old = np.arange(len(kept.positions)) < old
        live = np.bincount(kept.positions[is_old & ~dead], minlength=total)
        span = kept.next - kept.first
        moves = kept.wanted & (span > 2 * live + 16)
        stays_old, goes = is_old & ~dead & ~moves[kept.positions], is_old & (dead | moves[kept.positions])
        told = stays_old & kept.paired & ~kept.matched if side.flagged else np.zeros_like(is_old)
        added = np.flatnonzero(~dead & ~stays_old)
        # In the order in which they are: of one key one after the other.
        added = added[np.argsort(kept.positions[added], kind="stable")]
        keys = kept.positions[added]
        begins = np.searchsorted(keys, keys, "left")
        numbers = kept.numbers.copy()
        numbers[added] = kept.next[keys] + np.arange(len(added)) - begins
        lowest = np.full(total, _NEVER, np.int64)
        np.minimum.at(lowest, kept.positions[stays_old], numbers[stays_old])
        kept.first = np.where(kept.wanted, np.minimum(lowest, kept.next), kept.first)
        kept.next = kept.next + np.bincount(keys, minlength=total)
        removed, written = np.flatnonzero(goes), np.concatenate([added, np.flatnonzero(told)])
        if not len(removed) and not len(written):
            return None
        which = np.concatenate([removed, written])
        gone = np.arange(len(which)) < len(removed)
        numbered = np.concatenate([kept.numbers[removed], numbers[written]])
        state = [column.combine_chunks() for column in kept.rows.take(pa.array(which)).columns]
        if side.flagged:
            state.append(pa.array((kept.paired | kept.matched)[which]))
        return Changes(kept.positions[which], {POSITION: pa.array(numbered)}, gone, state)

    @property
    def _empty(self) -> Mask:
        """Tell which keys have no rows left, once it is known what changes."""
        empty: Mask = (self.left.first == self.left.next) & (self.right.first == self.right.next)
        return empty

    def _next_due(self, earliest: Ints) -> Ints:
        """Give when each key has to be looked at next."""
        grid = self._runner.grid_ms
        soonest = np.where(earliest == _NEVER, _NEVER, -(-np.minimum(earliest, _NEVER - grid) // grid) * grid)
        # What was not looked at is still there; of a key that has no rows left, nothing is.
        looked = self._is_due | self._empty
        due: Ints = np.where(looked, soonest, np.minimum(soonest, self._due))
        return due

    def _due_changes(self, due: Ints) -> Changes | None:
        """Take out the times that are over or not the earliest any more, and list the new ones."""
        changed = due != self._due
        gone = np.flatnonzero(changed & (self._due != _NEVER))
        new = np.flatnonzero(changed & (due != _NEVER))
        if not len(gone) and not len(new):
            return None
        times = pa.array(np.concatenate([self._due[gone], due[new]]))
        what = pa.repeat(pa.scalar(""), len(times))
        return Changes(
            np.concatenate([gone, new]),
            {DUE_TIME: times, DUE_WHAT: what},
            np.arange(len(times)) < len(gone),
            [],
        )

    def _state(self, due: Ints) -> tuple[pa.Table, Ints, npt.NDArray[np.bool_]]:
        """Give what is known of the keys, where that has changed."""
        now = {
            f"{kept.side.name}_{what}": numbers
            for kept in (self.left, self.right)
            for what, numbers in (("first", kept.first), ("next", kept.next))
        }
        empty = self._empty
        changed = due != self._due
        for name, numbers in now.items():
            changed |= numbers != self._known[name]
        positions = np.flatnonzero(changed & (self._given.present | ~empty))
        columns = [pa.array(now[name][positions]) for name in STATE.names[:-1]]
        columns.append(pa.array(due[positions], mask=due[positions] == _NEVER))
        return pa.Table.from_arrays(columns, schema=STATE), positions, empty[positions]

    def _output(self, found: list[tuple[Ints, Ints]]) -> pa.Table:
        """Put out pairs, and rows alone, by the places of their rows; -1 where there is none."""
        runner = self._runner
        ours = np.concatenate([np.empty(0, np.int64), *(ours for ours, _ in found)])
        others = np.concatenate([np.empty(0, np.int64), *(others for _, others in found)])
        places = {LEFT: ours, RIGHT: others}
        taken = {side: pa.array(place, mask=place < 0) for side, place in places.items()}
        rows = {LEFT: self.left.rows, RIGHT: self.right.rows}
        positions = np.empty(len(ours), np.int64)
        for side, kept in ((LEFT, self.left), (RIGHT, self.right)):
            there = places[side] >= 0
            positions[there] = kept.positions[places[side][there]]
        arrays = []
        for (of, what), field in zip(runner.columns, runner.output, strict=True):
            if isinstance(what, int):
                mask = None if of is None else places[of] < 0
                array: pa.Array | pa.ChunkedArray = self._given.keys[what].take(pa.array(positions, mask=mask))
            else:
                assert of is not None, "a column that is not the key's is of a side"
                array = rows[of].column(what).take(taken[of])
            arrays.append(pc.cast(array, field.type) if array.type != field.type else array)
        return pa.Table.from_arrays(arrays, schema=runner.output)
