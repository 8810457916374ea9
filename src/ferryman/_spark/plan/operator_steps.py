"""The steps of an operator's part of an epoch's plan, as far as they do not change from epoch to epoch."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman._engine.routing_columns import FILE
from ferryman._spark.compat.frame_steps import MappedInArrow, Selected
from ferryman._spark.compat.partitioned import AggregatedInPartitions
from ferryman._spark.plan.partials import COUNT
from ferryman._state.store.contract import HASH


class OperatorSteps:
    """The steps of one operator under one routing table.

    Parameters
    ----------
    columns
        What its tasks get: its input, and last the hash, the sequence and the token of each row.
    routed, partial, output
        The columns that go to its tasks, those of partials, and those that come out.
    keys
        The names of its key.
    hashed
        The hash of the key.
    partials
        What Spark makes of the rows of a key before they are routed; None where it cannot.

    Attributes
    ----------
    route, run
        Select what its tasks get of the rows; run these on it. With the file of each row where that is needed.
    choose, combine
        Select what partials are made of, in Python; make them.
    aggregate, hash, tell
        Have Spark make the partials, hash their keys, and have a task in Python route and tell of them.
    run_on_partials
        Run the tasks on partials.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        routed: StructType,
        partial: StructType,
        output: StructType,
        *,
        keys: Sequence[str],
        hashed: Column,
        partials: Sequence[Column] | None,
    ) -> None:
        self.route = Selected(columns)
        self.run = MappedInArrow(routed.names, output)
        self.route_with_file = Selected([*columns, F.col(FILE)])
        self.run_with_file = MappedInArrow([*routed.names, FILE], output)
        # Who combines makes sequence and token itself: two columns less on the way to Python.
        self.choose = Selected(columns[:-2])
        self.combine = MappedInArrow(routed.names[:-2], partial)
        self.run_on_partials = MappedInArrow(partial.names, output)
        self.aggregate: AggregatedInPartitions | None = None
        if partials is not None:
            kept = [*partial.names[:-3], COUNT]
            self.aggregate = AggregatedInPartitions(keys, [*partials, F.count(F.lit(1)).alias(COUNT)])
            self.hash = Selected([*(F.col(f"`{name}`") for name in kept), hashed.alias(HASH)])
            self.tell = MappedInArrow([*kept, HASH], partial)
