"""Carry out epochs: run the plan, let the sinks write, gather the receipts, commit the manifest.

The steps of an epoch, in this order; a kill between any two loses nothing and repeats nothing:

    epoch           the plan is built
    before-sink     nothing is written yet
    after-sink      deltas and sinks' files are written, nobody lists them
    before-manifest the receipts are gathered
    after-manifest  the epoch is committed; sinks are told
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame

from ferryman._log.batch_files import files_by_age
from ferryman._log.checkpoint import Checkpoint
from ferryman._log.spark_log import SparkLogKeeper, values_of
from ferryman._log.term import Term, intent_of, resumes
from ferryman._model.clock import epoch_time
from ferryman._model.errors import PinningLost
from ferryman._model.records import (
    DeltaRef,
    HeldRows,
    JobCard,
    Manifest,
    OperatorRecord,
    RoutingTable,
)
from ferryman._model.spark_log import SparkLog
from ferryman._model.watermarks import Watermarks
from ferryman._routing.planning import rescaled
from ferryman._routing.sites import Site
from ferryman._spark.batches import BatchLimits, most_bytes
from ferryman._spark.broadcast import BroadcastTable
from ferryman._spark.clock import Clock, system_ms
from ferryman._spark.combine import WORTH_PART, WORTH_RATIO, WORTH_ROWS
from ferryman._spark.fenced import Fenced
from ferryman._spark.file_order import hashes
from ferryman._spark.outputs import Outputs
from ferryman._spark.plan import EPOCH_CONF, Planner
from ferryman._spark.progress import EpochProgress
from ferryman._spark.reconfigure import Reconfigurer
from ferryman._spark.stream import Output
from ferryman._spark.task import Control
from ferryman._state.zones import in_zone
from ferryman._testing.faults import reach

log = logging.getLogger("ferryman")


class EpochRunner:
    """Run one epoch after the other on top of what is committed."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        card: JobCard,
        planner: Planner,
        outputs: Sequence[Output],
        *,
        latest: Manifest | None,
        term: Term,
        instances: int | None,
        fsync: bool,
        home: str | None,
        isolate: bool = False,
        tls: str | None = None,
        replicas: int = 0,
        sites: tuple[Site, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.clock = clock or Clock()
        self.latest = latest
        self._planner = planner
        self.outputs = Outputs(outputs, checkpoint, self.latest, term=term, fsync=fsync)
        self.fenced = Fenced(checkpoint, card, self.outputs, term)
        self.term = term
        # An epoch that was left behind is done in its own layout; only then comes the one that was asked for.
        self._instances = instances if term.redo else None
        self._fsync = fsync
        self._home = home
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="ferryman-offsets")
        self._spark_log = SparkLogKeeper(checkpoint, sync=fsync)
        # What the session of Spark's batches has of what an epoch needs.
        self._prepared: dict[str, str] = {}
        self._limits = BatchLimits(
            most_bytes(planner.spark), [node.stream.spec.input for node in planner.nodes.values()]
        )
        self._held: frozenset[int] = frozenset()
        # What no batch tells of the epoch that has to be done again, if it was written down.
        self.begun = intent_of(checkpoint, term)
        self.run_id = term.run
        self.changes = Reconfigurer(
            planner,
            checkpoint,
            self.run_id,
            home,
            self.latest,
            isolate=isolate,
            tls=tls,
            replicas=replicas,
            sites=sites,
        )
        self.changes.hosts.keep_card = self.fenced.keep_card
        self._broadcasts = {
            one.name: BroadcastTable(
                checkpoint,
                card,
                one,
                node.stream.broadcasts[one.name.rpartition(".")[2]],
                self.latest.epoch if self.latest else 0,
            )
            for node in planner.nodes.values()
            for one in node.stream.spec.tables
            if one.broadcast
        }
        # When something is due next, by operator. After a restart that is not known before an epoch: it may be now.
        self._next_due: dict[str, int | None] = {
            name: 0 if self.latest else None
            for name, node in planner.nodes.items()
            if node.stream.spec.time.due is not None
        }

    @property
    def next(self) -> int:
        """Give the number of the next epoch."""
        return (self.latest.epoch if self.latest else 0) + 1

    @property
    def batch(self) -> int:
        """Give the last Spark micro-batch that is covered by a committed epoch."""
        return self.latest.batch if self.latest else -1

    def close(self) -> None:
        """Let go of what was held."""
        with contextlib.ExitStack() as rest:
            # What is last here comes first; and whatever fails, the rest is let go of all the same.
            rest.callback(self._planner.release)
            rest.callback(self.changes.release)
            rest.callback(self._reader.shutdown, wait=False)
            self.fenced.close()

    def due_by_watermark(self) -> bool:
        """Tell whether the watermark has come to something that is due, and the next epoch will go by it.

        What was set by what was due itself, for a time that had come already, waits for a later watermark or for rows,
        as on Spark: it may set itself again, and epochs would never end.
        """
        if self.latest is None or self.latest.watermarks.next_ms is None or self.changes.holding:
            return False
        watermark = self.latest.watermarks.next_ms
        if watermark == self.latest.watermarks.used_ms:
            return False
        return any(one is not None and one <= watermark for one in self._due(by_watermark=True))

    def due_by_clock(self) -> int | None:
        """Give when the clock comes to something that is due; None if nothing is."""
        return min((one for one in self._due(by_watermark=False) if one is not None), default=None)

    def _due(self, *, by_watermark: bool) -> list[int | None]:
        times = {name: node.stream.spec.time for name, node in self._planner.nodes.items()}
        return [one for name, one in self._next_due.items() if times[name].by_watermark == by_watermark]

    def run(self, source: DataFrame, batch: int, *, silent: bool, time_ms: int) -> EpochProgress:
        """Run and commit the next epoch, in the layout that is its own."""
        begun = self.begun if self.begun is not None and self.begun.epoch == self.next else None
        if begun is not None:
            time_ms = begun.time_ms
        self._planner, self._held = self.changes.begin(None if begun is None else begun.held)
        before = self.latest
        try:
            switches = before is not None and before.routing != self._planner.routing
            if self._held or switches or self.clock.own:
                # Spark's log has none of these, nor the time of a clock that is not Spark's.
                routing = self._planner.routing if switches else None
                self.intend(time_ms, silent=silent, held=self._held, routing=routing)
            return self._run(source, batch, silent=silent, time_ms=time_ms)
        finally:
            committed = self.latest is not before
            self.changes.ended(self._planner, self.latest, committed=committed)
            if committed and self._instances is not None:
                self.changes.relay(self._instances)
                self._instances = None
            self._planner = self.changes.planner

    def intend(self, time_ms: int, **about: Any) -> None:
        """Write the next epoch down before it runs, as far as no batch tells of it."""
        self.fenced.intend(self.next, time_ms, **about)

    def _run(self, source: DataFrame, batch: int, *, silent: bool, time_ms: int) -> EpochProgress:
        began = time.perf_counter()
        epoch = self.next
        time_ms, back_ms = epoch_time(time_ms, self.latest.time_ms if self.latest else None)
        if back_ms:
            log.warning(
                "the clock is %.0f s behind the time of epoch %d: it was wrong then, and time follows it back. What "
                "was written meanwhile keeps the time it was given.",
                back_ms / 1000,
                epoch - 1,
            )
        reach("epoch")
        wanted = {**EPOCH_CONF, **self._limits.conf()}
        if silent or self._prepared != wanted:
            # Spark runs micro-batches in a session of the query's own, so the user's is left as it was.
            for name, value in wanted.items():
                source.sparkSession.conf.set(name, value)
            self._prepared = self._prepared if silent else wanted
        taken = None if silent else self._reader.submit(self._spark_log.take, batch, self.latest)
        self._planner.receipts.value = []
        self._planner.settle()
        files = self._files(batch, taken)
        combine = self._worth_combining(in_order=bool(files))
        made: dict[int, DataFrame] = {}
        frames: list[DataFrame] = []
        try:
            refs = self._broadcast(epoch, source, made, time_ms, by_file=bool(files))
            controls = self._controls(epoch, time_ms, files)
            frames += [
                self._planner.build(one.stream, source, controls, combine, made, by_file=bool(files))
                for one in self.outputs
            ]
            if self._fsync and taken is not None:
                # What a sink sees must be what is redone after a power cut.
                taken.result()
            written = self.fenced.write(frames, epoch, silent=silent)
        finally:
            for frame in (*made.values(), *frames):
                if frame.is_cached:
                    frame.unpersist()
        for name in {name for name, _ in self._missing(epoch)}:
            # A task that fails after its rows were kept is retried from those, and its receipt is lost with the
            # attempt. Now that nothing is kept, running the operator again gives the same delta, and the receipt.
            again = self._planner.build(self._planner.nodes[name].stream, source, controls, combine, {}, keep=False)
            again.write.format("noop").mode("overwrite").save()
        records, tables, receipts = self._gather(epoch, combine)
        tables.update({name: () if ref is None else (ref,) for name, ref in refs.items()})
        waiting = self._waiting(receipts)
        offsets, spark_log = self._covered(batch, taken)
        manifest = Manifest(
            epoch,
            batch,
            silent,
            time_ms,
            self._planner.routing,
            records,
            tables,
            written,
            self._watermarks(receipts, time_ms),
            offsets,
            waiting,
            term=self.term.number,
            spark=spark_log,
        )
        self.fenced.commit(manifest)
        committed_ms = system_ms()
        self.latest = manifest
        for table in self._broadcasts.values():
            table.committed()
        for name in self._next_due:
            times = [one["next_due"] for one in receipts if one["operator"] == name and one["next_due"] is not None]
            self._next_due[name] = min(times, default=None)
        self.changes.count(receipts)
        self._limits.note([*receipts, *(self._receipts(epoch, "combined_by").values() if combine else ())])
        self.fenced.tell(manifest)
        duration = (time.perf_counter() - began) * 1000
        return EpochProgress(
            epoch,
            batch,
            silent,
            sum(records[node.stream.spec.name].rows for node in self._first_nodes()),
            sum(record.output for record in records.values()),
            sum(record.keys for record in records.values()),
            duration,
            max((receipt["busy_ms"] for receipt in receipts), default=0.0),
            sum(ref.bytes for refs in tables.values() for ref in refs),
            time_ms,
            committed_ms,
            manifest.watermarks.next_ms,
            {
                name: {
                    "rows": one.rows,
                    "keys": one.keys,
                    "output": one.output,
                    "late": one.late,
                    "rebuilt": sum(receipt["rebuilt"] for receipt in receipts if receipt["operator"] == name),
                    "hosts": _hosts(name, receipts),
                }
                for name, one in records.items()
            },
            back_ms,
        )

    def _first_nodes(self) -> list[Any]:
        names = {node.stream.spec.name: node for node in self._planner.nodes.values()}
        return [node for node in names.values() if not _operators_above(node.stream.parent)][:1]

    def _files(self, batch: int, taken: Future[SparkLog] | None) -> tuple[int, ...]:
        """Name the files of an epoch, oldest first, if there are several: their rows have to be put in order."""
        if taken is None or not any(node.by_file for node in self._planner.nodes.values()):
            return ()
        before = self.latest.offsets if self.latest else ()
        paths = files_by_age(self.checkpoint, before, self._covered(batch, taken)[0])
        return hashes(paths) if len(paths) > 1 else ()

    def _controls(self, epoch: int, time_ms: int, files: tuple[int, ...]) -> dict[str, Control]:
        watermarks = self.latest.watermarks if self.latest else Watermarks()
        # What is due in a group that waits can only be done later, so it is done later everywhere: an operator that
        # reads from all groups would take it for late.
        watermark_ms = watermarks.used_ms if self._held else watermarks.next_ms
        routing = self._planner.routing
        same = self.latest is not None and self.latest.routing.version == routing.version
        return {
            name: Control(
                epoch,
                self.run_id,
                self.checkpoint.directory.address,
                self._fsync,
                self._home,
                routing.owner,
                self._planner.tokens,
                self._newest(name),
                same,
                time_ms,
                watermark_ms,
                watermarks.used_ms,
                {one.name: self._broadcasts[one.name].packed() for one in node.stream.spec.tables if one.broadcast},
                self.latest is None or name not in self.latest.operators,
                self._held,
                self.latest.held.get(name, ()) if self.latest else (),
                routing.pinned,
                files=files if node.by_file else (),
                most_bytes=self._limits.most_bytes,
            )
            for name, node in self._planner.nodes.items()
        }

    def _broadcast(
        self, epoch: int, source: DataFrame, made: dict[int, DataFrame], time_ms: int, *, by_file: bool
    ) -> dict[str, DeltaRef | None]:
        """Fold the rows of this epoch into the broadcast states, before any task reads them."""
        refs = {}
        for name, table in self._broadcasts.items():
            operator, _, state = name.rpartition(".")
            stream = self._planner.nodes[operator].stream.broadcasts[state].stream
            rows = in_zone(self._planner.build(stream, source, {}, set(), made, by_file=by_file).toArrow())
            refs[name] = table.update(rows, epoch, self._planner.routing, time_ms)
        return refs

    def _newest(self, operator: str) -> dict[str, tuple[DeltaRef, ...]] | None:
        if self.latest is None:
            return None
        tables = self._planner.nodes[operator].stream.spec.tables
        return {one.name: self.latest.tables.get(one.name, ()) for one in tables}

    def _worth_combining(self, *, in_order: bool) -> set[str]:
        """Choose the operators whose rows are aggregated before the shuffle.

        Only the committed epoch before decides, so that an epoch redone after a crash is redone the same way. Where
        rows still have to be put in order, operators that take the first or the last of them are left out.
        """
        records = self.latest.operators if self.latest else {}
        if self._held or (self.latest and self.latest.held):
            # Rows are held as they came, and are processed as such.
            return set()
        return {
            name
            for name, one in records.items()
            if one.rows >= WORTH_ROWS
            and (one.rows >= WORTH_RATIO * one.keys or one.heaviest >= WORTH_PART * one.rows)
            and name in self._planner.nodes
            and self._planner.nodes[name].packed_combined is not None
            and not (in_order and self._planner.nodes[name].stream.picks_by_place)
        }

    def _receipts(self, epoch: int, kind: str) -> dict[tuple[str, int], dict[str, Any]]:
        """Give the receipts of an epoch, one per operator and task, however often the task ran."""
        read = (json.loads(data) for data in self._planner.receipts.value)
        return {(one["operator"], one[kind]): one for one in read if kind in one and one["epoch"] == epoch}

    def _missing(self, epoch: int) -> list[tuple[str, int]]:
        receipts = self._receipts(epoch, "instance")
        wanted = ((name, one) for name in self._planner.nodes for one in range(self._planner.routing.instances))
        return [one for one in wanted if one not in receipts]

    def _waiting(self, receipts: Sequence[Mapping[str, Any]]) -> dict[str, tuple[HeldRows, ...]]:
        """List the rows that still wait after an epoch: those of groups that waited in it."""
        found: dict[str, list[HeldRows]] = {}
        for name, ones in (self.latest.held if self.latest else {}).items():
            left = (one.only(self._held) for one in ones)
            found[name] = [one for one in left if one.groups]
        for receipt in receipts:
            if receipt["held"] is not None:
                found.setdefault(receipt["operator"], []).append(HeldRows.parse(receipt["held"]))
        return {name: tuple(ones) for name, ones in found.items() if ones}

    def _watermarks(self, receipts: Sequence[Mapping[str, Any]], now_ms: int) -> Watermarks:
        """Give the watermarks after an epoch, from what its tasks saw."""
        seen: dict[str, int] = {}
        for receipt in receipts:
            for name, time_ms in receipt["watermarks"].items():
                seen[name] = max(time_ms, seen.get(name, time_ms))
        before = self.latest.watermarks if self.latest else Watermarks()
        names, idle = self._planner.watermarks(), self._planner.idle()
        resumed = resumes(self.term, self.latest)
        return before.after(names, seen, held=bool(self._held), now_ms=now_ms, idle=idle, resumed=resumed)

    def _gather(
        self, epoch: int, combine: set[str]
    ) -> tuple[dict[str, OperatorRecord], dict[str, tuple[DeltaRef, ...]], list[dict[str, Any]]]:
        missing = self._missing(epoch)
        if missing:
            raise PinningLost(
                f"operator {missing[0][0]!r}: no receipt of instance {missing[0][1]} in epoch {epoch}, so Spark "
                "did not run one partition per instance. Keep unions, coalesce and repartition out of `transform` "
                "between operators. The epoch was not committed."
            )
        receipts = self._receipts(epoch, "instance")
        combined = self._receipts(epoch, "combined_by")
        records, tables = {}, {}
        for name, node in self._planner.nodes.items():
            instances = range(self._planner.routing.instances)
            mine = [receipts[name, one] for one in instances]
            for table in node.stream.spec.kept:
                written = (one["deltas"].get(table.name) for one in mine)
                tables[table.name] = tuple(DeltaRef(**ref) for ref in written if ref)
            # Who made partials saw the rows themselves.
            saw = [one for one in combined.values() if one["operator"] == name] if name in combine else mine
            rows = sum(one["rows"] for one in saw)
            keys, output, late = (sum(one[what] for one in mine) for what in ("keys", "output", "late"))
            records[name] = OperatorRecord(rows, keys, output, late, _heaviest(saw))
        return records, tables, list(receipts.values())

    def _covered(self, batch: int, taken: Future[SparkLog] | None) -> tuple[tuple[Any, ...], SparkLog]:
        """Give the source offsets an epoch ends with and what Spark wrote of them; a silent one has those before it."""
        if taken is not None:
            log = taken.result()
            return values_of(log.offsets.get(batch, "")), log
        return (self.latest.offsets, self.latest.spark) if self.latest else ((), SparkLog())


