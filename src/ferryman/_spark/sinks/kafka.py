"""Write to Kafka, exactly once for whoever reads what is committed.

A topic cannot take rows back, so an epoch is one transaction, before its manifest: its rows, and a note of the epoch.
An epoch that is redone has the same rows; if it is noted, nothing is sent. Calls `Transactions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash
from pyspark.sql import DataFrame

from ferryman._engine.kafka_transactions import Message, Note, Transactions, client
from ferryman._model.errors import ForeignCheckpoint, InvalidConfiguration, SinkAhead, SinkMissing, Superseded

if TYPE_CHECKING:
    from ferryman._engine.sink import SinkStart

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
# How often an epoch is tried: each time the transactional id is taken anew.
_TRIES = 3


class KafkaSink:
    """Write to Kafka, exactly once for readers with `isolation.level=read_committed`.

    The rows have the columns that Spark's own Kafka sink takes: `value`, and if they like `key`, `headers`, `topic` and
    `partition`.
    """

    whole = True
    skips_silence = False
    told = False

    def __init__(self, servers: str, topic: str, *, name: str = "", options: Mapping[str, str] | None = None) -> None:
        self._servers, self._topic = servers, topic
        self._name = name or topic
        if not _NAME.fullmatch(self._name):
            raise InvalidConfiguration(
                f"sinks.kafka(name={self._name!r}): a name has letters, digits, '.', '_' and '-', as a topic's."
            )
        self.label = f"kafka:{self._name}"
        self._transactions = Transactions(self._name, {"bootstrap.servers": servers, **(options or {})})
        self._job = ""
        self._term = 0
        self._note = Note("", 0, 0)

    def claim(self, job_id: str) -> int:
        """Refuse the output of another checkpoint; give the newest term that is noted."""
        self._job = job_id
        try:
            self._transactions.create()
            note = self._transactions.note()
        except client().KafkaException as error:
            raise ConnectionError(
                f"{self.label} cannot begin: {error}. See whether {self._servers} is where Kafka is, and whether this "
                "user may make and read topics that are called ferryman-epochs-*."
            ) from error
        if note is not None:
            self._refuse_foreign(note)
        return note.term if note is not None else 0

    def _refuse_foreign(self, note: Note) -> None:
        if note.job != self._job:
            raise ForeignCheckpoint(
                f"the Kafka sink {self._name!r} has the output of a job with another checkpoint; its epochs would be "
                "mixed with those of this job. Give this one another name: sinks.kafka(..., name=...)."
            )

    def begin(self, start: SinkStart) -> None:
        """Take over from older runs; refuse a checkpoint that has fewer epochs than the topic."""
        self._term = start.term
        self._try(lambda: self._begin(start), "take over")

    def _begin(self, start: SinkStart) -> None:
        self._take()
        if self._note.epoch < (known := _noted_in(start.written)):
            raise SinkMissing(
                f"{self.label} has noted epoch {known} according to the checkpoint, and its notes go to epoch "
                f"{self._note.epoch}: ferryman-epochs-{self._name} was deleted, or this is another Kafka. Nobody can "
                "tell whether the next epoch is there already. To go on all the same, and perhaps have that one "
                "twice, give the sink another name: sinks.kafka(..., name=...)."
            )
        ahead = self._note.epoch - start.epoch
        if ahead > 0 and start.written_in(self._note.epoch) is not None:
            raise Superseded(f"{self.label} has rows of epoch {self._note.epoch}, after this start. Start it again.")
        # One more is what a driver had written that died before the manifest.
        if ahead > 1:
            raise self._ahead(f"and its checkpoint goes to epoch {start.epoch}")
        self._send([], Note(self._job, self._term, self._note.epoch, self._note.rows, self._note.digest))

    def _ahead(self, why: str) -> SinkAhead:
        return SinkAhead(
            f"the topic {self._topic} has rows up to epoch {self._note.epoch} of this job, {why}: that was restored "
            "from a backup or rewound, or its operators have changed in the middle of an epoch. What is in a topic "
            "cannot be taken back. To write these epochs again behind them, give the sink another name: "
            "sinks.kafka(..., name=...). To go on, start with the operators and the checkpoint as they were."
        )

    def _take(self) -> None:
        """Become the one who writes, unless a newer run is; learn what is there."""
        self._transactions.take()
        note = self._transactions.note() or Note(self._job, 0, 0)
        self._refuse_foreign(note)
        if note.term > self._term:
            self._transactions.let_go()
            raise Superseded(f"run {note.term} of this job writes to {self.label}, and this is run {self._term}.")
        self._note = note

    def _try(self, step: Callable[[], None], what: str) -> None:
        """Do a step; if Kafka refuses, take over again and look what is there: it may have been done."""
        for left in reversed(range(_TRIES)):
            try:
                step()
                return
            except client().KafkaException as error:
                self._transactions.let_go()
                if not left:
                    raise ConnectionError(f"{self.label} could not {what}, tried {_TRIES} times: {error}") from error

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows to the driver and send them."""
        return self.write_table(rows.toArrow(), epoch)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Send the rows and the note of the epoch in one transaction, unless it is noted."""
        messages = self._messages(rows)
        note = Note(self._job, self._term, epoch, len(messages), _digest(messages))
        self._try(lambda: self._write(messages, note), f"write epoch {epoch}")
        return {"noted": self._note.epoch, "rows": len(messages)}

    def _write(self, messages: list[Message], note: Note) -> None:
        if not self._transactions.taken:
            self._take()
        if self._note.epoch >= note.epoch:
            if (self._note.rows, self._note.digest) != (note.rows, note.digest):
                raise self._ahead(f"and now has other rows of epoch {note.epoch}")
        elif messages:
            self._send(messages, note)

    def _send(self, messages: list[Message], note: Note) -> None:
        self._transactions.send(messages, note)
        self._note = note

    def _messages(self, rows: pa.Table) -> list[Message]:
        names = rows.column_names
        if "value" not in names:
            raise InvalidConfiguration(
                f"sinks.kafka needs a column 'value', a string or bytes, and the rows have {', '.join(names)}. Make "
                'one: stream.transform(lambda rows: rows.selectExpr("key", "to_json(struct(*)) AS value")).'
            )
        columns = {
            name: rows.column(name) for name in ("key", "value", "headers", "topic", "partition") if name in names
        }
        for name in ("key", "value"):
            if name in columns and not _is_bytes(columns[name].type):
                raise InvalidConfiguration(
                    f"sinks.kafka needs strings or bytes in {name!r}, and it has {columns[name].type}. Cast it."
                )
        listed = {
            name: (column.cast(pa.large_binary()) if name in ("key", "value") else column).to_pylist()
            for name, column in columns.items()
        }
        none: list[Any] = [None] * rows.num_rows
        return [
            Message(
                topic=topic or self._topic,
                key=key,
                value=value,
                partition=-1 if partition is None else partition,
                headers=[(header["key"], header["value"]) for header in headers] if headers else None,
            )
            for key, value, headers, topic, partition in zip(
                *(listed.get(name, none) for name in ("key", "value", "headers", "topic", "partition")), strict=True
            )
        ]

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do: it is in Kafka."""


