"""Put Spark's own log back to the micro-batch of an earlier epoch, from what that epoch's manifest has kept of it.

What sources have noted for themselves stays: a source of files finds there what it has to give again.
"""

from __future__ import annotations

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.log_files import batches, beside, text_of, values_of
from ferryman._model.manifest import Manifest
from ferryman._model.spark_log import SparkLog


def kept_offsets(checkpoint: Checkpoint, manifest: Manifest) -> SparkLog | None:
    """Give what has to stand in Spark's log for an epoch to be the newest; None where nobody knows it any more."""
    batch, kept = manifest.batch, manifest.spark
    if batch < 0 or batch in kept.offsets:
        return kept
    # An earlier version kept no copy; Spark itself has it for a hundred micro-batches.
    found = {number: text_of(checkpoint, f"spark/offsets/{number}") for number in (batch - 1, batch)}
    texts = {number: text for number, text in found.items() if text is not None}
    if batch not in texts or (manifest.offsets and values_of(texts[batch]) != manifest.offsets):
        return None
    return SparkLog(texts, kept.metadata)


def rewind_spark_log(checkpoint: Checkpoint, batch: int, log: SparkLog) -> None:
    """Have Spark begin after a micro-batch; killed in between, it may be done again."""
    directory = checkpoint.directory
    for side in ("commits", "offsets"):
        # The newest first: what is left has no gap.
        for later in [number for number in batches(checkpoint, side) if number > batch]:
            name = f"spark/{side}/{later}"
            directory.delete([name, beside(name)])
    for number, text in log.offsets.items():
        name = f"spark/offsets/{number}"
        if text_of(checkpoint, name) != text:
            directory.delete([beside(name)])
            directory.write(name, text.encode())
