"""Draw the run: rows per second and epoch times over time, the kills marked. The only module that needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ferryman._demo.history import EpochPoint, History, Kill

_INK, _FAINT, _BLUE, _AMBER, _RED = "#22303c", "#c9d1d9", "#2f6f9f", "#d98324", "#c0392b"
_STEP_S = 0.5
_TICKS_MS = [digit * 10**power for power in range(1, 6) for digit in (1, 2, 5)]


def draw(history: History, path: Path) -> bool:
    """Write the chart as a PNG; tell whether it could be drawn."""
    try:
        import matplotlib
    except ImportError:
        return False
    # Draws into a file on machines without a display, whatever the user's configuration says.
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    assert history.start is not None, "a run that finished has started"
    origin, epochs = history.start, history.epochs
    end = epochs[-1].at - origin
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(11, 6.2), dpi=130, sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    times, rates = _rates(epochs, origin, end)
    upper.fill_between(times, rates, step="post", color=_BLUE, alpha=0.25, linewidth=0)
    upper.step(times, rates, where="post", color=_BLUE, linewidth=1.6, label="rows committed per second")
    fleet = history.fleet
    sends = fleet.rows / fleet.rate
    upper.hlines(fleet.rate, 0, sends, _INK, (0, (4, 3)), "rate of the sensors", linewidth=1.1)
    upper.set_ylim(0, max([*rates, history.fleet.rate]) * 1.4)
    upper.set_ylabel("rows per second")
    upper.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    lower.scatter([epoch.at - origin for epoch in epochs], [epoch.duration_ms for epoch in epochs], s=18, color=_AMBER)
    lower.set_yscale("log")
    lower.set_ylabel("epoch time, ms")
    low, high = (bound([epoch.duration_ms for epoch in epochs]) for bound in (min, max))
    lower.set_ylim(low / 1.3, high * 1.3)
    # Matplotlib names only the powers of ten, and a run may well stay between two of them.
    ticks = [tick for tick in _TICKS_MS if low / 1.3 <= tick <= high * 1.3]
    lower.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    lower.set_yticks([], minor=True)
    lower.set_xlabel("seconds since the first reading")
    lower.set_xlim(0, end * 1.02)
    for number, kill in enumerate(history.kills):
        _mark(upper, lower, kill, origin, height=0.97 - 0.13 * number)
    for axes in (upper, lower):
        axes.grid(True, axis="y", color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_FAINT)
        axes.tick_params(colors=_INK, which="both")
    upper.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=9)
    title = f"{fleet.rows:,} readings of {fleet.sensors:,} sensors through three operators"
    if history.kills:
        title += ": a worker and the driver killed on the way"
    figure.suptitle(
        title,
        x=0.01,
        ha="left",
        fontsize=12,
        color=_INK,
        weight="bold",
    )
    figure.savefig(path)
    plt.close(figure)
    return True


def _mark(upper: Any, lower: Any, kill: Kill, origin: float, height: float) -> None:
    at = kill.at - origin
    until = (kill.recovered_at or kill.at) - origin
    for axes in (upper, lower):
        axes.axvspan(at, until, color=_RED, alpha=0.10, linewidth=0)
        axes.axvline(at, color=_RED, linewidth=1.3)
    upper.annotate(
        f"kill -9 {kill.victim}\nnext epoch after {until - at:.1f} s",
        (at, height),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0),
        textcoords="offset points",
        va="top",
        color=_RED,
        fontsize=9,
        bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.5},
        zorder=5,
    )


def _rates(epochs: list[EpochPoint], origin: float, end: float) -> tuple[list[float], list[float]]:
    """Give the pace in even steps, each epoch's rows spread over the time that it ran."""
    rates = [0.0] * (int(end / _STEP_S) + 2)
    for epoch in epochs:
        last = epoch.at - origin
        first = min(last - epoch.duration_ms / 1000, last - 0.001)
        for step in range(max(0, int(first / _STEP_S)), int(last / _STEP_S) + 1):
            inside = min(last, (step + 1) * _STEP_S) - max(first, step * _STEP_S)
            rates[step] += epoch.rows * inside / (last - first) / _STEP_S
    return [step * _STEP_S for step in range(len(rates))], rates