def _noted_in(written: Mapping[str, Any]) -> int:
    """Give the newest epoch that was noted, as a manifest has it."""
    noted = written.get("noted", 0)
    return noted if isinstance(noted, int) else 0


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _digest(messages: list[Message]) -> int:
    """Sum up messages, in any order."""
    total = 0
    places: dict[tuple[str, int], int] = {}
    for message in messages:
        hashed = xxhash.xxh3_64_intdigest(message.value or b"", len(message.key or b""))
        hashed ^= xxhash.xxh3_64_intdigest(message.key or b"", (message.value is None) + 2 * (message.key is None))
        place = message.topic, message.partition
        if (at := places.get(place)) is None:
            at = places[place] = xxhash.xxh3_64_intdigest(repr(place).encode(), 4)
        if message.headers:
            hashed ^= xxhash.xxh3_64_intdigest(repr(message.headers).encode(), 5)
        total += hashed ^ at
    return total % (1 << 62)


def kafka(servers: str, topic: str, *, name: str = "", options: Mapping[str, str] | None = None) -> KafkaSink:
    """Write to a topic of Kafka, exactly once for readers with `isolation.level=read_committed`.

    Parameters
    ----------
    servers
        Where to ask for the brokers first: `host:port,host:port`.
    topic
        Where rows go that have no column `topic`.
    name
        What the sink is called: its transactional id is `ferryman-NAME`, its notes are in `ferryman-epochs-NAME`. The
        topic's name, if left out.
    options
        More settings, by the names of librdkafka: `security.protocol`, `compression.type`.
    """
    return KafkaSink(servers, topic, name=name, options=options)
