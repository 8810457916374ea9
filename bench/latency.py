"""What users notice of a change: the latency of every row before, during and after it, and whether all are right."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.report import Result

_WINDOW_S = 0.25
_CALM_S = 2.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Window = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows a job put out.

    Attributes
    ----------
    due, done
        When each was due and when its result was there, in seconds.
    ids
        The number of each, in the order they were due.
    keys
        The key of each.
    n
        What its key had counted to.
    groups
        The key group of each.
    """

    due: Floats
    done: Floats
    ids: Ints
    keys: npt.NDArray[Any]
    n: Ints
    groups: Ints

    def right(self) -> Result:
        """Check the number that every key has counted to: each row once, in the order the rows were due."""
        ids = np.sort(self.ids)
        once = bool(len(ids) and ids[0] == 0 and (np.diff(ids) == 1).all())
        _, keys = np.unique(self.keys, return_inverse=True)
        order = np.lexsort((self.ids, keys))
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        lengths = np.diff(np.append(starts, len(order)))
        expected = np.arange(len(order)) - np.repeat(starts, lengths) + 1
        # A lost row shows as a gap in the ids, and leaves the counts after it one too low.
        return {"rows": len(ids), "exactly_once": once, "in_order": bool((self.n[order] == expected).all())}


@dataclass(frozen=True, eq=False)
class Change:
    """A change, among the rows of the job that went through it.

    Attributes
    ----------
    rows
        The rows of the job.
    moving
        The key groups that move.
    asked_s, ended_s
        When it was asked for, and when it was over.
    since_s, until_s
        How far around it to look.
    facts
        What else is known of it.
    """

    rows: Rows
    moving: frozenset[int]
    asked_s: float
    ended_s: float
    since_s: float
    until_s: float
    facts: Result

    def figures(self) -> Result:
        """Say what was noticed.

        Before is what was done before the request; after is what was due after the end; during is the rest: also what
        was due before the request and was still waiting for its result then.
        """
        rows = self.rows
        latency = (rows.done - rows.due) * 1000
        before = (rows.done >= self.since_s) & (rows.done < self.asked_s)
        during = (rows.done >= self.asked_s) & (rows.due <= self.ended_s)
        after = (rows.due > self.ended_s) & (rows.due < self.until_s)
        moving = np.isin(rows.groups, list(self.moving))
        if not (before & moving).any() or not (during & moving).any():
            raise RuntimeError("no epoch ended in the time before the change or during it: watch longer, or load less")
        p99 = float(np.percentile(latency[before], 99))
        bound = 1.2 * p99
        return {
            "stoppage_ms": round(max(0.0, float(latency[during & moving].max()) - p99), 1),
            "stabilise_ms": stabilised(self._p99(), self.ended_s - self.asked_s, bound),
            "p99_before_ms": round(p99, 1),
            "p99_during_ms": round(float(np.percentile(latency[during], 99)), 1),
            "p99_after_ms": round(float(np.percentile(latency[after], 99)), 1) if after.any() else None,
            "p50_before_ms": round(float(np.percentile(latency[before], 50)), 1),
            "max_ms": round(float(latency[during].max()), 1),
            # What the formula of the stoppage gives where nothing was changed: it cannot tell less than that.
            "noise_ms": round(float(latency[before & moving].max()) - p99, 1),
            **self.facts,
            **rows.right(),
        }

    def windows(self) -> list[tuple[float, Floats]]:
        """Give the latencies of the rows that were due in each window, in seconds from the request."""
        latency = (self.rows.done - self.rows.due) * 1000
        return [(at, latency[mine]) for at, mine in self._windows()]

    def _windows(self) -> list[tuple[float, Any]]:
        rows = self.rows
        near = (rows.due >= self.since_s) & (rows.due < self.until_s)
        place = np.floor((rows.due - self.asked_s) / _WINDOW_S).astype(int)
        first, last = place[near].min(), place[near].max()
        return [(window * _WINDOW_S, near & (place == window)) for window in range(first, last + 1)]

    def _p99(self) -> list[Window]:
        """Give p99 of the rows that still waited at the request, and of those that were due in each window after it."""
        rows = self.rows
        waiting = (rows.due < self.asked_s) & (rows.done >= self.asked_s)
        some = [(-_WINDOW_S, waiting), *((at, mine) for at, mine in self._windows() if at >= 0)]
        latency = (rows.done - rows.due) * 1000
        return [
            (at, float(np.percentile(latency[mine], 99)), float(rows.done[mine].max() - self.asked_s))
            for at, mine in some
            if mine.any()
        ]


