"""The one handle: a Spark session, a checkpoint, and the jobs started on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ferryman._engine.declaration import declare
from ferryman._engine.failures import as_ferryman
from ferryman._engine.job_options import JobOptions
from ferryman._engine.option_faults import (
    is_path,
    number_faults,
    other_faults,
    place_faults,
    refuse_unknown,
    start_faults,
)
from ferryman._engine.recovery import begin_run
from ferryman._engine.remote_session import is_remote, refuse
from ferryman._engine.starting import Starting
from ferryman._engine.starting_shown import follow
from ferryman._engine.supervised import announce
from ferryman._log.check.way_back import with_way_back
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import Directory, directory
from ferryman._log.files.lock import CheckpointLock
from ferryman._model.card import GROUPS, JobCard
from ferryman._model.errors import FerrymanError, ForeignCheckpoint, InvalidConfiguration, UnfencedStorage
from ferryman._model.interval import seconds
from ferryman._routing.sites import Site
from ferryman._scale.options import Autoscale
from ferryman._scale.pool_options import Pool
from ferryman._spark.api.assembly import Assembly
from ferryman._spark.api.job import Job
from ferryman._spark.api.kafka_told import group_of
from ferryman._spark.api.pipeline import Pipeline
from ferryman._spark.api.pooled import pool_faults
from ferryman._spark.api.stream import Output, Source, Stream
from ferryman._spark.plan.planner import Packed
from ferryman._spark.session import advice
from ferryman._spark.sources.read_as_begun import reading_of
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
        How many past epochs stay rebuildable, at the least: what is older goes when a snapshot has been written.
    snapshot_every
        After how many epochs the deltas are folded into a snapshot, if they have a quarter of the last one's bytes;
        after ten times as many in any case.
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
    express
        Whether small epochs may go by express, without a shuffle, where that is faster; the default. The
        results are the same (docs/latency.md).
    clock
        What gives the time that timers and time to live go by, in milliseconds since 1970. If left out, the machine's
        clock. Where it goes back by up to a minute, time stands still until it has come up; by more, time follows it.
    autoscale
        How the job chooses its number of instances by itself, a `ferryman.Autoscale` (docs/autoscaling.md); None, the
        default, for not at all.
    pool
        Which executors the job asks Spark for as its instances grow, and gives back as they shrink, a `ferryman.Pool`
        (docs/autoscaling.md); None, the default, leaves executors to the session.

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
        express: bool = True,
        clock: Callable[[], int] | None = None,
        autoscale: Autoscale | None = None,
        pool: Pool | None = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, Ferry.__init__, "Ferry")
        if is_remote(spark):
            refuse("this is a session over Spark Connect")
        faults = []
        if not isinstance(spark, SparkSession):
            faults.append(f"spark={spark!r}: give a SparkSession, for example what ferryman.session() returns")
        if not is_path(checkpoint):
            faults.append(f"checkpoint={checkpoint!r}: give a directory for the job's state, as a path or a URI")
        # Whatever can be gone through only once is, here.
        sites = tuple(sites) if isinstance(sites, Iterable) and not isinstance(sites, str) else sites
        try:
            idle_s = seconds(idle)
        except InvalidConfiguration as error:
            idle_s = None
            faults.append(f"idle={idle!r}: {error.message}")
        faults += number_faults(groups, retain, snapshot_every, replicas)
        faults += place_faults(home, store, tls)
        switches = {"fsync": fsync, "single_driver": single_driver, "express": express}
        faults += other_faults(hot_keys, sites, clock, autoscale, **switches)
        faults += pool_faults(spark, pool)
        if faults:
            raise InvalidConfiguration.of(faults)
        self.spark = spark
        self._checkpoint = os.fspath(checkpoint)
        self._options = JobOptions(
            groups=groups,
            retain=retain,
            snapshot_every=snapshot_every,
            idle_s=idle_s,
            home=None if home is None else os.fspath(home),
            fsync=fsync,
            store=store,
            isolate=hot_keys == "isolate",
            tls=None if tls is None else os.fspath(tls),
            replicas=replicas,
            sites=sites,
            single_driver=single_driver,
            express=express,
            clock=clock,
            autoscale=autoscale,
            pool=pool,
        )
        if tls is not None:
            advice.warn_of_plain_rpc(spark.sparkContext.master or "", spark.sparkContext.getConf().get)

    def stream(
        self,
        frame: DataFrame,
        name: str | None = None,
        *,
        idle_after: str | float | None = None,
        consumer_group: str | None = None,
        group_options: Mapping[str, str] | None = None,
    ) -> Stream:
        """Begin with any streaming DataFrame; a job may have several.

        Parameters
        ----------
        frame
            The streaming DataFrame.
        name
            By which the job knows the source from one start to the next. Needed where sources come or go.
        idle_after
            After how long without a row the watermark on it is not waited for: "5 minutes". Never if left out.
        consumer_group
            For a source of Kafka's: a consumer group that is told how far it was read, after each epoch that is
            committed, so that alarms on lag work (docs/kafka.md). The group must be for this alone.
        group_options
            More settings to tell it by, by the names of librdkafka: `sasl.username`. The brokers are the source's.
        """
        source = Source(self, frame, name, idle_after)
        if consumer_group is not None:
            source.group = group_of(frame, consumer_group, group_options)
        elif group_options is not None:
            raise InvalidConfiguration("ferry.stream(group_options=...) is for a consumer_group, which is left out.")
        return source

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
            Sinks, by what the error calls them, that are not wanted any more: neither their rows of the last epoch, nor
            the numbers of a function's calls.
        """
        refuse_unknown(unknown, Ferry.start, "start")
        faults = start_faults(name, outputs, Output, instances, trigger)
        if faults:
            raise InvalidConfiguration.of(faults)
        pipeline = Pipeline.of(outputs)
        advice.check_watermarks(pipeline.watermarks, self.spark.conf.get)
        advice.advise(self.spark)
        starting = Starting()
        starting.step("take over")
        kernels.warm()
        place = directory(self._checkpoint, fsync=self._options.fsync)
        self._refuse_storage(place)
        lock = CheckpointLock(place, name)
        with contextlib.ExitStack() as undo:
            undo.callback(lock.release)
            try:
                self._refuse_twin(name)
                undo.callback(starting.end)
                job = self._begin(
                    name, pipeline, Checkpoint(place), lock, starting, instances, trigger, tuple(dropped_sinks)
                )
            except (PySparkException, Py4JError) as error:
                raise as_ferryman(error, name) from error
            except FerrymanError as error:
                with_way_back(Checkpoint(place), error)
                raise
            # From now on it is the job's.
            undo.pop_all()
        announce(job, name, place.address, starting.after)
        return job

    def _begin(
        self,
        name: str,
        pipeline: Pipeline,
        checkpoint: Checkpoint,
        lock: CheckpointLock,
        starting: Starting,
        instances: int | None,
        trigger: dict[str, Any] | None,
        dropped_sinks: tuple[str, ...],
    ) -> Job:
        """Take over what there is, and go on from there."""
        for spec in pipeline.specs:
            # One that cannot be packed is refused before anything is taken over.
            Packed.of(spec)
        card, takeover = begin_run(
            checkpoint,
            partial(self._declared, checkpoint, name, pipeline, instances),
            pipeline.sinks,
            instances=instances,
            usual=self.spark.sparkContext.defaultParallelism,
            reading=reading_of(self.spark),
            locked=lock.held,
            dropped=dropped_sinks,
        )
        pipeline.sources.settle(checkpoint, takeover.latest.batch if takeover.latest else -1)
        starting.after = takeover.latest.epoch if takeover.latest else 0
        starting.redone = takeover.term.redo.epoch if takeover.term.redo else None
        starting.groups = len(pipeline.specs) * card.groups if takeover.latest else 0
        starting.step("query")
        follow(name, starting)
        assembly = Assembly(
            spark=self.spark,
            pipeline=pipeline,
            options=self._options,
            checkpoint=checkpoint,
            card=card,
            takeover=takeover,
            starting=starting,
        )
        return assembly.job(lock, trigger or {})

    def _refuse_storage(self, place: Directory) -> None:
        """Refuse a place that is not a checkpoint's, or that cannot keep two drivers apart; before it is written to."""
        Checkpoint(place).refuse_foreign()
        if not (self._options.single_driver or place.fences()):
            raise UnfencedStorage(
                f"{place.uri}: this storage does not create a file only where there is none, or Ferryman has no way to "
                "ask it to (for s3://, gs:// and abfs:// that takes `pip install ferryman[objects]`). Two drivers on "
                "it could commit the same epoch. Use other storage; or pass Ferry(..., single_driver=True) as your "
                "word that there is never more than one."
            )

    def _refuse_twin(self, name: str) -> None:
        if any(query.name == name for query in self.spark.streams.active):
            raise InvalidConfiguration(
                f"a query called {name!r} already runs in this session. Stop it, or give this job another name."
            )

    def _declared(self, checkpoint: Checkpoint, name: str, pipeline: Pipeline, instances: int | None) -> JobCard:
        """Declare the job, if it is the checkpoint's and its options fit that; give its card."""
        where, wished = checkpoint.directory.uri, self._options.groups

        def check(card: JobCard) -> None:
            if instances is not None and instances > card.groups:
                # A start that is refused for it must not have settled the key groups.
                raise InvalidConfiguration(
                    f"instances={instances!r}: the job has {card.groups} key groups, and an instance owns one at the "
                    f"least. Give a whole number from 1 to {card.groups}, or start a new checkpoint with more groups."
                )
            if card.job != name:
                raise ForeignCheckpoint(
                    f"{where} belongs to job {card.job!r}, and this is job {name!r}. Give each job a checkpoint of its "
                    "own."
                )
            if wished is not None and wished != card.groups:
                raise InvalidConfiguration(
                    f"groups={wished}: {where} was made with {card.groups} key groups, which cannot change. Leave "
                    "`groups` out, or start on a new checkpoint."
                )

        card = declare(checkpoint, pipeline.specs, job=name, groups=wished or GROUPS, check=check)
        return pipeline.sources.declare(card, checkpoint)
