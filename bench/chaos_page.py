"""Write a page of what may fail, what is lost and how long it takes: python -m bench.chaos_page CAMPAIGN.json PAGE."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.chaos_schedule import KINDS
from bench.report import Result, percentile


@dataclass(frozen=True)
class Promise:
    """One line of the table: what may fail, by which kinds that was tried, and what you lose."""

    what: str
    kinds: tuple[str, ...]
    lost: str = "nothing"


PROMISES = (
    Promise("a Python worker dies", ("worker killed",), "nothing; its task is run again"),
    Promise("an executor dies, or a whole host", ("executor killed", "host killed")),
    Promise("a state host dies", ("state host killed",), "nothing; a plan that needs it may be aborted"),
    Promise("the driver dies, or its JVM", ("driver killed", "driver's JVM killed"), "nothing; a plan under way"),
    Promise(
        "a process sleeps and wakes up: a pause, a machine that is moved",
        ("worker stopped", "executor stopped", "state host stopped", "driver stopped"),
    ),
    Promise("a host is slow", ("host slowed",)),
    Promise(
        "the disk of checkpoint and sinks is full",
        ("checkpoint disk full",),
        "nothing; the job fails, and goes on when there is room and it is started again",
    ),
    Promise("the disk of a host is full", ("host disk full",), "nothing; the job may fail, as above"),
    Promise("a host hears nothing from the others, and works on", ("host cut off",)),
    Promise("the network loses packets", ("line with losses",)),
    Promise("connections are torn", ("lines torn", "state lines torn"), "nothing; a plan under way may be aborted"),
    Promise(
        "the clock jumps, ahead or back, by seconds or days",
        ("clock ahead", "clock back"),
        "nothing; what is asked for by the clock comes when the clock says so",
    ),
    Promise("a bit flips in a snapshot", ("snapshot flipped",), "nothing; it is written anew"),
    Promise(
        "a bit flips in a delta or a manifest that a snapshot covers",
        ("delta flipped", "manifest flipped"),
        "a look at epochs of that time",
    ),
    Promise("instances are added and taken away", ("rescale", "autoscaling")),
    Promise("keys and key groups move", ("hot key moved", "groups moved")),
)

_PAGE = """\
# Reliability

What may fail, what you lose by it, and how long it takes. Written by `python -m bench.chaos_page` from
[bench/results/chaos.json](../bench/results/chaos.json), which this command made:

    {command}