def typical(changes: Sequence[Change]) -> Result:
    """Give the median of each figure over rounds, with the least and the most; a row that was wrong once is wrong."""
    rounds = [change.figures() for change in changes]
    if len(rounds) == 1:
        return rounds[0]
    found: Result = {}
    spread: Result = {}
    for name in rounds[0]:
        values = [figures[name] for figures in rounds]
        if name in ("exactly_once", "in_order", "state_equal"):
            found[name] = all(values)
            continue
        # What did not come to an end while anybody looked took longer than all that did.
        ordered = sorted(values, key=lambda value: float("inf") if value is None else value)
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        found[name] = None if high is None else round((low + high) / 2, 1)
        if name.endswith("_ms"):
            spread[name] = [ordered[0], ordered[-1]]
    return {**found, "rounds": len(rounds), "spread": spread}


def stabilised(windows: Sequence[Window], ended_s: float, bound: float) -> float | None:
    """Find how long after the request p99 stays within the bound for two seconds, not to leave it before the end.

    Parameters
    ----------
    windows
        The beginning of each window that rows were due in, in seconds from the request, their p99, and when the last
        of them was there: by when they were due, so that a time in which nothing came out is not taken for a calm one.
    ended_s
        When the change ended.
    bound
        What p99 may be.

    Returns
    -------
    float or None
        Milliseconds; None if it did not, as long as anybody looked.
    """
    need = int(_CALM_S / _WINDOW_S)
    for place, (at, _, _) in enumerate(windows):
        ahead = windows[place : place + need]
        if at >= ended_s and len(ahead) == need and not any(p99 > bound for _, p99, _ in ahead):
            return round(max((done for _, p99, done in windows[:place] if p99 > bound), default=0.0) * 1000, 1)
    return None


def write_windows(found: Mapping[str, Sequence[Change]], path: Path) -> None:
    """Write the latency of every round in windows of 250 ms, as seconds from the request."""
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["strategy", "round", "second", "rows", "p50_ms", "p99_ms", "max_ms"])
        every = ((name, number, change) for name, ones in found.items() for number, change in enumerate(ones, 1))
        for name, number, change in every:
            for second, some in change.windows():
                cuts = np.percentile(some, [50, 99, 100]) if len(some) else [None] * 3
                rounded = (None if cut is None else round(cut, 1) for cut in cuts)
                out.writerow([name, number, round(second, 2), len(some), *rounded])


def draw(windows: Path, title: str, path: Path) -> None:
    """Draw the latency through the change, from what `write_windows` wrote: a picture for each strategy, all alike."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with windows.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["max_ms"]:
                rounds = found.setdefault(row["strategy"], {})
                rounds.setdefault(row["round"], []).append((float(row["second"]), float(row["max_ms"])))
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    figure, axes = plt.subplots(
        lines,
        columns,
        figsize=(4 * columns, 0.6 + 2 * lines),
        sharex=True,
        sharey=True,
        squeeze=False,
        constrained_layout=True,
    )
    for axis, (name, rounds) in zip(axes.flat, found.items(), strict=False):
        for points in rounds.values():
            axis.plot(*zip(*points, strict=True), color="#2f6f9f", linewidth=1.1, alpha=0.8)
        axis.axvline(0, color="#c0392b", linewidth=1)
        axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.grid(visible=True, axis="y", alpha=0.3)
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left")
    figure.supxlabel("seconds since the request", fontsize=9)
    figure.supylabel("slowest row of 250 ms, ms", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
