"""How long it takes until a job whose driver was killed goes on, beside Spark's own query after the same loss."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import restart
from bench.report import Progress, Result, environment, result_of


def run(
    *,
    mb: int = 300,
    size: int = 3000,
    rounds: int = 5,
    engines: Sequence[str] = restart.ENGINES,
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure all engines in turns.

    Parameters
    ----------
    mb, size
        Megabytes of state, and bytes of state per key.
    rounds
        How often it is lost with each engine.
    engines
        Which to measure.
    instances
        Parallel instances, or partitions; one per core by default.
    scratch
        A directory for input and checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    load = restart.Load.of(mb, size, rounds, engines, instances)
    result = result_of("restart", load.parameters(), environment())
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        result |= restart.run(work, load, progress)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result


def show_result(result: Result) -> None:
    """Print a table."""
    restart.show_part(result)
