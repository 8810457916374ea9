"""Check, before a job goes on, that the manifests and Spark's own log tell the same story.

Spark skips a micro-batch it has committed, and Ferryman one that a manifest covers. Where files of one side
are lost the other side would skip rows that nobody has processed, so that must stop the job. Reads
listings and two small files.
"""

from __future__ import annotations

import json
from typing import Any

from ferryman._log.checkpoint import Checkpoint, is_number
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.records import Manifest

_RESTORE = (
    "Going on would lose rows or count them twice. Restore the whole checkpoint directory from one backup, or start "
    "the job on a new checkpoint."
)


def check_agreement(checkpoint: Checkpoint, latest: Manifest | None) -> None:
    """Raise unless the newest manifest is the newest there was, and Spark's log goes as far as it does."""
    where = checkpoint.directory.uri
    epoch, batch = (latest.epoch, latest.batch) if latest else (0, -1)
    covered = f"the newest manifest is of epoch {epoch}" if latest else "there is no manifest"
    begun, done = (_newest(checkpoint, side) for side in ("offsets", "commits"))
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
    if latest is not None and latest.offsets and latest.offsets != read_offsets(checkpoint, batch):
        raise CorruptCheckpoint(
            f"spark/offsets/{batch} in {where} is not what epoch {epoch} was committed with: it is truncated or "
            f"altered, or of another run. {_RESTORE}"
        )


def read_offsets(checkpoint: Checkpoint, batch: int) -> tuple[Any, ...]:
    """Read the source offsets Spark wrote down for a micro-batch before it began; nothing if it cannot be read."""
    try:
        lines = checkpoint.directory.read(f"spark/offsets/{batch}").to_pybytes().decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(_json(line) for line in lines[2:])


def _newest(checkpoint: Checkpoint, side: str) -> int:
    return max((int(name) for name in checkpoint.directory.list(f"spark/{side}") if is_number(name)), default=-1)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def batch_time(checkpoint: Checkpoint, batch: int) -> int | None:
    """Read when Spark began a micro-batch: the same however often it is redone. None where its log does not say."""
    try:
        lines = checkpoint.directory.read(f"spark/offsets/{batch}").to_pybytes().decode().splitlines()
        return int(json.loads(lines[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
