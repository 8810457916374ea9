"""`ferryman demo`: run the demo, print the table that proves it, and write JSON if asked. Calls `_demo`."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ferryman._demo.run import Demo, check_again
from ferryman._demo.show import show_result


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long the sensors send readings.")] = 20,
    rate: Annotated[float, typer.Option(min=1, help="Readings per second of all sensors together.")] = 5_000,
    sensors: Annotated[int, typer.Option(min=1, help="How many sensors there are.")] = 2_000,
    out: Annotated[
        Path | None,
        typer.Option(help="Where checkpoint, rows, logs and chart go; by default out/demo-<time>.", file_okay=False),
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill nothing on the way.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(help="Only check what an earlier demo left in this directory.", exists=True, file_okay=False),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.", dir_okay=False)] = None,
) -> None:
    """Run a fleet of sensors, kill a worker and the driver on the way, and prove that nothing was lost."""
    console = Console(highlight=False)
    if check is not None:
        result = check_again(check.resolve(), console)
    else:
        place = (out or Path("out") / time.strftime("demo-%Y%m%d-%H%M%S")).resolve()
        print(f"Everything goes into {place}")
        try:
            result = Demo(seconds, rate, sensors, place, kills=not no_kill).run(console)
        except KeyboardInterrupt:
            console.print("Interrupted; everything that was started has been ended.")
            raise typer.Exit(130) from None
    show_result(console, result)
    if json is not None:
        json.write_text(json_format.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {json}")
    if not result["equal"]:
        raise typer.Exit(1)
