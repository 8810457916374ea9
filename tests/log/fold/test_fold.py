"""Folding deltas gives the state of every kept epoch, whatever the history."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_log import KEY, STATE, delta_of, hash_of, local_log, state_of

from ferryman._log.check.verify import verify
from ferryman._log.fold.fold import fold, fold_deltas, of_groups, rebuild, runs_of_groups
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CorruptCheckpoint, MissingDelta, UnknownOption
from ferryman._state.store.contract import part_schema

KEYS = [f"s{number}" for number in range(12)]
CHANGES = st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 99)), max_size=8)
STEP = st.one_of(
    st.tuples(st.just("epoch"), st.fixed_dictionaries({"A": CHANGES, "B": CHANGES})),
    st.tuples(st.just("snapshot"), st.integers(0, 3)),
    st.tuples(st.just("retention"), st.integers(0, 4)),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=14))
def test_every_kept_epoch_equals_a_dict(history: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        log = local_log(Path(place), operators=("A", "B"))
        oldest = 1
        for step, how in history:
            if step == "epoch":
                log.commit(how)
            elif step == "rescale":
                log.rescale(how)
            elif step == "snapshot" and log.epoch - how >= oldest:
                write_snapshot(log.checkpoint, log.epoch - how)
            elif step == "retention" and log.epoch > how:
                prune(log.checkpoint, log.epoch - how)
                oldest = max(oldest, log.epoch - how)

        for epoch in range(oldest, log.epoch + 1):
            log.assert_rebuilds(epoch)
        report = verify(log.checkpoint)
        assert report.faults == ()
        assert report.rebuildable == report.epochs
        assert set(range(oldest, log.epoch + 1)) <= set(report.rebuildable)


def test_the_last_row_of_a_key_wins_and_a_deleted_key_is_gone() -> None:
    first, second, third = delta_of({"a": 1, "b": 2}), delta_of({"a": 3, "c": 4}), delta_of({"b": None})

    folded = fold(None, fold_deltas([first, second, third], KEY), KEY, STATE)

    assert state_of(folded) == {"a": (3, "a=3"), "c": (4, "c=4")}
    assert folded.schema == part_schema(KEY, STATE)


def test_a_key_that_was_deleted_can_come_back() -> None:
    deltas = [delta_of({"a": 1}), delta_of({"a": None}), delta_of({"a": 2})]

    assert state_of(fold(None, fold_deltas(deltas, KEY), KEY, STATE)) == {"a": (2, "a=2")}


def test_keys_of_the_same_hash_stay_apart() -> None:
    same = delta_of({"a": 1, "b": 2}).set_column(0, "_hash", pa.array([7, 7]))

    assert state_of(fold(None, fold_deltas([same, same], KEY), KEY, STATE)) == {"a": (1, "a=1"), "b": (2, "b=2")}


def test_of_groups_keeps_the_rows_of_these_groups_also_for_negative_hashes() -> None:
    rows = delta_of(dict.fromkeys(KEYS, 1))
    assert any(hash_of(key) < 0 for key in KEYS)

    kept = of_groups(rows, np.array([0, 3]), 4).column("sensor").to_pylist()

    assert kept == [key for key in KEYS if hash_of(key) % 4 in (0, 3)]


def test_a_part_of_the_groups_can_be_rebuilt_alone(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    write_snapshot(log.checkpoint, 1)
    log.commit({"Counts": dict.fromkeys(KEYS[::2], 2)})
    groups = np.array([1, 2, 6])

    rows = rebuild(log.checkpoint, "Counts", 2, groups)

    expected = {key: row for key, row in log.states[2]["Counts"].items() if hash_of(key) % 8 in groups}
    assert expected
    assert state_of(rows) == expected


@pytest.mark.parametrize(("rows", "runs"), [(0, 1), (10, 1), (11, 2), (35, 4), (10_000, 8)])
def test_runs_of_groups_cover_every_group_once(rows: int, runs: int) -> None:
    cut = runs_of_groups(8, rows, at_most=10)

    assert len(cut) == runs
    if runs > 1:
        assert np.concatenate(cut).tolist() == list(range(8))


def test_an_unknown_operator_is_named_with_those_there_are(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.commit({"Counts": {"a": 1}})

    with pytest.raises(UnknownOption, match=r"no table 'Sums'; it has: Counts"):
        rebuild(log.checkpoint, "Sums", 1)


def test_an_epoch_that_was_never_committed_or_was_forgotten_is_refused(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    for number in range(6):
        log.commit({"Counts": {"a": number}})
    write_snapshot(log.checkpoint, 4)
    prune(log.checkpoint, 4)

    for epoch in (3, 7):
        with pytest.raises(MissingDelta, match=f"epoch {epoch}"):
            rebuild(log.checkpoint, "Counts", epoch)


def test_a_missing_a_truncated_and_an_altered_delta_are_each_refused_by_name(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    ref = log.commit({"Counts": {"a": 1}}).tables["Counts"][0]
    path = tmp_path / ref.file
    data = path.read_bytes()

    path.write_bytes(data[:-1])
    with pytest.raises(CorruptCheckpoint, match=f"{ref.file}.* has {len(data) - 1} bytes instead of {len(data)}"):
        rebuild(log.checkpoint, "Counts", 1)
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(CorruptCheckpoint, match=f"{ref.file}.* has altered bytes"):
        rebuild(log.checkpoint, "Counts", 1)
    path.unlink()
    with pytest.raises(MissingDelta, match=ref.file):
        rebuild(log.checkpoint, "Counts", 1)
