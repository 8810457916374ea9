"""The sources of a job as one streaming query reads them: one DataFrame, with a struct and a number for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ferryman._engine.job_sources import labels, left_out, placed
from ferryman._engine.kafka_reports import KafkaPlace
from ferryman._engine.routing_columns import PART
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.source_places import make_room, offsets_read
from ferryman._model.card import JobCard, SourceCard
from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.api.kafka_told import kafka_places
from ferryman._spark.api.stream import Source
from ferryman._spark.compat.session import streaming_sources
from ferryman._spark.sources import left_out as left_out_source

# Which source a row is of, by its place.
TAG = "_ferryman_source"


def struct_of(place: int) -> str:
    """Name the column that has the rows of a source, by its place.

    Examples
    --------
    >>> struct_of(0)
    '_ferryman_rows_0'
    """
    return f"_ferryman_rows_{place}"


@dataclass(eq=False)
class JobSources:
    """The sources of a job.

    Attributes
    ----------
    streams
        The sources, in the order in which they were made.
    places
        Those that have a place in Spark's log, by the place; empty where the job has only ever had one, without a name.
    """

    streams: Sequence[Source]
    places: tuple[SourceCard, ...] = ()
    _offsets: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sequence[Source]) -> JobSources:
        """Put the sources of a job together, and name them."""
        streams = sorted(sources, key=lambda source: source.order_made)
        names = labels([source.given_name for source in streams])
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InvalidConfiguration(
                f"two sources are called {twice[0]!r}. Give each ferry.stream a name of its own; and where both are "
                "the same rows, call ferry.stream once and derive both from that (where, select)."
            )
        for source, name in zip(streams, names, strict=True):
            source.known_as = name
        found = cls(streams)
        if len(streams) > 1:
            _refuse_shared(streams)
        return found

    @property
    def alone(self) -> bool:
        """Tell whether there has only ever been one source: its rows come as they are."""
        return len(self.places) <= 1

    def declare(self, card: JobCard, checkpoint: Checkpoint) -> JobCard:
        """Give the sources their places, and the card with them; nothing is written."""
        wanted = self._cards()
        if not card.sources and len(wanted) == 1 and self.streams[0].given_name is None:
            return card
        read = offsets_read(checkpoint)
        unnamed = sum(source.given_name is None for source in self.streams)
        self.places = placed(card.sources, wanted, unnamed, None if read is None else len(read))
        return replace(card, sources=self.places)

    def settle(self, checkpoint: Checkpoint, covered: int) -> None:
        """Have the places known to the checkpoint and to Spark's log, before the query begins.

        `covered` is the last micro-batch that a manifest covers; -1 if there is none.
        """
        if not self.places:
            return
        gone = left_out(self.places, self._cards())
        offsets = make_room(checkpoint, self.places, gone, covered)
        self._offsets = {source.name: lines for source, lines in zip(gone, offsets, strict=True)}
        card = checkpoint.job_card()
        # Before Spark begins a batch with them, and not with the first epoch as the rest.
        checkpoint.keep_card(replace(card, sources=self.places))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Give the streaming DataFrame that the query reads."""
        if self.alone:
            return Source.routable(self.streams[0].frame)
        by_name = {source.known_as: source for source in self.streams}
        frames: list[DataFrame] = []
        for place, card in enumerate(self.places):
            source = by_name.get(card.name)
            if source is not None:
                frames.append(self._tagged(source.frame, place, source))
            else:
                frames += [
                    self._tagged(left_out_source.left_out(spark, offset), place, None)
                    for offset in self._offsets[card.name]
                ]
        return Source.routable(_united(frames))

    def empty(self, session: SparkSession) -> DataFrame:
        """Give a batch without rows, as epochs get it."""
        if self.alone:
            return Source.routable(session.createDataFrame([], self.streams[0].schema))
        source = self.streams[0]
        rows = session.createDataFrame([], source.schema)
        return Source.routable(self._tagged(rows, self.place(source), source))

    def place(self, source: Source) -> int:
        """Give the place of a source."""
        return [card.name for card in self.places].index(source.known_as)

    def kafka_places(self) -> list[KafkaPlace | None]:
        """Say of each of Spark's sources, in their order, what is to be told of it; None for no Kafka."""
        told = {source.known_as: kafka_places(source.frame, source.known_as, source.group) for source in self.streams}
        if not self.places:
            return told[self.streams[0].known_as]
        return [place for card in self.places for place in told.get(card.name, [None] * card.leaves)]

    def rows_of(self, source: Source, batch: DataFrame) -> DataFrame:
        """Take the rows of a source out of a batch, each with its partition."""
        if self.alone:
            return batch
        place = self.place(source)
        return batch.where(F.col(TAG) == F.lit(place)).select(f"{struct_of(place)}.*", PART)

    def _cards(self) -> list[SourceCard]:
        return [SourceCard(source.known_as, len(streaming_sources(source.frame))) for source in self.streams]

    def _tagged(self, frame: DataFrame, place: int, source: Source | None) -> DataFrame:
        columns = [
            F.struct(*(F.col(f"`{name}`") for name in other.schema.names)).alias(struct_of(self.place(other)))
            if other is source
            else F.lit(None).cast(other.schema).alias(struct_of(self.place(other)))
            for other in self.streams
        ]
        return frame.select(*columns, F.lit(place).alias(TAG))


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def _refuse_shared(streams: Sequence[Source]) -> None:
    seen: list[tuple[Source, object]] = []
    for source in streams:
        for leaf in streaming_sources(source.frame):
            shared = next((other for other, known in seen if known.equals(leaf) and other is not source), None)  # type: ignore[attr-defined]
            if shared is not None:
                raise InvalidConfiguration(
                    f"the sources {shared.known_as!r} and {source.known_as!r} read one and the same spark.readStream, "
                    "which would be read twice. Call ferry.stream once, and derive both from that (where, select)."
                )
            seen.append((source, leaf))
