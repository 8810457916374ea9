"""What a job does with the executors of its pool: the part of `Job` that is about that."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from ferryman._engine.pooling import PoolControls, Pooling
from ferryman._scale.pool import Seen
from ferryman._scale.pool_options import Pool
from ferryman._spark.compat.executor_pool import executor_cores, give_back, going, request_total
from ferryman._spark.compat.session import NETWORK_LOGGER, executor_ids, log_off
from ferryman._spark.plan.executors_there import host_of

if TYPE_CHECKING:
    from ferryman._engine.epoch import EpochRunner
    from ferryman._migrate.coordinator import Coordinator
    from ferryman._spark.plan.planner import Planner


class Pooled:
    """Have a running job ask Spark for executors, and give back those that it does not need."""

    name: str
    _spark: SparkSession
    _runner: EpochRunner[Coordinator[Planner]]
    _turn: threading.Lock
    _stopping: bool
    _closed: bool
    _pooling: Pooling | None = None
    _shared_home: bool = False
    # While executors that were given back end: Spark still tries to tell them things, and would log each as an error.
    _hush: contextlib.ExitStack | None = None

    def _begin_pool(self, options: Pool, *, shared_home: bool) -> None:
        self._shared_home = shared_home
        coordinator = self._runner.coordinator
        controls = PoolControls(
            look=self._executors_seen,
            ask=lambda executors: request_total(self._spark, executors),
            keep_to=coordinator.keep_to,
            give_back=self._give_back_executors,
        )
        self._pooling = Pooling(options, controls)

    def _executors_seen(self) -> Seen:
        coordinator = self._runner.coordinator
        layout = coordinator.layout
        there = layout.executors.look()
        if self._hush is not None and not going(self._spark):
            self._end_hush()
        warm = layout.executors.warm(there)
        return Seen(
            at_s=time.monotonic(),
            instances=layout.routing.instances,
            executors=Counter(map(host_of, warm)),
            cold=len(there - warm),
            occupied=Counter(layout.hosts().values()),
            open=layout.anchor.open,
            changing=coordinator.changing,
            cores=executor_cores(self._spark),
            shared=self._shared_home,
        )

    def _give_back_executors(self, hosts: Mapping[str, int], left: int) -> None:
        """Give back executors: between two epochs, when none of their tasks runs and nothing is theirs."""
        coordinator = self._runner.coordinator
        with self._turn:
            layout = coordinator.layout
            occupied, ids = set(layout.hosts().values()), executor_ids(self._spark)
            on: dict[str, list[str]] = {}
            for name in layout.executors.look() & ids.keys():
                on.setdefault(host_of(name), []).append(ids[name])
            # Those that came last go first. Where instances are, somebody stays who has what they own.
            may = {
                host
                for host, count in hosts.items()
                if host not in occupied or (self._shared_home and count < len(on.get(host, ())))
            }
            if self._stopping or self._closed or coordinator.changing or may != hosts.keys():
                return
            gone = [id for host, count in hosts.items() for id in sorted(on.get(host, ()), key=int)[-count:]]
            if gone:
                self._hush = self._hush or contextlib.ExitStack()
                self._hush.enter_context(log_off(self._spark, NETWORK_LOGGER))
                give_back(self._spark, gone)
                request_total(self._spark, left)

    def _end_pool(self) -> None:
        if self._pooling is not None:
            self._pooling.close()
        self._end_hush()

    def _end_hush(self) -> None:
        if self._hush is not None:
            self._hush.close()
            self._hush = None


def pool_faults(spark: object, pool: object) -> list[str]:
    """List what is wrong with a pool on a session."""
    if pool is None:
        return []
    if not isinstance(pool, Pool):
        return [f"pool={pool!r}: give ferryman.Pool(...), or leave it out"]
    if not isinstance(spark, SparkSession):
        return []
    conf, master = spark.sparkContext.getConf(), spark.sparkContext.master or "local"
    if master == "local" or master.startswith("local["):
        return [f"pool={pool!r}: the session is on {master}, where there are no executors to ask for. Leave it out"]
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return [
            f"pool={pool!r}: the session has spark.dynamicAllocation.enabled, which would ask for executors and give "
            "them back too, and does not know what they own. Turn it off, or leave the pool out"
        ]
    return []
