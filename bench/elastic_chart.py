"""The picture of `ferryman bench elastic`: for each contender the latency and the instances, through the same load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.report import Result

NAMES = {
    "autoscaled": "Ferryman's autoscaler",
    "fixed_peak": "fixed, for the peak",
    "fixed_mean": "fixed, for the mean",
    "lag": "rule of lag (KEDA)",
    "restart": "Flink operator's rule, restarts",
    "restart_quick": "the same, short windows",
}


def draw(result: Mapping[str, Result], path: Path) -> None:
    """Draw what `ferryman bench elastic` has measured: p99 above, instances below, a column for each contender."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found, trace = result["contenders"], result["trace"]
    figure, axes = plt.subplots(
        2,
        len(found),
        figsize=(max(7.0, 0.6 + 2.5 * len(found)), 4.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        constrained_layout=True,
    )
    end = trace["seconds"]
    for (above, below), (name, one) in zip(axes.T, found.items(), strict=True):
        points = [(begin, p99 / 1000) for begin, p99 in one["windows_s_p99_ms"]]
        above.plot(*zip(*points, strict=True), color="#2f6f9f", linewidth=1.2)
        above.axhline(2 * one["p99_quiet_ms"] / 1000, color="#c0392b", linewidth=0.8, linestyle="--")
        above.set_yscale("log")
        above.set_title(NAMES[name], fontsize=9)
        above.grid(visible=True, axis="y", alpha=0.3)
        for steps, colour, width in ((result["oracle"]["steps"], "#999999", 1.0), (one["steps"], "#2f6f9f", 1.4)):
            times = [*[max(0.0, at) for at, _ in steps], end]
            counts = [count for _, count in steps]
            below.step(times, [*counts, counts[-1]], where="post", color=colour, linewidth=width)
        below.set_title(f"{one['instance_seconds_vs_oracle']:.2f} of the oracle's", fontsize=8)
        below.yaxis.get_major_locator().set_params(integer=True)
        below.grid(visible=True, axis="y", alpha=0.3)
    axes[0][0].set_ylabel("p99 of 5 s, seconds", fontsize=8)
    axes[1][0].set_ylabel("instances", fontsize=8)
    figure.suptitle(
        f"{trace['low']:,.0f} to {trace['high']:,.0f} rows/s in {trace['rise_s']:.0f} s and back; grey: the oracle; "
        "dashed: twice p99 before",
        x=0.01,
        ha="left",
        fontsize=10,
    )
    figure.supxlabel("seconds", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(result: Result) -> str:
    """Write the figures as the table of docs/autoscaling.md."""
    lines = [
        "| contender | p99 before | worst p99 | ratio | instance-seconds | of the oracle's | changes | rows not done |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in result["contenders"].items():
        times = (
            f"{one['p99_quiet_ms'] / 1000:.1f} s | {one['p99_worst_ms'] / 1000:.1f} s | {one['p99_worst_ratio']:.1f}"
        )
        spent = f"{one['instance_seconds']:,.0f} | {one['instance_seconds_vs_oracle']:.2f}"
        changes = f"{one['scale_outs']} up, {one['scale_ins']} down | {one['rows_not_done']:,}"
        lines.append(f"| {NAMES[name]} | {times} | {spent} | {changes} |")
    return "\n".join(lines)
