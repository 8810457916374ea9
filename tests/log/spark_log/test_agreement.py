"""The manifests and Spark's own log must tell the same story before a job goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.spark_log.agreement import check_agreement
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._model.snapshot import Snapshot


def commit(log: Checkpoint, epoch: int, batch: int, *, silent: bool = False) -> Manifest:
    """Commit an epoch, after Spark wrote its offsets."""
    log.directory.write(f"spark/offsets/{batch}", f'v1\n{{"batch":{batch}}}\n{{"rows":{batch * 100}}}'.encode())
    routing = RoutingTable.even(1, 8, 2)
    manifest = Manifest(
        epoch=epoch,
        batch=batch,
        silent=silent,
        time_ms=0,
        routing=routing,
        operators={},
        tables={},
        offsets=({"rows": batch * 100},),
    )
    log.commit(manifest)
    return manifest


@pytest.fixture
def log(tmp_path: Path) -> Checkpoint:
    """Give a checkpoint of three epochs, the last of them silent; Spark has not yet committed its second batch."""
    log = Checkpoint(LocalDirectory(tmp_path))
    commit(log, 1, 0)
    log.directory.write("spark/commits/0", b"v1")
    commit(log, 2, 1)
    commit(log, 3, 1, silent=True)
    log.intend(3, 0)
    return log


def test_a_sound_checkpoint_passes_before_and_after_sparks_commit(log: Checkpoint, tmp_path: Path) -> None:
    check_agreement(log, log.latest())
    log.directory.write("spark/commits/1", b"v1")
    check_agreement(log, log.latest())
    log.intend(4, 0)
    check_agreement(log, log.latest())
    log.directory.write("spark/offsets/2", b"v1\n{}\n{}")
    check_agreement(log, log.latest())

    check_agreement(Checkpoint(LocalDirectory(tmp_path / "new")), None)


def test_spark_being_ahead_means_that_a_manifest_is_missing(log: Checkpoint) -> None:
    log.directory.write("spark/commits/2", b"v1")

    with pytest.raises(MissingDelta, match=r"committed micro-batch 2, but .* epoch 3, which ends with micro-batch 1"):
        check_agreement(log, log.latest())
    with pytest.raises(MissingDelta, match="there is no manifest"):
        check_agreement(log, None)


def test_a_snapshot_of_a_later_epoch_means_that_a_manifest_is_missing(log: Checkpoint) -> None:
    log.publish_snapshot(Snapshot(4, {}))

    with pytest.raises(MissingDelta, match=r"files of epoch 4, but the newest manifest is of epoch 3\."):
        check_agreement(log, log.latest())


def test_silent_epochs_that_are_missing_are_known_by_their_intent(log: Checkpoint) -> None:
    log.intend(5, 0)

    with pytest.raises(MissingDelta, match="files of epoch 5"):
        check_agreement(log, log.latest())


def test_offsets_that_are_gone_would_let_a_new_batch_be_skipped(log: Checkpoint) -> None:
    log.directory.delete(["spark/offsets/1"])

    with pytest.raises(MissingDelta, match=r"spark/offsets/1 is missing.* epoch 3 covers micro-batch 1"):
        check_agreement(log, log.latest())


@pytest.mark.parametrize("text", [b"", b"v1\n{}", b'v1\n{}\n{"rows":101}', b"v1\n{}\n\xff"])
def test_other_offsets_than_the_manifests_are_corrupt(log: Checkpoint, text: bytes) -> None:
    log.directory.write("spark/offsets/1", text)

    with pytest.raises(CorruptCheckpoint, match=r"spark/offsets/1 .* is not what epoch 3 was committed with"):
        check_agreement(log, log.latest())
