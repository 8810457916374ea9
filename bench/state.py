"""What every type of state costs on every store that can hold it, and state that is larger than memory.

Without Spark: tasks run one after the other in a process, as the testing harness runs them, and everything below
`ferryman._engine.task.run` is what a job runs. Each type and store has a process of its own, so that its memory is its
own. In the end the state, moved to another home meanwhile, must be what plain Python makes of the same rows.
`state_types` has the types, `state_job` what is done to one of them; here are the processes and what is shown.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.processes import _megabytes, _status
from bench.report import Progress, Result, _cell, _version, environment, result_of, show
from bench.state_job import OUTGROW_BYTES, can_hold, close_stores, default_stores, measure, outgrow
from bench.state_types import TYPES
from ferryman._state import store as stores

# "default" is what a job does that is given no store: each table where it is fastest.
BACKENDS = ("default", *stores.BACKENDS)
PARTS = ("types", "larger")
ROOT = Path(__file__).resolve().parents[1]
# The page that quotes a result, and where its figures stand.
RESULT, PAGE = ROOT / "bench" / "results" / "state.json", ROOT / "docs" / "choosing-a-store.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
# The stores whose state may be larger than memory.
OUTGROW = ("rocksdb",)
# A limit on data counts address space, used or not. Without these, stacks, the pools of Arrow and OpenBLAS and what
# malloc keeps for later take more of it than the state does.
SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
# What is sampled of a process; "data" is what the limit is on: address space that is its own, used or not.
WATCHED = {"rss": "VmRSS", "anon": "RssAnon", "file": "RssFile", "data": "VmData"}


def run(
    *,
    keys: int = 100_000,
    rows: int = 100_000,
    epochs: int = 3,
    size: int = 100,
    types: Sequence[str] = tuple(TYPES),
    backends: Sequence[str] = BACKENDS,
    parts: Sequence[str] = PARTS,
    limit_mb: int = 256,
    larger: float = 5,
    touches: int = 20,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure every type on every store that can hold it, then a state larger than memory.

    Parameters
    ----------
    keys
        Keys with state.
    rows, epochs
        Rows of an epoch that updates them, and how many such epochs are measured after one to warm up.
    size
        Bytes of a value of the type `bytes`.
    types, backends
        Which to measure.
    parts
        `types`, `larger`, or both.
    limit_mb, larger, touches
        What a process may have in memory, how many times larger the state is, and how many epochs touch it after it
        was filled.
    scratch, progress
        As in `throughput`.
    """
    progress = progress or Progress()
    facts = environment()
    facts["versions"].update({name: _version(name) for name in ("lmdb", "rocksdict", "datasketches")})
    parameters = {
        "keys": keys, "rows": rows, "epochs": epochs, "bytes": size, "types": ",".join(types),
        "backends": ",".join(backends), "parts": ",".join(parts), "limit_mb": limit_mb, "larger": larger,
        "touches": touches,
    }  # fmt: skip
    result = result_of("state", parameters, facts)
    pairs = [(kind, store) for kind in types for store in backends if can_hold(TYPES[kind], store)]
    by_type: dict[str, Result] = {kind: {} for kind in types} if "types" in parts else {}
    for number, (kind, backend) in enumerate(pairs if by_type else (), 1):
        label = f"{kind} on {backend} ({number} of {len(pairs)})"
        with progress.step(label):
            by_type[kind][backend] = _alone(
                "measure", scratch, progress, label,
                kind=kind, backend=backend, keys=keys, rows=rows, epochs=epochs, size=size,
            )  # fmt: skip
    outgrown: dict[str, Result] = {}
    for backend in [store for store in OUTGROW if store in backends and "larger" in parts]:
        label = f"{larger} times {limit_mb} MB on {backend}"
        with progress.step(label):
            outgrown[backend] = _alone(
                "outgrow", scratch, progress, label,
                backend=backend, limit_mb=limit_mb, larger=larger, size=OUTGROW_BYTES, touches=touches,
            )  # fmt: skip
    return {**result, "types": by_type, "larger": outgrown}


