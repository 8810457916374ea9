"""How many rows of a topic wait to be read, partition by partition, by what Spark tells of a micro-batch. Pure.

Only Kafka's offsets count rows: the numbers of other sources may be seconds, files, or anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# What waits in each partition, by its topic and number: {"orders-0": 12}.
Lag = Mapping[str, int]
# A topic has offsets by partition.
Offsets = Mapping[str, Mapping[str, int]]
_MOST_SHOWN = 3


def rows_behind(progress: Mapping[str, Any]) -> int | None:
    """Give how many rows the sources still had when a micro-batch was begun; None where one of them does not tell.

    Examples
    --------
    >>> said = {"description": "KafkaV2[Subscribe[t]]", "endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 9}}}
    >>> rows_behind({"sources": [said]}), rows_behind({"sources": [said, {"description": "rate"}]})
    (4, None)
    """
    lags = [_lag(source) for source in progress.get("sources") or ()]
    known = [sum(lag.values()) for lag in lags if lag is not None]
    return sum(known) if known and len(known) == len(lags) else None


def lag_by_source(progress: Mapping[str, Any], names: Sequence[str]) -> dict[str, Lag]:
    """Give what waits by the name of the job's source, given in the order in which Spark has them.

    Those that do not tell are left out.

    Examples
    --------
    >>> said = {"description": "KafkaV2[Subscribe[t]]", "endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 9}}}
    >>> lag_by_source({"sources": [{"description": "rate"}, said]}, ["ticks", "orders"])
    {'orders': {'t-0': 4}}
    """
    found: dict[str, dict[str, int]] = {}
    for name, source in zip(names, progress.get("sources") or (), strict=False):
        lag = _lag(source)
        if lag is not None:
            mine = found.setdefault(name, {})
            for place, rows in lag.items():
                # One source of the job may be made of several that read the same topic.
                mine[place] = mine.get(place, 0) + rows
    return dict(found)


def lag_in_words(lag: Mapping[str, Lag]) -> str:
    """Say what waits, source by source, with the partitions that are furthest behind.

    Examples
    --------
    >>> lag_in_words({"orders": {"orders-0": 4, "orders-1": 1200, "orders-2": 0}})
    'orders: 1,204 rows wait in Kafka (orders-1: 1,200, orders-0: 4)'
    """
    return "; ".join(
        f"{name}: {sum(partitions.values()):,} rows wait in Kafka{_furthest(partitions)}"
        for name, partitions in lag.items()
    )


def _furthest(partitions: Lag) -> str:
    behind = sorted(((rows, place) for place, rows in partitions.items() if rows), reverse=True)
    shown = [f"{place}: {rows:,}" for rows, place in behind[:_MOST_SHOWN]]
    more = [f"{len(behind) - _MOST_SHOWN} more"] if len(behind) > _MOST_SHOWN else []
    return f" ({', '.join(shown + more)})" if behind else ""


def _lag(source: Mapping[str, Any]) -> dict[str, int] | None:
    end, latest = offsets_of(source.get("endOffset")), offsets_of(source.get("latestOffset"))
    if not str(source.get("description")).startswith("Kafka") or end is None or latest is None:
        return None
    return {
        f"{topic}-{part}": max(0, offset - end.get(topic, {}).get(part, offset))
        for topic, parts in latest.items()
        for part, offset in parts.items()
    }


def offsets_of(raw: Any) -> Offsets | None:
    """Read offsets by topic and partition; None where they are no such thing.

    Examples
    --------
    >>> offsets_of('{"t": {"0": 5}}'), offsets_of({"logOffset": 3})
    ({'t': {'0': 5}}, None)
    """
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            return None
    if not isinstance(raw, dict) or not all(isinstance(topic, dict) for topic in raw.values()):
        return None
    return raw if all(isinstance(offset, int) for topic in raw.values() for offset in topic.values()) else None
