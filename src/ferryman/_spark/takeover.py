"""Begin a run: see that it can go on from what is there, and let the run before write no more.

The run before may be dead, asleep, or alive for a moment yet. So what is found is looked at again once the new term is
taken: from then on nothing new can come of an older one. Calls `Checkpoint`, the sinks' `claim`, and terms.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence

from ferryman._log.agreement import check_agreement
from ferryman._log.checkpoint import Checkpoint
from ferryman._log.mend import mend_spark_log
from ferryman._log.term import Term, left_behind, settle_term, take_term, term_before
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.records import JobCard, Manifest
from ferryman._spark.outputs import check_told, claim
from ferryman._spark.stream import Output

log = logging.getLogger("ferryman")


def take_over(
    checkpoint: Checkpoint,
    card: JobCard,
    outputs: Sequence[Output],
    *,
    instances: int,
    reading: Mapping[str, str],
    dropped: Collection[str] = (),
    locked: bool,
) -> tuple[Term, Manifest | None]:
    """Take the next term; give it with the newest manifest that an older run has committed.

    `locked` says that a lock keeps a run that is alive away.
    """
    latest = _agreed(checkpoint, mended=locked)
    above = claim(outputs, checkpoint, card.id, latest, dropped)
    term = take_term(checkpoint, uuid.uuid4().hex, card.job, above=above, instances=instances, reading=reading)
    # Until then the run before may have gone on; whatever it begins now, it will not show to anybody.
    latest = _agreed(checkpoint, mended=not locked)
    check_told(outputs, checkpoint, latest, dropped)
    redo = left_behind(checkpoint, latest, term_before(checkpoint, term.number))
    return settle_term(checkpoint, term, redo), latest


def _agreed(checkpoint: Checkpoint, *, mended: bool) -> Manifest | None:
    """Give the newest manifest, when Spark's log was found to agree with it; with `mended`, see to it first.

    Whoever has no lock may be meeting a run that is alive: its log is not to be mended before that is over, and it may
    commit an epoch between two looks.
    """
    while True:
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
