"""Read and write the files of a checkpoint: the job's card, manifests, deltas, the lists of snapshots.

The layout is an open format, described in docs/checkpoint-format.md:

    ferryman.json                                   the job's card
    manifests/000000000042.json                     epoch 42 is committed, and this belongs to it
    deltas/000000000042-<table>-<instance>-<checksum>.arrow
    held/000000000042-<operator>-<instance>-<checksum>.arrow
    lookups/000000000042-<lookup>-0-<checksum>.arrow
    snapshots/000000000040.json, 000000000040-<table>-<first group>-<checksum>.parquet
    terms/000000000007.json                         the seventh run of the job: the newest may write
    intents/000000000007.json                       the epoch under way in that run, if no batch tells all of it
    decisions/000000000007.json                     what the autoscaler of that run has decided
    told.json                                       the newest epoch, where every sink knows of it
    spark/                                          Spark's own checkpoint: offsets and commits

A delta's name holds the checksum of its bytes, so a task that runs twice writes the same file, and a
task of a dead epoch cannot replace a file that a manifest names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa
import xxhash

from ferryman._log.files.cards import check_card
from ferryman._log.files.contradictions import manifest_contradiction, snapshot_contradiction
from ferryman._log.files.damage import Damage
from ferryman._log.files.directory import Directory
from ferryman._log.files.newest_manifest import newest_manifest
from ferryman._log.files.untrusted import Unsound, rows_of
from ferryman._model.card import FORMAT, JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import (
    CheckpointInUse,
    CheckpointUnreachable,
    CorruptCheckpoint,
    ForeignCheckpoint,
    MissingDelta,
    NewerFormat,
    UnhashableKey,
)
from ferryman._model.intent import Intent
from ferryman._model.json_values import Misshapen, file_name, whole
from ferryman._model.lookup_version import LookupVersion, versions_json
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._model.snapshot import Snapshot

CARD = "ferryman.json"
# Of all runs; earlier versions wrote that, and newer ones a file for each run.
_INTENT = "intent.json"
TOLD = "told.json"
# Where a job writes: made and synced when it starts, so that whoever writes there first does not have to.
FOLDERS = ("manifests", "deltas", "held", "lookups", "snapshots", "terms", "intents", "decisions")
_SPARK_FOLDERS = ("spark", "spark/offsets", "spark/commits", "spark/sources")

# What a checkpoint holds, Ferryman's and Spark's: a directory with any of these and no card is not a new one.
_OURS = frozenset({*FOLDERS, "spark"})
_SPARKS = frozenset({"offsets", "commits"})

# An epoch has one name only, and is a number of 64 bits.
_NUMBERED = re.compile(r"([0-9]{12}|[1-9][0-9]{12,17})\.json")

T = TypeVar("T")


def checksum(data: bytes | memoryview | pa.Buffer) -> str:
    """Give the checksum Ferryman stores of some bytes: XXH3, 64 bits, in hex."""
    return str(xxhash.xxh3_64_hexdigest(memoryview(data)))


def is_number(name: str) -> bool:
    """Tell whether a file of Spark's log is named after a micro-batch."""
    return name.isascii() and name.isdigit() and len(name) <= 18


