"""What a chaos campaign looks at when it is over: the checkpoint, and what is left on the machine."""

from __future__ import annotations

import json
import time
from pathlib import Path

from bench.chaos_hosts import Host, variables
from bench.chaos_lines import listens
from bench.report import Result
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.fold import rebuild
from ferryman._model.errors import FerrymanError
from ferryman._os.processes import processes
from ferryman._spark.session.local_cluster import Cluster

# Threads that end with their process.
_LASTING = ("ferryman-lifeline", "ferryman-kernels", "ferryman-jvm-stderr", "ferryman-asked-to-end")
_PATIENCE_S = 30.0


def through(checkpoint: Path, rows: int) -> bool:
    """Tell whether so many rows have come through, and no call is waited for."""
    try:
        log = Checkpoint(directory(str(checkpoint)))
        latest = log.latest()
        if latest is None:
            return False
        counted = sum(rebuild(log, "Trail", latest.epoch)["n"].to_pylist())
        return bool(counted == rows) and rebuild(log, "Reminded.waiting", latest.epoch).num_rows == 0
    except (FerrymanError, OSError):
        # Retention was faster.
        return False


def sound(checkpoint: Path) -> Result:
    """Ask what `ferryman verify` says."""
    found = verify(Checkpoint(directory(str(checkpoint))))
    return {
        "sound": found.sound,
        "faults_found": [f"{fault.file}: {fault.what}" for fault in found.faults],
        "mended": [note.file for note in found.mended],
    }


def what_is_left(place: Path, cluster: Cluster, hosts: list[Host]) -> Result:
    """List what should be gone now, after some patience; the cluster's own daemons may stay."""
    deadline = time.monotonic() + _PATIENCE_S
    while (ours := _ours(place, cluster)) and time.monotonic() < deadline:
        time.sleep(0.1)
    told = place / "threads.json"
    threads = json.loads(told.read_text()) if told.exists() else ["the last driver has not told of its threads"]
    return {
        "processes": [f"{id} {command[:100]}" for id, command in ours.items()],
        "threads": [name for name in threads if not name.startswith(_LASTING)],
        "files": _files(place, hosts),
        "ports": [str(id) for id in ours if listens(id)],
    }


def _ours(place: Path, cluster: Cluster) -> dict[int, str]:
    """List the processes that were started below a place, but for the cluster's own daemons."""
    daemons = {worker.pid for worker in cluster.workers}
    mine = f"TMPDIR={place / 'tmp'}"
    return {
        one.id: one.command
        for one in processes().values()
        if one.id not in daemons and "deploy.master.Master" not in one.command and mine in variables(one.id)
    }


def _files(place: Path, hosts: list[Host]) -> list[str]:
    """List files that nobody needs any more: homes, announcements, sockets, drafts, attempts of sinks."""
    checkpoint = place / "checkpoint"
    homes = [home for host in hosts for home in host.homes()]
    temporary = [path for path in (place / "tmp").rglob("*") if path.is_file() or path.is_socket()]
    hidden = [path for path in checkpoint.rglob(".*") if path.is_file() and path.name != ".lock"]
    # Spark has checksums beside the files of its own log.
    drafts = [path for path in hidden if "spark" not in path.relative_to(checkpoint).parts]
    attempts = list(place.glob("*/_ferryman/attempts/*"))
    listed = [*homes, *temporary, *drafts, *attempts, *(place / "jobs").glob("*")]
    return sorted(str(path.relative_to(place)) for path in listed)
