"""What a job tells of the topics that it reads, and to whom: the part of `Job` that is about Kafka."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ferryman._engine.kafka_groups import ConsumerGroup
from ferryman._engine.kafka_lag import Lag, lag_in_words
from ferryman._engine.kafka_reports import KafkaPlace, KafkaReports
from ferryman._engine.kafka_transactions import client
from ferryman._engine.progress import EpochProgress
from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.compat.kafka_frame import kafka_options
from ferryman._spark.compat.session import streaming_sources

if TYPE_CHECKING:
    from ferryman._engine.epoch import EpochRunner
    from ferryman._migrate.coordinator import Coordinator
    from ferryman._spark.plan.planner import Planner

# What Java's clients and librdkafka call the same.
_SAME = ("kafka.bootstrap.servers", "kafka.security.protocol", "kafka.sasl.mechanism")
# How far back an epoch may be that Spark tells of only now.
_LATEST = 100


class KafkaTold:
    """Tell how many rows wait in Kafka, and have consumer groups follow what is committed."""

    name: str
    _query: StreamingQuery
    _runner: EpochRunner[Coordinator[Planner]]
    _progress: deque[EpochProgress]
    _changed: threading.Condition
    _reports: KafkaReports | None = None

    def _begin_reports(self, places: Sequence[KafkaPlace | None]) -> None:
        """Begin to tell, where a source reads Kafka."""
        if not any(places):
            return
        self._reports = KafkaReports(
            self.name,
            [place or KafkaPlace("") for place in places],
            told=self._told_by_spark,
            learned=self._learned,
            look=self._runner.fenced.look,
            latest=self._runner.takeover.latest,
        )
        if (latest := self._runner.latest) is not None and latest is not self._runner.takeover.latest:
            # The query runs already, and its first epoch may have found nobody to report to.
            self._reports.committed(latest)

    def _told_by_spark(self) -> Mapping[str, Any] | None:
        progress = self._query.lastProgress
        return None if progress is None else json.loads(progress.json)

    def _learned(self, batch: int, lag: Mapping[str, Lag]) -> None:
        """Put what waited to the epoch of a micro-batch."""
        with self._changed:
            last = len(self._progress) - 1
            for place in range(last, max(-1, last - _LATEST), -1):
                epoch = self._progress[place]
                if epoch.batch == batch and not epoch.silent:
                    self._progress[place] = replace(epoch, waiting=lag)
                    return

    @property
    def rows_waiting(self) -> int | None:
        """Give how many rows wait in the topics of Kafka that the job reads; None where that is not known.

        It is what waited when the newest epoch was begun, besides what that took.
        """
        lag = {} if self._reports is None else self._reports.lag
        return sum(sum(partitions.values()) for partitions in lag.values()) if lag else None

    def _told_in_words(self) -> str:
        if self._reports is None:
            return ""
        said = [lag_in_words(self._reports.lag), str(self._reports)]
        return ". ".join(part for part in said if part)


def kafka_places(frame: DataFrame, source: str, group: ConsumerGroup | None) -> list[KafkaPlace | None]:
    """Say what is to be told of each of Spark's sources below a DataFrame; None for those that do not read Kafka."""
    return [None if kafka_options(leaf, ()) is None else KafkaPlace(source, group) for leaf in streaming_sources(frame)]


def group_of(frame: DataFrame, name: str, options: Mapping[str, str] | None) -> ConsumerGroup:
    """Make the group of a source, which is reached as the source is."""
    if not isinstance(name, str) or not name:
        raise InvalidConfiguration(f"ferry.stream(consumer_group={name!r}): give the name of a group of Kafka's.")
    asked = [kafka_options(leaf, _SAME) for leaf in streaming_sources(frame)]
    found = [options for options in asked if options is not None]
    if not found:
        raise InvalidConfiguration(
            f"ferry.stream(consumer_group={name!r}): the stream does not read Kafka, so there are no offsets to tell "
            'the group. Leave it out, or give it to the stream of spark.readStream.format("kafka").'
        )
    if len({tuple(options.items()) for options in found}) > 1:
        raise InvalidConfiguration(
            f"ferry.stream(consumer_group={name!r}): the stream reads several Kafkas. Give each a ferry.stream of its "
            "own, and put them together with union."
        )
    client("ferry.stream(consumer_group=...)")
    settings = {key.removeprefix("kafka."): value for key, value in found[0].items()}
    return ConsumerGroup(name, {**settings, **(options or {})})
