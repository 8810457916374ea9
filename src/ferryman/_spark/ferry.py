"""The one handle: a Spark session, a checkpoint, and the jobs started on them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ferryman._log.cards import card_of, evolution_of
from ferryman._log.checkpoint import Checkpoint, keep_all
from ferryman._log.declared import evolved
from ferryman._log.directory import directory
from ferryman._log.lock import CheckpointLock
from ferryman._model.errors import (
    ForeignCheckpoint,
    InvalidConfiguration,
    OperatorsChanged,
    UnfencedStorage,
    UnknownOption,
)
from ferryman._model.records import GROUPS, JobCard
from ferryman._operator.aggregate import AggregateRunner
from ferryman._routing.sites import Site, site_faults
from ferryman._serve.certificates import missing
from ferryman._spark import advice
from ferryman._spark.background import Background
from ferryman._spark.clock import Clock
from ferryman._spark.epoch import EpochRunner, routing_for
from ferryman._spark.failures import as_ferryman
from ferryman._spark.interval import seconds
from ferryman._spark.job import Job
from ferryman._spark.plan import Bytes, Packed, Planner
from ferryman._spark.reading import reading_of
from ferryman._spark.stream import Operated, Output, Source, Stream
from ferryman._spark.takeover import take_over
from ferryman._spark.watermarks import name_watermarks
from ferryman._state import kernels


class Ferry:
    """Give streams of a Spark session state that outlives everything but its checkpoint.

    Parameters
    ----------
    spark
        The session; `ferryman.session()` gives a well-tuned one.
    checkpoint
        A directory for the job's state: a path, or a URI that both Spark and pyarrow reach (hdfs://, abfs://, ...).
    groups
        Key groups; fixed for the life of the checkpoint. 256 if left out.
    retain
        How many past epochs stay rebuildable.
    snapshot_every
        After how many epochs the deltas are folded into a snapshot.
    idle
        After how long without data an epoch comes by itself; None for never.
    home
        A local directory for main copies on each host; if left out, the executor's own directory or the system's
        temporary one.
    fsync
        Survive a power cut and not only a kill, at the price of a disk flush per file (docs/power-cuts.md).
    store
        Where main copies are kept: "lmdb", or "rocksdb" for state larger than memory. If left out, each table is kept
        where it is fastest.
    hot_keys
        "isolate" pins a key that stays hot and moves other keys off its instance, and takes that back when it has
        cooled; "report", the default, moves nothing by itself. `job.hot_keys` tells of them either way.
    tls
        A directory, on every host, with `cert.pem` and `key.pem` of that host and `ca.pem`, who signed all of them:
        state then travels encrypted, between those that have such a certificate. If left out it is not encrypted. The
        token of state hosts goes with Spark's own messages: encrypt these too (`spark.network.crypto.enabled`).
    replicas
        How many other hosts keep the state of a host too, in the background: a change with `strategy="replicate"` and a
        lost executor then find it there. 0, the default, keeps none. On a single host it does nothing.
    sites
        The sites that hosts belong to, each a `ferryman.Site`: key groups stay in theirs while the load is even enough.
    single_driver
        Your word that no second driver is ever started on this checkpoint while one is alive. Only needed on storage
        that cannot tell two of them apart, where a job does not start without it (docs/guarantees.md).
    clock
        What gives the time that timers and time to live go by, in milliseconds since 1970. If left out, the machine's
        clock. Where it goes back by up to a minute, time stands still until it has come up; by more, time follows it.

    Examples
    --------
    >>> import ferryman
    >>> ferry = ferryman.Ferry(spark, checkpoint="/tmp/ferry-doc")  # doctest: +SKIP
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str | os.PathLike[str],
        *,
        groups: int | None = None,
        retain: int = 100,
        snapshot_every: int = 100,
        idle: str | float | None = "30 seconds",
        home: str | os.PathLike[str] | None = None,
        fsync: bool = False,
        store: str | None = None,
        hot_keys: str = "report",
        tls: str | os.PathLike[str] | None = None,
        replicas: int = 0,
        sites: Iterable[Site] = (),
        single_driver: bool = False,
        clock: Callable[[], int] | None = None,
        **unknown: Any,
    ) -> None:
        _refuse(unknown, Ferry.__init__, "Ferry")
        faults = []
        if not isinstance(spark, SparkSession):
            faults.append(f"spark={spark!r}: give a SparkSession, for example what ferryman.session() returns")
        if groups is not None and not (_whole(groups) and 1 <= groups <= 32768):
            faults.append(f"groups={groups!r}: give a whole number from 1 to 32768")
        if not (_whole(retain) and retain >= 1):
            faults.append(f"retain={retain!r}: give the number of epochs to keep, 1 at the least")
        if not (_whole(snapshot_every) and snapshot_every >= 1):
            faults.append(f"snapshot_every={snapshot_every!r}: give a number of epochs, 1 at the least")
        try:
            self._idle_s = seconds(idle)
        except InvalidConfiguration as error:
            faults.append(f"idle={idle!r}: {error.message}")
        if not _path(checkpoint):
            faults.append(f"checkpoint={checkpoint!r}: give a directory for the job's state, as a path or a URI")
        if home is not None and not _path(home):
            faults.append(f"home={home!r}: give a local directory, or leave it out")
        if store not in (None, "lmdb", "rocksdb"):
            faults.append(f"store={store!r}: give 'lmdb' or 'rocksdb', or leave it out")
        if hot_keys not in ("report", "isolate"):
            faults.append(f"hot_keys={hot_keys!r}: give 'report' or 'isolate'")
        if tls is not None and not _path(tls):
            faults.append(f"tls={tls!r}: give a local directory with cert.pem, key.pem and ca.pem, or leave it out")
        elif tls is not None and (lacking := missing(os.fspath(tls))):
            faults.append(f"tls={tls!r}: there is no {', no '.join(lacking)} in that directory on this host")
        if not (_whole(replicas) and replicas >= 0):
            faults.append(f"replicas={replicas!r}: give how many other hosts keep a host's state, 0 for none")
        # Whatever can be gone through only once is, here.
        sites = tuple(sites) if isinstance(sites, Iterable) and not isinstance(sites, str) else sites
        faults += site_faults(sites)
        if clock is not None and not callable(clock):
            faults.append(f"clock={clock!r}: give a function that gives milliseconds since 1970, or leave it out")
        for option, value in (("fsync", fsync), ("single_driver", single_driver)):
            if not isinstance(value, bool):
                faults.append(f"{option}={value!r}: give True or False")
        if faults:
            raise InvalidConfiguration.of(faults)
        self.spark = spark
        self._checkpoint = os.fspath(checkpoint)
        self._groups = groups
        self._retain = retain
        self._snapshot_every = snapshot_every
        self._home = None if home is None else os.fspath(home)
        self._fsync = fsync
        self._store = store
        self._isolate = hot_keys == "isolate"
        self._tls = None if tls is None else os.fspath(tls)
        if tls is not None:
            advice.warn_of_plain_rpc(spark.sparkContext.master or "", spark.sparkContext.getConf().get)
        self._replicas = replicas
        self._sites = tuple(sites)
        self._clock = clock
        self._single_driver = single_driver

    def stream(self, frame: DataFrame) -> Stream:
        """Begin with any streaming DataFrame."""
        return Source(self, frame)

    def start(
        self,
        name: str,
        *outputs: Output,
        instances: int | None = None,
        trigger: dict[str, Any] | None = None,
        dropped_sinks: Iterable[str] = (),
        **unknown: Any,
    ) -> Job:
        """Start a job that feeds the given outputs; all its operators commit together.

        Parameters
        ----------
        name
            The job's name; a checkpoint belongs to one job.
        outputs
            What `Stream.write` gave, one or several.
        instances
            Parallel instances of every operator. It may differ from the last start: key groups move. If left
            out, what the job last had; at first, the session's default parallelism.
        trigger
            As for Spark's `DataStreamWriter.trigger`, for example {"processingTime": "1 second"} or
            {"availableNow": True}; epochs follow each other at once if left out.
        dropped_sinks
            Sinks, by what the error calls them, whose rows of the last epoch are not wanted any more.
        """
        _refuse(unknown, Ferry.start, "start")
        faults = _start_faults(name, outputs, instances, trigger)
        if faults:
            raise InvalidConfiguration.of(faults)
        streams = _reachable(outputs)
        source = _source(streams)
        operators = _operators(streams)
        name_watermarks(operators)
        advice.advise(self.spark)
        kernels.warm()
        place = directory(self._checkpoint, fsync=self._fsync)
        # Before anything is written there.
        Checkpoint(place).refuse_foreign()
        if not (self._single_driver or place.fences()):
            raise UnfencedStorage(
                f"{place.uri}: this storage does not create a file only where there is none, or Ferryman has no way to "
                "ask it to (for s3://, gs:// and abfs:// that takes `pip install ferryman[objects]`). Two drivers on "
                "it could commit the same epoch. Use other storage; or pass Ferry(..., single_driver=True) as your "
                "word that there is never more than one."
            )
        lock = CheckpointLock(place, name)
        background = runner = None
        try:
            checkpoint = Checkpoint(place)
            if any(query.name == name for query in self.spark.streams.active):
                raise InvalidConfiguration(
                    f"a query called {name!r} already runs in this session. Stop it, or give this job another name."
                )
            card, parallel = self._card(checkpoint, name, operators, instances)
            for stream in operators.values():
                # One that cannot be packed is refused before anything is taken over.
                Packed.of(stream.spec)
            keep_all(checkpoint)
            term, latest = take_over(
                checkpoint,
                card,
                outputs,
                instances=parallel,
                reading=reading_of(self.spark),
                dropped=tuple(dropped_sinks),
                locked=lock.held,
            )
            for folder in ("manifests", "deltas", "snapshots", "held", "terms", ""):
                place.sweep(folder)
            planner = Planner(
                self.spark,
                routing_for(checkpoint, latest, card.groups, term),
                _several_hosts(self.spark),
                _shared(streams, outputs),
                self.spark.sparkContext.accumulator([], Bytes()),
            )
            for stream in operators.values():
                stream.evolve({name: evolution_of(one) for name, one in card.tables.items()})
                if self._store is not None:
                    stream.keep_in(self._store)
                planner.add(stream)
            runner = EpochRunner(
                checkpoint,
                card,
                planner,
                outputs,
                latest=latest,
                term=term,
                instances=instances,
                fsync=self._fsync,
                home=self._home,
                isolate=self._isolate,
                tls=self._tls,
                replicas=self._replicas,
                sites=self._sites,
                clock=Clock(self._clock),
            )
            background = Background(
                checkpoint, every=self._snapshot_every, retain=self._retain, look=runner.fenced.look
            )
            return Job(
                name,
                self.spark,
                source,
                runner,
                background,
                lock,
                home_base=self._home,
                idle_s=self._idle_s,
                trigger=trigger or {},
            )
        except BaseException as error:
            if background is not None:
                background.close()
            if runner is not None:
                runner.close()
            lock.release()
            if isinstance(error, (PySparkException, Py4JError)):
                raise as_ferryman(error, name) from error
            raise

    def _card(
        self, checkpoint: Checkpoint, name: str, operators: dict[str, Operated], instances: int | None
    ) -> tuple[JobCard, int]:
        """Read the job's card and check that this is the same job; write it where the checkpoint is new.

        Gives the number of instances too: it depends on the key groups, and a start that is refused for it
        must not have settled them.
        """
        names = Counter(table.name for stream in operators.values() for table in stream.spec.tables)
        if twice := [name for name, n in names.items() if n > 1]:
            raise InvalidConfiguration(
                f"two operators keep state called {twice[0]!r}. Give one of them another name (name=...)."
            )
        wanted = {
            table.name: card_of(label, table.key, table.state, table.evolution, table.settings)
            for label, stream in operators.items()
            for table in stream.spec.tables
        }
        card = checkpoint.card()
        groups = card.groups if card else self._groups or GROUPS
        latest = checkpoint.latest() if card else None
        usual = latest.routing.instances if latest else min(self.spark.sparkContext.defaultParallelism, groups)
        parallel = usual if instances is None else instances
        if parallel > groups:
            raise InvalidConfiguration(
                f"instances={parallel!r}: the job has {groups} key groups, and an instance owns one at the least. Give "
                f"a whole number from 1 to {groups}, or start a new checkpoint with more groups."
            )
        if card is None:
            card = JobCard(uuid.uuid4().hex, name, groups, wanted)
            if checkpoint.create_first(card):
                return card, parallel
            # Another start was faster: then this one is the second.
            return self._card(checkpoint, name, operators, instances)
        where = checkpoint.directory.uri
        if card.job != name:
            raise ForeignCheckpoint(
                f"{where} belongs to job {card.job!r}, and this is job {name!r}. Give each job a checkpoint of its own."
            )
        if self._groups is not None and self._groups != card.groups:
            raise InvalidConfiguration(
                f"groups={self._groups}: {where} was made with {card.groups} key groups, which cannot change. Leave "
                "`groups` out, or start on a new checkpoint."
            )
        gone = sorted(set(card.operators) - set(operators))
        if gone:
            new = sorted(set(operators) - set(card.operators))
            hint = f" If {gone[0]!r} is now called {new[0]!r}, pass name={gone[0]!r} to keep its state." if new else ""
            raise OperatorsChanged(
                f"{where} holds state of the operators {', '.join(map(repr, gone))}, which the job no longer has."
                f"{hint} To drop state, start on a new checkpoint."
            )
        fixed = {label for label, stream in operators.items() if isinstance(stream.spec.runner, AggregateRunner)}
        tables = evolved(
            card, wanted, {label: stream.spec.dropped for label, stream in operators.items()}, where, fixed
        )
        # Written with the first epoch: a start that fails before that leaves all as it was for the earlier declaration.
        return dataclasses.replace(card, tables=tables), parallel


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) and bool(str(value).strip())


