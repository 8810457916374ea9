"""Random histories on a disk that forgets, by the thousand; and what they notice when a sync or a fence is taken out.

`bench.history` is one history. A campaign of them shows that no promised epoch is lost and none doubled. That it
would see if there were: each mutant leaves out one kind of sync, or one fence, and must be caught.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.history import Broken, History
from bench.report import Progress, Result, environment, result_of, show

Kind = Callable[[str, str], bool]


def _bytes(start: str) -> Kind:
    return lambda path, before: path.startswith(start)


def _names(folder: str) -> Kind:
    return lambda path, before: path == folder


# Which syncs are left out, by the path below the root of the disk and the call before.
SYNCS: dict[str, Kind] = {
    "bytes of a manifest": _bytes("checkpoint/manifests/"),
    "names of manifests": _names("checkpoint/manifests"),
    "bytes of a delta": _bytes("checkpoint/deltas/"),
    "names of deltas": _names("checkpoint/deltas"),
    "bytes of a snapshot": lambda path, before: path.startswith("checkpoint/snapshots/") and ".parquet" in path,
    "bytes of a snapshot's list": lambda path, before: path.startswith("checkpoint/snapshots/") and ".json" in path,
    "names of snapshots": _names("checkpoint/snapshots"),
    "bytes of the card": _bytes("checkpoint/.ferryman.json"),
    "bytes of the intent": _bytes("checkpoint/.intent.json"),
    "names in the checkpoint": _names("checkpoint"),
    "names above the checkpoint": _names(""),
    "bytes of Spark's offsets": _bytes("checkpoint/spark/offsets/"),
    "names of Spark's offsets": _names("checkpoint/spark/offsets"),
    "names in Spark's folder": _names("checkpoint/spark"),
    "names that are deleted": lambda path, before: before == "unlink",
    "bytes of the sink's rows": _bytes("out/files/"),
    "names of the sink's rows": _names("out/files"),
    "bytes of the sink's lists": _bytes("out/lists/"),
    "names of the sink's lists": _names("out/lists"),
}
# Left out while a job starts: the manifest that a run which was killed had named, and not synced any more.
STARTING = "names of manifests at a start"
# A name that is given once; what else fences is to be added here.
FENCE = "a manifest is written once"
MUTANTS = (*SYNCS, STARTING, FENCE)


def history(place: Path, seed: int, mutant: str | None = None) -> History:
    """Give a history, with a kind of sync or a fence left out."""
    below = f"{place}/disk"

    def deaf(path: str, before: str) -> bool:
        if mutant == STARTING:
            return one.starting and before != "link" and path == f"{below}/checkpoint/manifests"
        inside = path == below or path.startswith(below + os.sep)
        return inside and mutant in SYNCS and SYNCS[mutant](path[len(below) + 1 :], before)

    one = History(place, seed, deaf=deaf if mutant else None, unfenced=mutant == FENCE)
    return one


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
                one = history(place / "one", number)
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
            history(place / "one", seed + number, mutant).run()
        except Exception as error:
            # Whatever it is that stands in the way: without the mutant nothing does.
            return {"caught after": number + 1, "by": str(error).partition("\n")[0][:100]}
    return {"caught after": None, "by": f"not caught in {most}"}


def wrong(result: Result) -> bool:
    """Tell whether a history was broken, or a mutant not caught."""
    return bool(result["broken"]) or any(one["caught after"] is None for one in result["mutants"])


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
        try:
            yield Path(place)
        finally:
            tempfile.tempdir = before
