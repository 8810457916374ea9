"""Change a job that runs, from the shell: `ferryman jobs`, `plan`, `rescale`, `move` and the like."""

from __future__ import annotations

import json as jsons
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich.console import Console

from ferryman._model.errors import FerrymanError, InvalidConfiguration, NothingMoves

Name = Annotated[str | None, typer.Argument(help="The job's name or process; may be left out where only one runs.")]
Job = Annotated[
    str | None, typer.Option("--job", help="The job's name or process; may be left out where only one runs.")
]
By = Annotated[str, typer.Option(help="What is to be even: rows, busy (time spent on them) or bytes of state.")]
Strategy = Annotated[str, typer.Option(help="How state moves; see docs/reconfiguration.md.")]
Keys = Annotated[
    list[str] | None, typer.Option("--key", help="A key, any number of times; of several columns: '[\"a\", 1]'.")
]
Operator = Annotated[str | None, typer.Option(help="Whose keys they are, if several operators have such keys.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
# How long a job may take to say how it is.
_STATUS_S = 10.0

Wait = Annotated[float, typer.Option(help="Seconds to wait for the end; 0 to return at once.")]


def _find(name: str | None) -> Any:
    from ferryman._serve.registry import running

    jobs = running()
    named = [job for job in jobs if name is None or name in (job.job, str(job.pid))]
    if len(named) == 1:
        return named[0]
    known = ", ".join(sorted(f"{job.job} (process {job.pid})" for job in jobs)) or "none"
    if not named:
        what = "no job runs on this machine" if name is None else f"no job {name!r} runs on this machine"
        raise InvalidConfiguration(f"{what} for this user (running: {known}). Run this where the job's driver is.")
    raise InvalidConfiguration(f"several jobs run: {known}. Say with --job which one is meant, by its name or process.")


def ask_job(name: str | None, request: str, **values: Any) -> Any:
    """Ask the job that is meant for something."""
    from ferryman._serve.endpoint import ask

    return ask(_find(name), request, **values)


def jobs(json: Json = False) -> None:
    """List the jobs that run on this machine."""
    from pyarrow import flight

    from ferryman._serve.endpoint import ask
    from ferryman._serve.registry import running

    found = []
    for job in running():
        try:
            said = ask(job, "status", _STATUS_S)
        except FerrymanError as error:
            if isinstance(error.__cause__, flight.FlightUnavailableError):
                # Nobody listens: the number of a process that was killed is another one's some day.
                continue
            said = {"job": job.job, "silent": str(error)}
        found.append({**said, "checkpoint": job.checkpoint, "pid": job.pid})
    if json:
        typer.echo(jsons.dumps(found, indent=2))
        return
    if not found:
        typer.echo("no job runs on this machine for this user")
    for answer in found:
        where = f"{answer['checkpoint']} (pid {answer['pid']})"
        if "silent" in answer:
            typer.echo(f"{answer['job']}: does not answer ({answer['silent']}); {where}")
            continue
        change = f", {answer['change']}" if answer["change"] else ""
        waiting = "" if answer.get("waiting") is None else f", {answer['waiting']:,} rows wait in Kafka"
        how = f"epoch {answer['epoch']}, {answer['instances']} instances{change}{waiting}"
        typer.echo(f"{answer['job']}: {how}; {where}")


def plan(
    job: Name = None,
    instances: Annotated[int | None, typer.Option(help="As for rescale.")] = None,
    groups: Annotated[str | None, typer.Option(help="As for move, comma-separated.")] = None,
    key: Keys = None,
    to: Annotated[str | None, typer.Option(help="As for move.")] = None,
    operator: Operator = None,
    by: By = "rows",
    json: Json = False,
) -> None:
    """Say what a rescale, a move, or (with neither) a rebalance would do and how long it would take, and do nothing."""
    asked = {"instances": instances, "groups": _groups(groups), "keys": key, "to": to, "operator": operator, "by": by}
    try:
        found = ask_job(job, "plan", **asked)
    except NothingMoves as error:
        found = {"moves": [], "text": error.message}
    typer.echo(jsons.dumps(found, indent=2) if json else found["text"])


def rescale(
    instances: Annotated[int, typer.Argument(help="How many instances there are to be.")],
    job: Job = None,
    by: By = "rows",
    strategy: Strategy = "live",
    wait: Wait = 600,
) -> None:
    """Change the number of instances of a running job."""
    _change(job, "rescale", wait, instances=instances, by=by, strategy=strategy)


def move(
    to: Annotated[str, typer.Option(help="Where they go: an instance's number, a host, or a site.")],
    groups: Annotated[str | None, typer.Argument(help="Key groups, comma-separated.")] = None,
    key: Keys = None,
    operator: Operator = None,
    job: Job = None,
    strategy: Strategy = "live",
    wait: Wait = 600,
) -> None:
    """Give key groups, or single keys, of a running job to an instance, a host or a site."""
    _change(job, "move", wait, groups=_groups(groups), keys=key, to=to, operator=operator, strategy=strategy)


def unpin(
    key: Keys = None,
    operator: Operator = None,
    job: Job = None,
    strategy: Strategy = "live",
    wait: Wait = 600,
) -> None:
    """Have keys go back to the instances that own their groups; without --key, all that are pinned."""
    _change(job, "unpin", wait, keys=key, operator=operator, strategy=strategy)


def rebalance(job: Name = None, by: By = "rows", strategy: Strategy = "live", wait: Wait = 600) -> None:
    """Even out the load of a running job's instances."""
    _change(job, "rebalance", wait, by=by, strategy=strategy)


def abort(job: Name = None) -> None:
    """Give up the change under way; what is committed stays."""
    typer.echo(ask_job(job, "abort")["text"])


def history(job: Name = None, json: Json = False) -> None:
    """List the changes of a running job, oldest first."""
    found = ask_job(job, "history")
    if json:
        typer.echo(jsons.dumps(found, indent=2))
        return
    for plan in found:
        typer.echo(_line(plan))
    if not found:
        typer.echo("nothing was changed since the job started")


def pins(job: Name = None, json: Json = False) -> None:
    """List the keys of a running job that are pinned to an instance."""
    found = ask_job(job, "pins")
    if json:
        typer.echo(jsons.dumps(found, indent=2))
        return
    for pin in found:
        typer.echo(f"{pin['key']}: instance {pin['instance']}{', as it is hot' if pin['hot'] else ''}")
    if not found:
        typer.echo("no key is pinned")


def hot_keys(job: Name = None, json: Json = False) -> None:
    """List the keys of a running job that have so many rows that they decide how full their instance is."""
    found = ask_job(job, "hot_keys")
    if json:
        typer.echo(jsons.dumps(found, indent=2))
        return
    for key in found:
        where = f"{'pinned to' if key['pinned'] else 'on'} instance {key['instance']}"
        typer.echo(f"{key['key']}: {key['share']:.0%} of the rows, {key['rows']:,.0f} an epoch, {where}")
    if not found:
        typer.echo("no key is hot")


def sites(job: Name = None, json: Json = False) -> None:
    """List the instances of a running job: on which host and site each is, and what it bears."""
    found = ask_job(job, "sites")
    if json:
        typer.echo(jsons.dumps(found, indent=2))
        return
    for instance in found:
        where = (
            f"{instance['site']}, {instance['host']}"
            if instance["site"]
            else instance["host"] or "not known before the first epoch"
        )
        work = f"{instance['rows']:,.0f} rows and {instance['busy_ms']:,.0f} ms an epoch"
        bears = f"{work}, {instance['bytes']:,} bytes of state"
        typer.echo(f"instance {instance['instance']}: {where}; {instance['groups']} key groups, {bears}")


def _groups(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of key groups such as 0,1,17") from None


def _change(name: str | None, request: str, wait: float, **values: Any) -> None:
    try:
        with Console(stderr=True).status(f"{request} under way"):
            found = ask_job(name, request, wait=wait, timeout_s=wait + 60, **values)
    except NothingMoves as error:
        # Whoever wants it so has it so.
        typer.echo(error.message)
        return
    typer.echo(_line(found))
    if found["phase"] == "aborted":
        raise typer.Exit(1)


def _line(plan: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(plan["requested_ms"] / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    took = "" if plan["duration_ms"] is None else f" after {plan['duration_ms'] / 1000:.1f} s"
    why = f" ({plan['reason']})" if plan["reason"] else ""
    before, after = plan["instances"]
    what = f"{before} -> {after} instances" if before != after else f"{after} instances"
    if plan["keys"]:
        what += f", keys {', '.join(map(repr, plan['keys']))}"
    return (
        f"{at} UTC  {plan['kind']}, {plan['strategy']}: {what}, {plan['moves']} key groups, "
        f"{plan['moved_bytes']:,} bytes between hosts: {plan['phase']}{took}{why}"
    )


COMMANDS = (jobs, plan, rescale, move, unpin, rebalance, abort, history, pins, hot_keys, sites)
