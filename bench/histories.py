"""Random histories on a disk that forgets, by the thousand; and what they notice when a sync or a fence is taken out.

`bench.history` is one history. A campaign of them shows that no promised epoch is lost and none doubled. That it
would see if there were: each mutant leaves out one kind of sync, or one fence, and must be caught.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.history import Broken, History
from bench.life import Mutant
from bench.report import Progress, Result, environment, result_of, show


def _bytes(start: str) -> Mutant:
    return Mutant(sync=lambda path, before, starting: path.startswith(start))


def _names(folder: str) -> Mutant:
    return Mutant(sync=lambda path, before, starting: path == folder)


def _snapshots(end: str) -> Mutant:
    return Mutant(sync=lambda path, before, starting: path.startswith("checkpoint/snapshots/") and end in path)


def _once(start: str) -> Mutant:
    return Mutant(once=lambda path: path.startswith(start))


# What is left out: a kind of sync, a name that is given once, or a look whether a run is still the newest. Not here, as
# something else catches what they would let through: the look before a snapshot, which saves a run that is over the
# work (what it folds is what is committed, and there is another look after it); the one before it is noted what sinks
# were told (a note holds for one manifest only); and that a sink minds what is committed, if a newer run is minded: it
# takes a third driver, and a test does that.
MUTANTS: dict[str, Mutant] = {
    "bytes of a manifest": _bytes("checkpoint/manifests/"),
    "names of manifests": _names("checkpoint/manifests"),
    "bytes of a delta": _bytes("checkpoint/deltas/"),
    "names of deltas": _names("checkpoint/deltas"),
    "bytes of a snapshot": _snapshots(".parquet"),
    "bytes of a snapshot's list": _snapshots(".json"),
    "names of snapshots": _names("checkpoint/snapshots"),
    "bytes of the card": _bytes("checkpoint/.ferryman.json"),
    "bytes of an intent": _bytes("checkpoint/intents/"),
    "names of intents": _names("checkpoint/intents"),
    "bytes of a term": _bytes("checkpoint/terms/"),
    "names of terms": _names("checkpoint/terms"),
    "names in the checkpoint": _names("checkpoint"),
    "names above the checkpoint": _names("."),
    "bytes of Spark's offsets": _bytes("checkpoint/spark/offsets/"),
    "names of Spark's offsets": _names("checkpoint/spark/offsets"),
    "names in Spark's folder": _names("checkpoint/spark"),
    "names that are deleted": Mutant(sync=lambda path, before, starting: before == "unlink"),
    # The manifest that a run which was killed had named, and not synced any more.
    "names of manifests at a start": Mutant(
        sync=lambda path, before, starting: starting and before != "link" and path == "checkpoint/manifests"
    ),
    "bytes of the sink's rows": Mutant(
        sync=lambda path, before, starting: path.startswith("out/") and path.endswith(".parquet")
    ),
    "names of the sink's rows": _names("out"),
    "bytes of the sink's lists": Mutant(sync=lambda path, before, starting: path.startswith("out/_ferryman/.0")),
    "names of the sink's lists": _names("out/_ferryman"),
    "names of attempts": _names("out/_ferryman/attempts"),
    "names in an attempt": Mutant(
        sync=lambda path, before, starting: path.startswith("out/_ferryman/attempts/") and not path.endswith(".parquet")
    ),
    "a manifest is written once": _once("checkpoint/manifests/"),
    "a term is taken once": _once("checkpoint/terms/"),
    "a look before the intent": Mutant(look=("intent",)),
    "a look before the sink": Mutant(look=("sink",)),
    "a look before the manifest": Mutant(look=("manifest",)),
    "a look before the sink is told": Mutant(look=("telling",)),
    "a look before retention": Mutant(look=("retention",)),
    "any look": Mutant(look=("intent", "sink", "manifest", "telling", "told", "snapshot", "retention")),
    "the sink minds a newer run": Mutant(newer=True),
    "the sink minds either": Mutant(newer=True, committed=True),
}


def run(*, progress: Progress, count: int, seed: int, mutants: list[str], most: int, scratch: Path | None) -> Result:
    """Run histories, then each mutant until it is caught."""
    parameters: dict[str, object] = {
        "count": count, "seed": seed, "mutants": ",".join(mutants) or None, "most": most,
        "scratch": None if scratch is None else str(scratch),
    }  # fmt: skip
    result = result_of("histories", parameters, environment())
    broken: list[Result] = []
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    with _scratch(scratch) as place:
        with progress.step(f"{count} histories from seed {seed}"):
            for number in range(seed, seed + count):
                one = History(place / "one", number)
                try:
                    one.run()
                except Broken as error:
                    broken.append({"seed": number, "what": str(error)})
                    progress.say(f"history {number}: {error}")
                counts.update(one.counts)
        result["seconds"] = round(time.perf_counter() - began, 1)
        result["mutants"] = []
        for mutant in mutants:
            with progress.step(f"without {mutant}"):
                result["mutants"].append({"without": mutant, **_caught(place, mutant, seed, most)})
    return {**result, "histories": count, "broken": broken, "counts": dict(sorted(counts.items()))}


def _caught(place: Path, mutant: str, seed: int, most: int) -> Result:
    for number in range(most):
        try:
            History(place / "one", seed + number, MUTANTS[mutant]).run()
        except Exception as error:
            # Whatever it is that stands in the way: without the mutant nothing does.
            return {"caught after": number + 1, "by": str(error).partition("\n")[0][:100]}
    return {"caught after": None, "by": f"not caught in {most}"}


def wrong(result: Result) -> bool:
    """Tell whether a history was broken, or a mutant not caught."""
    return bool(result["broken"]) or any(mutant["caught after"] is None for mutant in result["mutants"])


def show_result(result: Result) -> None:
    """Print what happened, and the mutants."""
    counts = ", ".join(f"{number} {what}" for what, number in result["counts"].items())
    print(f"{result['histories']} histories in {result['seconds']} s, {len(result['broken'])} broken: {counts}")
    if result["mutants"]:
        show("Without a sync or a fence", result["mutants"])


@contextlib.contextmanager
def _scratch(chosen: Path | None) -> Iterator[Path]:
    # Nothing is really synced, so memory serves as well as a disk, and faster.
    memory = Path("/dev/shm")
    where = chosen or (memory if memory.is_dir() and os.access(memory, os.W_OK) else None)
    with tempfile.TemporaryDirectory(prefix="ferryman-histories-", dir=where) as place:
        before, tempfile.tempdir = tempfile.tempdir, place
        log = logging.getLogger("ferryman")
        level = log.level
        # What a job says when it mends something would be said a thousand times.
        log.setLevel(logging.ERROR)
        try:
            yield Path(place)
        finally:
            log.setLevel(level)
            tempfile.tempdir = before
