"""Make ready what every start would otherwise do anew: `ferryman prepare`, once per machine or in an image."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from ferryman._model.errors import JavaMissing


def prepare(
    again: Annotated[bool, typer.Option("--again", help="Write the class archive also where there is one.")] = False,
) -> None:
    """Compile the loops of the stores, and write the class archive, so that drivers start in less time."""
    from ferryman._os import java
    from ferryman._spark.session import class_archive
    from ferryman._state import kernels

    console = Console(stderr=True)
    with console.status("compiling the loops of the stores"):
        began = time.perf_counter()
        kernels.warm()
    typer.echo(f"the loops of the stores are compiled: {time.perf_counter() - began:.1f} s")
    if java.find() is None:
        raise JavaMissing("there is no Java that Spark can run on, so there are no classes to write down.")
    if not again and (found := class_archive.find()) is not None:
        typer.echo(f"the class archive is there: {found}")
        return
    with console.status("a rehearsal, by which Java writes Spark's classes down (half a minute)"):
        began = time.perf_counter()
        found = class_archive.write()
    if found is None:
        typer.echo(
            "no class archive was written: this Java cannot, Spark was built from source, or the rehearsal failed or "
            "took over five minutes. Sessions start without, as they did; on a busy machine, try again later."
        )
        raise typer.Exit(1)
    size = found.stat().st_size / 1e6
    typer.echo(f"the class archive is written: {time.perf_counter() - began:.1f} s, {size:.0f} MB in {found}")