def _alone(function: str, scratch: Path | None, progress: Progress, label: str, **options: Any) -> Result:
    """Run `measure` or `outgrow` in a process of its own, and watch its memory."""
    place = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    order = json.dumps({"function": function, "place": str(place), "options": options})
    command = [sys.executable, "-m", "bench.state", order]
    if function == "outgrow":
        command = ["sh", "-c", 'ulimit -s 1024 && exec "$@"', "sh", *command]
    settings = {**os.environ, **(SPARING if function == "outgrow" else {})}
    result: Result | None = None
    with open(place / "errors", "w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=errors, text=True
        )  # fmt: skip
        try:
            assert process.stdout is not None, "it was asked for"
            with Watch(process.pid) as watch:
                for line in process.stdout:
                    said = json.loads(line)
                    watch.begin(said.get("phase", watch.phase))
                    result = said.get("result", result)
                    if said.get("note"):
                        progress.say(f"{label}: {watch.phase}, {said['note']}")
            if process.wait() != 0 or result is None:
                errors.seek(0)
                raise RuntimeError(f"{label} ended with code {process.returncode}:\n{errors.read()[-4000:]}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            shutil.rmtree(place, ignore_errors=True)
    return {**result, "memory": watch.peaks(without=("check",) if function == "measure" else ())}


class Watch:
    """Sample the memory of one process, phase by phase."""

    def __init__(self, pid: int, interval_s: float = 0.01) -> None:
        self.phase = "start"
        self._pid = pid
        self._interval_s = interval_s
        self._over = threading.Event()
        self._one = threading.Lock()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._peaks: dict[str, dict[str, float]] = {}
        self._highest: dict[str, float] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, phase: str) -> None:
        """Learn that a phase begins; it is looked at once at the least, however short it is."""
        self.phase = phase
        self._look()

    def _sample(self) -> None:
        while not self._over.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        with self._one:
            phase, status = self.phase, _status(self._pid)
            # What ends has no memory any more.
            if "VmRSS" in status:
                peak = self._peaks.setdefault(phase, collections.defaultdict(float))
                for name, field in WATCHED.items():
                    peak[name] = max(peak[name], _megabytes(status, field))
                # The kernel's own peak, of all phases so far.
                self._highest[phase] = _megabytes(status, "VmHWM")

    def peaks(self, without: Sequence[str]) -> Result:
        """Give the peaks in megabytes, of each phase and of all but some."""
        counted = [peak for phase, peak in self._peaks.items() if phase not in without]
        whole = {f"peak_{name}_mb": max((peak[name] for peak in counted), default=0.0) for name in WATCHED}
        whole["peak_rss_mb"] = max((mb for phase, mb in self._highest.items() if phase not in without), default=0.0)
        phases = {
            phase: {f"{name}_mb": round(mb, 1) for name, mb in peak.items()} for phase, peak in self._peaks.items()
        }
        return {**{name: round(mb, 1) for name, mb in whole.items()}, "phases": phases}


