"""Tie each instance to its berth, a host: by a DataFrame with a row for each instance that wants to be there.

`_migrate.berths` decides which host that is; here it is told to Spark. Calls `compat`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ferryman._engine.routing_columns import SEQUENCE, TOKEN
from ferryman._migrate.berths import Berths, ring_after
from ferryman._spark.compat.pinned_tasks import PinnedTasks
from ferryman._spark.compat.placed_rows import PlacedRows
from ferryman._spark.compat.session import executor_ids
from ferryman._spark.plan.executors_there import ExecutorsThere, host_of
from ferryman._state.store.contract import HASH

# Whether a shuffle asks for the hosts that its rows are on. Read when the application starts, so never an epoch's own.
SHUFFLE_PULLS = "spark.shuffle.reduceLocality.enabled"
# How often it is looked for lost executors while an epoch is under way. Spark waits twice as long before it runs a
# stage again whose rows were lost with one.
_LOOK_S = 0.1


class Anchor:
    """Give instances their berths on the executors there are, and have Spark run them there.

    Parameters
    ----------
    spark
        The session.
    tokens
        The token of each instance.
    standbys
        Tells how many hosts stand by for each.
    executors
        The executors there are; all layouts of a job look at the same.
    open
        The hosts that instances may come to; None for all.

    An epoch's thread, one that looks for lost executors meanwhile, and a plan's may settle them at once.
    """

    def __init__(
        self,
        spark: SparkSession,
        tokens: Sequence[int],
        standbys: Callable[[], int] = lambda: 0,
        executors: ExecutorsThere | None = None,
        open: frozenset[str] | None = None,
    ) -> None:
        self._spark = spark
        self.executors = executors or ExecutorsThere(spark)
        self.open = open
        self._tokens = tokens
        self._standbys = standbys
        self._rows: PlacedRows | None = None
        self._settling = threading.Lock()
        self._executors: frozenset[str] = frozenset()
        self._tasks: PinnedTasks | None = None
        # The hosts that are not warm yet.
        self._waiting: frozenset[str] = frozenset()
        # The instances that were moved while an epoch was under way.
        self._moved: frozenset[int] = frozenset()
        self.berths = Berths()
        # Spark runs a partition of a union on the host that most of its parts ask for. Unless this is off, the shuffle
        # asks too, for the host that wrote most of its rows, and then it takes two anchors to outvote it.
        self._shuffle_pulls = spark.sparkContext.getConf().get(SHUFFLE_PULLS, "true") != "false"

    @property
    def frame(self) -> DataFrame | None:
        """Give the rows; None before instances have berths."""
        return None if self._rows is None else self._rows.frame

    def settle(self, ran: Sequence[str] = ()) -> None:
        """Give instances their berths on the executors there are now; most stay where they are, or `ran` last."""
        with self._settling:
            there = self.executors.look()
            cold = self.executors.cold(there)
            if there == self._executors and cold == self._waiting and self._rows is not None:
                return
            self._executors, self._waiting = there, cold
            rooms, standbys = Counter(map(host_of, there)), self._standbys()
            # Who stands by has it sooner than one that has just restored it.
            moved = frozenset() if standbys else self._moved
            before = self.berths.where_they_ran(moved, ran, rooms.keys() - cold)
            self._moved = frozenset()
            self._move(before.settled(len(self._tokens), rooms, standbys, cold, self.open))

    def on(self, open: frozenset[str]) -> Anchor:
        """Give an anchor of the same instances on other hosts: what need not go from its berth stays there."""
        with self._settling:
            other = Anchor(self._spark, self._tokens, self._standbys, self.executors, open)
            other.berths = self.berths_on(open)
            return other

    def berths_on(self, open: frozenset[str]) -> Berths:
        """Give the berths that instances would have if these were the hosts that are open."""
        return self.berths.on(open, Counter(map(host_of, self.executors.look())), self._standbys())

    def keep_to(self, open: frozenset[str]) -> bool:
        """Have no other hosts open from now on, if every instance is where it would be then; tell whether it is so."""
        with self._settling:
            berths = self.berths_on(open)
            if berths.hosts != self.berths.hosts:
                return False
            self.berths, self.open = berths, open
            return True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look for lost executors while an epoch is under way; what Spark runs again then goes to the new berths."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), name="ferryman-berths", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def tasks(self) -> PinnedTasks:
        """Give what runs a task per instance at its berth; if that is lost meanwhile, at a host that stands by."""
        with self._settling:
            if self._tasks is None:
                self._tasks = PinnedTasks(self._spark, [",".join(names) for names in self._places()])
            return self._tasks

    def hosts(self) -> dict[int, str]:
        """Tell the berth of each instance that has one, by the name that Spark has for the host."""
        return {instance: host for instance, host in enumerate(self.berths.hosts) if host}

    def executor_hosts(self) -> set[str]:
        """Name the hosts of the executors there are now, as Spark does."""
        return set(map(host_of, self.executors.look()))

    @staticmethod
    def rows_for(frame: DataFrame, schema: StructType) -> DataFrame:
        """Give rows of an anchor in the columns of what they are united with."""

        def column(wanted: StructField) -> Column:
            if wanted.name == TOKEN:
                return F.col(TOKEN)
            value = F.lit(-1) if wanted.name in (SEQUENCE, HASH) else F.lit(None)
            return value.cast(wanted.dataType).alias(wanted.name)

        return frame.select(*(column(wanted) for wanted in schema))

    def tied(self, routed: DataFrame, rows: DataFrame | None) -> DataFrame:
        """Unite what was shuffled with an anchor's rows, so that it is worked on where these are."""
        if rows is None:
            return routed
        tied = routed.union(rows)
        return tied.union(rows) if self._shuffle_pulls else tied

    def _watch(self, over: threading.Event) -> None:
        # Whatever is wrong with the session, the epoch will say.
        with contextlib.suppress(Exception):
            while not over.wait(_LOOK_S):
                there = self.executors.look()
                with self._settling:
                    if self._executors - there:
                        rooms = Counter(map(host_of, there))
                        # Hosts that have come are the next epoch's business: they are not known of yet.
                        berths = self.berths.without_lost(rooms, self._standbys(), self.open)
                        if berths is not self.berths:
                            pairs = enumerate(zip(self.berths.hosts, berths.hosts, strict=True))
                            self._moved |= {instance for instance, (was, now) in pairs if was != now}
                            self._move(berths)

    def _places(self) -> list[list[str]]:
        """Name for each instance where its task is to run: its host; or its executors, and next who stands by."""
        hosts, standbys = self.berths.hosts, self._standbys()
        ids = executor_ids(self._spark) if standbys else {}
        on: dict[str, list[str]] = {}
        for name in sorted(self._executors & ids.keys()):
            on.setdefault(host_of(name), []).append(f"executor_{host_of(name)}_{ids[name]}")
        # To Spark an executor comes before a host: who stands by gets only what the executor has left.
        return [[*on[host], *ring_after(host, hosts, standbys)] if host in on else [host] for host in hosts]

    def _move(self, berths: Berths) -> None:
        """Have instances go to their new berths; whoever calls has the lock."""
        new = self._rows is None
        self._rows = self._rows or PlacedRows(self._spark, TOKEN, self._tokens)
        if new or berths.hosts != self.berths.hosts:
            self._rows.place(berths.hosts)
        self.berths, self._tasks = berths, None
