"""How much memory the Python workers and the JVM of this run hold, sampled from /proc.

Anonymous and file-backed pages are told apart: mapped state is the kernel's to drop, anonymous memory
is not. On a system without /proc there are no samples and the figures are absent.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.report import Result

_PROC = Path("/proc")


def _status(pid: int) -> dict[str, str]:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _megabytes(status: dict[str, str], field: str) -> float:
    return int(status.get(field, "0 kB").split()[0]) / 1024


def _ticks(pid: int) -> int:
    try:
        # The command's name may hold spaces; the fields are counted from the bracket that ends it.
        after = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(after[11]) + int(after[12])


def descendants(root: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Find the processes below one, with what /proc says of them."""
    children: dict[int, list[tuple[int, dict[str, str]]]] = defaultdict(list)
    for entry in _PROC.iterdir() if _PROC.exists() else ():
        if entry.name.isdigit() and (status := _status(int(entry.name))):
            children[int(status.get("PPid", "0"))].append((int(entry.name), status))
    waiting = list(children[root])
    while waiting:
        pid, status = waiting.pop()
        yield pid, status
        waiting.extend(children[pid])


class MemorySampler:
    """Sample in a thread while a benchmark runs, and keep the peak of every process and phase."""

    def __init__(self, interval_s: float = 0.1) -> None:
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.phase = "all"
        self._workers: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
        self._jvm_mb = 0.0

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        # Which process is what never changes, and reading every command line each time costs.
        roles: dict[int, str] = {}
        idle_at: dict[int, int] = {}
        seen_before = False
        while not self._over.is_set():
            daemons: set[int] = set()
            found = list(descendants(os.getpid()))
            for pid, status in found:
                role = roles.setdefault(pid, self._role(pid, status))
                if role == "python":
                    daemons.add(pid)
            for pid, status in found:
                if roles[pid] == "java":
                    self._jvm_mb = max(self._jvm_mb, _megabytes(status, "VmRSS"))
                # A worker is forked from a daemon, which itself is started by the JVM.
                elif pid in daemons and int(status["PPid"]) in daemons:
                    # One left over from an earlier engine waits, and what it holds is not this engine's.
                    ticks = _ticks(pid)
                    if ticks > idle_at.setdefault(pid, 0 if seen_before else ticks):
                        self._keep(pid, status)
            seen_before = True
            self._over.wait(self._interval_s)

    @staticmethod
    def _role(pid: int, status: dict[str, str]) -> str:
        if status.get("Name") == "java":
            return "java"
        return "python" if _command(pid).rstrip().endswith(" pyspark.worker") else "other"

    def _keep(self, pid: int, status: dict[str, str]) -> None:
        peak = self._workers[self.phase].setdefault(pid, defaultdict(float))
        for name, field in (
            ("rss", "VmRSS"),
            ("anon", "RssAnon"),
            ("file", "RssFile"),
            ("shmem", "RssShmem"),
        ):
            peak[name] = max(peak[name], _megabytes(status, field))

    def peaks(self) -> Result:
        """Give the largest figures of one worker over all phases, in megabytes."""
        workers = [peak for phase in self._workers.values() for peak in phase.values()]
        return {
            "worker_peak_mb": round(max((peak["rss"] for peak in workers), default=0.0), 1),
            "worker_anon_mb": round(max((peak["anon"] for peak in workers), default=0.0), 1),
            "worker_file_mb": round(max((peak["file"] for peak in workers), default=0.0), 1),
            "jvm_peak_mb": round(self._jvm_mb, 1),
        }

    def by_phase(self) -> Result:
        """Give the peaks of every worker in every phase, in megabytes."""
        return {
            phase: {str(pid): {name: round(mb, 1) for name, mb in peak.items()} for pid, peak in workers.items()}
            for phase, workers in self._workers.items()
        }
