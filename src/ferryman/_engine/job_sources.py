"""Which sources a job has, from one start to the next: each keeps the place at which Spark counts its offsets.

Spark knows sources by their place alone. So a source has the place that it got when it came, for ever: one that is left
out leaves its place to something that gives no rows, and one that is new comes last. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferryman._model.card import SourceCard
from ferryman._model.errors import SourcesChanged

_UNNAMED = "source_"


def labels(names: Sequence[str | None]) -> list[str]:
    """Name sources, given in the order in which they were made: those without a name by their place among these.

    Examples
    --------
    >>> labels(["orders", None, None])
    ['orders', 'source_1', 'source_2']
    """
    unnamed = iter(range(1, len(names) + 1))
    return [name if name is not None else f"{_UNNAMED}{next(unnamed)}" for name in names]


def placed(
    held: Sequence[SourceCard], wanted: Sequence[SourceCard], unnamed: int, began: int | None
) -> tuple[SourceCard, ...]:
    """Give the places of a job's sources: those that are held, then what is new.

    Parameters
    ----------
    held
        The places of the job's earlier starts.
    wanted
        The sources of this start, in the order in which they were made.
    unnamed
        How many of them have no name of their own.
    began
        How many of Spark's sources the job has read so far; None where it has not begun.

    Examples
    --------
    >>> a, b = SourceCard("a", 1), SourceCard("b", 1)
    >>> [source.name for source in placed([a], [b], 0, 1)]
    ['a', 'b']
    """
    if not held and began is not None:
        # One without a name, of which nothing was written down.
        held = (SourceCard(f"{_UNNAMED}1", began),)
    known = {source.name: source for source in held}
    anonymous = [source.name for source in held if source.name.startswith(_UNNAMED)]
    if began is not None and unnamed and unnamed != len(anonymous):
        raise SourcesChanged(
            f"the job has {unnamed} sources without a name and had {len(anonymous)}: which is which cannot be told, as "
            "only their order tells them apart. Name those that stay as the job knows them: "
            + (", ".join(f'ferry.stream(..., name="{name}")' for name in anonymous) or "all have names")
            + "; and give new ones names of their own."
        )
    if began is not None and anonymous and not any(source.name in known for source in wanted):
        raise SourcesChanged(
            f"the job has read {', '.join(map(repr, anonymous))}, which had no name, and this start has none of its "
            f"sources: if {', '.join(repr(source.name) for source in wanted)} were the same under a name, its rows "
            "would be read from the beginning and counted twice. Name those that stay as the job knows them: "
            + ", ".join(f'ferry.stream(..., name="{name}")' for name in anonymous)
            + ". If others take their place, start once with both, stop the job, and then leave the earlier ones out."
        )
    for source in wanted:
        earlier = known.get(source.name)
        if earlier is not None and earlier.leaves != source.leaves:
            raise SourcesChanged(
                f"source {source.name!r} was made of {earlier.leaves} of Spark's streaming sources, and is now made of "
                f"{source.leaves}: how far each was read cannot be told any more. Make it of as many as before, in the "
                "same order; or give the new one another name, and it is read from its beginning."
            )
    return (*held, *(source for source in wanted if source.name not in known))


def left_out(places: Sequence[SourceCard], wanted: Sequence[SourceCard]) -> list[SourceCard]:
    """List the sources that have a place and are not read in this start."""
    names = {source.name for source in wanted}
    return [source for source in places if source.name not in names]