def routing_for(checkpoint: Checkpoint, latest: Manifest | None, groups: int, term: Term) -> RoutingTable:
    """Give the routing table of a start: that of the epoch it has to do again, or the last one if it fits."""
    intent = intent_of(checkpoint, term)
    if intent is not None and intent.routing is not None:
        return intent.routing
    instances = term.redo.instances if term.redo else term.instances
    if latest is None:
        return RoutingTable.even(1, groups, instances)
    if latest.routing.instances == instances:
        return latest.routing
    return rescaled(latest.routing, instances)


def _hosts(operator: str, receipts: list[dict[str, Any]]) -> list[str]:
    """Give the host of every instance of an operator."""
    by_instance = {one["instance"]: str(one["host"]) for one in receipts if one["operator"] == operator}
    return [by_instance[instance] for instance in sorted(by_instance)]


def _heaviest(receipts: list[dict[str, Any]]) -> int:
    """Give the rows of the heaviest key that tasks of an epoch saw."""
    rows: dict[int, int] = {}
    for receipt in receipts:
        for one in receipt["heavy"]:
            rows[one["hash"]] = rows.get(one["hash"], 0) + one["rows"]
    return max(rows.values(), default=0)


def _operators_above(stream: Any) -> bool:
    while hasattr(stream, "parent"):
        if hasattr(stream, "spec"):
            return True
        stream = stream.parent
    return False
