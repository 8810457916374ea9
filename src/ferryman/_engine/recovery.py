"""Begin a run: find out what the one before has left, and what comes first.

The run before may be dead, asleep, or alive for a moment yet. So what is found is looked at again once the new term is
taken: from then on nothing new can come of an older one, and the run before writes no more. Calls `Checkpoint`, the
sinks' `claim`, and terms.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ferryman._engine.outputs import check_known, claim
from ferryman._engine.sink import Sink
from ferryman._log.files.checkpoint import Checkpoint, keep_all, sweep_all
from ferryman._log.files.rewind_note import refuse_unfinished_rewind
from ferryman._log.files.term import Redo, Term, settle_term, take_term, term_before
from ferryman._log.spark_log.agreement import check_agreement, pending_batch
from ferryman._log.spark_log.mend import mend_spark_log
from ferryman._migrate.planning import rescaled
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.intent import Intent
from ferryman._model.lookup_version import LookupVersion
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable

log = logging.getLogger("ferryman")


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """What a run has taken over from the one before.

    Attributes
    ----------
    term
        The run's own term, which says which epoch it has to do again, and how.
    latest
        The newest committed epoch.
    routing
        The routing table of its first epoch.
    intent
        What was written down of the epoch that it has to do again; None if nothing was.
    pending
        Whether Spark will begin with a micro-batch that it has begun before; no silent epoch may come before that.
    asked
        How many instances were asked for; None if none were.
    dropped
        Sinks that are left out for good.
    """

    term: Term
    latest: Manifest | None
    routing: RoutingTable
    intent: Intent | None = None
    pending: bool = False
    asked: int | None = None
    dropped: Collection[str] = ()

    @classmethod
    def alone(cls, job: str, latest: Manifest | None, routing: RoutingTable) -> Takeover:
        """Go on from the newest epoch where no other run is ever alive: with a term that nobody has to know of."""
        term = Term(
            number=0, run=uuid.uuid4().hex, job=job, host="", pid=0, time_ms=0, instances=routing.instances, reading={}
        )
        return cls(term=term, latest=latest, routing=routing)

    @property
    def silent_first(self) -> Intent | None:
        """Give the silent epoch that was under way: it comes first, just as it was begun."""
        return self.intent if self.intent is not None and self.intent.silent else None

    def begun(self, epoch: int) -> Intent | None:
        """Give what was written down of an epoch when it was begun before; None for all but the one to do again."""
        return self.intent if self.intent is not None and self.intent.epoch == epoch else None

    def held_in(self, epoch: int) -> frozenset[int] | None:
        """Give the groups whose rows waited in the epoch to do again, also where nothing was written down of it.

        None for every other epoch: who waits in it is not settled yet, nor in which layout it is.
        """
        if self.term.redo is None or self.term.redo.epoch != epoch:
            return None
        begun = self.begun(epoch)
        return frozenset() if begun is None else begun.held

    def looked_up_in(self, epoch: int) -> Mapping[str, LookupVersion] | None:
        """Give what was written down of what the epoch to do again looks up; None for every other epoch."""
        if self.term.redo is None or self.term.redo.epoch != epoch:
            return None
        begun = self.begun(epoch)
        return {} if begun is None else begun.lookups

    def instances_after(self, epoch: int) -> int | None:
        """Give how many instances were asked for, after the epoch to do again: that has as many as it was begun with.

        None after every other epoch, and where none were asked for.
        """
        return self.asked if self.term.redo is not None and self.term.redo.epoch == epoch else None


def begin_run(
    checkpoint: Checkpoint,
    declared: Callable[[], JobCard],
    sinks: Sequence[Sink],
    *,
    instances: int | None,
    usual: int,
    reading: Mapping[str, str],
    locked: bool,
    dropped: Collection[str] = (),
) -> tuple[JobCard, Takeover]:
    """Declare the job and take over from the run before; give the card, and what was taken over.

    Parameters
    ----------
    declared
        Declares the job, or refuses what the checkpoint holds; gives the card.
    instances, usual, reading, locked, dropped
        As for `take_over`.
    """
    card = declared()
    keep_all(checkpoint)
    takeover = take_over(
        checkpoint,
        card,
        sinks,
        instances=instances,
        usual=usual,
        reading=reading,
        locked=locked,
        dropped=dropped,
    )
    # Until then the run before may have declared something itself: from now on only one that slept may.
    card = declared()
    sweep_all(checkpoint)
    return card, takeover


def take_over(
    checkpoint: Checkpoint,
    card: JobCard,
    sinks: Sequence[Sink],
    *,
    instances: int | None,
    reading: Mapping[str, str],
    locked: bool,
    usual: int = 1,
    dropped: Collection[str] = (),
) -> Takeover:
    """Take the next term, and find what an older run has committed, and what it has only begun.

    Parameters
    ----------
    instances
        How many instances each operator is to have in this run; None for as many as it last had.
    reading
        The settings by which Spark cuts the source's data into partitions in this run.
    locked
        Whether a lock keeps a run that is alive away.
    usual
        How many a job has at first, if none were asked for; no more than key groups.
    dropped
        Sinks that are left out for good, though they were not told of the newest epoch.
    """
    latest = _agreed(checkpoint, mended=locked)
    above = claim(sinks, checkpoint, card.id, latest, dropped)
    # For the sake of the error alone: a start that is refused takes no term.
    _left(checkpoint, latest, None)
    last = latest.routing.instances if latest else min(usual, card.groups)
    parallel = last if instances is None else instances
    taken = take_term(checkpoint, uuid.uuid4().hex, card.job, above=above, instances=parallel, reading=reading)
    # Until then the run before may have gone on; whatever it begins now, it will not show to anybody.
    latest = _agreed(checkpoint, mended=not locked)
    if latest is not None:
        # Whoever committed it may not have come to sync its name, and the sinks are about to be told of it.
        checkpoint.keep_manifest(latest.epoch)
    check_known(sinks, checkpoint, latest, dropped)
    batch, intents, redo = _left(checkpoint, latest, taken.number)
    term = settle_term(checkpoint, taken, redo)
    counts = next((intent for intent in intents if redo is not None and _is_of(intent, redo)), None)
    return Takeover(
        term=term,
        latest=latest,
        routing=_routing(latest, card.groups, term, counts),
        intent=counts,
        pending=batch is not None,
        asked=instances,
        dropped=dropped,
    )


def _left(
    checkpoint: Checkpoint, latest: Manifest | None, number: int | None
) -> tuple[int | None, tuple[Intent, ...], Redo | None]:
    """Find what runs before one have left: the micro-batch and the intents that are there, and what is to be redone."""
    batch, intents = pending_batch(checkpoint), tuple(checkpoint.intents().values())
    try:
        before = term_before(checkpoint, number)
    except CorruptCheckpoint as error:
        epoch = _next(latest)
        if any(intent.epoch == epoch for intent in intents) or _is_uncovered(batch, latest):
            raise CorruptCheckpoint(
                f"{error.message} The file tells how epoch {epoch}, which was begun and not committed, has to be "
                "done again to be the same; done otherwise, a sink could have rows of both."
            ) from error
        log.warning("%s Nothing was under way, so the job goes on without it.", error.message)
        before = None
    return batch, intents, left_behind(latest, before, batch=batch, intents=intents)


def _next(latest: Manifest | None) -> int:
    return (latest.epoch if latest else 0) + 1


def _is_uncovered(batch: int | None, latest: Manifest | None) -> bool:
    return batch is not None and batch > (latest.batch if latest else -1)


def left_behind(
    latest: Manifest | None, before: Term | None, *, batch: int | None, intents: Iterable[Intent]
) -> Redo | None:
    """Find the epoch that a run has begun and not committed, and how it has to be done again.

    Parameters
    ----------
    latest
        The newest committed epoch.
    before
        The run.
    batch
        The micro-batch that Spark has begun and not committed.
    intents
        What each run has last written down of an epoch that began.
    """
    epoch = _next(latest)
    if before is None:
        return None
    if before.redo and before.redo.epoch == epoch:
        # It died in an epoch that the run before it had begun.
        return before.redo
    # An intent of an older run came too late to count.
    intended = any(intent.epoch == epoch and intent.term in (0, before.number) for intent in intents)
    if not intended and not _is_uncovered(batch, latest):
        return None
    # A run that has committed epochs may have changed its layout meanwhile.
    instances = latest.routing.instances if latest and latest.term == before.number else before.instances
    return Redo(epoch, before.reading, instances, before.number)


def resumes(term: Term, latest: Manifest | None) -> bool:
    """Tell whether the job was away between the newest epoch and the next one of a run.

    So it was before the first epoch of a run; and where that one was begun by an earlier run, and is redone at the
    time it had then, before the second.
    """
    if latest is None or latest.term != term.number:
        return True
    return term.redo is not None and term.redo.epoch == latest.epoch


def _is_of(intent: Intent, redo: Redo) -> bool:
    """Tell whether an intent is of the epoch that has to be done again, and did not come too late."""
    return intent.epoch == redo.epoch and (intent.term >= redo.since or not intent.term)


def _routing(latest: Manifest | None, groups: int, term: Term, intent: Intent | None) -> RoutingTable:
    """Give the routing table of a start: that of the epoch it has to do again, or the last one if it fits."""
    if intent is not None and intent.routing is not None:
        return intent.routing
    instances = term.redo.instances if term.redo else term.instances
    if latest is None:
        return RoutingTable.even(1, groups, instances)
    if latest.routing.instances == instances:
        return latest.routing
    return rescaled(latest.routing, instances)


def _agreed(checkpoint: Checkpoint, *, mended: bool) -> Manifest | None:
    """Give the newest manifest, when Spark's log was found to agree with it; with `mended`, see to it first.

    Whoever has no lock may be meeting a run that is alive: its log is not to be mended before that is over, and it may
    commit an epoch between two looks.
    """
    while True:
        refuse_unfinished_rewind(checkpoint)
        latest = checkpoint.latest()
        try:
            if mended:
                _mend(checkpoint, latest)
            check_agreement(checkpoint, latest)
        except (CorruptCheckpoint, MissingDelta):
            if checkpoint.latest() == latest:
                raise
        else:
            return latest


def _mend(checkpoint: Checkpoint, latest: Manifest | None) -> None:
    if mended := mend_spark_log(checkpoint, latest):
        where = checkpoint.directory.uri
        log.warning("Spark's log in %s was not whole and was mended: %s", where, "; ".join(mended))
