"""`ferryman rewind`: go back to an earlier epoch; says first what goes, and asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console

from ferryman._cli.printed_tables import ranges, shown
from ferryman._cli.state import Json, Path, when
from ferryman._engine.rewind import begin_rewind, carry_out, mend_after, term_of_rewind
from ferryman._engine.rewind_plan import RewindPlan, RewoundSink, plan_rewind
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.files.lock import CheckpointLock
from ferryman._log.files.open_checkpoint import opened
from ferryman._log.files.rewind_note import unfinished_rewind
from ferryman._log.files.term import Term
from ferryman._model.card import JobCard
from ferryman._model.errors import CheckpointInUse, EpochGone, MissingDelta, SinkMissing
from ferryman._model.rewind import Rewind


def rewind(
    path: Path,
    to_epoch: Annotated[int, typer.Option("--to-epoch", min=1, help="The epoch whose state comes back.")],
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Have the source go on from where it is: rows in between are lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Go back to an earlier epoch of a job that does not run: state, sinks, and what the source gives."""
    out = Console(highlight=False)
    with opened(path) as found:
        card = found.job_card()
        place = directory(path, fsync=True)
        with CheckpointLock(place, f"{card.job} (ferryman rewind)") as lock:
            checkpoint = Checkpoint(place)
            card = checkpoint.job_card()
            plan = _planned(checkpoint, card, to_epoch, keep_offsets=keep_offsets)
            if not as_json:
                for line in _described(card, plan) if plan else _finishing(to_epoch):
                    out.print(line, markup=False, soft_wrap=True)
            if not yes and not as_json:
                typer.confirm("Go back?", abort=True)
            left = _do(checkpoint, card, plan, alone=lock.held) if yes or not as_json else []
            newest = checkpoint.epochs()[-1:]
    if as_json:
        typer.echo(json.dumps({"done": yes, "left": left, **({} if plan is None else _json(plan))}))
    else:
        for line in left:
            out.print(line, markup=False, soft_wrap=True)
        which = f"{to_epoch} is" if newest == [to_epoch] else f"{to_epoch + 1}, in which only the source has moved, is"
        out.print(f"epoch {which} the newest; the job goes on from there", markup=False, soft_wrap=True)


def go_back(checkpoint: Checkpoint, card: JobCard, to: int, *, keep_offsets: bool = False) -> list[str]:
    """Go back without asking; say what has to be known of sinks that could not be reached."""
    return _do(checkpoint, card, _planned(checkpoint, card, to, keep_offsets=keep_offsets))


def _planned(checkpoint: Checkpoint, card: JobCard, to: int, *, keep_offsets: bool) -> RewindPlan | None:
    """Plan it; None where the very same was begun, and is only to be finished."""
    begun = unfinished_rewind(checkpoint)
    if begun is None:
        return plan_rewind(checkpoint, card, to, keep_offsets=keep_offsets)
    if begun.to != to or (begun.moved is not None) != keep_offsets:
        raise EpochGone(_other(checkpoint, begun))
    return None


def _do(checkpoint: Checkpoint, card: JobCard, plan: RewindPlan | None, *, alone: bool = True) -> list[str]:
    """Carry it out; say what has to be known of sinks that could not be reached.

    Who was not `alone` while it was planned may have met a job that runs: from the term on that writes no more.
    """
    if plan is None:
        begun = unfinished_rewind(checkpoint)
        assert begun is not None, "its note is there"
        term = term_of_rewind(checkpoint, card, _known_of(card, begun))
    else:
        term = term_of_rewind(checkpoint, card, _known_of(card, plan.rewind))
        begun = begin_rewind(checkpoint, plan if alone else _still(checkpoint, card, plan), term)
    left: list[str] = []
    by_hand = "" if begun.moved is None else f", but not epoch {begun.moved.epoch}: remove its files by hand"

    def take_back(label: str, where: str, to: int, term: Term) -> None:
        # Only who has a Parquet sink needs Spark's Python side.
        from ferryman._spark.sinks.rewound_sink import take_back as take_back_rows

        def written_in(epoch: int) -> Any:
            try:
                return checkpoint.manifest(epoch).sinks.get(label, {}).get("written") or None
            except MissingDelta:
                return None

        try:
            take_back_rows(label, where, job_id=card.id, to=to, term=term.number, written_in=written_in)
        except SinkMissing as error:
            left.append(
                f"{shown(error.message)} Where that sink is now, the next start takes its later epochs back{by_hand}."
            )

    carry_out(checkpoint, card, begun, term, take_back)
    if plan is not None:
        mend_after(checkpoint, card, plan)
    return left


