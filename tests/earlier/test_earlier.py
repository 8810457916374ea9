"""Checkpoints that earlier versions wrote: they are sound, hold what they held, and their jobs go on."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pipelines import FURTHER, PIPELINES, WRITTEN, run

from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.fold import rebuild
from ferryman._sources.generated_rows import GeneratorOptions, generate


def expected(name: str, upto: int) -> dict[str, dict[Any, Any]]:
    """Compute what the tables of a job must hold, from the rows one by one."""
    rows = generate(GeneratorOptions(keys=9, rows=upto, key_prefix="s-"), 0, upto).to_pylist()
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_key[row["key"]].append(row)
    ids = {key: [row["id"] for row in some] for key, some in by_key.items()}
    if name == "columnar":
        return {
            "Totals": {
                key: (len(some), pytest.approx(sum(row["value"] for row in some)), len(some), max(ids[key]))
                for key, some in by_key.items()
            }
        }
    if name == "processor":
        return {
            "Total": {key: sum(some) for key, some in ids.items()},
            "Total.ids": {(key, place): number for key, some in ids.items() for place, number in enumerate(some)},
            "Total.byRest": {(key, number % 3): number for key, some in ids.items() for number in some},
        }
    return {
        "Trail": {key: (len(some), f"{key}:{some[-1]}") for key, some in ids.items()},
        "Trail.measured": {(key, n): row["value"] for key, some in by_key.items() for n, row in enumerate(some)},
        "Trail.seen": {(key, number % 7): f"{key}:{number}" for key, some in ids.items() for number in some},
    }


def held(checkpoint: Checkpoint, name: str) -> dict[str, dict[Any, Any]]:
    """Read the tables of a job in the shape of `expected`."""
    latest = checkpoint.latest()
    assert latest is not None
    found = {table: rebuild(checkpoint, table, latest.epoch).to_pylist() for table in expected(name, 1)}
    if name == "columnar":
        return {
            "Totals": {row["key"]: (row["n"], row["mean_sum"], row["mean_n"], row["most"]) for row in found["Totals"]}
        }
    if name == "processor":
        return {
            "Total": {row["key"]: row["total"]["id"] for row in found["Total"]},
            "Total.ids": {(row["key"], row["_position"]): row["_value"]["id"] for row in found["Total.ids"]},
            "Total.byRest": {(row["key"], row["_key.id"]): row["_value"]["id"] for row in found["Total.byRest"]},
        }
    return {
        "Trail": {row["key"]: (row["n"], row["last"]) for row in found["Trail"]},
        "Trail.measured": {(row["key"], row["_position"]): row["_value"]["item"] for row in found["Trail.measured"]},
        "Trail.seen": {(row["key"], row["_key.key"]): row["_value"]["item"] for row in found["Trail.seen"]},
    }


@pytest.mark.parametrize("name", PIPELINES)
def test_a_checkpoint_that_an_earlier_version_wrote_opens_and_its_job_goes_on(spark, tmp_path, name):
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    checkpoint = Checkpoint(LocalDirectory(tmp_path / name))
    assert not verify(checkpoint).faults
    assert held(checkpoint, name) == expected(name, WRITTEN)

    output = run(spark, name, tmp_path / name, FURTHER)

    assert held(checkpoint, name) == expected(name, FURTHER)
    assert not verify(checkpoint).faults
    assert len(output) >= (FURTHER - WRITTEN) // 100
