"""The campaigns of `ferryman bench`: they count what is right, and not how fast it is. Calls `bench`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ferryman._cli.bench import Json, Scratch, _load, _names, _run


def drivers(
    seconds: Annotated[float, typer.Option(min=10, help="How long both drivers are there.")] = 600,
    seed: Annotated[int, typer.Option(help="What the random moments follow from.")] = 1,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Two live drivers on one checkpoint, put to sleep and woken at random: one history, every row once."""
    _run("drivers", json, seconds=seconds, seed=seed, scratch=scratch)


def faults(
    strategies: Annotated[str | None, typer.Option(help="Strategies to run, comma-separated.")] = None,
    phases: Annotated[str | None, typer.Option(help="Phases of a plan to strike in, comma-separated.")] = None,
    victims: Annotated[str | None, typer.Option(help="Who is struck, comma-separated.")] = None,
    how: Annotated[str | None, typer.Option(help="killed, stalls, or both, comma-separated.")] = None,
    pairs: Annotated[
        bool, typer.Option(help="Every pair of strategy, phase and victim: a fifth of the cases.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=1, help="Begin no case after so long.")] = 600,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Kill and stall hosts and the driver in every phase of a change, by every strategy; takes more than an hour."""
    known = _load("faults")
    _run(
        "faults", json, strategies=_names(strategies, known.STRATEGIES, "--strategies"),
        phases=_names(phases, known.PHASES, "--phases"), victims=_names(victims, known.VICTIMS, "--victims"),
        how=_names(how, known.HOW, "--how"), pairs=pairs, minutes=minutes, scratch=scratch,
    )  # fmt: skip


def histories(
    count: Annotated[int, typer.Option(min=0, help="Histories to run.")] = 1000,
    seed: Annotated[int, typer.Option(help="The first one; each has a seed of its own.")] = 1,
    mutants: Annotated[
        str | None, typer.Option(help="Syncs and fences to leave out, comma-separated, or all; by default none.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="After how many histories a mutant counts as not caught.")] = 1000,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Random deaths, power cuts, full disks and lost replies: nothing promised is lost, nothing counts twice."""
    known = _load("histories")
    chosen = [] if mutants is None else _names(None if mutants == "all" else mutants, tuple(known.MUTANTS), "--mutants")
    if known.wrong(_run("histories", json, count=count, seed=seed, mutants=chosen, most=most, scratch=scratch)):
        raise typer.Exit(1)


COMMANDS: tuple[Callable[..., None], ...] = (drivers, faults, histories)