def _start_faults(name: object, outputs: tuple[object, ...], instances: object, trigger: object) -> list[str]:
    """List what is wrong with the arguments of a start, as far as it can be told without the checkpoint."""
    faults = []
    if not (isinstance(name, str) and name.strip()):
        faults.append(f"name={name!r}: give the job a name; its checkpoint is known by it")
    if not outputs or not all(isinstance(one, Output) for one in outputs):
        faults.append("outputs: give one at the least; an output is what stream.write(sink) returns")
    if instances is not None and not (isinstance(instances, int) and _whole(instances) and instances >= 1):
        faults.append(f"instances={instances!r}: give a whole number, 1 at the least")
    known = ("processingTime", "availableNow", "once")
    if trigger is not None and not (isinstance(trigger, dict) and len(trigger) <= 1 and set(trigger) <= set(known)):
        faults.append(f'trigger={trigger!r}: give one of {", ".join(known)}, for example {{"availableNow": True}}')
    return faults


def _refuse(unknown: dict[str, Any], function: Any, label: str) -> None:
    known = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD) and name != "self"
    ]
    if unknown:
        lines = []
        for name in unknown:
            close = difflib.get_close_matches(name, known, 1)
            lines.append(f"{name!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
        raise UnknownOption(f"{label} has no option {', '.join(lines)}. It has: {', '.join(known)}.")


def _reachable(outputs: tuple[Output, ...]) -> list[Stream]:
    """List every stream the outputs rest on, sources first."""
    found: dict[int, Stream] = {}

    def visit(stream: Stream) -> None:
        if id(stream) not in found:
            for parent in _parents(stream):
                visit(parent)
            found[id(stream)] = stream

    for output in outputs:
        visit(output.stream)
    return list(found.values())


def _parents(stream: Stream) -> list[Stream]:
    """List the streams that one is made of: its rows, and the rows of broadcast states that it reads."""
    parents = [parent] if isinstance(parent := getattr(stream, "parent", None), Stream) else []
    return parents + ([one.stream for one in stream.broadcasts.values()] if isinstance(stream, Operated) else [])


def _source(streams: list[Stream]) -> Source:
    sources = [stream for stream in streams if isinstance(stream, Source)]
    if len(sources) != 1:
        raise InvalidConfiguration(
            f"a job has one source, and these outputs rest on {len(sources)}. Union the streaming DataFrames "
            "with Spark before ferry.stream, or start a job for each."
        )
    return sources[0]


def _operators(streams: list[Stream]) -> dict[str, Operated]:
    operators: dict[str, Operated] = {}
    for stream in streams:
        if isinstance(stream, Operated):
            if stream.spec.name in operators:
                raise InvalidConfiguration(
                    f"two operators are called {stream.spec.name!r}. Give one of them another name (name=...)."
                )
            operators[stream.spec.name] = stream
    if not operators:
        raise InvalidConfiguration(
            "the job has no operator with state. Add .key_by(...).process(...) or .aggregate(...)."
        )
    return operators


def _shared(streams: list[Stream], outputs: tuple[Output, ...]) -> set[int]:
    """Find the streams that several others read: they are computed once per epoch and kept for it."""
    readers: dict[int, int] = {}
    for stream in streams:
        for parent in _parents(stream):
            readers[id(parent)] = readers.get(id(parent), 0) + 1
    for output in outputs:
        readers[id(output.stream)] = readers.get(id(output.stream), 0) + 1
    return {stream for stream, count in readers.items() if count > 1}


def _several_hosts(spark: SparkSession) -> bool:
    master = spark.sparkContext.master or "local"
    return not (master == "local" or master.startswith("local["))
