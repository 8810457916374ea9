"""A task takes what is not at home from a state host that keeps it, and leaves the rest to the checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from serving import GROUPS, TABLES, TOKEN, content, expected, fill, held, start
from written_log import KEY, STATE, WrittenLog

from ferryman._engine.control import Control
from ferryman._engine.kept_mains import take_kept
from ferryman._log.files.directory import LocalDirectory
from ferryman._migrate.keepers import Keepers
from ferryman._state.store.contract import Store
from ferryman._state.tables import TableSpec

MINE = np.array([1, 5])
SPEC = TableSpec(name="Counts", operator="Counts", key=KEY, state=STATE, backend=TABLES["Counts"])


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    log = WrittenLog(LocalDirectory(tmp_path / "checkpoint"), groups=GROUPS)
    for epoch in range(1, 5):
        log.commit({"Counts": {f"s-{number}": number * epoch for number in range(200)}})
    return log


@pytest.fixture
def watched() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def take(tmp_path: Path, epoch: int, *keepers: tuple[str, str]) -> Store:
    """Have the task of an epoch take what is kept; give the store that it has at home."""
    control = Control(
        epoch=epoch,
        run_id="run",
        checkpoint=str(tmp_path / "checkpoint"),
        fsync=False,
        home=None,
        owner=(0,) * GROUPS,
        tokens=(0,),
        newest={},
        newest_same_routing=True,
        keepers=Keepers(token=TOKEN, at={0: keepers}),
    )
    store = held(tmp_path, "home")
    take_kept({"Counts": store}, {"Counts": SPEC}, MINE, control, 0)
    return store


def test_what_is_not_at_home_comes_from_the_first_who_has_it(tmp_path, log, watched):
    fill(tmp_path, "a", log, 3)
    has, nothing = start(tmp_path, "a", watched), start(tmp_path, "b", watched)

    store = take(tmp_path, 5, ("gone", "grpc://127.0.0.1:1"), ("b", nothing), ("a", has))

    assert store.epochs()[MINE].tolist() == [3, 3]
    assert content(store, MINE.tolist(), 3) == expected(log, MINE.tolist(), 3)
    assert store.epochs()[0] == -1, "only its own"


def test_a_main_that_is_further_than_the_epoch_before_is_not_taken(tmp_path, log, watched):
    fill(tmp_path, "a", log, 3)

    store = take(tmp_path, 3, ("a", start(tmp_path, "a", watched)))

    assert store.epochs()[MINE].tolist() == [-1, -1]


def test_what_nobody_has_is_left_to_the_checkpoint(tmp_path, log):
    assert take(tmp_path, 5, ("gone", "grpc://127.0.0.1:1")).epochs()[MINE].tolist() == [-1, -1]
