"""Mend Spark's log after a power cut, from what the manifests know of it.

Spark does not sync its log, and does not start on an empty file of it. What a manifest covers is written again from
its copy. What none covers was begun by Spark and seen by nobody, or it would have been synced: it is taken away,
and Spark begins it anew. Whatever else is wrong stays as it is, for `check_agreement` to refuse.
"""

from __future__ import annotations

import json
import zlib

from ferryman._log.files.checkpoint import Checkpoint, is_number
from ferryman._log.files.untrusted import Unsound
from ferryman._log.spark_log.log_files import (
    batches,
    beside,
    bytes_of,
    file_counts,
    source_counts,
    source_files,
    source_number,
    text_of,
    torn,
    values_of,
)
from ferryman._model.manifest import Manifest
from ferryman._model.spark_log import SparkLog

# Of how many bytes Hadoop keeps a checksum each, in the file beside.
_CHUNK = 512


def mend_spark_log(checkpoint: Checkpoint, latest: Manifest | None) -> list[str]:
    """Bring Spark's log to where it can go on from; list the files that were written again or taken away.

    Only a job that holds the checkpoint may.
    """
    return _Mender(checkpoint, latest).mend()


class _Mender:
    def __init__(self, checkpoint: Checkpoint, latest: Manifest | None) -> None:
        self._checkpoint = checkpoint
        self._latest = latest
        self._log = latest.spark if latest else SparkLog()
        self._batch = latest.batch if latest else -1
        self._done: list[str] = []

    def mend(self) -> list[str]:
        for batch, text in self._log.offsets.items():
            self._restore(f"spark/offsets/{batch}", text)
        self._mend_metadata()
        self._mend_sources()
        self._drop_uncovered_offsets()
        for batch in batches(self._checkpoint, "commits"):
            # Spark reads the newest one, and redoes the batch of one that is not there; a covered one is passed over.
            if not self._drop_if_torn(f"spark/commits/{batch}"):
                break
        return self._done

    def _read(self, name: str) -> bytes | None:
        return bytes_of(self._checkpoint, name)

    def _restore(self, name: str, text: str) -> None:
        """Write a file again that is gone, or of which a part is left; what is something else is not ours to judge."""
        found, whole = self._read(name), text.encode()
        if found == whole:
            if self._read(beside(name)) not in (None, _sums(whole)):
                self._drop_sums(name)
        elif found is None or _left_of(found, whole):
            self._checkpoint.directory.delete([beside(name)])
            self._checkpoint.directory.write(name, whole)
            self._done.append(f"{name} was written again")

    def _drop(self, name: str) -> None:
        self._checkpoint.directory.delete([name, beside(name)])
        self._done.append(f"{name} was taken away")

    def _drop_if_torn(self, name: str) -> bool:
        data = self._read(name)
        if data is None:
            return False
        sums = self._read(beside(name))
        if torn(data) or sums not in (None, _sums(data)):
            self._drop(name)
            return True
        return False

    def _drop_sums(self, name: str) -> None:
        self._checkpoint.directory.delete([beside(name)])
        self._done.append(f"{beside(name)} was taken away")

    def _mend_metadata(self) -> None:
        name = "spark/metadata"
        if self._log.metadata:
            self._restore(name, self._log.metadata)
            return
        data = self._read(name)
        with self._checkpoint.sound(name):
            if data is not None and not _is_object(data):
                self._drop(name)

    def _mend_sources(self) -> None:
        covered = file_counts(self._latest.offsets) if self._latest else {}
        for name in source_files(self._checkpoint):
            source = name.split("/")[2]
            upto = covered.get(int(source), self._batch) if is_number(source) else self._batch
            if source_number(name) > upto:
                self._drop_if_torn(name)

    def _drop_uncovered_offsets(self) -> None:
        sources = len(self._latest.offsets) if self._latest else 0
        before = self._latest.offsets if self._latest else ()
        # In this order: a source notes its files before Spark writes the offsets down.
        begun = batches(self._checkpoint, "offsets")
        noted = source_counts(self._checkpoint)
        for batch in begun:
            if batch <= self._batch:
                return
            name = f"spark/offsets/{batch}"
            if self._drop_if_torn(name):
                continue
            values = values_of(text_of(self._checkpoint, name) or "")
            lost = any(count > noted.get(source, -1) for source, count in file_counts(values).items())
            backward = any(
                isinstance(earlier, int) and isinstance(later, int) and later < earlier
                for earlier, later in zip(before, values, strict=False)
            )
            # A source that has come since has a place behind the others.
            if lost or backward or len(values) < max(sources, 1):
                self._drop(name)


def _left_of(found: bytes, whole: bytes) -> bool:
    """Tell whether some bytes are a part of others from the beginning on, or have zeros in the place of some."""
    return len(found) <= len(whole) and all(byte in (0, other) for byte, other in zip(found, whole, strict=False))


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False
    except RecursionError:
        # No power cut leaves that.
        raise Unsound("is nested too deep to be what Spark wrote") from None


def _sums(data: bytes) -> bytes:
    chunks = (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
    return b"crc\0" + _CHUNK.to_bytes(4, "big") + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
