"""How the rows of an epoch go: by what those before were like, and no longer than that is true."""

from __future__ import annotations

from ferryman._engine.express_or_shuffle import MOST_READING_MS, EpochCost, Route, choose

EXPRESS, SHUFFLE = Route(True, ""), Route(False, "")
LONG, SHORT = MOST_READING_MS + 1, 5.0


def routes(readings: list[float], epochs: int) -> list[bool]:
    """Tell which epochs go by express, where each of these takes so long to read its rows, and later ones no time."""
    found: list[bool] = []
    cost = None
    for number in range(epochs):
        express = choose(cost, None).express
        reading_ms = readings.pop(0) if express and readings else SHORT
        cost = EpochCost.of(cost, number, 100, (), EXPRESS if express else SHUFFLE, reading_ms)
        found.append(express)
    return found


def test_one_epoch_that_reads_long_is_bad_luck_and_two_are_a_reason() -> None:
    assert all(routes([LONG, LONG, SHORT, LONG, SHORT], 20)), "the first counts, or one alone does"
    assert routes([SHORT, LONG, LONG], 13) == [True] * 3 + [False] * 8 + [True] * 2


def test_express_rests_twice_as_long_if_it_is_a_bad_choice_again() -> None:
    again = [SHORT, LONG, LONG, LONG, LONG]
    assert routes(again, 32) == [True] * 3 + [False] * 8 + [True] * 2 + [False] * 16 + [True] * 3


def test_what_instances_lose_by_taking_turns_matters_only_where_they_do() -> None:
    slow = EpochCost(epoch=7, rows=100, lost_ms=40.0)
    assert not choose(slow, None).express
    assert choose(slow, None, in_turns=False).express


def test_an_epoch_without_rows_tells_nothing_of_those_with_rows() -> None:
    # Else the one after it has all its instances take turns.
    slow = EpochCost(epoch=7, rows=100, lost_ms=40.0)
    after = EpochCost.of(slow, 8, 0, (), SHUFFLE, SHORT)

    assert not choose(after, None).express
    assert choose(EpochCost.of(None, 1, 0, (), EXPRESS, SHORT), None).express
