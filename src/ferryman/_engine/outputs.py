"""The outputs of a job: have every sink write an epoch, and know that it is committed, whatever happens in between.

A sink is known in the manifests by a name of its own. What it wrote stands there until the next epoch, so that the
next run can tell it again.

The tasks of all outputs run first, side by side. Then the sinks that are a user's code are called, one after the other,
on the epoch's own thread and in the order of outputs: they need not be made for threads. Calls `Sink` and `Checkpoint`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from ferryman._engine.executor import Frame, SideBySide, one_after_the_other
from ferryman._engine.sink import Sink, SinkStart, let_go, skips_silence, takes_tables, writes_beside
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.term import Term
from ferryman._model.errors import InvalidConfiguration, MissingDelta, SinkMissing
from ferryman._model.manifest import Manifest
from ferryman._os.faults import reach

log = logging.getLogger("ferryman")


class Outputs:
    """The outputs of one run.

    Parameters
    ----------
    latest
        The newest manifest.
    term
        The run's own.
    dropped
        Sinks that are left out for good: nothing is kept of them.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        checkpoint: Checkpoint,
        latest: Manifest | None,
        *,
        term: Term,
        fsync: bool,
        dropped: Collection[str] = (),
    ) -> None:
        self._sinks = sinks
        self._labels = labels(sinks)
        self._checkpoint = checkpoint
        self._latest = latest
        self._term = term
        self._fsync = fsync
        self._gone = {*self._labels, *dropped}
        self._told = 0

    def begin(self) -> None:
        """Tell the sinks where the job stands, and again of its newest epoch: that may not have reached them."""
        reach("start")
        epoch, written = (self._latest.epoch, self._latest.sinks) if self._latest else (0, {})
        for label, sink in zip(self._labels, self._sinks, strict=True):
            known = written.get(label, {})
            look = partial(self._written_in, label)
            sink.begin(SinkStart(epoch, self._term.number, self._fsync, known.get("written", {}), look))
        if self._latest is not None:
            self.tell(self._latest)

    def _written_in(self, label: str, epoch: int) -> Mapping[str, Any] | None:
        try:
            written = self._checkpoint.manifest(epoch).sinks.get(label, {}).get("written")
        except MissingDelta:
            return None
        return written or None

    def write(
        self,
        frames: Sequence[Frame],
        epoch: int,
        *,
        silent: bool,
        side_by_side: SideBySide = one_after_the_other,
    ) -> dict[str, Any]:
        """Have the sinks write an epoch; give what its manifest keeps of that."""
        before = self._latest.sinks if self._latest else {}
        turns = [_Turn(sink, frame, epoch, silent) for sink, frame in zip(self._sinks, frames, strict=True)]
        side_by_side([turn.run_tasks for turn in turns if turn.has_tasks])
        # A function that is left out for a while goes on counting where it was.
        absent = {name: known for name, known in before.items() if not known.get("told") and name not in self._gone}
        return absent | {
            label: turn.record(before.get(label, {})) for label, turn in zip(self._labels, turns, strict=True)
        }

    def tell(self, manifest: Manifest) -> None:
        """Tell the sinks that an epoch is committed."""
        self._latest = manifest
        for label, sink in zip(self._labels, self._sinks, strict=True):
            if known := manifest.sinks.get(label):
                sink.commit(manifest.epoch, known["written"])
        self._told = manifest.epoch

    def close(self) -> None:
        """Have all sinks let go of what they hold, whatever one of them says to that."""
        for sink in self._sinks:
            try:
                let_go(sink)
            except Exception as error:
                log.warning("the sink %r could not let go of what it holds: %s", sink.label, error)

    @property
    def told(self) -> Manifest | None:
        """Give the newest epoch's manifest if the sinks know of it; None if they do not, or there is none."""
        return self._latest if self._latest is not None and self._told == self._latest.epoch else None


