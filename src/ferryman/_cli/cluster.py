"""`ferryman cluster`: a Spark cluster of several hosts on this machine, to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Run a Spark cluster of several hosts on this machine.")

Place = Annotated[Path, typer.Option("--dir", help="Where the cluster's files are.")]
_PLACE = Path("out/cluster")


@app.command()
def up(
    place: Place = _PLACE,
    hosts: Annotated[int, typer.Option(help="How many workers, each a host of its own.", min=1, max=50)] = 2,
    cores: Annotated[int, typer.Option(help="Cores of each.", min=1)] = 2,
    memory: Annotated[str, typer.Option(help="Memory of each, as Spark writes it.")] = "1g",
) -> None:
    """Start a master and workers; they run until `ferryman cluster down`."""
    from ferryman._spark.session.local_cluster import up as start

    console = Console()
    with console.status("starting a master and workers"):
        cluster = start(place, hosts=hosts, cores=cores, memory=memory)
    console.print(f"master   {cluster.url}")
    for worker in cluster.workers:
        console.print(f"worker   {worker.host}, {cores} cores, {memory}")
    console.print(f'use it   ferryman.session("my-app", "{cluster.url}")', highlight=False, soft_wrap=True)
    console.print("end it   ferryman cluster down" + ("" if place == _PLACE else f" --dir {place}"), soft_wrap=True)


@app.command()
def down(place: Place = _PLACE) -> None:
    """End the cluster and everything that runs on it."""
    from ferryman._spark.session.local_cluster import down as end

    with Console().status("ending the cluster"):
        ended = end(place)
    typer.echo(f"ended {ended} processes")
