"""The command line, one file per command. May call every package; nobody calls it.

A command raises a `FerrymanError` like any other code; here it becomes one message and exit code 1.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ferryman._cli import (
    autoscale,
    bench,
    bench_campaigns,
    chaos,
    cluster,
    demo,
    jobs,
    prepare,
    rewind,
    run,
    state,
    verify,
)
from ferryman._model.errors import FerrymanError


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except FerrymanError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="ferryman",
    cls=_Commands,
    help="State for PySpark streams: exactly-once epochs, and state that anyone can read.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(importlib.metadata.version("ferryman"))
        raise typer.Exit


@app.callback()
def ferryman(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is, and end.")
    ] = False,
) -> None:
    """State for PySpark streams: exactly-once epochs, and state that anyone can read."""


for campaign in bench_campaigns.COMMANDS:
    bench.app.command()(campaign)
app.add_typer(bench.app, name="bench")
app.add_typer(cluster.app, name="cluster")
app.command()(chaos.chaos)
app.command()(demo.demo)
commands: tuple[Callable[..., None], ...] = (*jobs.COMMANDS, *autoscale.COMMANDS)
for command in commands:
    app.command()(command)
app.command()(prepare.prepare)
app.command()(run.run)
app.command()(state.state)
app.command()(verify.verify)
app.command()(rewind.rewind)
