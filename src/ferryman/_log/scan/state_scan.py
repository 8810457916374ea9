"""Read the state of an epoch in parts, so that neither memory nor one reader has to hold the whole of it.

A part is some key groups; each is rebuilt on its own, by `rebuild`, as recovery does it.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.bases import Groups, bases
from ferryman._log.fold.fold import RUN_ROWS, rebuild, runs_of_groups
from ferryman._log.scan.epochs_kept import while_kept
from ferryman._log.scan.keys_asked import KeysAsked
from ferryman._model.card import JobCard

# Of what Spark reads at once: about as much as a file of a snapshot holds.
PART_ROWS = 1 << 20


def state_parts(
    checkpoint: Checkpoint, card: JobCard, table: str, epoch: int, at_most: int = RUN_ROWS
) -> list[Groups | None]:
    """Cut a table into runs of key groups of about so many rows each; one run of all groups is None."""
    base = next(bases(checkpoint, epoch), None)
    rows = sum(file.rows for file in base.tables.get(table, ())) if base else 0
    for number in range((base.epoch if base else 0) + 1, epoch + 1):
        rows += sum(ref.rows for ref in checkpoint.manifest(number).tables.get(table, ()))
    return runs_of_groups(card.groups, rows, at_most)


def parts_by_file(
    checkpoint: Checkpoint, card: JobCard, table: str, epoch: int, keys: KeysAsked | None
) -> list[list[int]]:
    """Cut what is to be read of a table where files of the snapshot end, so that each is read by one reader.

    Where there is no snapshot yet, by rows. With keys, only their groups are read.
    """
    with while_kept(checkpoint, epoch):
        base = next(bases(checkpoint, epoch), None)
        files = base.tables.get(table, ()) if base else ()
        if len(files) > 1:
            edges = [0, *(file.first for file in files[1:]), card.groups]
            runs = [np.arange(first, end) for first, end in itertools.pairwise(edges)]
        else:
            every = np.arange(card.groups)
            cut = state_parts(checkpoint, card, table, epoch, PART_ROWS)
            runs = [every if groups is None else groups for groups in cut]
    if keys is not None:
        wanted = keys.groups(card.groups)
        runs = [np.intersect1d(run, wanted) for run in runs]
    return [run.tolist() for run in runs if len(run)]


def read_state(checkpoint: Checkpoint, table: str, epoch: int, groups: list[int], keys: KeysAsked | None) -> pa.Table:
    """Rebuild some key groups as of an epoch, or what they have of some keys."""
    with while_kept(checkpoint, epoch):
        rows = rebuild(checkpoint, table, epoch, np.array(groups, np.int64))
    return rows if keys is None else keys.rows_of(rows)