def tables(result: Result) -> Iterator[tuple[str, list[Result]]]:
    """Give a result as tables, each with its title."""
    given = result["parameters"]
    if result["types"]:
        yield (
            f"updates, rows/s; {given['keys']:,} keys, {given['rows']:,} rows an epoch",
            [
                {"type": kind, **{store: _rate_of(kind, by_store, store) for store in BACKENDS}}
                for kind, by_store in result["types"].items()
            ],
        )
        measured = [
            ({"type": kind, "store": store}, figures)
            for kind, by_store in result["types"].items()
            for store, figures in by_store.items()
        ]
        reads = {"one key": "point_rows_per_s", "many keys": "multi_rows_per_s", "scan": "scan_rows_per_s"}
        yield (
            "reads of the largest table, rows/s",
            [
                {
                    **name,
                    **{title: figures["reads"][field] for title, field in reads.items()},
                    "rows": figures["reads"]["rows"],
                }
                for name, figures in measured
            ],
        )
        yield (
            "half of the key groups to another home, and checkpoints: seconds and MB",
            [
                {
                    **name,
                    "from deltas": figures["moves"]["from_deltas_s"],
                    "from snapshot": figures["moves"]["from_snapshot_s"],
                    "merge": figures["moves"]["merge_s"],
                    "return": figures["moves"]["return_s"],
                    "full": figures["checkpoint"]["full_s"],
                    "full MB": figures["checkpoint"]["full_bytes"] / 2**20,
                    "1 %": figures["checkpoint"]["incremental_s"],
                    "1 % MB": figures["checkpoint"]["incremental_bytes"] / 2**20,
                }
                for name, figures in measured
            ],
        )
        yield (
            "memory of the process and disk of the home, MB",
            [
                {
                    **name,
                    "anonymous at start": _phase(figures, "start", "anon"),
                    "anonymous, updates": _phase(figures, "updates", "anon"),
                    "resident, updates": _phase(figures, "updates", "rss"),
                    "peak anonymous": figures["memory"]["peak_anon_mb"],
                    "peak resident": figures["memory"]["peak_rss_mb"],
                    "home": figures["home_bytes"] / 2**20,
                }
                for name, figures in measured
            ],
        )
    if result["larger"]:
        yield (
            "state larger than memory, MB and rows/s",
            [
                {
                    "store": store,
                    "allowed": figures["allowed_bytes"] / 2**20,
                    "state": figures["state_bytes"] / 2**20,
                    "peak of what is limited": figures["memory"]["peak_data_mb"],
                    "peak anonymous": figures["memory"]["peak_anon_mb"],
                    "peak resident": figures["memory"]["peak_rss_mb"],
                    "home": figures["home_bytes"] / 2**20,
                    "fill": figures["rows_per_s"]["fill"],
                    "touch": figures["rows_per_s"]["touch"],
                }
                for store, figures in result["larger"].items()
            ],
        )


def _rate_of(kind: str, by_store: Result, store: str) -> object:
    if store in by_store:
        return by_store[store]["updates"]["rows_per_s"]
    same = default_stores(TYPES[kind])
    return f"= {same.pop()}" if store == "default" and len(same) == 1 else None


def _phase(figures: Result, phase: str, what: str) -> float | None:
    found: float | None = figures["memory"]["phases"].get(phase, {}).get(f"{what}_mb")
    return found


def show_result(result: Result) -> None:
    """Print a result as tables."""
    for title, rows in tables(result):
        show(title, rows)


def filled(page: str, result: Result) -> str:
    """Put the tables of a result into a page, in the place of those it has."""
    facts = result["environment"]
    about = (
        f"`{result['command']}`\n\nOn {facts['cores']} cores, Python {facts['python']}, {facts['at'][:10]}; the load "
        f"before was {facts['load_before'][0]}.\n"
    )
    parts = [about, *(f"### {title[0].upper()}{title[1:]}\n\n{_markdown(rows)}" for title, rows in tables(result))]
    before, rest = page.split(BEGIN)
    return "".join([before, BEGIN, "\n", "\n".join(parts), "\n", END, rest.split(END)[1]])


def _markdown(rows: list[Result]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Do what the parent asks, and answer line by line; asked nothing, renew the figures of the page."""
    if len(sys.argv) == 1:
        PAGE.write_text(filled(PAGE.read_text(), json.loads(RESULT.read_text())))
        return
    order = json.loads(sys.argv[1])

    def say(phase: str, note: str = "") -> None:
        print(json.dumps({"phase": phase, "note": note}), flush=True)

    functions: dict[str, Callable[..., Result]] = {"measure": measure, "outgrow": outgrow}
    try:
        result = functions[order["function"]](say, Path(order["place"]), **order["options"])
    finally:
        close_stores()
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()
