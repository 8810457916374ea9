"""Whom a task asks for main copies that are not at home: nobody who is gone, and only if it may have to ask."""

from __future__ import annotations

from ferryman._migrate.keepers import Keepers
from ferryman._migrate.layout import Launch
from ferryman._migrate.options import ChangeOptions
from ferryman._model.card import JobCard

LAUNCH = Launch.of("checkpoint", "run", JobCard("1", "job", 4, {}), ChangeOptions())
AT = {name: f"at-{name}" for name in "abc"}
WERE = ("a", "b", "c")


def kept(were: tuple[str, ...], are: dict[int, str], standbys: int = 0) -> dict[int, list[str]]:
    keepers = Keepers.of(LAUNCH, were, are, standbys, AT)
    return {} if keepers is None else {number: [name for name, _ in at] for number, at in keepers.at.items()}


def test_nobody_is_asked_while_instances_stay() -> None:
    assert Keepers.of(LAUNCH, WERE, dict(enumerate(WERE)), 0, AT) is None
    assert Keepers.of(LAUNCH, (), {0: "a"}, 1, AT) is None


def test_an_instance_that_goes_to_another_host_asks_the_one_before() -> None:
    assert kept(WERE, {0: "a", 1: "c", 2: "b"}) == {1: ["b"], 2: ["c"]}


def test_a_host_that_is_about_to_go_is_asked_for_what_it_had() -> None:
    are = {0: "a", 1: "c", 2: "c"}
    assert Keepers.of(LAUNCH, WERE, are, 0, AT) is None

    leaving = Keepers.of(LAUNCH, WERE, are, 0, AT, leaving={"b"})
    assert leaving is not None
    assert leaving.at[1] == (("b", "at-b"),)


def test_of_a_lost_host_who_stands_by_is_asked() -> None:
    assert kept(WERE, {0: "a", 1: "c", 2: "c"}, standbys=1)[1] == ["c"]
    assert kept(WERE, {0: "a", 1: "a", 2: "a"}, standbys=2)[1] == ["a"]
    assert kept(WERE, {0: "a", 1: "a", 2: "a"}) == {1: [], 2: []} or kept(WERE, {0: "a", 1: "a", 2: "a"}) == {}


def test_with_standbys_every_task_knows_whom_to_ask_as_its_host_may_be_lost_while_it_runs() -> None:
    assert kept(WERE, dict(enumerate(WERE)), standbys=1) == {0: ["a", "b"], 1: ["b", "c"], 2: ["c", "a"]}


def test_a_host_whose_state_host_is_not_known_is_not_asked() -> None:
    assert Keepers.of(LAUNCH, WERE, {0: "a", 1: "c", 2: "b"}, 0, {}) is None
