"""After an epoch is committed, and beside those that follow: tell consumer groups its offsets, and learn what waits.

One thread in the driver. Nothing waits for it but the end of a job, and that not for long. Only the newest offsets
count, so what could not be told while the brokers were away is told with what comes next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ferryman._engine.kafka_groups import ConsumerGroup, GroupOffsets
from ferryman._engine.kafka_lag import Lag, lag_by_source, offsets_of
from ferryman._model.errors import Superseded
from ferryman._model.manifest import Manifest

log = logging.getLogger("ferryman")

# How often offsets are told at the most, and how soon again after that has failed.
_EVERY_S, _AGAIN_S = 1.0, 5.0
# How long the end of a job waits for it.
_LAST_S = 10.0
# How soon to ask again for what Spark tells a moment later.
_SOON_S = 0.05


@dataclass(frozen=True)
class KafkaPlace:
    """What is to be told of one of Spark's sources.

    Attributes
    ----------
    source
        The source of the job's that it belongs to.
    group
        To which group; None for none.
    """

    source: str
    group: ConsumerGroup | None = None


@dataclass(frozen=True)
class _Committed:
    epoch: int = 0
    batch: int = -1
    offsets: tuple[Any, ...] = ()

    @classmethod
    def by(cls, manifest: Manifest | None) -> _Committed:
        return cls() if manifest is None else cls(manifest.epoch, manifest.batch, manifest.offsets)


class KafkaReports:
    """Tell and learn, beside the epochs.

    Parameters
    ----------
    job
        The job's name.
    places
        Spark's sources, in their order.
    told
        Gives what Spark tells of the newest micro-batch; None if there is nothing yet.
    learned
        Is told, of a micro-batch, what waited when it was begun.
    look
        Raises `Superseded` if another run has taken over.
    latest
        The newest epoch that is committed already: a driver that died may not have told of it.
    """

    def __init__(
        self,
        job: str,
        places: Sequence[KafkaPlace],
        *,
        told: Callable[[], Mapping[str, Any] | None],
        learned: Callable[[int, Mapping[str, Lag]], None],
        look: Callable[[str], None],
        latest: Manifest | None = None,
    ) -> None:
        self._job = job
        self._names = [place.source for place in places]
        self._groups = {
            number: GroupOffsets(place.group) for number, place in enumerate(places) if place.group is not None
        }
        self._group_names = sorted({place.group.name for place in places if place.group is not None})
        self._told, self._learned, self._look = told, learned, look
        self._changed = threading.Condition()
        self._newest = _Committed.by(latest)
        self._closed = False
        self._told_epoch = -1
        # Spark tells only of the micro-batches of this run.
        self._known_batch = self._newest.batch
        self._not_before = 0.0
        self._failing = False
        self.lag: Mapping[str, Lag] = {}
        self._thread = threading.Thread(target=self._work, name="ferryman-kafka", daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        """Say which groups are told, and how far that is."""
        if not self._group_names:
            return ""
        names = ", ".join(map(repr, self._group_names))
        how_far = f"told of epoch {self._told_epoch}" if self._told_epoch >= 0 else "not told anything yet"
        return f"consumer group {names}: {how_far}"

    def committed(self, manifest: Manifest) -> None:
        """Learn of an epoch that is committed."""
        with self._changed:
            self._newest = _Committed.by(manifest)
            self._changed.notify_all()

    def close(self) -> None:
        """Tell what was not told yet, if that goes fast, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_LAST_S)

    def _work(self) -> None:
        while True:
            # In this order: what is committed last comes before the end.
            closed, newest = self._closed, self._newest
            wait_s = self._round(newest, last=closed)
            if closed:
                break
            with self._changed:
                self._changed.wait_for(lambda seen=newest: self._closed or self._newest is not seen, wait_s)  # type: ignore[misc]
        self._let_go()

    def _let_go(self) -> None:
        groups, self._groups = self._groups, {}
        for group in groups.values():
            group.close()

    def _round(self, newest: _Committed, *, last: bool) -> float | None:
        """Do what there is to do; say after how long to look again."""
        waits = []
        if newest.batch > self._known_batch and not self._learn(newest.batch):
            waits.append(_SOON_S)
        if self._groups and newest.epoch > max(0, self._told_epoch):
            left_s = self._not_before - time.monotonic()
            if left_s <= 0 or last:
                self._tell(newest)
                left_s = self._not_before - time.monotonic()
            waits.append(max(0.0, left_s))
        return min(waits, default=None)

    def _learn(self, batch: int) -> bool:
        try:
            progress = self._told()
        except Exception as error:
            # The query has ended, and with it who could tell.
            log.debug("job %r: Spark does not tell of its micro-batches: %s", self._job, error)
            self._known_batch = batch
            return True
        known = -1 if progress is None else progress.get("batchId", -1)
        if progress is not None and known > self._known_batch:
            self._known_batch = known
            self.lag = lag_by_source(progress, self._names)
            self._learned(known, self.lag)
        return bool(known >= batch)

    def _tell(self, newest: _Committed) -> None:
        try:
            # One that was taken over would set the groups back.
            self._look("consumer groups")
            for number, group in self._groups.items():
                offsets = offsets_of(newest.offsets[number]) if number < len(newest.offsets) else None
                if offsets is not None:
                    group.tell(offsets)
        except Superseded:
            self._let_go()
        except Exception as error:
            self._not_before = time.monotonic() + _AGAIN_S
            if not self._failing:
                log.warning(
                    "job %r: consumer group %s cannot be told of epoch %d: %s. The job goes on, and it is tried again "
                    "every %.0f s; until then what looks at the group's lag sees too much of it.",
                    *(self._job, ", ".join(map(repr, self._group_names)), newest.epoch, error, _AGAIN_S),
                )
            self._failing = True
        else:
            self._not_before = time.monotonic() + _EVERY_S
            self._told_epoch = newest.epoch
            self._failing = False
