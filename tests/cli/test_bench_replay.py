"""`ferryman bench replay`: what it takes for a wrong count, and what its figures are made of."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from ferryman._cli.bench import _load


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return _load("replay")


def put_out(*words: tuple[int, str, int]) -> list[tuple[int, float, pa.Table]]:
    """One epoch of words: the number of each, itself, and what was counted of it."""
    ids, keys, counted = zip(*words, strict=True)
    groups = [0 if key == "a" else 1 for key in keys]
    return [(1, 0.0, pa.table({"id": ids, "key": keys, "n": counted, "group": groups}))]


# Two windows of two words each.
RIGHT = ((0, "a", 1), (1, "a", 2), (2, "a", 1), (3, "b", 1))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(((0, "a", 1), (1, "a", 2), (3, "b", 1)), id="a word is missing"),
        pytest.param((*RIGHT, (3, "b", 2)), id="a word was counted twice"),
        pytest.param(((0, "a", 1), (1, "a", 2), (2, "a", 3), (3, "b", 1)), id="a window was not begun anew"),
        pytest.param(((0, "a", 1), (1, "a", 1), (2, "a", 1), (3, "b", 1)), id="state was forgotten"),
    ],
)
def test_a_wrong_count_is_no_figure(bench: ModuleType, wrong: tuple[tuple[int, str, int], ...]) -> None:
    stream = bench.Stream(rate=2, window_s=1, vocabulary=64)
    bench._check(put_out(*RIGHT), stream)

    with pytest.raises(RuntimeError, match="counted"):
        bench._check(put_out(*wrong), stream)


def test_a_replay_of_lost_groups_has_all_their_words_and_no_others(bench: ModuleType) -> None:
    stream = bench.Stream(rate=2, window_s=1, vocabulary=64)
    before = put_out(*RIGHT)
    # What came after the loss is not among the words of before.
    bench._check(put_out((3, "b", 1), (5, "b", 1)), stream, old=before, groups={1})

    with pytest.raises(RuntimeError, match="counted"):
        bench._check(put_out((5, "b", 1)), stream, old=before, groups={1})


def test_the_ratios_are_those_of_the_highest_rate(bench: ModuleType) -> None:
    def case(strategy: str, rate: int, all_s: float) -> dict[str, Any]:
        return {"strategy": strategy, "rate": rate, "all_s": all_s}

    told = bench.headline(
        [case("snapshots", 10, 9.0), case("snapshots", 20, 2.0), case("snapshots", 20, 3.0),
         case("source_replay", 10, 1.0), case("source_replay", 20, 8.0)]
    )  # fmt: skip

    assert told == {"ratio_snapshots_vs_source_replay": 0.25}
