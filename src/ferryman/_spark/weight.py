"""How much state a job has, without reading it."""

from __future__ import annotations

from ferryman._log.checkpoint import Checkpoint
from ferryman._model.records import Manifest

# Of how many epochs it is remembered how much they wrote.
_REMEMBERED = 10_000


class StateWeight:
    """Weigh the state of a job: the newest snapshot, and the deltas since."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._written: dict[int, int] = {}

    def note(self, latest: Manifest) -> None:
        """Remember how much an epoch wrote."""
        self._written = self._written if len(self._written) < _REMEMBERED else {}
        self._written[latest.epoch] = _bytes(latest)

    def bytes(self, epoch: int) -> int:
        """Give how much there is after an epoch, as it lies in the checkpoint."""
        snapshots = self._checkpoint.snapshots()
        weight = self._checkpoint.snapshot(snapshots[-1]).bytes if snapshots else 0
        since = (snapshots[-1] if snapshots else 0) + 1
        self._written = {one: bytes for one, bytes in list(self._written.items()) if one >= since}
        for one in range(since, epoch + 1):
            if one not in self._written:
                # Of an earlier run.
                self._written[one] = _bytes(self._checkpoint.own_manifest(one))
            weight += self._written[one]
        return weight


def _bytes(manifest: Manifest) -> int:
    return sum(ref.bytes for refs in manifest.tables.values() for ref in refs)