def _still(checkpoint: Checkpoint, card: JobCard, plan: RewindPlan) -> RewindPlan:
    """Plan it again, now that nobody else writes; refuse what would be more than was said."""
    again = plan_rewind(checkpoint, card, plan.rewind.to, keep_offsets=plan.rewind.moved is not None)
    if again.rewind.newest != plan.rewind.newest:
        raise CheckpointInUse(
            f"a job ran on {checkpoint.directory.uri} and has committed epoch {again.rewind.newest} meanwhile; it was "
            "taken over, and ends. Nothing else was changed. See that nobody starts it, and run the command again."
        )
    return again


def _known_of(card: JobCard, rewind: Rewind) -> int:
    """Give the greatest term that sinks know of: where a backup was restored, the checkpoint knows only older ones."""
    if not rewind.sinks:
        return 0
    from ferryman._spark.sinks.rewound_sink import newest_term

    return max(newest_term(label, where, job_id=card.id) for label, where in rewind.sinks.items())


# -- saying it -------------------------------------------------------------------------------------


def _described(card: JobCard, plan: RewindPlan) -> Iterator[str]:
    to, newest, moved = plan.rewind.to, plan.rewind.newest, plan.rewind.moved
    yield f"job {shown(card.job)}: back to epoch {to}{when(plan.manifest.time_ms)}"
    gone = f"epochs {to + 1}-{newest} go" if newest > to else "no epoch goes"
    snapshots = f", and the snapshots of {ranges(plan.snapshots)}" if plan.snapshots else ""
    yield f"state     {gone}{snapshots}"
    rows = f"{'at least ' if plan.unread else ''}{plan.rows:,} rows that were read since"
    if moved is None:
        yield (
            f"source    is read again after {_offsets(plan.offsets)} (micro-batch {plan.manifest.batch}): {rows} come "
            "again, if the source still has them, perhaps cut into other epochs"
        )
    else:
        yield (
            f"source    goes on after {_offsets(moved.offsets)} (micro-batch {moved.batch}): {rows} are lost, to the "
            "state and to sinks that take back"
        )
    if plan.under_way is not None:
        yield (
            f"under way epoch {plan.under_way} was begun and not committed, and goes too: what a function was called "
            "with for it, and what is in Kafka already, stays there"
        )
    for sink in plan.sinks:
        yield f"sink      {shown(sink.label)}: {_of_sink(sink, plan)}"
    for file in plan.damaged:
        yield f"damaged   {shown(file)}"


def _of_sink(sink: RewoundSink, plan: RewindPlan) -> str:
    epochs = f"epochs {plan.rewind.to + 1}-{plan.rewind.newest}"
    if plan.rewind.newest == plan.rewind.to:
        return "has shown nothing that goes"
    if sink.takes_back:
        return f"{shown(sink.path)} takes back the rows of {epochs}"
    if sink.refuses:
        return (
            f"cannot take back what it has shown of {epochs}, so it may refuse the next start (SINK_AHEAD): restore "
            "its rows from a backup of that time too, or give the job another table or name"
        )
    if sink.calls is None:
        return f"cannot take back what it has shown of {epochs}; at the next start it learns where the job stands"
    first, last = sink.calls
    if first > last:
        return "was not called since"
    if plan.rewind.moved is not None:
        return f"cannot take back what calls {first}-{last} have shown; numbers go on after {last}"
    return f"cannot take back what calls {first}-{last} have shown; these numbers come again, with rows that may differ"


def _offsets(offsets: tuple[Any, ...]) -> str:
    return "; ".join(shown(json.dumps(offset, separators=(",", ":"))) for offset in offsets) or "nothing"


def _finishing(to: int) -> Iterator[str]:
    yield f"a rewind to epoch {to} was begun and not finished: it is finished now"


def _other(checkpoint: Checkpoint, begun: Rewind) -> str:
    keep = " --keep-offsets" if begun.moved is not None else ""
    return (
        f"{checkpoint.directory.uri} is on its way back to epoch {begun.to}{keep}, and there is no other way before "
        f"that is done. Run it with --to-epoch {begun.to}{keep}; then go back further, if that is wanted."
    )


def _json(plan: RewindPlan) -> dict[str, Any]:
    return {
        "to": plan.rewind.to,
        "newest": plan.rewind.newest,
        "keep_offsets": plan.rewind.moved is not None,
        "rows": plan.rows,
        "snapshots": list(plan.snapshots),
        "offsets": list(plan.offsets),
        "newest_offsets": list(plan.newest_offsets),
        "sinks": [{"label": sink.label, "path": sink.path, "calls": sink.calls} for sink in plan.sinks],
        "damaged": list(plan.damaged),
        "under_way": plan.under_way,
    }