A job with a known answer runs on a cluster of {hosts} hosts, and from a seed one thing after the other goes wrong:
{struck} faults of {kinds_struck} kinds in {minutes:.0f} minutes, one about every {pause:.0f} s, so that the next one
often comes while the one before is not over. The driver runs under `ferryman run --restart`
([restarts](restarts.md#started-again-by-itself)). At the end all is counted.

| what must hold | what was found |
| --- | --- |
{verdicts}

## The promise

An epoch counts whole or not at all, and whatever fails, state and every sink are those of a run in which nothing
failed. What may fail costs time:

| what may fail | what you lose | next epoch: p50, worst | without an epoch: p50, worst | times | kinds of fault |
| --- | --- | --- | --- | --- | --- |
{promises}

*Next epoch* is the time from the fault to the next commit; an epoch that was under way and is not hit may commit a
moment later. *Without an epoch* is the longest pause between two commits, from the last one before the fault to the
second one after it was lifted; a fault that lasts (up to 15 s) has that in it. Where the next fault came meanwhile, it
is in it too. Over the whole campaign epochs were {usual:.1f} s apart at p50. All of it ran on {cores} cores that other
work had a part of (load {load:.0f} before it began), so read these times as upper bounds. Spark's own patience is set
lower than it has it, or it would decide: an executor is lost when it was silent for 10 s (`spark.network.timeout`; by
default two minutes).

Each kind is a function in `bench/chaos_faults.py`; nothing of them is in the library.
Processes are killed and stopped by signals. A host is cut off by a filter on its sockets that lets no packet through,
so both ends know nothing; torn lines are resets. A full disk gives `ENOSPC` in the middle of a file; that of a host
is a limit on the size of files (`EFBIG`). Bits flip in files at rest, one file at a time.

## What is not promised

| what may fail | what you lose |
| --- | --- |
| a bit flips in a delta or manifest since the newest snapshot, and no main copy is left | that epoch and those after it: the job names the newest that can be had, and `ferryman rewind` goes back to it ([repair](repair.md)) |
| two files of a checkpoint are damaged at once | perhaps an epoch, as above: there are two ways to each, not three |
| a bit flips in a main copy, in memory or in a home | it is not noticed: main copies have no checksums. What is read from the checkpoint, and what goes from host to host, has |
| the power is cut, without `fsync=True` | perhaps the newest epochs; the job may refuse to start, and says why ([power cuts](power-cuts.md)) |
| the checkpoint directory is lost | the state; have its disk replicated, or an object store |
| a source no longer gives the rows of an epoch that is redone | what [the source promises](guarantees.md#sources) |

## Run it yourself

```
ferryman chaos --minutes 10 --seed 1
```

It needs Linux, and a source checkout. A seed gives the same schedule again: the same kinds at the same times; which
process it hits depends on which are there. `--kinds` chooses kinds, `--every` how far they are apart. It ends with 1 if
anything is wrong. Half a minute of it is a test: `tests/cluster/test_chaos.py`. Other campaigns go deeper in one place:
[faults](faults.md) strikes in every phase of a plan, [power cuts](power-cuts.md) at every call to the disk,
`ferryman bench drivers` has two live drivers.
"""  # noqa: E501


def page(result: Result) -> str:
    """Write the page."""
    memory, left = result["memory"], result["left"]
    verdicts = [
        ("every row once, in its order, in every sink", f"{result['rows']:,} rows, {_wrong(result)}"),
        ("`ferryman verify` finds the checkpoint sound", "sound" if result["sound"] else "NOT SOUND"),
        ("nothing is left: processes, threads, files, ports", f"{sum(map(len, left.values()))} left"),
        (
            "memory is flat",
            f"driver: {memory['driver_mb']:.0f} MB, {memory['driver_mb_per_minute']:+.2f} MB a minute over "
            f"{result['drivers']} drivers; its JVM {memory['jvm_mb_per_minute']:+.2f} MB a minute; threads "
            f"{memory['threads_per_minute']:+.2f}, open files {memory['files_per_minute']:+.2f} a minute",
        ),
        (
            "damaged files are mended or not needed",
            f"{result['damaged_files']['mended']} mended, {result['damaged_files']['forgotten']} outlived",
        ),
    ]
    return _PAGE.format(
        command=result["command"],
        hosts=result["hosts"],
        struck=result["summary"]["struck"],
        kinds_struck=result["summary"]["kinds_struck"],
        minutes=result["seconds"] / 60,
        pause=result["seconds"] / max(1, result["summary"]["struck"]),
        verdicts="\n".join(f"| {what} | {found} |" for what, found in verdicts),
        promises="\n".join(_line(promise, result["faults"]) for promise in PROMISES),
        usual=result["usual_s"]["p50"],
        cores=result["environment"]["cores"],
        load=result["environment"]["load_before"][0],
    )


def _wrong(result: Result) -> str:
    wrong = sum(map(len, result["wrong"].values()))
    return (
        f"0 lost, 0 doubled, 0 out of order in {len(result['wrong'])} sinks" if not wrong else f"WRONG in {wrong} ways"
    )


def _line(promise: Promise, faults: Sequence[Result]) -> str:
    struck = [fault for fault in faults if fault["kind"] in promise.kinds and fault["what"]]
    times = [_times([fault[name] for fault in struck if fault[name] is not None]) for name in ("epoch_s", "still_s")]
    return f"| {promise.what} | {promise.lost} | {times[0]} | {times[1]} | {len(struck)} | {', '.join(promise.kinds)} |"


def _times(values: Sequence[float]) -> str:
    return f"{percentile(values, 50):.1f} s, {max(values):.1f} s" if values else "-"


def main() -> None:
    """Write the page."""
    assert {kind for promise in PROMISES for kind in promise.kinds} == set(KINDS), "a kind without a promise"
    Path(sys.argv[2]).write_text(page(json.loads(Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