class Checkpoint:
    """One job's checkpoint directory."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.damage = Damage()
        # As the card has it, once that was read.
        self._groups: int | None = None
        # What was read of deltas, rows that are held, and snapshots.
        self.read_bytes = 0

    # -- the job's card --------------------------------------------------------------------------

    def card(self) -> JobCard | None:
        """Read the job's card; None where the directory is new."""
        self.refuse_links()
        try:
            raw = self._read_json(CARD)
        except FileNotFoundError:
            self._refuse(self.directory.list(""))
            return None
        if isinstance(written := raw.get("format"), int) and written > FORMAT:
            raise NewerFormat(
                f"{self.directory.uri} was written in format {written}, and this Ferryman reads up to "
                f"format {FORMAT}. Upgrade ferryman, or start the job on a new checkpoint."
            )
        card = self._parsed(CARD, JobCard.parse, raw)
        for name, table in card.tables.items():
            try:
                check_card(table)
            except (Unsound, UnhashableKey) as fault:
                raise self._unsound(CARD, f"has a table {name!r} that {fault}") from fault
        self._groups = card.groups
        return card

    def refuse_foreign(self) -> None:
        """Refuse the checkpoint of somebody else; nothing is written there, as a lock would be."""
        self.refuse_links()
        try:
            held = self.directory.list("")
        except OSError:
            # What is wrong with it is said by whoever wants to write.
            return
        if CARD not in held:
            self._refuse(held)

    def refuse_links(self) -> None:
        """Refuse a checkpoint whose folders are elsewhere: they could be anybody's."""
        if strange := self.directory.strange((*FOLDERS, *_SPARK_FOLDERS)):
            raise CorruptCheckpoint(
                f"{', '.join(strange)} in {self.directory.uri} is a link or a file, and must be a directory: files "
                "elsewhere would be read as this job's, and removed with its old ones. Nothing was read or changed. "
                "Put the directory itself there, or mount one."
            )

    def _refuse(self, held: Collection[str]) -> None:
        """Refuse a directory that has no card, by what it holds."""
        if _OURS.intersection(held):
            raise ForeignCheckpoint(
                f"{self.directory.uri} holds a checkpoint but no {CARD}, so it is not one of Ferryman's "
                "or was partly deleted. Give the job a directory of its own, or restore the file."
            ) from None
        if _SPARKS.intersection(held):
            raise ForeignCheckpoint(
                f"{self.directory.uri} is the checkpoint of a Spark query, and Ferryman keeps state in files of its "
                "own. It was left as it is. Give the job another directory. To take the state over, read it with "
                'spark.read.format("statestore").option("stateVarName", "...").load(...) and give it to the operator '
                "as initialState: docs/migrating-from-transformWithState.md has the lines."
            ) from None

    def job_card(self) -> JobCard:
        """Read the job's card of what should be a checkpoint; `ForeignCheckpoint` where it is none."""
        try:
            card = self.card()
        except NotADirectoryError:
            card = None
        if card is None:
            raise ForeignCheckpoint(
                f"{self.directory.uri} is not a checkpoint: it has no {CARD}. Give the directory that the job was "
                "started with."
            )
        return card

    def create_first(self, card: JobCard) -> bool:
        """Write the job's card where there is none; tell whether it was written."""
        return self._write_json(CARD, asdict(card), new=True)

    def create(self, card: JobCard) -> None:
        """Write the job's card; the first file of a checkpoint."""
        self._write_json(CARD, asdict(card), new=False)
        self._groups = card.groups

    def keep_card(self, card: JobCard) -> None:
        """Write the job's card, unless it is there."""
        if self.card() != card:
            self.create(card)

    # -- manifests -------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """List the committed epochs that are still kept, oldest first."""
        return self.numbers("manifests")

    def manifest(self, epoch: int) -> Manifest:
        """Read the manifest of a committed epoch."""
        name = f"manifests/{epoch:012d}.json"
        try:
            return self._parsed(name, Manifest.parse, self._read_json(name))
        except FileNotFoundError:
            raise MissingDelta(
                f"{self.directory.uri} has no manifest of epoch {epoch}: {name} was deleted, or fell out of "
                "the retention. Ask for an epoch that is kept (`ferryman state PATH` lists them)."
            ) from None

    def latest(self) -> Manifest | None:
        """Read the newest manifest; None before the first epoch."""
        newest = newest_manifest(self.directory, self.epochs())
        return self.own_manifest(newest) if newest else None

    def own_manifest(self, epoch: int, groups: int | None = None) -> Manifest:
        """Read the manifest of an epoch; one that is whole and makes no sense is no better than a damaged one."""
        manifest = self.manifest(epoch)
        contradiction = manifest_contradiction(manifest, epoch, groups or self._groups)
        if contradiction is not None:
            raise self._unsound(f"manifests/{epoch:012d}.json", contradiction)
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch, once and for all."""
        if not self._write_json(f"manifests/{manifest.epoch:012d}.json", manifest.json(), new=True):
            raise CheckpointInUse(
                f"epoch {manifest.epoch} of {self.directory.uri} was committed by another job while this one "
                "ran it. Stop one of the two; nothing was lost or counted twice."
            )

    def keep_manifest(self, epoch: int) -> None:
        """With `fsync`, see that a manifest which was found survives a power cut, whoever has written it."""
        self.directory.sync([f"manifests/{epoch:012d}.json"])

    # -- the intent of an epoch ------------------------------------------------------------------

    def intend(
        self,
        epoch: int,
        time_ms: int,
        *,
        silent: bool = True,
        held: Collection[int] = (),
        routing: RoutingTable | None = None,
        lookups: Mapping[str, LookupVersion] | None = None,
        term: int = 0,
    ) -> None:
        """Write down an epoch that no batch tells all of before it runs, so that a restart runs it just the same.

        In a file of the run's own: one that comes too late is not in the place of what a newer run has written down.
        """
        body: dict[str, Any] = {"epoch": epoch, "time_ms": time_ms, "silent": silent, "held": sorted(held)}
        body["term"] = term
        if routing is not None:
            body["routing"] = routing.json()
        if lookups:
            body["lookups"] = versions_json(lookups)
        self._write_json(f"intents/{term:012d}.json", body, new=False)

    def intent(self) -> Intent | None:
        """Read the last intent of the newest run that has written one down."""
        return next(iter(self.intents().values()), None)

    def intents(self) -> dict[str, Intent]:
        """Read the last intent of each run of which it is kept, by its file; the newest run's first."""
        found = {}
        for name in self.intent_files():
            # A newer start may have found that it says nothing any more.
            with suppress(FileNotFoundError):
                found[name] = self.record(name, Intent.parse)
        return dict(sorted(found.items(), key=lambda intent: -intent[1].term))

    def intent_files(self) -> list[str]:
        """Name the files of intents."""
        names = [f"intents/{number:012d}.json" for number in self.numbers("intents")]
        return [*names, _INTENT] if self.directory.exists(_INTENT) else names

    def forget_intents(self, before: int) -> None:
        """Delete the intents of runs before one; the newest there is stays, as it tells how far the job had come."""
        older = list(self.intents().items())[1:]
        self.directory.delete([name for name, intent in older if intent.term < before])

    # -- what the sinks know ---------------------------------------------------------------------

    def tell(self, epoch: int, term: int) -> None:
        """Write down that every sink knows of an epoch, as it was committed in a term: no start has to say it again."""
        self._write_json(TOLD, {"epoch": epoch, "term": term}, new=False)

    def told(self) -> tuple[int, int | None]:
        """Give the epoch that every sink knew of when the job last ended in order, and its term; 0 if none."""
        try:
            return self.record(TOLD, _told)
        except FileNotFoundError:
            return 0, None

    def is_told(self, manifest: Manifest) -> bool:
        """Tell whether that epoch is this one. Where a backup was restored, it may have been done again since."""
        epoch, term = self.told()
        return epoch == manifest.epoch and term in (None, manifest.term)

    # -- deltas ----------------------------------------------------------------------------------

    def write_delta(self, epoch: int, table: str, instance: int, delta: pa.Table) -> DeltaRef:
        """Publish the delta of one instance; writing it twice is writing it once."""
        return self._write_rows("deltas", epoch, table, instance, delta)

    def write_held(self, epoch: int, operator: str, instance: int, rows: pa.Table) -> DeltaRef:
        """Publish the rows that an instance of an operator keeps for later."""
        return self._write_rows("held", epoch, operator, instance, rows)

    def write_lookup(self, epoch: int, lookup: str, rows: pa.Table) -> DeltaRef:
        """Publish a table as an epoch looks it up."""
        return self._write_rows("lookups", epoch, lookup, 0, rows)

    @staticmethod
    def has_rows(ref: DeltaRef, rows: pa.Table) -> bool:
        """Tell whether a file has these very rows, by its checksum."""
        return checksum(_packed(rows)) == ref.checksum

    def _write_rows(self, folder: str, epoch: int, label: str, instance: int, rows: pa.Table) -> DeltaRef:
        data = _packed(rows)
        digest = checksum(data)
        name = f"{folder}/{epoch:012d}-{label}-{instance}-{digest}.arrow"
        self.directory.write(name, data)
        return DeltaRef(name, instance, rows.num_rows, data.size, digest)

    def read_delta(self, ref: DeltaRef) -> pa.Table:
        """Read a delta, or rows that are held, checked."""
        data = self.verified(ref.file, ref.checksum, ref.bytes)
        with self.sound(ref.file):
            return rows_of(data, ref.rows)

    def verified(self, name: str, digest: str, size: int) -> pa.Buffer:
        """Read a file and check it against what was written."""
        try:
            data = self.directory.read(file_name(name))
        except Misshapen as error:
            raise self._unsound(name, "is no name of a file of a checkpoint") from error
        except FileNotFoundError:
            raise self.missing(name) from None
        except OSError as error:
            raise self.unreadable(name, error) from error
        if data.size != size or checksum(data) != digest:
            why = f"has {data.size} bytes instead of {size}" if data.size != size else "has altered bytes"
            raise CorruptCheckpoint(
                f"{name} in {self.directory.uri} {why}, so it is not what was committed. Restore the file from "
                "a backup of the checkpoint; `ferryman verify` lists the epochs that can still be rebuilt."
            )
        self.read_bytes += size
        return data

    # -- snapshots -------------------------------------------------------------------------------

    def snapshots(self) -> list[int]:
        """List the epochs of which there is a snapshot, oldest first."""
        return self.numbers("snapshots")

    def snapshot(self, epoch: int) -> Snapshot:
        """Read the list of a snapshot's files."""
        name = f"snapshots/{epoch:012d}.json"
        try:
            return self._parsed(name, Snapshot.parse, self._read_json(name))
        except FileNotFoundError:
            raise MissingDelta(
                f"{self.directory.uri} has no snapshot of epoch {epoch}: {name} was deleted, or fell out of the "
                "retention. Ask for an epoch that is kept (`ferryman state PATH` lists them)."
            ) from None

    def publish_snapshot(self, snapshot: Snapshot) -> None:
        """Make a snapshot known, after all its files are there."""
        self._write_json(f"snapshots/{snapshot.epoch:012d}.json", asdict(snapshot), new=False)

    def sound_snapshot(self, epoch: int) -> Snapshot:
        """Read the list of a snapshot's files; one that makes no sense is no better than a damaged one."""
        snapshot = self.snapshot(epoch)
        contradiction = snapshot_contradiction(snapshot, epoch, self._groups)
        if contradiction is not None:
            raise self._unsound(f"snapshots/{epoch:012d}.json", contradiction)
        return snapshot

    # -- JSON with a checksum --------------------------------------------------------------------

    def numbers(self, folder: str) -> list[int]:
        """List the numbers that JSON files of a folder are named by, least first."""
        return [int(name[:-5]) for name in self.directory.list(folder) if _NUMBERED.fullmatch(name)]

    def record(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T:
        """Read a JSON file; FileNotFoundError where there is none."""
        return self._parsed(name, parse, self._read_json(name))

    def record_new(self, name: str, raw: Mapping[str, Any]) -> bool:
        """Write a JSON file unless there is one; tell whether it was written."""
        return self._write_json(name, raw, new=True)

    def record_again(self, name: str, raw: Mapping[str, Any]) -> None:
        """Write a JSON file, in place of one that may be there."""
        self._write_json(name, raw, new=False)

    def _write_json(self, name: str, raw: Mapping[str, Any], *, new: bool) -> bool:
        body = json.dumps(raw, separators=(",", ":"))
        data = f'{{"checksum":"{checksum(body.encode())}","body":{body}}}\n'.encode()
        if new:
            return self.directory.write_new(name, data)
        self.directory.write(name, data)
        return True

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            text = self.directory.read(name).to_pybytes()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            raise
        except OSError as error:
            raise self.unreadable(name, error) from error
        try:
            raw = json.loads(text)
            body: dict[str, Any] = raw["body"]
            sound = checksum(json.dumps(body, separators=(",", ":")).encode()) == raw["checksum"]
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound or not isinstance(body, dict):
            raise self._altered(name)
        return body

    def _parsed(self, name: str, parse: Callable[[dict[str, Any]], T], raw: dict[str, Any]) -> T:
        try:
            return parse(raw)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._altered(name) from error

    @contextmanager
    def sound(self, name: str) -> Iterator[None]:
        """Make what is found wrong with a file the error that names it."""
        try:
            yield
        except Unsound as fault:
            raise self._unsound(name, str(fault)) from fault

    def missing(self, name: str) -> MissingDelta:
        """Say that a file is not there."""
        return MissingDelta(
            f"{name} is missing in {self.directory.uri}, and a committed epoch needs it. Restore the file "
            "from a backup of the checkpoint; `ferryman verify` lists the epochs that can still be rebuilt."
        )

    def unreadable(self, name: str, error: OSError) -> CorruptCheckpoint | CheckpointUnreachable:
        """Say that a file cannot be read."""
        if isinstance(error, ConnectionError):
            return unreachable(f"{name} in {self.directory.uri}", error)
        return self._unsound(name, f"cannot be read ({error.strerror or error})")

    def _unsound(self, name: str, what: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"{name} in {self.directory.uri} {what}. Restore the file from a backup of the checkpoint; "
            "`ferryman verify` tells what else is damaged."
        )

    def _altered(self, name: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"{name} in {self.directory.uri} is truncated or altered. Restore the file from a backup of the "
            "checkpoint; `ferryman verify` tells what else is damaged."
        )


def unreachable(what: str, error: ConnectionError) -> CheckpointUnreachable:
    """Say that a store does not answer: what is in it is as good as it was."""
    return CheckpointUnreachable(
        f"{what} could not be read, as the store does not answer as it should ({error.strerror or error}). Everything "
        "committed is intact. Start the job again when the store can be reached; `ferryman run --restart` does that by "
        "itself."
    )


def _packed(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _told(raw: Mapping[str, Any]) -> tuple[int, int | None]:
    # Earlier versions did not write the term.
    return whole(raw["epoch"], "epoch"), whole(raw["term"], "term") if "term" in raw else None


def chain(
    checkpoint: Checkpoint, table: str, after: int, upto: int, groups: int | None = None
) -> Iterator[tuple[Manifest, DeltaRef]]:
    """List the deltas of a table in the epochs after one and up to another, oldest first."""
    for epoch in range(after + 1, upto + 1):
        manifest = checkpoint.own_manifest(epoch, groups)
        for ref in manifest.tables.get(table, ()):
            yield manifest, ref


def sweep_all(checkpoint: Checkpoint) -> None:
    """Remove what killed writers left half written in a checkpoint; only a run that has taken over may."""
    for folder in (*FOLDERS, ""):
        checkpoint.directory.sweep(folder)


def keep_all(checkpoint: Checkpoint) -> None:
    """With `fsync`, make a checkpoint's folders, and see that what a start finds in them survives a power cut.

    A run that was killed may have given names that it did not sync any more, and one without `fsync` synced nothing.
    """
    directory = checkpoint.directory
    directory.keep(FOLDERS)
    directory.sync([CARD])
    directory.sync(f"{folder}/{name}" for folder in FOLDERS for name in directory.list(folder))
