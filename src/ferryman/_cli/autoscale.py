"""Have a job choose its number of instances, running or in simulated time: `ferryman autoscale`, `simulate`."""

from __future__ import annotations

import json as jsons
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ferryman._cli.jobs import Json, Name, ask_job

if TYPE_CHECKING:
    from ferryman._scale.simulation.simulated_run import SimulatedRun

Min = Annotated[int | None, typer.Option("--min", help="How many instances there are at the least.")]
Max = Annotated[int | None, typer.Option("--max", help="How many there are at the most.")]
Target = Annotated[float | None, typer.Option(help="What part of the time the busiest instances should work.")]
Policy = Annotated[str | None, typer.Option(help="true-rates, seep or latency.")]
Latency = Annotated[float | None, typer.Option(help="For `latency`: seconds that the slowest rows may take.")]
Window = Annotated[str | None, typer.Option(help="Over how long load is measured, as '5 seconds'.")]
ScaleIn = Annotated[str | None, typer.Option(help="For how long fewer have to be wanted, as '1 minute'.")]
DryRun = Annotated[bool, typer.Option(help="Only say what would be done.")]


def autoscale(
    job: Name = None,
    min: Min = None,
    max: Max = None,
    target: Target = None,
    policy: Policy = None,
    latency: Latency = None,
    window: Window = None,
    scale_in_after: ScaleIn = None,
    dry_run: DryRun = False,
    off: Annotated[bool, typer.Option("--off", help="Leave the number of instances as it is from now on.")] = False,
) -> None:
    """Have a running job choose its number of instances by itself; without options, say what it does about that."""
    options = _options(min, max, target, policy, latency, window, scale_in_after, dry_run)
    typer.echo(ask_job(job, "autoscale", options=options, off=off)["text"])


def decisions(job: Name = None, json: Json = False) -> None:
    """List what the autoscaler of a running job has decided, oldest first; with --json, by which figures."""
    found = ask_job(job, "decisions")
    if json:
        typer.echo(jsons.dumps(found, indent=2))
        return
    for decision in found:
        at = datetime.fromtimestamp(decision["time_ms"] / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        typer.echo(f"{at} UTC  {decision['text']}")
    if not found:
        typer.echo("nothing was decided")


def simulate(
    load: Annotated[
        str, typer.Option(help="flat, step, diurnal, spike, sawtooth, flash-crowd, slow-leak or ramp.")
    ] = "diurnal",
    rate: Annotated[float, typer.Option(help="Rows per second that come in at the least.")] = 4_000,
    high: Annotated[float, typer.Option(help="And at the most.")] = 60_000,
    row_us: Annotated[float, typer.Option(help="Microseconds that an instance works on a row.")] = 100,
    trigger: Annotated[float, typer.Option(help="Seconds between epochs; 0 for one after the other.")] = 1.0,
    hours: Annotated[float, typer.Option(help="For how long.")] = 1.0,
    instances: Annotated[int, typer.Option(help="How many there are in the beginning.")] = 1,
    seed: Annotated[int, typer.Option(help="What chance goes by.")] = 1,
    min: Min = None,
    max: Max = None,
    target: Target = None,
    policy: Policy = None,
    latency: Latency = None,
    window: Window = None,
    scale_in_after: ScaleIn = None,
    json: Json = False,
) -> None:
    """Let a job run in simulated time, and say what the autoscaler decides and what comes of it."""
    from ferryman._model.errors import InvalidConfiguration
    from ferryman._scale.named_policies import options_of
    from ferryman._scale.simulation.engine_model import EngineModel
    from ferryman._scale.simulation.loads import SHAPES
    from ferryman._scale.simulation.simulation import Simulation

    if load not in SHAPES:
        raise InvalidConfiguration(f"--load {load!r}: give one of {', '.join(SHAPES)}.")
    if instances < 1 or hours <= 0 or rate < 0 or high < rate or row_us <= 0 or trigger < 0:
        raise InvalidConfiguration(
            "these numbers make no job: give --instances of 1 at least, and --high above --rate."
        )
    run = Simulation(
        load=SHAPES[load](rate, high),
        autoscale=options_of(_options(min, max, target, policy, latency, window, scale_in_after, False)),
        instances=instances,
        engine=EngineModel(row_s=row_us / 1e6, trigger_s=trigger),
        seed=seed,
    ).run(hours * 3600)
    said = _said(run)
    if json:
        typer.echo(jsons.dumps(said | {"decisions": [decision.json() for decision in run.decisions]}, indent=2))
        return
    for decision in run.decisions:
        typer.echo(f"{decision.time_ms / 1000:8.1f} s  {decision}")
    typer.echo(
        f"{said['epochs']:,} epochs, {said['rows']:,} rows; 99 of 100 rows took {said['p99_s']:.2f} s at the most, and "
        f"all {said['worst_s']:.2f} s; {said['scale_outs']} times more and {said['scale_ins']} times fewer instances, "
        f"{said['mean_instances']:.1f} in the mean"
    )


def _said(run: SimulatedRun) -> dict[str, Any]:
    kinds = [decision.kind for decision in run.changes]
    return {
        "epochs": len(run.epochs),
        "rows": sum(epoch.metrics.rows for epoch in run.epochs),
        "p99_s": run.late_s(),
        "worst_s": run.late_s(1.0),
        "scale_outs": kinds.count("scale out"),
        "scale_ins": kinds.count("scale in"),
        "instance_seconds": run.instance_seconds,
        "mean_instances": run.instance_seconds / run.seconds,
    }


def _options(
    min: int | None,
    max: int | None,
    target: float | None,
    policy: str | None,
    latency: float | None,
    window: str | None,
    scale_in_after: str | None,
    dry_run: bool,
) -> dict[str, Any]:
    given = {
        "min": min,
        "max": max,
        "target": target,
        "policy": policy,
        "latency_s": latency,
        "window": window,
        "scale_in_after": scale_in_after,
        "dry_run": dry_run or None,
    }
    return {name: value for name, value in given.items() if value is not None}


COMMANDS = (autoscale, decisions, simulate)
