"""Declare synopses: state of a bounded size that answers with a known error, however much was put in.

Sketches are Apache DataSketches' (the extra `sketches`). All are made of what was put in alone, so that a task that
runs twice gives the same bytes; the sample draws by a hash of what came and when.
"""

from __future__ import annotations

import math
import random
from types import GenericAlias
from typing import Any

import numpy as np
import xxhash

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.cells import Record, ValueVariable, Variable
from ferryman._operator.declare.declared_types import arrow_type
from ferryman._operator.types.collections import State, record
from ferryman._operator.types.views import SynopsisView
from ferryman._state.aggregates.sketches import datasketches


def _library(what: str) -> Any:
    library = datasketches()
    if library is None:
        raise InvalidConfiguration(f'{what} needs Apache DataSketches. Install it: pip install "ferryman[sketches]".')
    return library


class Synopsis(State):
    """What all synopses share: an object that is made, read, written and merged as a whole."""

    def variable(self) -> Variable:
        return ValueVariable(self.stored_as, self.record(), self.ttl)

    def view(self, cell: Any) -> SynopsisView:
        return SynopsisView(cell, self)

    def settings(self) -> str:
        return self._parameters()

    def record(self) -> Record:
        """Give the fields that are kept: the synopsis' own bytes."""
        return record(sketch=bytes)

    def create(self) -> Any:
        """Make an empty one."""
        raise NotImplementedError

    def load(self, kept: tuple[Any, ...]) -> Any:
        """Make one of what was kept."""
        raise NotImplementedError

    def dump(self, live: Any) -> tuple[Any, ...]:
        """Give what to keep of one."""
        raise NotImplementedError


