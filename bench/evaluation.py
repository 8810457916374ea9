"""Write docs/evaluation.md from the results of `ferryman bench reconfigure`: whatever of it has been run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import Result
from ferryman._migrate.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evaluation.md"
RESULTS = ROOT / "bench" / "results"
# The parts of the page, and the file that each is written from.
FILES = {
    "strategies": "reconfigure.json",
    "sizes": "reconfigure-sizes.json",
    "sweeps": "reconfigure-sweeps.json",
    "back_to_back": "reconfigure-back-to-back.json",
    "back_to_back_1gb": "reconfigure-back-to-back-1gb.json",
    "idle": "reconfigure-idle.json",
}

_COLUMNS = ("stoppage_ms", "stabilise_ms", "p99_before_ms", "p99_during_ms", "p99_after_ms", "max_ms", "duration_ms")

_HEAD = """\
# Evaluation: latency while state moves

Written by `python -m bench.reconfigure` from the results of `ferryman bench reconfigure` in `bench/results`. Rows are
due by the clock, whether or not anybody reads them, and a row's latency counts from when it was due to the commit of
its epoch. The hosts are those of a Spark standalone cluster on one machine with {cores} cores, each with an address and
a home of its own. Every host hands half of its key groups to the next; with the next strategy they come back.

| what is asked | measured | met |
| --- | --- | --- |
{aims}

*Stoppage* is the longest that a due row of a moving key waited for its result during the change, less the p99 before;
*stabilise* the time from the request until p99 stays within 1.2 times of before for two seconds, to the last result
that was beyond it; *duration* the time from the request to the end of the plan. *Before* is what was done before the
request; *during* what was due before the end and not done before the request; *after* what was due after the end.
*Noise* is what the formula of the stoppage gives for the time before the request, when nothing moved: a stoppage below
it cannot be told from none. All times are in milliseconds; where there were several rounds, the median of them, and the
least and the most. *Right* means that every row came out once, in order, with the count that a job which never moved
gives it, and that the main copies at the end hold what they should.
"""

_STRATEGIES = """\
## Every strategy

`{command}`

{load}

![the slowest row of every 250 ms, by when it was due](../bench/results/reconfigure.png)

{table}

One job goes through a change with each strategy in turn, half of its state there and back, after a first one that is
not measured. Spark, which cannot move part of its state, goes from two to four partitions: its query is stopped between
two batches, repartitioned offline and started again, and it too had been through that once before; what is in its state
store is not compared, only its rows. The standing replicas of `replicate` are kept up to date in the time before its
change as well, so that is in its p99 before. The windows of 250 ms behind the picture are in
`bench/results/reconfigure.csv`.
"""

_SIZES = """\
## live, by the state that moves

`{command}`

{load}

{table}

Flatness, the largest stoppage over the smallest: {flatness}, where one below 1 ms, the resolution of the clock, counts
as 1 ms; {above} where one below the largest noise counts as that.
"""

_BACK_TO_BACK_HEAD = """\
## live, with epochs back to back

An epoch begins as soon as the one before is done, so there is no time between two of them to copy in. After each change
the same job is watched for as long as that took, and nothing is changed: *still stoppage* is what the formula of the
stoppage gives for this time, *still p99* its p99.
"""

_BACK_TO_BACK = """\
`{command}`

{load}

{tables}
"""

_SWEEPS = """\
## push, with no time to copy ahead

`{command}`

{load} Line: {link}.

{tables}

Stabilise in milliseconds, 0 where p99 never left 1.2 times of before; the last column compares how long the plans took.
With more hosts there are as many more keys and rows, so that each host has what it had. Rows take time here: when all
state has come to its new host, pause_resume has a backlog to work off; push works while the rest is on its way. batched
has a key group of each host wait at a time, for no longer than its copy takes: while that is less than an epoch, p99
does not show it. What it costs is the time until all is done, as every step of it takes an epoch or two.
"""

_IDLE = """\
## When nothing is changed

`{command}`

