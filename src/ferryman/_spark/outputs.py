"""The outputs of a job: have every sink write an epoch, and know that it is committed, whatever happens in between.

A sink is known in the manifests by a name of its own. What it wrote stands there until the next epoch, so that the
next run can tell it again. Calls `Sink` and `Checkpoint`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.term import Term
from ferryman._model.errors import InvalidConfiguration, MissingDelta, SinkMissing
from ferryman._model.records import Manifest
from ferryman._spark.sinks import SinkStart
from ferryman._spark.stream import Output
from ferryman._testing.faults import reach


class Outputs:
    """The outputs of one run.

    Parameters
    ----------
    latest
        The newest manifest.
    term
        The run's own.
    """

    def __init__(
        self, outputs: Sequence[Output], checkpoint: Checkpoint, latest: Manifest | None, *, term: Term, fsync: bool
    ) -> None:
        self._outputs = outputs
        self._labels = labels(outputs)
        self._checkpoint = checkpoint
        self._latest = latest
        self._term = term
        self._fsync = fsync
        self._told = 0

    def __iter__(self) -> Iterator[Output]:
        return iter(self._outputs)

    def begin(self) -> None:
        """Tell the sinks where the job stands, and again of its newest epoch: that may not have reached them."""
        reach("start")
        epoch, written = (self._latest.epoch, self._latest.sinks) if self._latest else (0, {})
        for label, output in zip(self._labels, self._outputs, strict=True):
            known = written.get(label, {})
            look = partial(self._written_in, label)
            output.sink.begin(SinkStart(epoch, self._term.number, self._fsync, known.get("written", {}), look))
        if self._latest is not None:
            self.tell(self._latest)

    def _written_in(self, label: str, epoch: int) -> Mapping[str, Any] | None:
        try:
            written = self._checkpoint.manifest(epoch).sinks.get(label, {}).get("written")
        except MissingDelta:
            return None
        return written or None

    def write(self, frames: Sequence[DataFrame], epoch: int, *, silent: bool) -> dict[str, Any]:
        """Have the sinks write an epoch; give what its manifest keeps of that."""
        before = self._latest.sinks if self._latest else {}
        # A function that is left out for a while goes on counting where it was.
        absent = {label: one for label, one in before.items() if not one.get("told") and label not in self._labels}
        return absent | {
            label: self._write(label, output, frame, epoch, silent=silent)
            for label, output, frame in zip(self._labels, self._outputs, frames, strict=True)
        }

    def _write(self, label: str, output: Output, frame: DataFrame, epoch: int, *, silent: bool) -> dict[str, Any]:
        if not output.sink.whole:
            # This sink may look twice, or only at some rows: compute all of them once, in our own layout.
            frame.persist().write.format("noop").mode("overwrite").save()
            if silent and frame.isEmpty():
                return dict(self._latest.sinks.get(label, {})) if self._latest else {}
        written = output.sink.write(frame, epoch)
        return {"told": output.sink.told, "path": written.get("path", ""), "written": written}

    def tell(self, manifest: Manifest) -> None:
        """Tell the sinks that an epoch is committed."""
        self._latest = manifest
        for label, output in zip(self._labels, self._outputs, strict=True):
            if known := manifest.sinks.get(label):
                output.sink.commit(manifest.epoch, known["written"])
        self._told = manifest.epoch

    @property
    def told(self) -> Manifest | None:
        """Give the newest epoch's manifest if the sinks know of it; None if they do not, or there is none."""
        return self._latest if self._latest is not None and self._told == self._latest.epoch else None


def claim(
    outputs: Sequence[Output], checkpoint: Checkpoint, job_id: str, latest: Manifest | None, dropped: Collection[str]
) -> int:
    """Have the sinks learn whose rows come; give the greatest term that any of them knows."""
    above = max(output.sink.claim(job_id) for output in outputs)
    places = Counter(output.sink.label for output in outputs if output.sink.told)
    for output in outputs:
        if places[output.sink.label] > 1:
            raise InvalidConfiguration(
                f"two outputs go to one place ({getattr(output.sink, 'where', output.sink.label)}). Give each a "
                "directory of its own."
            )
    check_told(outputs, checkpoint, latest, dropped)
    return above


def check_told(
    outputs: Sequence[Output], checkpoint: Checkpoint, latest: Manifest | None, dropped: Collection[str]
) -> None:
    """Refuse a start without a sink that still has to be told of the newest epoch, unless it is `dropped`."""
    written = latest.sinks if latest else {}
    here = {*labels(outputs), *dropped}
    lost = [label for label, one in written.items() if one.get("told") and label not in here]
    if latest is not None and lost and not checkpoint.is_told(latest):
        where = written[lost[0]].get("path", "")
        raise SinkMissing(
            f"epoch {latest.epoch} is committed, and the sink {lost[0]!r} ({where}) was not told of it before the job "
            "ended; but this start has no such output, so those rows would never be seen. Start the job once with that "
            f"sink; or pass dropped_sinks=[{lost[0]!r}] if its rows are not wanted any more."
        )


def labels(outputs: Sequence[Output]) -> list[str]:
    """Name the outputs in the manifests: by what they are, so that a changed order of outputs does no harm."""
    seen: Counter[str] = Counter()
    named: list[str] = []
    for output in outputs:
        label = output.sink.label
        seen[label] += 1
        named.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
    return named
