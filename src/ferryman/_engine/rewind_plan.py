"""Find out what a rewind would do, before anything is done: what goes, and what the sinks have shown of it.

Says no where the epoch cannot be had, and which can. Calls `_log/check/ways.py`, which reads what the epoch needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ferryman._engine.outputs import FUNCTION
from ferryman._log.check.timeline import Timeline
from ferryman._log.check.ways import newest_to_be_had
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.agreement import check_sources
from ferryman._log.spark_log.log_files import batches, text_of, values_of
from ferryman._log.spark_log.rewind_spark_log import kept_offsets
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, EpochGone, MissingDelta
from ferryman._model.manifest import Manifest, OperatorRecord
from ferryman._model.rewind import Rewind
from ferryman._model.spark_log import SparkLog

PARQUET = "parquet:"
# What they have shown stays, so they refuse a checkpoint that has fewer epochs.
_REFUSING = ("database:", "delta:", "kafka:")


@dataclass(frozen=True)
class RewoundSink:
    """A sink of the epochs that go.

    Attributes
    ----------
    label, path
        What manifests call it, and where its rows are.
    calls
        The numbers, first and last, with which a function was called in these epochs; None for other sinks.
    """

    label: str
    path: str
    calls: tuple[int, int] | None = None

    @property
    def takes_back(self) -> bool:
        """Tell whether it can be made to forget."""
        return self.label.startswith(PARQUET)

    @property
    def refuses(self) -> bool:
        """Tell whether it lets in no job that has been taken back to before what it has shown."""
        return self.label.startswith(_REFUSING)


@dataclass(frozen=True, kw_only=True)
class RewindPlan:
    """What a rewind would do.

    Attributes
    ----------
    rewind
        What is written down before it is done.
    manifest
        That of the epoch whose state comes back.
    rows, unread
        How many rows of the source the epochs had that go, but for those whose manifests cannot be read, and how many
        these are.
    snapshots
        The epochs of the snapshots that go.
    offsets, newest_offsets
        The source's offsets after the epoch, and after the newest.
    damaged
        Files that were found damaged.
    under_way
        The epoch that was begun and not committed, and goes too; None if there is none.
    """

    rewind: Rewind
    manifest: Manifest
    rows: int
    unread: int
    snapshots: tuple[int, ...]
    offsets: tuple[Any, ...]
    newest_offsets: tuple[Any, ...]
    sinks: tuple[RewoundSink, ...]
    damaged: tuple[str, ...]
    under_way: int | None = None


def plan_rewind(checkpoint: Checkpoint, card: JobCard, to: int, *, keep_offsets: bool = False) -> RewindPlan:
    """Find what has to be done to go back to an epoch.

    Parameters
    ----------
    keep_offsets
        Whether the source goes on from where it is: its rows since the epoch are left out for good.

    Raises
    ------
    EpochGone
        If the epoch cannot be had, or the source cannot be put back to it.
    """
    timeline = Timeline.read(checkpoint, card)
    _refuse_gone(checkpoint, timeline, card, to)
    manifest = timeline.manifests[to]
    later = [number for number in timeline.epochs if number > to]
    read = [timeline.manifests[number] for number in later if number in timeline.manifests]
    newest = (read or [manifest])[-1]
    unread = (later or [to])[-1] - newest.epoch
    moved, begun = None, _is_one_begun(checkpoint, newest)
    if keep_offsets:
        moved = _moved(checkpoint, manifest, newest, unread + begun)
    else:
        _refuse_lost_offsets(checkpoint, manifest)
    sinks = _sinks(manifest, read, unread)
    return RewindPlan(
        rewind=Rewind(
            to=to,
            newest=timeline.epochs[-1],
            sinks={sink.label: sink.path for sink in sinks if sink.takes_back},
            moved=moved,
        ),
        manifest=manifest,
        rows=sum(max((record.rows for record in gone.operators.values()), default=0) for gone in read),
        unread=unread,
        snapshots=tuple(number for number in timeline.snapshots if number > to),
        offsets=manifest.offsets,
        newest_offsets=newest.offsets,
        sinks=sinks,
        damaged=tuple(sorted(timeline.unsound)),
        under_way=timeline.epochs[-1] + 1 if begun and not unread else None,
    )


def _refuse_gone(checkpoint: Checkpoint, timeline: Timeline, card: JobCard, to: int) -> None:
    where = checkpoint.directory.uri
    if not timeline.epochs:
        raise EpochGone(f"{where} has no committed epoch yet, so there is none to go back to. Start the job.")
    first, last = timeline.epochs[0], timeline.epochs[-1]
    if first <= to <= last and newest_to_be_had(checkpoint, timeline, card, to) == to:
        return
    had = newest_to_be_had(checkpoint, timeline, card)
    if to > last:
        why = f"was never committed: the newest is {last}"
    elif to < first:
        why = f"is gone: the oldest that is kept is {first}"
    else:
        why = "cannot be rebuilt, as files it needs are damaged or missing (`ferryman verify` names them)"
    other = newest_to_be_had(checkpoint, timeline, card, to)
    older = f"; before it, {other}" if other is not None and other != had else ""
    can = f"The newest that can be had is {had}{older}." if had is not None else "None that is kept can be had."
    raise EpochGone(f"epoch {to} of {where} {why}. {can} Nothing was changed.")


def _refuse_lost_offsets(checkpoint: Checkpoint, manifest: Manifest) -> None:
    where = checkpoint.directory.uri
    if kept_offsets(checkpoint, manifest) is None:
        raise EpochGone(
            f"epoch {manifest.epoch} of {where}: nobody knows the source's offsets of micro-batch {manifest.batch} any "
            "more. Nothing was changed. Pass --keep-offsets to have the source go on from where it is, or go back to "
            "a newer epoch."
        )
    check_sources(checkpoint, manifest)


def _moved(checkpoint: Checkpoint, manifest: Manifest, newest: Manifest, calls: int) -> Manifest:
    """Give the manifest of an epoch in which only the source moves: from an epoch's offsets to the newest.

    Functions may have been called so often since the newest manifest.
    """
    batch = max([newest.batch, manifest.batch, *batches(checkpoint, "commits")[:1]])
    texts = {
        number: text
        for number in (batch - 1, batch)
        if (text := newest.spark.offsets.get(number) or text_of(checkpoint, f"spark/offsets/{number}")) is not None
    }
    if batch >= 0 and batch not in texts:
        raise MissingDelta(
            f"spark/offsets/{batch} is missing in {checkpoint.directory.uri}, so nobody knows where the source is. "
            "Nothing was changed. Leave --keep-offsets out."
        )
    return replace(
        manifest,
        epoch=manifest.epoch + 1,
        batch=batch,
        silent=False,
        operators={name: OperatorRecord(0, 0, 0) for name in manifest.operators},
        tables=dict.fromkeys(manifest.tables, ()),
        # What is told of its commit has written nothing; functions go on with numbers that they did not have.
        sinks={
            name: {} if record.get("told") else _after(name, record, calls) for name, record in newest.sinks.items()
        },
        offsets=values_of(texts.get(batch, "")),
        spark=SparkLog(texts, newest.spark.metadata),
    )


def _is_one_begun(checkpoint: Checkpoint, newest: Manifest) -> bool:
    """Tell whether an epoch may be under way: functions may have been called for it, with the next number."""
    try:
        intent = checkpoint.intent()
    except CorruptCheckpoint:
        return True
    begun = max(batches(checkpoint, "offsets"), default=-1)
    return begun > newest.batch or (intent is not None and intent.epoch > newest.epoch)


def _after(label: str, record: Mapping[str, Any], calls: int) -> dict[str, Any]:
    """Count the calls of epochs that no manifest tells of: there was one in each, at the most."""
    number = _number(record)
    if number is None or not FUNCTION.fullmatch(label):
        return dict(record)
    return {**record, "written": {**record["written"], "number": number + calls}}


def _number(record: Mapping[str, Any]) -> int | None:
    number = record.get("written", {}).get("number")
    return number if type(number) is int and number >= 0 else None


def _sinks(manifest: Manifest, later: list[Manifest], unread: int) -> tuple[RewoundSink, ...]:
    """List the sinks of the epochs that go, each with where it was last."""
    found: dict[str, RewoundSink] = {}
    # Of epochs whose manifests cannot be read, the epoch before them tells which sinks there were.
    for known in (manifest, *later):
        for label, record in known.sinks.items():
            calls = None
            if FUNCTION.fullmatch(label) and (last := _number(record)) is not None:
                before = _number(manifest.sinks.get(label, {}))
                calls = (0 if before is None else before + 1, last + unread)
            path = record.get("path") or ""
            found[label] = RewoundSink(label, path or (found[label].path if label in found else ""), calls)
    return tuple(found.values())