class HyperLogLog(Synopsis):
    """Declare an estimate of how many distinct values there were: `add(value)`, `estimate()`.

    Examples
    --------
    >>> from ferryman import HyperLogLog
    >>> users = HyperLogLog()
    >>> one, other = users.create(), users.create()
    >>> one.add("ann"), other.add("ann"), other.add("bob")
    (None, None, None)
    >>> round(users.merge(one, other).estimate())
    2
    """

    def __init__(self, lg_k: int = 12, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        if not 4 <= lg_k <= 21:
            raise InvalidConfiguration(f"lg_k={lg_k!r}: give a whole number from 4 to 21.")
        self.lg_k = lg_k

    def create(self) -> _Distinct:
        library = _library("HyperLogLog")
        return _Distinct(library, library.hll_sketch(self.lg_k, library.tgt_hll_type.HLL_8))

    def load(self, kept: tuple[Any, ...]) -> _Distinct:
        library = _library("HyperLogLog")
        return _Distinct(library, library.hll_sketch.deserialize(kept[0]))

    def dump(self, live: _Distinct) -> tuple[Any, ...]:
        return (live.sketch.serialize_updatable(),)

    def merge(self, one: _Distinct, other: _Distinct) -> _Distinct:
        union = one.library.hll_union(self.lg_k)
        union.update(one.sketch)
        union.update(other.sketch)
        return _Distinct(one.library, union.get_result(one.library.tgt_hll_type.HLL_8))


class _Distinct:
    def __init__(self, library: Any, sketch: Any) -> None:
        self.library = library
        self.sketch = sketch

    def add(self, value: Any) -> None:
        self.sketch.update(value)

    def estimate(self) -> float:
        # United with itself it estimates from its registers alone, whatever the order and the epochs were.
        union = self.library.hll_union(self.sketch.lg_config_k)
        union.update(self.sketch)
        union.update(self.sketch)
        return float(union.get_estimate())


class CountMin(Synopsis):
    """Declare estimates of how often each value came: `add(value, n)`, `estimate(value)`, `total()`.

    An estimate is never too low, and with the given confidence too high by at most `error` of the total.
    """

    def __init__(
        self, error: float = 0.001, confidence: float = 0.99, *, ttl: int | None = None, alias: str | None = None
    ) -> None:
        super().__init__(ttl=ttl, alias=alias)
        if not (0 < error < 1 and 0 < confidence < 1):
            raise InvalidConfiguration(f"error={error!r}, confidence={confidence!r}: give numbers between 0 and 1.")
        self.error = error
        self.confidence = confidence

    def create(self) -> _Frequencies:
        kind = _library("CountMin").count_min_sketch
        hashes, buckets = kind.suggest_num_hashes(self.confidence), kind.suggest_num_buckets(self.error)
        return _Frequencies(kind(hashes, buckets))

    def load(self, kept: tuple[Any, ...]) -> _Frequencies:
        return _Frequencies(_library("CountMin").count_min_sketch.deserialize(kept[0]))

    def dump(self, live: _Frequencies) -> tuple[Any, ...]:
        return (live.sketch.serialize(),)

    def merge(self, one: _Frequencies, other: _Frequencies) -> _Frequencies:
        merged = self.create()
        merged.sketch.merge(one.sketch)
        merged.sketch.merge(other.sketch)
        return merged


class _Frequencies:
    def __init__(self, sketch: Any) -> None:
        self.sketch = sketch

    def add(self, value: Any, n: float = 1) -> None:
        self.sketch.update(value, n)

    def estimate(self, value: Any) -> float:
        return float(self.sketch.get_estimate(value))

    def total(self) -> float:
        return float(self.sketch.total_weight)


class TDigest(Synopsis):
    """Declare estimates of quantiles: `add(value)`, `quantile(rank)`, `rank(value)`, `count()`."""

    def __init__(self, k: int = 200, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        if k < 10:
            raise InvalidConfiguration(f"k={k!r}: give 10 at the least.")
        self.k = k

    def create(self) -> _Digest:
        return _Digest(_library("TDigest").tdigest_double(self.k))

    def load(self, kept: tuple[Any, ...]) -> _Digest:
        return _Digest(_library("TDigest").tdigest_double.deserialize(kept[0]))

    def dump(self, live: _Digest) -> tuple[Any, ...]:
        return (live.digest.serialize(),)

    def merge(self, one: _Digest, other: _Digest) -> _Digest:
        merged = self.create()
        merged.digest.merge(one.digest)
        merged.digest.merge(other.digest)
        return merged


class _Digest:
    def __init__(self, digest: Any) -> None:
        self.digest = digest

    def add(self, value: float) -> None:
        self.digest.update(value)

    def quantile(self, rank: float) -> float | None:
        return None if self.digest.is_empty() else float(self.digest.get_quantile(rank))

    def rank(self, value: float) -> float | None:
        return None if self.digest.is_empty() else float(self.digest.get_rank(value))

    def count(self) -> int:
        return int(self.digest.get_total_weight())


class BloomFilter(Synopsis):
    """Declare a set that may take a value for one of its own by mistake, and never the other way: `add`, `in`.

    Parameters
    ----------
    capacity
        For how many values it is made.
    error
        How often it may be mistaken when it holds that many.
    """

    def __init__(self, capacity: int, error: float = 0.01, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        if capacity < 1 or not 0 < error < 1:
            raise InvalidConfiguration(
                f"capacity={capacity!r}, error={error!r}: give a number of values, and an error between 0 and 1."
            )
        bits = math.ceil(-capacity * math.log(error) / math.log(2) ** 2)
        self.bytes = -(-bits // 8)
        self.hashes = max(1, round(bits / capacity * math.log(2)))

    def record(self) -> Record:
        """Give the fields that are kept: the bits, and what was declared when they were set."""
        return record(sketch=bytes, hashes=int)

    def create(self) -> _Bits:
        return _Bits(np.zeros(self.bytes, np.uint8), self.hashes)

    def load(self, kept: tuple[Any, ...]) -> _Bits:
        bits, hashes = kept
        return _Bits(np.frombuffer(bits, np.uint8).copy(), self.hashes if hashes is None else hashes)

    def dump(self, live: _Bits) -> tuple[Any, ...]:
        return live.bits.tobytes(), live.hashes

    def merge(self, one: _Bits, other: _Bits) -> _Bits:
        if (len(one.bits), one.hashes) != (len(other.bits), other.hashes):
            raise ValueError("Bloom filters of different sizes cannot be merged")
        return _Bits(one.bits | other.bits, one.hashes)


class _Bits:
    def __init__(self, bits: Any, hashes: int) -> None:
        self.bits = bits
        self.hashes = hashes

    def _places(self, value: Any) -> list[int]:
        # Two independent hashes make all others: h1 + i * h2.
        value = value.item() if isinstance(value, np.generic) else value
        digest = xxhash.xxh3_128_intdigest(f"{type(value).__name__}:{value}".encode())
        first, second, size = digest & (1 << 64) - 1, digest >> 64 | 1, len(self.bits) * 8
        return [(first + number * second) % size for number in range(self.hashes)]

    def add(self, value: Any) -> None:
        for place in self._places(value):
            self.bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, value: Any) -> bool:
        return all(self.bits[place >> 3] >> (place & 7) & 1 for place in self._places(value))


class Reservoir(Synopsis):
    """Declare a sample in which every value has the same chance to be: `add(value)`, `sample()`, `count()`."""

    def __init__(self, kind: Any, size: int, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        if size < 1:
            raise InvalidConfiguration(f"size={size!r}: a sample has 1 value at the least.")
        arrow_type(kind)
        self.kind = kind
        self.size = size

    def record(self) -> Record:
        return record(seen=int, values=GenericAlias(list, (self.kind,)))

    def create(self) -> _Sample:
        return _Sample(self.size, 0, [])

    def load(self, kept: tuple[Any, ...]) -> _Sample:
        return _Sample(self.size, kept[0], list(kept[1]))

    def dump(self, live: _Sample) -> tuple[Any, ...]:
        return (live.seen, live.values)

    def merge(self, one: _Sample, other: _Sample) -> _Sample:
        """Draw from both, each in proportion to what it has seen."""
        total = one.seen + other.seen
        chance = random.Random(total)
        parts = [(list(one.values), one.seen), (list(other.values), other.seen)]
        drawn: list[Any] = []
        while len(drawn) < min(self.size, total) and (parts[0][0] or parts[1][0]):
            first = chance.random() * total < parts[0][1] if parts[0][0] and parts[1][0] else bool(parts[0][0])
            values = parts[0 if first else 1][0]
            drawn.append(values.pop(chance.randrange(len(values))))
        return _Sample(self.size, total, drawn)


class _Sample:
    def __init__(self, size: int, seen: int, values: list[Any]) -> None:
        self._size = size
        self.seen = seen
        self.values = values

    def add(self, value: Any) -> None:
        self.seen += 1
        if len(self.values) < self._size:
            self.values.append(value)
            return
        # Drawn by what came and when: another key that sees other values draws otherwise, the same task does not.
        place = xxhash.xxh3_64_intdigest(f"{self.seen}:{value!r}".encode()) % self.seen
        if place < self._size:
            self.values[place] = value

    def sample(self) -> list[Any]:
        return list(self.values)

    def count(self) -> int:
        return self.seen


class DecayedRate(Synopsis):
    """Declare a rate that forgets: `add(at_ms, n)`, `rate(at_ms)` per second.

    Parameters
    ----------
    half_life_ms
        After so long without events the rate is half of what it was.
    """

    def __init__(self, half_life_ms: int, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        if half_life_ms <= 0:
            raise InvalidConfiguration(f"half_life_ms={half_life_ms!r}: give milliseconds above 0.")
        self.half_life_ms = half_life_ms

    def record(self) -> Record:
        return record(weight=float, at=int)

    def create(self) -> _Rate:
        return _Rate(self.half_life_ms, 0.0, 0)

    def load(self, kept: tuple[Any, ...]) -> _Rate:
        return _Rate(self.half_life_ms, *kept)

    def dump(self, live: _Rate) -> tuple[Any, ...]:
        return (live.weight, live.at)

    def merge(self, one: _Rate, other: _Rate) -> _Rate:
        at = max(one.at, other.at)
        return _Rate(self.half_life_ms, one.decayed(at) + other.decayed(at), at)


class _Rate:
    def __init__(self, half_life_ms: int, weight: float, at: int) -> None:
        self._half_life_ms = half_life_ms
        self.weight = weight
        self.at = at

    def decayed(self, at: int) -> float:
        return float(self.weight * 0.5 ** (max(at - self.at, 0) / self._half_life_ms))

    def add(self, at: int, n: float = 1.0) -> None:
        # An event that comes late counts for what is left of it.
        if at >= self.at:
            self.weight, self.at = self.decayed(at) + n, at
        else:
            self.weight += n * 0.5 ** ((self.at - at) / self._half_life_ms)

    def rate(self, at: int) -> float:
        return self.decayed(at) * math.log(2) / self._half_life_ms * 1000
