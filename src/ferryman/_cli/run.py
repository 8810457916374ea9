"""Run a script with a job, and watch over it: `ferryman run SCRIPT --restart`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def run(
    script: Annotated[Path, typer.Argument(help="The script that starts the job.", exists=True, dir_okay=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="What the script is given; its own options come after --.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Start the driver again when it has failed.")] = False,
    failures: Annotated[
        int, typer.Option(min=1, help="Give up after so many, with no epoch committed in between.")
    ] = 10,
    window: Annotated[float, typer.Option(min=1, help="Seconds after which a failure does not count any more.")] = 3600,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait after the first; twice as long each time.")] = 1,
    most_wait: Annotated[float, typer.Option(min=0, help="Seconds to wait at the most.")] = 60,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that the driver has when it is asked to end.")] = 60,
) -> None:
    """Run a script with a job, in a process of its own, and end both together; with --restart, start it again."""
    from ferryman._engine.restart_policy import RestartPolicy
    from ferryman._engine.supervisor import Supervisor

    policy = RestartPolicy(failures=failures if restart else 1, window_s=window, first_s=wait, most_s=most_wait)
    supervisor = Supervisor(
        str(script),
        arguments or [],
        policy=policy,
        grace_s=grace,
        say=lambda text: typer.echo(f"ferryman run: {text}", err=True),
        environment={"FERRYMAN_PROGRESS": os.environ.get("FERRYMAN_PROGRESS", "1")},
    )
    raise typer.Exit(supervisor.run())
