"""Which places the sources of a job have, from one start to the next."""

from __future__ import annotations

import pytest

from ferryman._engine.job_sources import placed
from ferryman._model.card import SourceCard
from ferryman.errors import SourcesChanged


def cards(*names: str) -> list[SourceCard]:
    return [SourceCard(name, 1) for name in names]


def names(held: list[SourceCard], wanted: list[SourceCard], began: int | None = 1) -> list[str]:
    return [source.name for source in placed(held, wanted, 0, began)]


@pytest.mark.parametrize("wanted", [("web",), ("web", "app")])
def test_a_source_that_gets_a_name_is_not_read_twice(wanted: tuple[str, ...]) -> None:
    with pytest.raises(SourcesChanged, match=r"counted twice\. .*name=\"source_1\".* start once with both"):
        names([], cards(*wanted))
    # What was never read cannot be read twice.
    assert names([], cards(*wanted), None) == list(wanted)


def test_another_source_takes_the_place_of_one_without_a_name() -> None:
    assert names([], cards("source_1", "web")) == ["source_1", "web"]
    held = cards("source_1", "web")
    assert names(held, cards("web"), 2) == ["source_1", "web"]
    assert names(held, cards("web", "app"), 2) == ["source_1", "web", "app"]
