"""What row i of the generator is: a pure function of the options and i, computed by numpy.

Knows nothing of Spark, so a test or an oracle can ask for any range of rows. May call `_model` only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._model.errors import InvalidConfiguration, UnknownOption

EPOCH_ZERO = datetime(1970, 1, 1, tzinfo=timezone.utc)
DEFAULT_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DEFAULT_INTERVAL_MS = 1.0
DEFAULT_ROWS_PER_EPOCH = 10_000

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _instant(text: str) -> datetime:
    # Python before 3.11 does not read the Z that every other tool writes.
    instant = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" if text.endswith("Z") else text)
    return instant if instant.tzinfo else instant.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions:
    """Hold what defines a generated stream, its rows and its pace.

    The same fields are the options of `format("ferryman_generator")`; `None` means "not given".
    """

    keys: int = 1000
    rows: int | None = None
    rate: float | None = None
    rows_per_epoch: int | None = None
    seed: int = 0
    skew: float = 0.0
    partitions: int | None = None
    start: datetime | None = None
    interval_ms: float | None = None
    key_prefix: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, object]) -> GeneratorOptions:
        """Read options given as Python values or as Spark's strings, and check them all.

        Raises
        ------
        UnknownOption
            An option that no generator has.
        InvalidConfiguration
            Every value that cannot be right, in one error.
        """
        known = {f.name: f for f in fields(cls)}
        if unknown := sorted(set(options) - set(known)):
            raise UnknownOption(
                f"the generator has no option {', '.join(map(repr, unknown))}; its options are {', '.join(known)}"
            )
        faults: list[str] = []
        given: dict[str, object] = {}
        for name, value in options.items():
            if value is None:
                continue
            read, holds, expected = _RULES[name]
            try:
                given[name] = read(value) if isinstance(value, str) else value
                right = holds(given[name])
            except (TypeError, ValueError):
                right = False
            if not right:
                faults.append(f"{name}: {value!r} is not {expected}")
        if "rate" in given and "interval_ms" in given:
            faults.append("interval_ms: not with rate, which already spaces the rows; give one of the two")
        if faults:
            raise InvalidConfiguration.of(faults)
        if isinstance(start := given.get("start"), datetime) and start.tzinfo is None:
            given["start"] = start.replace(tzinfo=timezone.utc)
        return cls(**given)  # type: ignore[arg-type]

    def as_strings(self) -> dict[str, str]:
        """Write the options given as Spark passes them, so that `of` reads the same back."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: value.isoformat() if isinstance(value, datetime) else str(value)
            for name, value in named.items()
            if value is not None
        }

    @property
    def first_event_us(self) -> int:
        """Event time of row 0 in microseconds since 1970."""
        return ((self.start or DEFAULT_START) - EPOCH_ZERO) // timedelta(microseconds=1)

    def available(self, now_us: int) -> int | None:
        """Count the rows that exist at an instant; `None` says that there is no end.

        A row of a rated generator exists once its interval has passed, however late the reader is:
        a stream that was down finds all that it missed.
        """
        if self.rate is None:
            return self.rows
        due = max(0, math.floor((now_us - self.first_event_us) * self.rate / 1e6))
        return due if self.rows is None else min(due, self.rows)

    def partition_ranges(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Cut a range of rows into the contiguous parts that Spark reads as partitions.

        A part under a thousand rows costs more as a task than it saves, so a short range has fewer.
        """
        parts = max(1, min(self.partitions or 1, -(-(end - begin) // 1000)))
        bounds = [begin + (end - begin) * part // parts for part in range(parts + 1)]
        return [(a, b) for a, b in pairwise(bounds) if a < b]


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_Rule = tuple[Callable[[str], object], Callable[[Any], bool], str]
_COUNT: _Rule = (int, lambda v: _whole(v) and v > 0, "a whole number above 0")
_RULES: dict[str, _Rule] = {
    "keys": _COUNT,
    "rows": _COUNT,
    "rate": (float, lambda v: 0 < float(v) < math.inf, "a number of rows per second above 0"),
    "rows_per_epoch": _COUNT,
    "seed": (int, _whole, "a whole number"),
    "skew": (float, lambda v: 0 <= float(v) < math.inf, "0 (uniform) or a Zipf exponent above it"),
    "partitions": _COUNT,
    "start": (
        _instant,
        lambda v: isinstance(v, datetime),
        "a datetime, or a text such as 2026-01-01T00:00:00Z",
    ),
    "interval_ms": (float, lambda v: 0.001 <= float(v) < math.inf, "a number of milliseconds from 0.001"),
    "key_prefix": (str, lambda v: isinstance(v, str) and v != "", "a text of at least one character"),
}


def _scatter(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scattered: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return scattered


@lru_cache(maxsize=4)
def _zipf_table(keys: int, skew: float) -> npt.NDArray[np.float64]:
    # Cached because a Python worker serves many epochs and 1 M keys take 20 ms.
    weights = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -skew)
    table: npt.NDArray[np.float64] = weights / weights[-1]
    return table


def _key_numbers(options: GeneratorOptions, draws: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    unit = (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53
    table = None if options.skew == 0 else _zipf_table(options.keys, float(options.skew))
    places = unit * options.keys if table is None else np.searchsorted(table, unit, side="right")
    numbers: npt.NDArray[np.int64] = places.astype(np.int64)
    return numbers


def arrow_schema(options: GeneratorOptions) -> pa.Schema:
    """Give the Arrow schema of the generated rows."""
    return pa.schema(
        [
            ("id", pa.int64()),
            ("key", pa.int64() if options.key_prefix is None else pa.string()),
            ("value", pa.float64()),
            ("event_time", pa.timestamp("us", tz="UTC")),
        ]
    )


def generate(options: GeneratorOptions, begin: int, end: int) -> pa.RecordBatch:
    """Compute the rows from `begin` up to, not including, `end`.

    Values are multiples of 1/64 below 100, so any order of adding them gives the same sum and two
    engines can be compared by equality.
    """
    ids = np.arange(begin, end, dtype=np.int64)
    # Scattering the seed first keeps streams of neighbouring seeds from being shifts of one another.
    origin = _scatter(np.array([options.seed & _MASK], dtype=np.uint64))[0]
    # Two draws per row: an odd and an even member of one splitmix64 sequence.
    sequence = ids.astype(np.uint64) << np.uint64(1)
    key_draws = _scatter(origin + (sequence + np.uint64(1)) * _GOLDEN)
    value_draws = _scatter(origin + (sequence + np.uint64(2)) * _GOLDEN)
    keys: Any = pa.array(_key_numbers(options, key_draws))
    if options.key_prefix is not None:
        keys = pc.binary_join_element_wise(options.key_prefix, pc.cast(keys, pa.string()), "")
    values = ((value_draws >> np.uint64(32)) % np.uint64(6400)).astype(np.float64) / 64.0
    if options.rate is None:
        interval = DEFAULT_INTERVAL_MS if options.interval_ms is None else options.interval_ms
        passed = ids * round(interval * 1000)
    else:
        passed = np.floor(ids * (1e6 / options.rate)).astype(np.int64)
    event_time = pa.array(passed + options.first_event_us).view(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([pa.array(ids), keys, pa.array(values), event_time], schema=arrow_schema(options))
