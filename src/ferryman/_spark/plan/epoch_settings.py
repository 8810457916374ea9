"""What the plan of an epoch needs of the session that runs it, whatever the user's own session has."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from ferryman._spark.compat.partitioned import FAST_TABLE

EPOCH_CONF = {
    "spark.sql.adaptive.enabled": "false",
    # Else partials that are made where the rows stand would be shuffled for it.
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    **FAST_TABLE,
}
# Where a step lets no row through for certain, these would make of what comes after it a plan without tasks. But an
# instance has a task in every epoch: something may be due.
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_MAKE_EMPTY = (f"{_OPTIMIZER}.PruneFilters", f"{_OPTIMIZER}.PropagateEmptyRelation")


class EpochSettings:
    """Set what epochs need. Spark runs micro-batches in a session of the query's own: the user's is left."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._set: dict[str, str] = {}

    def give(self, session: SparkSession, wanted: Mapping[str, str]) -> None:
        """Set what the session does not have yet: each is a call of the JVM."""
        if session is not self._session:
            self._session, self._set = session, {}
            own = (session.conf.get(_EXCLUDED, "") or "").split(",")
            session.conf.set(_EXCLUDED, ",".join(dict.fromkeys(filter(None, (*own, *_MAKE_EMPTY)))))
        for name, value in wanted.items():
            if self._set.get(name) != value:
                session.conf.set(name, value)
                self._set[name] = value
