"""The types of state that are measured: an operator as a user writes it, the same in plain Python, rows for both."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import add, attrgetter, eq, ge
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import ferryman as fm

Ints = npt.NDArray[np.int64]

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
# What tells the entries, windows or values of one key apart.
SUBKEYS = 8


class Row(NamedTuple):
    """An input row; `data` is there for the type that keeps it."""

    key: int
    part: int
    n: int
    data: bytes = b""


class Held(fm.Operator):
    """What all operators here share: one state, and one operation on it for every row."""

    columns: ClassVar[str] = "key long, part long, n long"
    output = "key long, content string"
    held: Any


class Total(Held):
    held: Any = fm.Value(int, 0)

    def process(self, key: Any, row: Any) -> None:
        self.held += row.n


class Newest(Held):
    columns = f"{Held.columns}, data binary"
    held: Any = fm.Value(bytes, b"")

    def process(self, key: Any, row: Any) -> None:
        self.held = row.data


class All(Held):
    held: Any = fm.List(int)

    def process(self, key: Any, row: Any) -> None:
        self.held.append(row.n)


class Last(All):
    held: Any = fm.Deque(int, 4)


class NewestOfPart(Held):
    held: Any = fm.Map(int, int)

    def process(self, key: Any, row: Any) -> None:
        self.held[row.part] = row.n


class Parts(Held):
    held: Any = fm.Set(int)

    def process(self, key: Any, row: Any) -> None:
        self.held.add(row.part)


class Counts(Held):
    held: Any = fm.Counter(int)

    def process(self, key: Any, row: Any) -> None:
        self.held[row.part] += 1


class Waiting(Held):
    held: Any = fm.Queue(int, int)

    def process(self, key: Any, row: Any) -> None:
        self.held.push(row.part, row.n)


class Most(Held):
    held: Any = fm.Reducing(int, max)

    def process(self, key: Any, row: Any) -> None:
        self.held.add(row.n)


@dataclass(frozen=True)
class CountAndSum:
    """What a mean is made of."""

    n: int
    total: int


class Mean:
    """The accumulator of a mean."""

    type: ClassVar[Any] = CountAndSum

    def create(self) -> CountAndSum:
        return CountAndSum(0, 0)

    def add(self, kept: CountAndSum, value: int) -> CountAndSum:
        return CountAndSum(kept.n + 1, kept.total + value)

    def merge(self, one: CountAndSum, other: CountAndSum) -> CountAndSum:
        return CountAndSum(one.n + other.n, one.total + other.total)

    def result(self, kept: CountAndSum) -> float:
        return kept.total / kept.n


class Means(Most):
    held: Any = fm.Aggregating(Mean())


class Minutes(Held):
    held: Any = fm.TumblingWindow(MINUTE_MS, fm.Reducing(int, add))

    def process(self, key: Any, row: Any) -> None:
        self.held.add(NOW_MS + row.part * MINUTE_MS, row.n)


class Distinct(Most):
    held: Any = fm.HyperLogLog()


class Frequencies(Parts):
    held: Any = fm.CountMin(error=0.05, confidence=0.9)


class Quantiles(Most):
    held: Any = fm.TDigest(100)


class MayHold(Parts):
    held: Any = fm.BloomFilter(100)


class Sample(Most):
    held: Any = fm.Reservoir(int, 4)


class Rate(Held):
    held: Any = fm.DecayedRate(MINUTE_MS)

    def process(self, key: Any, row: Any) -> None:
        self.held.add(NOW_MS + row.part * 1000)


@dataclass(frozen=True)
class Kind:
    """A type of state.

    Attributes
    ----------
    operator
        An operator that keeps such state.
    content
        What it holds of a key, as JSON can write it.
    plain
        The same, computed from all rows of the key.
    agrees
        Whether a content is right, given the plain one.
    """

    operator: type[Held]
    content: Callable[[Any], Any]
    plain: Callable[[list[Row]], Any]
    agrees: Callable[[Any, Any], bool] = eq

    @property
    def wide(self) -> bool:
        """Tell whether its rows have `data`."""
        return "data" in self.operator.columns


def _values(rows: list[Row]) -> list[int]:
    return [row.n for row in rows]


def _parts(rows: list[Row]) -> list[int]:
    return [row.part for row in rows]


def _frequencies(rows: list[Row]) -> list[int]:
    counted = collections.Counter(_parts(rows))
    return [len(rows), *(counted[part] for part in range(SUBKEYS))]


def _minutes(rows: list[Row]) -> list[tuple[int, int]]:
    totals: collections.Counter[int] = collections.Counter()
    for row in rows:
        totals[(NOW_MS + row.part * MINUTE_MS) // MINUTE_MS * MINUTE_MS] += row.n
    return sorted(totals.items())


def _rate(rows: list[Row]) -> float:
    left = sum(math.pow(0.5, (MINUTE_MS - row.part * 1000) / MINUTE_MS) for row in rows)
    return left * math.log(2) / MINUTE_MS * 1000


def _sampled(found: Any, plain: Any) -> bool:
    return found[0] == len(plain) and len(found[1]) == min(len(plain), 4) and set(found[1]) <= set(plain)


TYPES: Mapping[str, Kind] = {
    "value": Kind(Total, lambda held: held, lambda rows: sum(_values(rows))),
    "bytes": Kind(Newest, bytes.hex, lambda rows: rows[-1].data.hex()),
    "list": Kind(All, list, _values),
    "deque": Kind(Last, list, lambda rows: _values(rows)[-4:]),
    "map": Kind(
        NewestOfPart, lambda held: sorted(held.items()), lambda rows: sorted({row.part: row.n for row in rows}.items())
    ),
    "set": Kind(Parts, sorted, lambda rows: sorted(set(_parts(rows)))),
    "counter": Kind(
        Counts, lambda held: sorted(held.items()), lambda rows: sorted(collections.Counter(_parts(rows)).items())
    ),
    "queue": Kind(Waiting, list, lambda rows: [(row.part, row.n) for row in sorted(rows, key=attrgetter("part"))]),
    "reducing": Kind(Most, lambda held: held.result, lambda rows: max(_values(rows))),
    "aggregating": Kind(Means, lambda held: held.result, lambda rows: sum(_values(rows)) / len(rows)),
    "tumbling": Kind(Minutes, lambda held: [(span.start, total) for span, total in held.spans()], _minutes),
    "hyperloglog": Kind(
        Distinct,
        lambda held: held.estimate(),
        lambda rows: len(set(_values(rows))),
        # Four times the standard error of 4096 registers.
        lambda found, plain: abs(found - plain) <= 0.5 + 0.065 * plain,
    ),
    "countmin": Kind(
        Frequencies,
        lambda held: [held.total(), *map(held.estimate, range(SUBKEYS))],
        _frequencies,
        lambda found, plain: found[0] == plain[0] and all(map(ge, found, plain)),
    ),
    "tdigest": Kind(
        Quantiles,
        lambda held: [held.count(), held.quantile(0.0), held.quantile(1.0)],
        lambda rows: [len(rows), min(_values(rows)), max(_values(rows))],
    ),
    "bloom": Kind(
        MayHold,
        lambda held: [part for part in range(SUBKEYS) if part in held],
        _parts,
        lambda found, plain: set(found) >= set(plain),
    ),
    "reservoir": Kind(Sample, lambda held: [held.count(), held.sample()], _values, _sampled),
    "rate": Kind(
        Rate,
        lambda held: held.rate(NOW_MS + MINUTE_MS),
        _rate,
        lambda found, plain: math.isclose(found, plain, rel_tol=1e-9),
    ),
}


def mixed(words: Ints) -> Ints:
    """Spread numbers over all 64 bits, each number always the same way."""
    z = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread_out: Ints = (z ^ (z >> np.uint64(31))).view(np.int64)
    return spread_out


def noise(n: Ints, size: int) -> pa.Array:
    """Make of each number so many bytes that no compression makes smaller."""
    words = -(-size // 8)
    cells = mixed((n[:, None] * words + np.arange(words)).reshape(-1)).view(np.uint8).reshape(len(n), words * 8)
    data = np.ascontiguousarray(cells[:, :size])
    offsets = np.arange(0, (len(n) + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(n), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def made_rows(keys: Ints, seed: int, size: int | None) -> pa.Table:
    """Make rows of some keys; with `data` of a size where one is given. The same again for the same seed."""
    chance = np.random.default_rng(seed)
    n = chance.integers(0, 1 << 40, len(keys))
    part = chance.integers(0, SUBKEYS, len(keys))
    more = {} if size is None else {"data": noise(n, size)}
    return pa.table({"key": keys, "part": part, "n": n, **more})
