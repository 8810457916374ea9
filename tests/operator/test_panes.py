"""Windows as panes: which windows a row falls into, when they end, and which panes they have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman._operator.run.panes import Panes

LENGTHS = st.integers(1, 40)


@st.composite
def declared(draw: st.DrawFn) -> Panes:
    every = draw(LENGTHS)
    size = draw(st.integers(every, 60))
    return Panes(size, every, draw(st.integers(0, every - 1)), draw(st.integers(0, 50)))


def ends_of(panes: Panes, at: int) -> list[int]:
    """Give the ends of the windows that a time falls into, as the definition has it."""
    around = range(at + 1, at + panes.size + 1)
    return [end for end in around if (end - panes.size - panes.start) % panes.every == 0]


@given(declared(), st.integers(-200, 200))
def test_windows_of_a_pane_are_those_of_each_of_its_times(panes: Panes, at: int) -> None:
    pane = (at - panes.start) // panes.length * panes.length + panes.start
    inside = range(pane, pane + panes.length)
    wanted = ends_of(panes, at)
    assert all(ends_of(panes, time) == wanted for time in inside)
    places, ends = panes.windows(np.array([pane, pane]), -1000, 1000)
    assert ends[places == 0].tolist() == ends[places == 1].tolist() == wanted
    _, ends = panes.windows(np.array([pane]), wanted[0], wanted[-1] - 1)
    assert ends.tolist() == wanted[1:-1]
    assert panes.first_end(np.array([pane]))[0] == wanted[0]
    assert panes.last_end(np.array([pane]))[0] == wanted[-1]
    # All panes of all these windows are beside it, and no others.
    _, beside = panes.beside(np.array([pane]))
    shared = [other for other in range(pane - 120, pane + 120) if (other - pane) % panes.length == 0]
    mine = set(wanted)
    assert set(beside.tolist()) >= {other for other in shared if mine & set(ends_of(panes, other))}


@given(declared(), st.integers(-200, 200))
def test_nothing_ends_before_the_next_event(panes: Panes, until: int) -> None:
    def happens(time: int) -> bool:
        return any((time - late - panes.size - panes.start) % panes.every == 0 for late in (0, panes.lateness))

    assert panes.ended(until) == max(e for e in range(until - panes.every, until + 1) if _is_end(panes, e))
    assert panes.next_event(until) == next(time for time in range(until + 1, until + 200) if happens(time))


def _is_end(panes: Panes, time: int) -> bool:
    return (time - panes.size - panes.start) % panes.every == 0


@pytest.mark.parametrize(("size", "every", "length"), [(60, 60, 60), (60, 20, 20), (60, 25, 5)])
def test_a_pane_is_as_long_as_it_can_be(size: int, every: int, length: int) -> None:
    assert Panes(size, every).length == length
