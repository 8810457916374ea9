"""Random histories of epochs, crashes, power cuts, splits, merges, snapshots, restores and moves of the clock.

All on a disk that forgets what was not synced, and beside a model.

The model is plain Python: it is told the rows of each epoch and what the clock says, and tells what must come out and
what must be kept. Whatever happens to the harness between, both are equal.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ferryman import Operator, Value
from ferryman._os.disk import use_disk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk
from ferryman.testing import Crash, Harness

# Few of each, so that they meet.
KEYS = st.sampled_from(["a", "b", "c"])
SMALL = st.sampled_from([0, 1, 1, 2, 3, 5])
MARKS: list[dict[str, Any]] = [{"crash": "before-commit"}, {"crash": "after-commit"}, {"crash_at_row": 0}]


class Model(Protocol):
    """What Python's own would do."""

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        """Do what was drawn, at the clock's time, and give the rows that must come out, in any order."""

    def check(self, harness: Harness) -> None:
        """Compare what is kept."""


@dataclass(frozen=True)
class Kind:
    """A pipeline with what is done to it: one drawn `step` per row, and its model.

    `given` makes the arguments of `Harness.epoch` from what was drawn.
    """

    build: Callable[[Any], Any]
    input: str
    step: st.SearchStrategy[Any]
    model: Callable[[], Model]
    given: Callable[[list[Any]], dict[str, Any]] = lambda done: {"rows": done}


def run_histories(kind: Kind, *, store: str | None = None, examples: int = 10) -> None:
    """Try random histories."""
    run_state_machine_as_test(
        machine_of(kind, store),
        settings=settings(
            max_examples=examples, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def machine_of(kind: Kind, store: str | None) -> type[RuleBasedStateMachine]:
    class History(RuleBasedStateMachine):
        @initialize()
        def start(self) -> None:
            self.place = Path(tempfile.mkdtemp(prefix="ferryman-history-"))
            (self.place / "disk").mkdir()
            self.open(instances=2, now_ms=1000)
            self.model = kind.model()
            self.models = {0: copy.deepcopy(self.model)}

        def open(self, instances: int, now_ms: int) -> None:
            self.disk = UnsyncedDisk(self.place / "disk", self.place / "journal")
            use_disk(self.disk)
            self.harness = Harness(
                kind.build,
                kind.input,
                instances=instances,
                groups=4,
                store=store,
                now_ms=now_ms,
                checkpoint=self.place / "disk" / "checkpoint",
                fsync=True,
            )

        @rule(seed=st.integers(0, 1 << 32), instances=st.integers(1, 3))
        def cut_the_power(self, seed: int, instances: int) -> None:
            epochs, now_ms = self.harness.epochs, self.harness.now_ms
            self.harness.close()
            self.disk.close()
            power_cut(self.place / "disk", self.place / "journal", seed)
            self.open(instances, now_ms)
            assert self.harness.epochs == epochs, "an epoch that was promised is lost"

        @rule(done=st.lists(kind.step, max_size=6), mark=st.sampled_from([None, None, None, *MARKS]))
        def epoch(self, done: list[Any], mark: dict[str, Any] | None) -> None:
            given = kind.given(done)
            expected = self.model.epoch(done, self.harness)
            if mark is not None and (given["rows"] or "crash" in mark):
                with pytest.raises(Crash):
                    self.harness.epoch(**given, **mark)
                found = self.harness.redo()
            else:
                found = self.harness.epoch(**given)
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            self.models[self.harness.epochs] = copy.deepcopy(self.model)

        @rule(done=st.lists(kind.step, max_size=6))
        def crash(self, done: list[Any]) -> None:
            with pytest.raises(Crash):
                self.harness.epoch(**kind.given(done), crash="before-commit")

        @rule(ms=st.sampled_from([1, 99, 300, 700, 1100]))
        def tick(self, ms: int) -> None:
            self.harness.now_ms += ms
            self.epoch([], None)

        @rule(ms=st.sampled_from([1, 150, 999]))
        def wait(self, ms: int) -> None:
            self.harness.now_ms += ms

        @rule(instances=st.integers(1, 4))
        def rescale(self, instances: int) -> None:
            self.harness.rescale(instances)

        @rule()
        def restart(self) -> None:
            self.harness.restart()

        @rule()
        def snapshot(self) -> None:
            self.harness.snapshot()

        @rule(data=st.data())
        def rewind(self, data: st.DataObject) -> None:
            epoch = data.draw(st.integers(0, self.harness.epochs))
            self.harness.rewind(epoch)
            self.model = copy.deepcopy(self.models[epoch])

        @invariant()
        def the_same_is_kept(self) -> None:
            if hasattr(self, "harness"):
                self.model.check(self.harness)

        def teardown(self) -> None:
            use_disk(None)
            if hasattr(self, "harness"):
                self.harness.close()
                self.disk.close()
                shutil.rmtree(self.place, ignore_errors=True)

    return History


class PerKey:
    """The model of one state of a key: `operations` by name, on what `begin` gives.

    An operation takes what is kept, a number, and what the clock says.
    """

    def __init__(self, operations: dict[str, Any], look: Any, begin: Any) -> None:
        self._operations, self._look, self._begin = operations, look, begin
        self.kept: dict[str, Any] = {}

    def __deepcopy__(self, memo: Any) -> PerKey:
        made = PerKey(self._operations, self._look, self._begin)
        made.kept = copy.deepcopy(self.kept)
        return made

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        expected = []
        for key, what, x in done:
            one = self.kept.setdefault(key, [self._begin(), 0])
            one[1] += 1
            gave = self._operations[what](one[0], x, harness.now_ms)
            expected.append((key, repr((gave, self._look(one[0], harness.now_ms), one[1]))))
        return expected

    def check(self, harness: Harness) -> None:
        assert [row["key"] for row in harness.state("Does")] == sorted(self.kept), "no key is lost"


def kind_of(state: Any, operations: dict[str, Any], look: Any, model: Callable[[], Model]) -> Kind:
    """Give an operator with one state, on which a row does one of the operations, and its model."""

    class Does(Operator):
        kept = state
        touched = Value(int, 0)
        output = "key string, found string"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.touched += 1
            gave = operations[row.what](self, row.x)
            yield key, repr((gave, look(self), self.touched))

    return Kind(
        lambda stream: stream.key_by("key").process(Does),
        "key string, what string, x long",
        st.tuples(KEYS, st.sampled_from(sorted(operations)), SMALL),
        model,
    )
