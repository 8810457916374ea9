"""Check, before a job goes on, that the manifests and Spark's own log tell the same story.

Spark skips a micro-batch it has committed, and Ferryman one that a manifest covers. Where files of one side
are lost the other side would skip rows that nobody has processed, so that must stop the job. Reads
listings and two small files.
"""

from __future__ import annotations

import json

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.log_files import batches, bytes_of, file_counts, source_counts, text_of, torn, values_of
from ferryman._log.spark_log.source_places import same_but_for_new_sources
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.manifest import Manifest

_RESTORE = (
    "Going on would lose rows or count them twice. Restore the whole checkpoint directory from one backup, or start "
    "the job on a new checkpoint."
)


def check_agreement(checkpoint: Checkpoint, latest: Manifest | None) -> None:
    """Raise unless the newest manifest is the newest there was, and Spark's log goes as far as it does."""
    where = checkpoint.directory.uri
    epoch, batch = (latest.epoch, latest.batch) if latest else (0, -1)
    covered = f"the newest manifest is of epoch {epoch}" if latest else "there is no manifest"
    begun, done = (max(batches(checkpoint, side), default=-1) for side in ("offsets", "commits"))
    if done > batch:
        raise MissingDelta(
            f"manifests are missing in {where}: Spark has committed micro-batch {done}, but {covered}, which ends with "
            f"micro-batch {batch}. {_RESTORE}"
        )
    snapshots, intent = checkpoint.snapshots(), checkpoint.intent()
    if (snapshots and snapshots[-1] > epoch) or (intent is not None and intent.epoch > epoch + 1):
        later = max(snapshots[-1:] + ([intent.epoch] if intent else []))
        raise MissingDelta(
            f"manifests are missing in {where}: it has files of epoch {later}, but {covered}. {_RESTORE}"
        )
    if begun < batch:
        raise MissingDelta(
            f"spark/offsets/{batch} is missing in {where}: epoch {epoch} covers micro-batch {batch}, and Spark no "
            f"longer knows which rows that was. {_RESTORE}"
        )
    if latest is not None and not _same_offsets(checkpoint, latest):
        raise CorruptCheckpoint(
            f"spark/offsets/{batch} in {where} is not what epoch {epoch} was committed with: it is truncated or "
            f"altered, or of another run. {_RESTORE}"
        )
    if latest is not None:
        check_sources(checkpoint, latest)


def _same_offsets(checkpoint: Checkpoint, latest: Manifest) -> bool:
    """Tell whether Spark has the offsets that an epoch was committed with."""
    found = text_of(checkpoint, f"spark/offsets/{latest.batch}")
    if latest.batch in latest.spark.offsets:
        return found is not None and same_but_for_new_sources(found, latest.spark.offsets[latest.batch])
    return not latest.offsets or latest.offsets == values_of(found or "")[: len(latest.offsets)]


def pending_batch(checkpoint: Checkpoint) -> int | None:
    """Give the micro-batch that Spark will begin by doing again; None where it has committed all it has begun."""
    begun, done = ((batches(checkpoint, side) or [-1])[0] for side in ("offsets", "commits"))
    return begun if begun > done else None


def check_sources(checkpoint: Checkpoint, latest: Manifest) -> None:
    """Raise where a source of files has lost count of the files it has read: it would read them again."""
    where = checkpoint.directory.uri
    counts = source_counts(checkpoint)
    for source, count in file_counts(latest.offsets).items():
        names = [f"spark/sources/{source}/{count}{end}" for end in ("", ".compact")]
        if count > counts.get(source, -1):
            raise MissingDelta(
                f"{names[0]} is missing in {where}: epoch {latest.epoch} has processed the files it lists, and the "
                f"source would give them again. {_RESTORE}"
            )
        for name in names:
            if (data := bytes_of(checkpoint, name)) is not None and torn(data):
                raise CorruptCheckpoint(
                    f"{name} in {where} is truncated or altered: epoch {latest.epoch} has processed the files it "
                    f"lists, and the source would give them again. {_RESTORE}"
                )


def batch_time(checkpoint: Checkpoint, batch: int) -> int | None:
    """Read when Spark began a micro-batch: the same however often it is redone. None where its log does not say."""
    try:
        lines = checkpoint.directory.read(f"spark/offsets/{batch}").to_pybytes().decode().splitlines()
        return int(json.loads(lines[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
