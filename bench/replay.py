"""How soon a windowed word count processes again: its state was kept, or the rows of the window are replayed.

A host is lost when nine tenths of a window have come. In all four ways the same words are counted by the same operator:

    replicas         the job goes on by itself; another host has a copy of the state
    snapshots        the job goes on by itself; the state is made of the newest snapshot and the deltas since
    upstream_backup  no state was kept: a new job counts the words of the lost groups again; the splitter kept them
    source_replay    no state was kept: a new job reads, splits and counts the lines of the window again

The last two are given what they cannot have outside of a benchmark: the job before has ended in order just before the
loss, nobody has to notice it, and the new job is begun at that very moment and takes all of the replay in one epoch.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.losses import PATIENCE_S, again, executors, kill_executor, wait_for
from bench.open_loop import Kept, Load
from bench.reconfigure import cluster_session
from bench.report import Progress, Result, environment, result_of, show
from bench.sessions import stderr_to
from ferryman import Ferry, Operator, Reducing, TumblingWindow, sinks, sources
from ferryman._spark.api.job import Job

REPLAYED = ("upstream_backup", "source_replay")
STRATEGIES = ("replicas", "snapshots", *REPLAYED)
HOSTS = 2
WORDS_OF_A_LINE = 8
_INTERVAL_MS = 500
_PHASE = 0.9
# For how long rows are worked on as they come before the loss; what of the window was due earlier comes in one epoch.
_CALM_S = 8.0
_BUFFERED = "word string, id long, time timestamp"


@dataclass(frozen=True)
class Stream:
    """The lines that come.

    Attributes
    ----------
    rate
        Words per second.
    window_s
        How long a window is.
    vocabulary
        How many words there are; a few of them are frequent.
    """

    rate: int
    window_s: int
    vocabulary: int

    @property
    def load(self) -> Load:
        """Give it as what the open loop knows of it."""
        return Load(keys=1, size=1, rate=float(self.rate), interval_ms=_INTERVAL_MS, hosts=HOSTS)

    @property
    def before_loss_s(self) -> float:
        """Give how long after the first row of a window the loss comes."""
        return _PHASE * self.window_s

    def lines(self, spark: SparkSession, start: datetime, begin: int = 0) -> DataFrame:
        """Stream the lines, from a given one on; a word has the same place in the order of all words in any run."""
        rate = self.rate / WORDS_OF_A_LINE
        rows = sources.generator(
            spark, keys=1, rate=rate, start=start + timedelta(seconds=begin / rate), partitions=HOSTS
        )
        place = f"{WORDS_OF_A_LINE} * (id + {begin}) + place"
        chance = f"pow(pmod(xxhash64({place}), 1000000) / 1000000.0, 3)"
        word = f"concat('word-', CAST(FLOOR({self.vocabulary} * {chance}) AS INT))"
        line = f"array_join(transform(sequence(0, {WORDS_OF_A_LINE - 1}), place -> {word}), ' ')"
        return rows.selectExpr(f"id + {begin} AS number", f"{line} AS line")

    def words(self, lines: DataFrame) -> DataFrame:
        """Split them. Event time begins with the first window."""
        split = lines.select("number", F.posexplode(F.split("line", " ")).alias("place", "word"))
        numbered = split.selectExpr("word", f"{WORDS_OF_A_LINE} * number + place AS id")
        return numbered.selectExpr("word", "id", f"timestamp_millis(CAST(id * 1000 DIV {self.rate} AS BIGINT)) AS time")


def counting(window_ms: int, window_rows: int) -> type[Operator]:
    """Make the operator; it puts out each word with what its window has counted of it."""

    class Words(Operator):
        by_event_time = True
        window: Any = TumblingWindow(window_ms, Reducing(int, add))
        output = "key string, id long, n long"

        def process(self, key: Any, row: Any) -> Iterator[tuple[Any, ...]]:
            self.window.add(row.time, 1)
            start = row.id // window_rows * window_ms
            yield key, row.id, next(n for span, n in self.window.spans() if span.start == start)

        def closed(self, key: Any, span: Any, result: int) -> None:
            # What a window has come to was put out with its last word.
            pass

    return Words


def run(
    *,
    progress: Progress,
    strategies: Sequence[str],
    rates: Sequence[int],
    snapshot_s: Sequence[int],
    window: int,
    vocabulary: int,
    losses: int,
    chart: Path | None,
    scratch: Path | None,
) -> Result:
    """Lose a host again and again, and say how soon its key groups process again.

    Parameters
    ----------
    progress
        Where to say what is under way.
    strategies
        Which of `STRATEGIES`.
    rates
        Words per second.
    snapshot_s
        Seconds between two snapshots, for the strategy `snapshots`.
    window, vocabulary
        Seconds of a window, and how many words there are.
    losses
        How often each loses a host.
    chart
        Where to draw it.
    scratch
        Where to put files.
    """
    asked = {"strategies": ",".join(strategies), "rates": _listed(rates), "snapshot_s": _listed(snapshot_s)}
    result = result_of("replay", {**asked, "window": window, "vocabulary": vocabulary, "losses": losses}, environment())
    place = Path(tempfile.mkdtemp(prefix="ferryman-replay-", dir=scratch))
    found: list[Result] = []
    try:
        with stderr_to(place / "log"), cluster_session(place / "hosts", HOSTS) as spark:
            # Once, so that what happens for the first time is not measured.
            for strategy in strategies:
                _case(spark, progress, strategy, Stream(rates[0], window, vocabulary), snapshot_s[0], place)
            for rate in rates:
                stream = Stream(rate, window, vocabulary)
                for strategy in strategies:
                    for every_s in snapshot_s if strategy == "snapshots" else snapshot_s[-1:]:
                        case: Result = {"strategy": strategy, "rate": rate}
                        if strategy == "snapshots":
                            case["snapshot_s"] = every_s
                        turns = [_case(spark, progress, strategy, stream, every_s, place) for _ in range(losses)]
                        found.append({**case, **_typical(turns), "losses": turns})
                        # What is known by now, should it be cut off.
                        progress.say(str(found[-1]))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result["cases"] = found
    result |= headline(found)
    if chart is not None:
        draw(result, chart)
        result["chart"] = chart.name
    return result


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _case(spark: SparkSession, progress: Progress, strategy: str, stream: Stream, every_s: int, place: Path) -> Result:
    """Run a job through nine tenths of a window, lose a host, and see when its groups process again."""
    work = Path(tempfile.mkdtemp(dir=place))
    try:
        with progress.step(f"{strategy}, {stream.rate} words/s, a snapshot every {every_s} s"):
            wait_for(lambda: len(executors()) == HOSTS)
            start = datetime.now(timezone.utc) - timedelta(seconds=stream.before_loss_s - _CALM_S)
            kept = Kept(stream.load, start)
            lost_at = start.timestamp() + stream.before_loss_s
            words = stream.words(stream.lines(spark, start))
            buffer = work / "buffer" if strategy == "upstream_backup" else None
            replicas = int(strategy == "replicas")
            with _job(spark, stream, work / "job", words, kept, every_s, replicas, buffer) as job:
                kept.wait(0.0)
                if not job.wait_for(lambda: _spread(job) and time.time() >= lost_at, timeout=PATIENCE_S):
                    raise RuntimeError("the instances are not on all hosts, or a standby has not what it is to have")
                host, lost = _victim(job)
                if strategy not in REPLAYED:
                    killed = kill_executor(host)
                    wait_for(lambda: lost <= set(again(stream.load, kept, start, killed)))
                    rebuilt = _rebuilt(job, killed)
            if strategy in REPLAYED:
                kept.parts = [part for part in kept.parts if part[0] <= job.epoch]
                old = kept
                kept = Kept(stream.load, start)
                rows = _replayed(spark, stream, start, old, lost, buffer)
                killed = kill_executor(host)
                with _job(spark, stream, work / "new", rows, kept, every_s, 0, None):
                    wait_for(lambda: lost <= set(again(stream.load, kept, start, killed)))
                rebuilt = {}
                _check(kept.parts, stream, old=old.parts, groups=lost if buffer else None)
            else:
                _check(kept.parts, stream)
        back = again(stream.load, kept, start, killed)
        return {"all_s": round(max(back[group] for group in lost), 3), **rebuilt}
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _job(
    spark: SparkSession, stream: Stream, place: Path, words: DataFrame, kept: Kept, every_s: int, replicas: int,
    buffer: Path | None,
) -> Iterator[Job]:  # fmt: skip
    every = max(1, every_s * 1000 // _INTERVAL_MS)
    ferry = Ferry(spark, str(place), groups=stream.load.groups, snapshot_every=every, replicas=replicas)
    source = ferry.stream(words).with_watermark("time", "2 seconds")
    operator = counting(stream.window_s * 1000, stream.window_s * stream.rate)
    outputs = [source.key_by("word").process(operator, name="Words").write(kept)]
    if buffer is not None:
        outputs.append(source.write(sinks.parquet(str(buffer))))
    job = ferry.start("replay", *outputs, instances=HOSTS, trigger=stream.load.trigger)
    try:
        yield job
    finally:
        job.stop()


def _hosts(job: Job) -> list[str]:
    return [host for told in job.progress()[-1:] for host in told.operators["Words"]["hosts"]]


def _spread(job: Job) -> bool:
    """Tell whether every host has an instance, and every standby what it is to have."""
    fresh = not job._runner.coordinator.standbys.count or (job.replicated or -1) >= job.epoch - 2
    return fresh and len(set(_hosts(job))) == HOSTS


def _victim(job: Job) -> tuple[str, set[int]]:
    """Choose the host that is lost, and name its key groups."""
    hosts, owner = _hosts(job), job._runner.coordinator.table.owner
    host = max(hosts)
    return host, {group for group, instance in enumerate(owner) if hosts[instance] == host}


def _rebuilt(job: Job, since: float) -> Result:
    told = [epoch.operators["Words"] for epoch in job.progress() if epoch.committed_ms / 1000 >= since]
    return {"rebuilt_bytes": sum(one["rebuilt_bytes"] for one in told)}


def _replayed(
    spark: SparkSession, stream: Stream, start: datetime, old: Kept, lost: set[int], buffer: Path | None
) -> DataFrame:
    """Give the rows of a job that begins without state."""
    if buffer is None:
        return stream.words(stream.lines(spark, start))
    done = max(int(np.max(part["id"].to_numpy())) for _, _, part in old.parts if part.num_rows) + 1
    before = spark.readStream.schema(_BUFFERED).parquet(str(buffer))
    coming = stream.words(stream.lines(spark, start, done // WORDS_OF_A_LINE))
    group = F.pmod(F.xxhash64("word"), F.lit(stream.load.groups))
    return before.select("word", "id", "time").unionByName(coming).where(group.isin(sorted(lost)))


def _check(
    parts: Sequence[tuple[int, float, pa.Table]], stream: Stream, *, old: Sequence[tuple[int, float, pa.Table]] = (),
    groups: set[int] | None = None,
) -> None:  # fmt: skip
    """Refuse a count that is wrong: of each word of each window from 1 on, and no word missing or there twice."""
    rows = pa.concat_tables([part for _, _, part in parts])
    ids = np.sort(rows["id"].to_numpy())
    if groups is None:
        expected = np.arange(ids[-1] + 1)
    else:
        before = pa.concat_tables([part for _, _, part in old])
        mine = np.isin(before["group"].to_numpy(), sorted(groups))
        expected = np.sort(before["id"].to_numpy()[mine])
        # What came after the loss nobody else has counted.
        ids = ids[ids <= before["id"].to_numpy().max()]
    if not np.array_equal(ids, expected):
        raise RuntimeError(f"{len(expected)} words were to be counted once, and {len(ids)} were")
    window = rows["id"].to_numpy() // (stream.window_s * stream.rate)
    _, keys = np.unique(rows["key"].to_numpy().astype(str), return_inverse=True)
    order = np.lexsort((rows["n"].to_numpy(), window, keys))
    new = (np.diff(keys[order], prepend=-1) != 0) | (np.diff(window[order], prepend=-1) != 0)
    starts = np.flatnonzero(new)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order)))) + 1
    if not np.array_equal(rows["n"].to_numpy()[order], rank):
        raise RuntimeError("a word was not counted from 1 on, one by one")


def _typical(turns: Sequence[Result]) -> Result:
    return {"all_s": round(statistics.median(turn["all_s"] for turn in turns), 3)}


def headline(cases: Sequence[Result]) -> Result:
    """Divide the time with state kept by that of each replay, at the highest rate."""
    highest = max(case["rate"] for case in cases)
    least: dict[str, float] = {}
    for case in cases:
        if case["rate"] == highest:
            least[case["strategy"]] = min(case["all_s"], least.get(case["strategy"], float("inf")))
    return {
        f"ratio_{ours}_vs_{theirs}": round(least[ours] / least[theirs], 3)
        for ours in ("replicas", "snapshots")
        for theirs in REPLAYED
        if ours in least and theirs in least
    }


def draw(result: Result, path: Path) -> None:
    """Draw the time to recover, by the rate, and by the interval between snapshots."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases = result["cases"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    last = max((case["snapshot_s"] for case in cases if "snapshot_s" in case), default=None)
    for name in STRATEGIES:
        mine = [case for case in cases if case["strategy"] == name and case.get("snapshot_s", last) == last]
        left.plot([case["rate"] for case in mine], [case["all_s"] for case in mine], marker="o", label=name)
    for rate in sorted({case["rate"] for case in cases}):
        mine = [case for case in cases if case["strategy"] == "snapshots" and case["rate"] == rate]
        right.plot(
            [case["snapshot_s"] for case in mine], [case["all_s"] for case in mine], marker="o",
            label=f"{rate:,} words/s",
        )  # fmt: skip
    left.set(xscale="log", xlabel="words per second", ylabel="seconds until all lost groups process again")
    right.set(xlabel="seconds between two snapshots (without replicas)", ylim=(0, None))
    for axis in (left, right):
        axis.grid(visible=True, axis="y", alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(f"a host is lost in a windowed word count, window of {result['parameters']['window']} s")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def show_result(result: Result) -> None:
    """Print what was found."""
    show(
        "seconds until all key groups of a lost host process again",
        [
            {
                "strategy": case["strategy"],
                "words/s": case["rate"],
                "snapshot s": case.get("snapshot_s"),
                "s": case["all_s"],
                "all": ", ".join(str(loss["all_s"]) for loss in case["losses"]),
            }
            for case in result["cases"]
        ],
    )
    for name, value in result.items():
        if name.startswith("ratio_"):
            print(f"{name}  {value}")