The same job with everything ready for a change and without (`bench/idle.py` says what that is), in turns:
{ratio} of the throughput (median of {n}, from {least} to {most}).
"""


def write() -> None:
    """Write the page."""
    PAGE.write_text(
        page(
            {
                part: json.loads((RESULTS / file).read_text())
                for part, file in FILES.items()
                if (RESULTS / file).exists()
            }
        )
    )


def page(results: Mapping[str, Result]) -> str:
    """Write the page from results, by the part of it that each is for."""
    cores = next(iter(results.values()))["environment"]["cores"]
    aims = "\n".join(f"| {what} | {measured} | {'yes' if met else 'NO'} |" for what, measured, met in aims_of(results))
    parts = [_HEAD.format(cores=cores, aims=aims)]
    if found := results.get("strategies"):
        table = _table("strategy", found["strategies"])
        parts.append(_STRATEGIES.format(command=found["command"], load=_load(found), table=table))
    if found := results.get("sizes"):
        parts.append(
            _SIZES.format(
                command=found["command"],
                load=_load(found, keys=False),
                table=_table("moving", found["sizes"]),
                flatness=found["flatness"],
                above=found["flatness_above_noise"],
            )
        )
    parts += [_back_to_back(found, first=not number) for number, found in enumerate(_back_to_back_of(results))]
    if found := results.get("sweeps"):
        tables = "\n\n".join(_swept(what, swept) for what, swept in found["sweeps"].items())
        parts.append(_SWEEPS.format(command=found["command"], load=_load(found), link=found["link"], tables=tables))
    if found := results.get("idle"):
        idle = found["idle"]
        figures = {"ratio": idle["ratio"], "n": idle["ratios"]["n"], "least": idle["ratios"]["min"]}
        parts.append(_IDLE.format(command=found["command"], most=idle["ratios"]["max"], **figures))
    return "\n".join(parts)


def aims_of(results: Mapping[str, Result]) -> list[tuple[str, str, bool]]:
    """Say what was to be shown, what was measured, and whether that is enough."""
    aims: list[tuple[str, str, bool]] = []
    live = dict(results.get("sizes", {}).get("sizes", {}))
    if "live" in (strategies := results.get("strategies", {}).get("strategies", {})):
        live = {"among all strategies": strategies["live"], **live}
    if live:
        ratios = {name: figures["p99_during_ms"] / figures["p99_before_ms"] for name, figures in live.items()}
        stops = {name: figures["stoppage_ms"] for name, figures in live.items()}
        aims.append(("live: p99 during at most 1.1 of before", _listed(ratios, ".2f"), max(ratios.values()) <= 1.1))
        aims.append(("live: stoppage at most 15 ms", _listed(stops, ",.0f"), max(stops.values()) <= 15))
    if found := results.get("sizes"):
        aims.append(("live: stoppage flat, at most 1.3", f"{found['flatness']}", found["flatness"] <= 1.3))
    if several := _back_to_back_of(results):
        live = {name: one for found in several for name, one in found["sizes"].items()}
        ratios = {name: one["p99_during_ms"] / one["p99_before_ms"] for name, one in live.items()}
        met = max(ratios.values()) <= 1.2
        aims.append(("live, back to back: p99 during at most 1.2 of before", _listed(ratios, ".2f"), met))
        beyond = {name: one["stoppage_ms"] - one["still_stoppage_ms"] for name, one in live.items()}
        met = max(beyond.values()) <= 25
        aims.append(("live, back to back: stoppage at most 25 ms beyond still", _listed(beyond, ",.0f"), met))
    if found := results.get("sweeps"):
        for rival in ("pause_resume", "batched"):
            ratios = {
                f"{what}={value}": point["ratios"].get(f"push_stabilise_vs_{rival}")
                for what, swept in found["sweeps"].items()
                for value, point in swept.items()
            }
            met = all(ratio is not None and ratio <= 0.55 for ratio in ratios.values())
            aims.append((f"push: stabilise at most 0.55 of {rival}", _listed(ratios, ".2f"), met))
    if found := results.get("strategies"):
        ratio = found["ratios"].get("spark_stoppage_vs_live")
        if ratio is not None:
            aims.append(("live: 50 times less stoppage than Spark's own way", f"{ratio:,.0f} times", ratio >= 50))
        wrong = [name for name, figures in found["strategies"].items() if not _right(figures)]
        missing = [name for name in STRATEGIES if name not in found["strategies"]]
        said = "; ".join(
            f"{what}: {', '.join(names)}" for what, names in (("wrong", wrong), ("not run", missing)) if names
        )
        aims.append(("every strategy: rows and state right", said or "all of them", not said))
    if found := results.get("idle"):
        ratio = found["idle"]["ratio"]
        aims.append(("ready for a change: at least 0.98 of the throughput", f"{ratio}", ratio >= 0.98))
    aims += [
        (f"the part of this page on {part.replace('_', ' ')}", "not measured", False)
        for part in FILES
        if part not in results
    ]
    return aims


def _back_to_back_of(results: Mapping[str, Result]) -> list[Result]:
    return [results[part] for part in ("back_to_back", "back_to_back_1gb") if part in results]


def _back_to_back(found: Result, *, first: bool) -> str:
    tables = [_table("moving", found["sizes"], ("still_stoppage_ms", "still_p99_ms"))]
    if "strategies" in found:
        tables.append(f"Every strategy: {_load(found)}")
        tables.append(_table("strategy", found["strategies"]))
    part = _BACK_TO_BACK.format(command=found["command"], load=_load(found, keys=False), tables="\n\n".join(tables))
    return f"{_BACK_TO_BACK_HEAD}\n{part}" if first else part


def _listed(values: Mapping[str, float | None], form: str) -> str:
    return ", ".join(f"{name}: {'none' if value is None else format(value, form)}" for name, value in values.items())


def _load(result: Result, *, keys: bool = True) -> str:
    given = {"skew": 0, "work_ms": 0, **result["parameters"]}
    size = f"{given['keys']:,} keys of {given['bytes']:,} bytes" if keys else f"Keys of {given['bytes']:,} bytes"
    rows = f"{given['rate']:,.0f} rows a second"
    how = [
        f"an epoch every {given['interval_ms']} ms" if given.get("interval_ms") else "one epoch after the other",
        f"Zipf {given['skew']:g}" if given["skew"] else "",
        f"{given['work_ms']:g} ms a row" if given["work_ms"] else "",
    ]
    return f"{size} on {given.get('hosts', 2)} hosts, {rows}, {', '.join(words for words in how if words)}."


def _right(one: Result) -> bool:
    return bool(one["exactly_once"] and one["in_order"] and one.get("state_equal") is not False)


def _table(what: str, found: Mapping[str, Result], more: Sequence[str] = ()) -> str:
    columns = (*_COLUMNS, "noise_ms", *more)
    names = [name.removesuffix("_ms").replace("_", " ") for name in columns]
    lines = [f"| {what} | {' | '.join(names)} | moved, MB | right |", "| --- |" + " --- |" * (len(columns) + 2)]
    for name, figures in found.items():
        spread = figures.get("spread", {})
        cells = " | ".join(_cell(figures.get(column)) + _between(spread.get(column)) for column in columns)
        lines.append(
            f"| {name} | {cells} | {figures['moved_bytes'] / 1e6:,.1f} | {'yes' if _right(figures) else 'NO'} |"
        )
    return "\n".join(lines)


def _swept(what: str, swept: Mapping[str, Result]) -> str:
    hows = ("push", "pause_resume", "batched")
    head = f"| {what} | {' | '.join(hows)} | push / pause_resume | push / batched | duration, push / batched |"
    lines = [head, "| --- |" + " --- |" * 6]
    for value, point in swept.items():
        cells = [
            _cell(point[how]["stabilise_ms"]) + _between(point[how].get("spread", {}).get("stabilise_ms"))
            for how in hows
        ]
        ratios = [str(point["ratios"].get(f"push_stabilise_vs_{rival}", "")) for rival in hows[1:]]
        took = point["push"]["duration_ms"] / point["batched"]["duration_ms"]
        lines.append(f"| {int(value):,} | {' | '.join([*cells, *ratios])} | {took:.2f} |")
    return "\n".join(lines)


def _between(spread: list[Any] | None) -> str:
    if spread is None or spread[0] == spread[1]:
        return ""
    return f" ({_cell(spread[0])} to {_cell(spread[1]) or 'never'})"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,.0f}"
