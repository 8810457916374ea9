"""The types of state that are measured: an operator as a user writes it, the same in plain Python, rows for both."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter, ge
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import ferryman as fm
from bench.state_kind import MINUTE_MS, NOW_MS, SUBKEYS, Held, Kind, Row, parts, values
from bench.state_windows import WINDOWS

Ints = npt.NDArray[np.int64]


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


class Edges(NewestOfPart):
    held: Any = fm.Graph(int, int)


@dataclass(frozen=True)
class Reading:
    """What a nested state keeps in its lists."""

    part: int
    n: int


class LastOfPart(Held):
    """A map of lists of structs."""

    held: Any = fm.Map(int, list[Reading])

    def process(self, key: Any, row: Any) -> None:
        self.held[row.part] = [*self.held.get(row.part, ()), Reading(row.part, row.n)][-3:]


class OfInstance(Held):
    """One for all keys of the instance."""

    held: Any = fm.PerInstance(CountAndSum, Mean().create, merge=Mean().merge)

    def process(self, key: Any, row: Any) -> None:
        self.held.value = Mean().add(self.held.value, row.n)


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


class Means(Most):
    held: Any = fm.Aggregating(Mean())


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


def _frequencies(rows: list[Row]) -> list[int]:
    counted = collections.Counter(parts(rows))
    return [len(rows), *(counted[part] for part in range(SUBKEYS))]


def _last_of_part(rows: list[Row]) -> list[tuple[int, list[tuple[int, int]]]]:
    by_part: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for row in rows:
        by_part[row.part].append((row.part, row.n))
    return sorted((part, all_of_it[-3:]) for part, all_of_it in by_part.items())


def _rate(rows: list[Row]) -> float:
    left = sum(math.pow(0.5, (MINUTE_MS - row.part * 1000) / MINUTE_MS) for row in rows)
    return left * math.log(2) / MINUTE_MS * 1000


def _sampled(found: Any, plain: Any) -> bool:
    return found[0] == len(plain) and len(found[1]) == min(len(plain), 4) and set(found[1]) <= set(plain)


TYPES: Mapping[str, Kind] = {
    "value": Kind(Total, lambda held: held, lambda rows: sum(values(rows))),
    "bytes": Kind(Newest, bytes.hex, lambda rows: rows[-1].data.hex()),
    "list": Kind(All, list, values),
    "deque": Kind(Last, list, lambda rows: values(rows)[-4:]),
    "map": Kind(
        NewestOfPart, lambda held: sorted(held.items()), lambda rows: sorted({row.part: row.n for row in rows}.items())
    ),
    "graph": Kind(Edges, lambda held: held.items(), lambda rows: sorted({row.part: row.n for row in rows}.items())),
    "nested": Kind(
        LastOfPart,
        lambda held: sorted((part, [(pair.part, pair.n) for pair in some]) for part, some in held.items()),
        _last_of_part,
    ),
    "set": Kind(Parts, sorted, lambda rows: sorted(set(parts(rows)))),
    "counter": Kind(
        Counts, lambda held: sorted(held.items()), lambda rows: sorted(collections.Counter(parts(rows)).items())
    ),
    "queue": Kind(Waiting, list, lambda rows: [(row.part, row.n) for row in sorted(rows, key=attrgetter("part"))]),
    "reducing": Kind(Most, lambda held: held.result, lambda rows: max(values(rows))),
    "aggregating": Kind(Means, lambda held: held.result, lambda rows: sum(values(rows)) / len(rows)),
    **WINDOWS,
    "hyperloglog": Kind(
        Distinct,
        lambda held: held.estimate(),
        lambda rows: len(set(values(rows))),
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
        lambda rows: [len(rows), min(values(rows)), max(values(rows))],
    ),
    "bloom": Kind(
        MayHold,
        lambda held: [part for part in range(SUBKEYS) if part in held],
        parts,
        lambda found, plain: set(found) >= set(plain),
    ),
    "reservoir": Kind(Sample, lambda held: [held.count(), held.sample()], values, _sampled),
    "rate": Kind(
        Rate,
        lambda held: held.rate(NOW_MS + MINUTE_MS),
        _rate,
        lambda found, plain: math.isclose(found, plain, rel_tol=1e-9),
    ),
    "perinstance": Kind(
        OfInstance,
        lambda held: [held.value.n, held.value.total],
        lambda rows: [len(rows), sum(values(rows))],
        per_instance=True,
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
