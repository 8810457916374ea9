"""How far a start is: step by step, and what is shown of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from until import until

from ferryman._engine import starting_shown
from ferryman._engine.starting import STEPS, Starting, session_took
from ferryman._engine.starting_shown import SETTING, described, follow, wanted


def test_a_start_goes_step_by_step_and_is_over_with_the_first_epoch():
    session_took("java", 700.0)
    starting = Starting(after=7, redone=8, groups=256)
    starting.step("take over")
    starting.step("first epoch")
    starting.count = lambda: 64
    now = starting.look()
    assert (now.step, now.restored, list(now.steps_ms)) == ("first epoch", 64, ["java", "take over", "first epoch"])

    starting.committed(rebuilt=256)
    now = starting.look()
    assert (now.step, now.restored, now.rebuilt) == ("", 256, 256)
    assert set(now.steps_ms) <= set(STEPS)
    assert now.total_ms == sum(now.steps_ms.values())
    assert starting.over.is_set()


def test_what_the_session_took_is_told_of_its_first_job_alone():
    session_took("java", 700.0)
    assert Starting().look().steps_ms == {"java": 700.0}
    assert Starting().look().steps_ms == {}


def test_where_nobody_looks_nothing_is_shown(monkeypatch):
    monkeypatch.delenv(SETTING, raising=False)
    assert wanted() is False
    monkeypatch.setenv(SETTING, "1")
    assert wanted() is True
    monkeypatch.setenv(SETTING, "0")
    assert wanted() is False


def test_where_it_is_piped_each_step_is_a_line(monkeypatch, capsys):
    monkeypatch.setenv(SETTING, "1")
    starting = Starting(after=7, groups=256)
    counts: Iterator[int] = iter([0, 0, 128, 128])

    def count() -> int:
        # What the thread that shows it asks; after the last of it the epoch is committed.
        found = next(counts, None)
        if found is None:
            starting.committed(rebuilt=0)
            return 256
        return found

    monkeypatch.setattr(starting_shown, "_LOOK_S", 0.001)
    starting.step("first epoch")
    starting.count = count
    starting_shown._lines("fleet", starting)

    assert capsys.readouterr().err.splitlines()[:2] == [
        "ferryman: fleet: the first epoch; restored 0 of 256 key groups",
        "ferryman: fleet: the first epoch; restored 128 of 256 key groups",
    ]


def test_a_start_that_fails_has_nothing_more_to_say(monkeypatch, capsys):
    monkeypatch.setenv(SETTING, "1")
    starting = Starting()
    starting.step("query")
    starting.end()
    starting_shown._lines("fleet", starting)

    assert capsys.readouterr().err == ""
    # Nor does its clock go on.
    assert starting.look() == starting.look()


def test_a_script_that_nobody_watches_shows_only_a_restart(monkeypatch):
    begun: list[str] = []
    monkeypatch.setattr(starting_shown, "wanted", lambda: None)
    monkeypatch.setattr(starting_shown, "_lines", lambda job, starting: begun.append(job))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    follow("first", Starting())
    follow("again", Starting(after=3))

    until(lambda: begun, "the restart is shown")
    assert begun == ["again"]
    assert described(Starting(after=3).look()).startswith("goes on after epoch 3")
