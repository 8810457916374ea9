"""Chaos: a job with a known answer on a cluster, and from a seed one fault after the other; then all is counted.

A Spark standalone cluster of several hosts on this machine, a driver that `ferryman run --restart` watches over, rows
that come all the time. `chaos_schedule` says what goes wrong when, `chaos_faults` does it, `chaos_job` knows the
answer, `chaos_campaign` holds it together. What must hold at the end: every sink exact, the checkpoint sound, nothing
left. How memory grew is told too, but no bound is checked: a short campaign says little of that.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import chaos_lines
from bench.chaos_campaign import Campaign
from bench.chaos_schedule import KINDS, schedule
from bench.report import Progress, Result, environment, percentile, show
from ferryman._spark.session.local_cluster import standalone


def run(
    *,
    progress: Progress,
    minutes: float,
    seed: int,
    every: float,
    hosts: int,
    kinds: Sequence[str],
    scratch: Path | None = None,
    keep: bool = False,
) -> Result:
    """Run a campaign, and count.

    Parameters
    ----------
    minutes
        How long faults come.
    seed
        What the schedule follows from.
    every
        Seconds from one fault to the next, about.
    hosts
        Hosts of the cluster.
    kinds
        Kinds of faults.
    scratch
        Where to have files; among the temporary ones by default.
    keep
        Whether they stay.
    """
    possible = [kind for kind in kinds if chaos_lines.available() or not KINDS[kind].needs_lines]
    words = ["ferryman", "chaos", "--minutes", f"{minutes:g}", "--seed", str(seed), "--every", f"{every:g}"]
    words += ["--hosts", str(hosts), *(["--kinds", ",".join(kinds)] if set(kinds) != set(KINDS) else [])]
    plan = schedule(seed, minutes, every, possible)
    progress.say(f"seed {seed}: {len(plan)} faults of {len({fault.kind for fault in plan})} kinds in {minutes:g} min")
    result: Result = {
        "benchmark": "chaos",
        "command": shlex.join(words),
        "minutes": minutes,
        "seed": seed,
        "every_s": every,
        "hosts": hosts,
        "environment": environment(),
        "kinds_not_possible_here": sorted(set(kinds) - set(possible)),
    }
    place = Path(tempfile.mkdtemp(prefix="ferryman-chaos-", dir=scratch))
    try:
        with _own_places(place), standalone(place / "cluster", hosts=hosts) as cluster:
            found = Campaign(place, cluster, plan, progress).run()
    finally:
        if keep:
            progress.say(f"files are in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    return result | {"summary": summary(found["faults"])} | found


@contextlib.contextmanager
def _own_places(place: Path) -> Iterator[None]:
    """Have everything that is started put its files here, so that what is left of it is found."""
    ours = {"TMPDIR": place / "tmp", "FERRYMAN_JOBS": place / "jobs"}
    before = {name: os.environ.get(name) for name in ours}
    for name, folder in ours.items():
        folder.mkdir(mode=0o700)
        os.environ[name] = str(folder)
    tempfile.tempdir = None
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        tempfile.tempdir = None


def summary(faults: Sequence[Result]) -> Result:
    """Tell of each kind how often it struck, and how long it took."""
    kinds: Result = {}
    for kind in dict.fromkeys(fault["kind"] for fault in faults):
        of_it = [fault for fault in faults if fault["kind"] == kind]
        struck = [fault for fault in of_it if fault["what"]]
        row: Result = {"struck": len(struck), "not_struck": len(of_it) - len(struck)}
        for name in ("epoch_s", "still_s"):
            values = [fault[name] for fault in struck if fault[name] is not None]
            row[name] = {"p50": percentile(values, 50), "worst": max(values)} if values else None
        kinds[kind] = row
    ordered = {kind: kinds[kind] for kind in KINDS if kind in kinds}
    return {
        "struck": sum(row["struck"] for row in ordered.values()),
        "kinds_struck": sum(bool(row["struck"]) for row in ordered.values()),
        "kinds": ordered,
    }


def faults_of(result: Result) -> list[str]:
    """List what must not be."""
    said = [f"the job was given up: {result['gave_up']}"] if result["gave_up"] else []
    said += [f"{sink}: {what}" for sink, some in result["wrong"].items() for what in some]
    said += [] if result["drained"] else ["not all rows came through in time"]
    said += [] if result["exit_code"] == 0 else [f"the supervisor ended with {result['exit_code']}"]
    said += [f"not carried out: {what}" for what in result["not_carried_out"]]
    said += [f"verify: {fault}" for fault in result["faults_found"]]
    return said + [f"left: {kind} {one}" for kind, some in result["left"].items() for one in some]


def show_result(result: Result) -> None:
    """Print a table of the kinds, and what holds at the end."""
    rows = []
    for kind, row in result["summary"]["kinds"].items():
        epoch, still = row["epoch_s"] or {}, row["still_s"] or {}
        rows.append(
            {
                "fault": kind,
                "struck": row["struck"],
                "next epoch p50 s": epoch.get("p50"),
                "worst s": epoch.get("worst"),
                "none for p50 s": still.get("p50"),
                "none for worst s": still.get("worst"),
            }
        )
    show(f"{result['summary']['struck']} faults, {result['epochs']} epochs, {result['drivers']} drivers", rows)
    memory = result["memory"]
    print(
        f"rows {result['rows']}: {'exact in every sink' if result['exact'] else 'NOT EXACT'}; checkpoint "
        f"{'sound' if result['sound'] else 'NOT SOUND'}; left {sum(map(len, result['left'].values()))}; driver "
        f"{memory['driver_mb']} MB, {memory['driver_mb_per_minute']} MB a minute"
    )
    for fault in faults_of(result):
        print(f"WRONG  {fault}")
