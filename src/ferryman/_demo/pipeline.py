"""The driver of the demo: start the job on the demo's directory, report every epoch, stop when all is read, check.

Run as `python -m ferryman._demo.pipeline DIRECTORY`. Killed and run again on the same directory it goes on
from the checkpoint; it does not know, and need not, that it was ever killed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from ferryman import Ferry, Job
from ferryman._demo.check import check
from ferryman._demo.events import Channel
from ferryman._demo.fleet import Fleet
from ferryman._demo.local_spark import cores, local_spark
from ferryman._demo.operators import OPERATORS, checkpoint_path, outputs
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory

_STATE_EVERY_S = 3.0


def main(out: Path) -> None:
    """Run the job until it has seen every reading."""
    channel = Channel()
    fleet = Fleet.load(out)
    spark = local_spark("ferryman-demo")
    checkpoint = Checkpoint(directory(str(checkpoint_path(out))))
    committed = sum(checkpoint.manifest(epoch).operators[OPERATORS[0]].rows for epoch in checkpoint.epochs())
    if fleet.start is None:
        fleet = replace(fleet, start=datetime.now(timezone.utc).isoformat())
        fleet.save(out)
    # All epochs of the demo are kept, as the check adds up what their manifests say.
    ferry = Ferry(spark, str(checkpoint_path(out)), snapshot_every=10, retain=100_000)
    job = ferry.start("demo", *outputs(ferry, fleet, out), instances=cores())
    channel.say("started", start=fleet.start, committed=committed)
    _report(job, channel, fleet.rows - committed)
    job.stop()
    channel.say("finished", keys=_keys(job))
    check(spark, out, channel)
    spark.stop()


def _report(job: Job, channel: Channel, left: int) -> None:
    """Send every epoch as it is committed, until no reading is left."""
    seen, keys, looked = 0, 0, 0.0
    while left > 0:
        job.wait_for(lambda before=seen: len(job.progress()) > before, timeout=60)  # type: ignore[misc]
        for epoch in job.progress()[seen:]:
            seen += 1
            left -= epoch.rows
            if time.monotonic() - looked > _STATE_EVERY_S:
                keys, looked = _keys(job), time.monotonic()
            channel.say(
                "epoch",
                epoch=epoch.epoch,
                rows=epoch.rows,
                output=epoch.output,
                keys=keys,
                duration_ms=epoch.duration_ms,
                committed_at=epoch.committed_ms / 1000,
            )


def _keys(job: Job) -> int:
    return sum(job.state(name).to_arrow().num_rows for name in OPERATORS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