class _Turn:
    """What one sink does in an epoch: first what runs tasks and may be done beside others, then the rest in turn."""

    def __init__(self, sink: Sink, frame: Frame, epoch: int, silent: bool) -> None:
        self._sink, self._frame, self._epoch = sink, frame, epoch
        self._has_written = False
        self._written: Any = None
        self._may_skip = silent and skips_silence(sink)
        # This sink may look twice, or only at some rows, or not at all: compute them once, in our own layout.
        self._computes = not sink.whole or self._may_skip

    @property
    def has_tasks(self) -> bool:
        return self._frame.table is None and (self._computes or writes_beside(self._sink))

    def run_tasks(self) -> None:
        if self._computes:
            self._frame.compute()
        else:
            self._write()

    def _write(self) -> None:
        sink, frame = self._sink, self._frame
        if frame.table is not None and takes_tables(sink):
            self._written = sink.write_table(frame.table, self._epoch)
        else:
            self._written = sink.write(frame.rows, self._epoch)
        self._has_written = True

    def record(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Have the sink write, unless it has; give what the manifest keeps of that. Is it left out, `before` stays."""
        sink = self._sink
        if self._may_skip and self._frame.is_empty():
            return dict(before)
        if not self._has_written:
            self._write()
        written = self._written
        if not isinstance(written, dict):
            raise InvalidConfiguration(
                f"the sink {sink.label!r} returned {written!r} from `write`, and it has to be a dict: what `commit` "
                "will need, as JSON has it, and {} if that is nothing. The epoch was not committed; no row is lost."
            )
        return {"told": bool(sink.told), "path": written.get("path") or "", "written": written}


def claim(
    sinks: Sequence[Sink], checkpoint: Checkpoint, job_id: str, latest: Manifest | None, dropped: Collection[str]
) -> int:
    """Have the sinks learn whose rows come; give the greatest term that any of them knows."""
    above = max(sink.claim(job_id) for sink in sinks)
    # A topic's sink has rows of an output by the note of their epoch, so it is one output's too.
    places = Counter(sink.label for sink in sinks if sink.told or sink.label.startswith("kafka:"))
    for sink in sinks:
        if places[sink.label] > 1:
            raise InvalidConfiguration(
                f"two outputs go to one place ({getattr(sink, 'where', sink.label)}). Give each a directory or a table "
                "of its own; two that go to one topic, or one Delta table, a name of their own: name=..."
            )
    _refuse_namesakes(sinks, latest)
    check_known(sinks, checkpoint, latest, dropped)
    return above


def check_known(
    sinks: Sequence[Sink], checkpoint: Checkpoint, latest: Manifest | None, dropped: Collection[str]
) -> None:
    """Refuse a start that would lose rows, as its sinks are not those that the newest epoch knows; unless `dropped`."""
    _check_told(sinks, checkpoint, latest, dropped)
    _check_numbers(sinks, latest, dropped)


def _check_told(
    sinks: Sequence[Sink], checkpoint: Checkpoint, latest: Manifest | None, dropped: Collection[str]
) -> None:
    """Refuse a start without a sink that still has to be told of the newest epoch."""
    written = latest.sinks if latest else {}
    here = {*labels(sinks), *dropped}
    lost = [label for label, record in written.items() if record.get("told") and label not in here]
    if latest is not None and lost and not checkpoint.is_told(latest):
        where = written[lost[0]].get("path", "")
        raise SinkMissing(
            f"epoch {latest.epoch} is committed, and the sink {lost[0]!r} ({where}) was not told of it before the job "
            "ended; but this start has no such output, so those rows would never be seen. Start the job once with that "
            f"sink; or pass dropped_sinks=[{lost[0]!r}] if its rows are not wanted any more."
        )


# What functions are called in manifests; by the order they had where an earlier version let them have one name.
FUNCTION = re.compile(r"foreach(#[0-9]+|:.*)?", re.DOTALL)


def _refuse_namesakes(sinks: Sequence[Sink], latest: Manifest | None) -> None:
    """Refuse functions of one name: only their order would tell whose numbers are whose."""
    count = Counter(sink.label for sink in sinks if FUNCTION.fullmatch(sink.label))
    twice = next((label for label, times in count.items() if times > 1), None)
    if twice is None:
        return
    known = [
        label for label in (latest.sinks if latest else {}) if re.fullmatch(re.escape(twice) + "(#[0-9]+)?", label)
    ]
    go_on = "; ".join(f"what was {label!r} goes on as name={_name(label)!r}" for label in known)
    raise InvalidConfiguration(
        f"two functions have the same name in manifests, {twice!r}, so that their numbers would be exchanged when "
        "their order is. Give each a name of its own: sinks.foreach(function, name=...)."
        + (f" Here {go_on}." if known else "")
    )


def _check_numbers(sinks: Sequence[Sink], latest: Manifest | None, dropped: Collection[str]) -> None:
    """Refuse functions that may be others by another name: they would be called with numbers that they had."""
    functions = {sink.label: sink for sink in sinks if FUNCTION.fullmatch(sink.label)}
    known = {
        label: record["written"]
        for label, record in (latest.sinks if latest else {}).items()
        if record and FUNCTION.fullmatch(label)
    }
    gone = [label for label in known if label not in functions and label not in dropped]
    new = [label for label in functions if label not in known]
    # The one without a name is the first there was, or the second now that the first is removed.
    unclear = any(label.startswith("foreach#") for label in gone) and not getattr(
        functions.get("foreach"), "named", True
    )
    if gone and (new or unclear):
        other = f"has {new[0]!r}, which would begin with number 0" if new else "has one function without a name"
        raise SinkMissing(
            f"this start is without the function {gone[0]!r}, which was called up to number "
            f"{known[gone[0]].get('number')}, and {other}. If they are the same, it would take rows for such that it "
            f"has had. Call it as before: sinks.foreach(function, name={_name(gone[0])!r}). If {gone[0]!r} is not "
            f"wanted any more, pass dropped_sinks=[{gone[0]!r}]."
        )


def _name(label: str) -> str:
    """Give the name by which a function has its label."""
    return label.removeprefix("foreach:")


def labels(sinks: Sequence[Sink]) -> list[str]:
    """Name the outputs in the manifests: by what they are, so that a changed order of outputs does no harm."""
    seen: Counter[str] = Counter()
    named: list[str] = []
    for sink in sinks:
        label = sink.label
        seen[label] += 1
        named.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
    return named
