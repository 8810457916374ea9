"""`ferryman chaos`: a job on a cluster while one thing after the other goes wrong; then all is counted.

The campaign is in the folder `bench/` of a source checkout, like the benchmarks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ferryman._cli.bench import _load, _names, _run


def chaos(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults come.")] = 10,
    seed: Annotated[int, typer.Option(help="What the schedule of faults follows from: the same again.")] = 1,
    every: Annotated[float, typer.Option(min=1, help="Seconds from one fault to the next, about.")] = 8,
    hosts: Annotated[int, typer.Option(min=2, max=8, help="Hosts of the cluster.")] = 3,
    kinds: Annotated[str | None, typer.Option(help="Kinds of faults, comma-separated; all by default.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Directory for files; by default a temporary one.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files there.")] = False,
    json: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.", dir_okay=False)] = None,
) -> None:
    """Kill, stop, cut off, fill and damage what a job runs on, from a seed; then count. Ends with 1 if it is wrong."""
    benchmark = _load("chaos")
    result = _run(
        "chaos", json, minutes=minutes, seed=seed, every=every, hosts=hosts,
        kinds=_names(kinds, tuple(_load("chaos_schedule").KINDS), "--kinds"), scratch=scratch, keep=keep,
    )  # fmt: skip
    if benchmark.faults_of(result):
        raise typer.Exit(1)
