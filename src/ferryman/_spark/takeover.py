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
from ferryman._log.term import Term, left_behind, newest_term, take_term
from ferryman._model.records import JobCard, Manifest
from ferryman._spark.outputs import claim
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
    latest = checkpoint.latest()
    if locked:
        # Whoever has no lock may be meeting a run that is alive, whose log is not to be touched yet.
        _mend(checkpoint, latest)
    check_agreement(checkpoint, latest)
    above = claim(outputs, checkpoint, card.id, latest, dropped)
    while True:
        before = newest_term(checkpoint)
        redo = left_behind(checkpoint, latest, before)
        run = uuid.uuid4().hex
        term = take_term(checkpoint, run, card.job, above=above, instances=instances, reading=reading, redo=redo)
        # Until its term was over, the run before may have gone on.
        latest = checkpoint.latest()
        if left_behind(checkpoint, latest, before) == redo:
            break
    if not locked:
        _mend(checkpoint, latest)
    check_agreement(checkpoint, latest)
    return term, latest


def _mend(checkpoint: Checkpoint, latest: Manifest | None) -> None:
    if mended := mend_spark_log(checkpoint, latest):
        where = checkpoint.directory.uri
        log.warning("Spark's log in %s was not whole and was mended: %s", where, "; ".join(mended))
