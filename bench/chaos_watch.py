"""Watch a campaign from outside: when epochs are committed, what the driver takes of memory, threads and files."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.chaos_hosts import Driver
from bench.report import Result, percentile
from ferryman._os.processes import java_of

_LOOK_S = 0.05
_SAMPLE_S = 2.0
# A driver loads, compiles and fills its caches first.
WARM_S = 45.0


@dataclass(frozen=True)
class Sample:
    """What a driver took at a moment; of one process, so another driver has another number."""

    at: float
    driver: int
    rss_mb: float
    java_mb: float
    threads: int
    files: int


class Watch:
    """Look until `end`."""

    def __init__(self, checkpoint: Path, driver: Driver) -> None:
        self._manifests = checkpoint / "manifests"
        self._driver = driver
        self._over = threading.Event()
        self.commits: list[float] = []
        self.epoch = 0
        self.samples: list[Sample] = []
        self._threads = [
            threading.Thread(target=look, name="chaos-watch", daemon=True) for look in (self._look, self._sample)
        ]
        for thread in self._threads:
            thread.start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            if (newest := self._newest()) > self.epoch:
                self.epoch = newest
                self.commits.append(time.time())

    def _newest(self) -> int:
        with contextlib.suppress(OSError):
            return max((int(name[:12]) for name in os.listdir(self._manifests) if name[:12].isdigit()), default=0)
        return 0

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            found = self._driver.process()
            if found is None:
                continue
            java = java_of(found.id)
            with contextlib.suppress(OSError):
                self.samples.append(
                    Sample(
                        time.time(),
                        found.id,
                        _rss_mb(found.id),
                        _rss_mb(java.id) if java else 0.0,
                        len(os.listdir(f"/proc/{found.id}/task")),
                        len(os.listdir(f"/proc/{found.id}/fd")),
                    )
                )

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        for thread in self._threads:
            thread.join()


def _rss_mb(process: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


def slope(samples: list[Sample], what: str) -> float | None:
    """Fit how much of something comes per minute: one slope for all drivers, each with a level of its own.

    None where no driver was there for long enough once it was warm.
    """
    by_driver: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        by_driver[sample.driver].append((sample.at / 60, float(getattr(sample, what))))
    above = below = 0.0
    for points in by_driver.values():
        warm = [point for point in points if point[0] >= points[0][0] + WARM_S / 60]
        if len(warm) < 10:
            continue
        at, level = (sum(column) / len(warm) for column in zip(*warm, strict=True))
        above += sum((minute - at) * (value - level) for minute, value in warm)
        below += sum((minute - at) ** 2 for minute, _ in warm)
    return round(above / below, 3) if below else None


def stood_still_s(commits: list[float], at: float, until: float) -> tuple[float | None, float | None]:
    """Tell how long it took until the next epoch was committed, and how long none was at the most.

    The latter looks from a fault to the second commit after it was lifted. None where no epoch came any more.

    Examples
    --------
    >>> stood_still_s([1.0, 2.0, 9.0, 10.0, 11.0], 2.5, 3.0)
    (6.5, 7.0)
    """
    after = [commit for commit in commits if commit > at]
    lifted = [commit for commit in after if commit > until][:2]
    if not after or not lifted:
        return None, None
    last = max([commit for commit in commits if commit <= at], default=at)
    times = [last, *(commit for commit in after if commit <= lifted[-1])]
    longest = max(later - earlier for earlier, later in pairwise(times))
    return round(after[0] - at, 2), round(longest, 2)


def memory(samples: list[Sample]) -> Result:
    """Tell what the drivers took, and what they took more each minute."""
    return {
        "driver_mb": round(statistics.median(sample.rss_mb for sample in samples), 1) if samples else 0.0,
        "driver_most_mb": round(max((sample.rss_mb for sample in samples), default=0.0), 1),
        "driver_mb_per_minute": slope(samples, "rss_mb"),
        "jvm_mb_per_minute": slope(samples, "java_mb"),
        "threads_per_minute": slope(samples, "threads"),
        "files_per_minute": slope(samples, "files"),
        "seconds, driver, MB, JVM's MB, threads, files": [
            [round(one.at - samples[0].at), one.driver, round(one.rss_mb), round(one.java_mb), one.threads, one.files]
            for one in samples[::5]
        ],
    }


def usual(commits: list[float]) -> Result:
    """Tell how far apart epochs were."""
    pauses = [later - earlier for earlier, later in pairwise(commits)]
    return {"p50": round(percentile(pauses, 50), 2), "p99": round(percentile(pauses, 99), 2)} if pauses else {}
