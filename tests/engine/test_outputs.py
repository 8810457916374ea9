"""Who is called in an epoch, who is left out, and with which number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ferryman import sinks
from ferryman._engine.outputs import Outputs, claim
from ferryman._engine.sink import SinkStart
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.files.term import Term
from ferryman._model.errors import InvalidConfiguration, SinkMissing
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable


class Noted:
    """Note what it gets."""

    label = "noted"
    told = False

    def __init__(self, *, whole: bool, **says: bool) -> None:
        self.whole = whole
        self.calls: list[tuple[int, int]] = []
        vars(self).update(says)

    def claim(self, job_id: str) -> int:
        return 0

    def begin(self, start: SinkStart) -> None:
        pass

    def write(self, rows: list[int], epoch: int) -> dict[str, Any]:
        self.calls.append((epoch, len(rows)))
        return {"epoch": epoch}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        pass


class Rows:
    """Some rows, and whether they were computed."""

    table = None

    def __init__(self, *rows: int) -> None:
        self.rows = list(rows)
        self.computed = False

    def compute(self) -> None:
        self.computed = True

    def is_empty(self) -> bool:
        assert self.computed, "to look would compute them a second time"
        return not self.rows


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("says", [{}, {"skips_silence": True}, {"skips_silence": False}])
def test_a_sink_is_left_out_only_where_nothing_came_and_it_skips_that(
    tmp_path: Path, whole: bool, says: dict[str, bool]
) -> None:
    sink: Any = Noted(whole=whole, **says)
    term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
    outputs = Outputs([sink], Checkpoint(directory(str(tmp_path))), None, term=term, fsync=False)

    for epoch, (rows, silent) in enumerate([((), True), ((), False), ((1,), True), ((1, 2), False)], 1):
        frame = Rows(*rows)
        outputs.write([frame], epoch, silent=silent)
        assert frame.computed or whole

    skips = says.get("skips_silence", not whole)
    assert sink.calls == ([] if skips else [(1, 0)]) + [(2, 0), (3, 1), (4, 2)]


class Written:
    """A sink that notes its calls, and on which thread they are made."""

    label = "written"
    told = False
    whole = True
    beside = True

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls

    def write(self, rows: list[int], epoch: int) -> dict[str, Any]:
        self.calls.append(self.name)
        return {}


class Users(Written):
    """One that inherits how, and writes in its own way."""

    def write(self, rows: list[int], epoch: int) -> dict[str, Any]:
        return super().write(rows, epoch)


class Inherits(Written):
    """One that only inherits how, and may do anything in what that calls."""


class Function(Written):
    """One that looks at its rows as it likes."""

    whole = False


class Computed(Rows):
    """Rows that note when they are computed."""

    def __init__(self, name: str, calls: list[str]) -> None:
        super().__init__(1)
        self._name, self._calls = name, calls

    def compute(self) -> None:
        super().compute()
        self._calls.append(f"compute {self._name}")


def test_tasks_of_all_outputs_come_first_and_users_code_after_them_in_its_order(tmp_path: Path) -> None:
    calls: list[str] = []
    kinds = (Function, Written, Users, Function, Written, Inherits, Written)
    outputs: list[Any] = [kind(name, calls) for kind, name in zip(kinds, "abcdefg", strict=True)]
    frames = [Computed(name, calls) for name in "abcdefg"]
    # In place of what its class says.
    outputs[-1].write = Users("g", calls).write
    term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})

    def backwards(some: Sequence[Callable[[], object]]) -> None:
        calls.append(f"{len(some)} at once")
        for call in reversed(some):
            call()
        calls.append("all done")

    made = Outputs(outputs, Checkpoint(directory(str(tmp_path))), None, term=term, fsync=False)
    written = made.write(frames, 1, silent=False, side_by_side=backwards)

    assert calls == ["4 at once", "e", "compute d", "b", "compute a", "all done", "a", "c", "d", "f", "g"]
    assert list(written) == ["written", *(f"written#{number}" for number in range(2, 8))]


@pytest.mark.parametrize("kind", [Written, Users, Function])
def test_a_sink_whose_write_returns_nothing_is_called_once_and_told_what_to_return(
    tmp_path: Path, kind: type[Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(kind, "write", lambda sink, rows, epoch: sink.calls.append(sink.name))
    term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
    outputs = Outputs([kind("a", calls)], Checkpoint(directory(str(tmp_path))), None, term=term, fsync=False)

    with pytest.raises(InvalidConfiguration, match=r"sink 'written'.* returned None.* dict"):
        outputs.write([Rows(1)], 1, silent=False)

    assert calls == ["a"]


def test_rows_that_are_here_already_run_no_tasks(tmp_path: Path) -> None:
    calls: list[str] = []
    outputs: list[Any] = [Function("a", calls), Written("b", calls)]
    frames: list[Any] = [Computed(name, calls) for name in "ab"]
    for frame in frames:
        frame.table = pa.table({"n": [1]})
    term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
    made = Outputs(outputs, Checkpoint(directory(str(tmp_path))), None, term=term, fsync=False)

    made.write(frames, 1, silent=False, side_by_side=lambda some: calls.append(f"{len(some)} at once"))

    assert calls == ["0 at once", "a", "b"]


def called(*times: tuple[str, int]) -> Manifest:
    """Give an epoch after which functions were called so often."""
    return Manifest(
        epoch=57,
        batch=56,
        silent=False,
        time_ms=0,
        routing=RoutingTable.even(1, 4, 1),
        operators={},
        tables={},
        sinks={label: {"told": False, "path": "", "written": {"number": number}} for label, number in times},
    )


class Checked:
    """Start with some functions after an epoch; say what numbers they get."""

    def __init__(self, root: Path, latest: Manifest | None) -> None:
        self._checkpoint = Checkpoint(directory(str(root)))
        self._latest = latest

    def start(self, *names: str, dropped: tuple[str, ...] = ()) -> list[int]:
        numbers: list[int] = []
        functions = [sinks.foreach(lambda rows, number: numbers.append(number), name) for name in names]
        outputs: list[Any] = [*functions, sinks.none()]
        claim(outputs, self._checkpoint, "job", self._latest, dropped)
        term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
        begun = Outputs(outputs, self._checkpoint, self._latest, term=term, fsync=False, dropped=dropped)
        begun.begin()
        for function in functions:
            function.write(None, 58)  # type: ignore[arg-type]
        return numbers


def test_a_function_that_is_given_a_name_does_not_begin_at_0_again(tmp_path: Path) -> None:
    job = Checked(tmp_path, called(("foreach", 57)))

    with pytest.raises(SinkMissing) as caught:
        job.start("audit")
    says = ("'foreach'", "57", "'foreach:audit'", "name='foreach'", "dropped_sinks=['foreach']")
    assert all(what in str(caught.value) for what in says), caught.value

    assert job.start("") == job.start("foreach") == [58]
    assert job.start("audit", dropped=("foreach",)) == [0]
    assert job.start("foreach", "audit") == job.start("", "audit") == [58, 0]


def test_a_function_that_is_renamed_does_not_begin_at_0_again(tmp_path: Path) -> None:
    job = Checked(tmp_path, called(("foreach:a", 5), ("foreach:b", 7)))

    with pytest.raises(SinkMissing, match=r"'foreach:a', which was called up to number 5.* 'foreach:c'.*name='a'"):
        job.start("c", "b")
    with pytest.raises(SinkMissing, match="'foreach:b'"):
        job.start("", "a")

    assert job.start("b", "a") == [8, 6]
    assert job.start("b") == [8]
    assert job.start("b", "a", "c") == [8, 6, 0]


@pytest.mark.parametrize("names", [("", ""), ("a", "", ""), ("a", "a"), ("", "foreach")])
@pytest.mark.parametrize("known", [None, called(("foreach", 3), ("foreach#2", 9))])
def test_functions_of_one_name_are_refused_as_their_order_would_tell_whose_numbers_are_whose(
    tmp_path: Path, names: tuple[str, ...], known: Manifest | None
) -> None:
    with pytest.raises(InvalidConfiguration, match=r"two functions .* name=") as caught:
        Checked(tmp_path, known).start(*names)
    if known is not None and "" in names:
        assert "what was 'foreach#2' goes on as name='foreach#2'" in str(caught.value)


def test_functions_that_were_told_apart_by_their_order_go_on_by_what_they_were_called(tmp_path: Path) -> None:
    job = Checked(tmp_path, called(("foreach", 3), ("foreach#2", 9)))

    assert job.start("foreach", "foreach#2") == [4, 10]
    assert job.start("foreach#2", "foreach") == [10, 4]
    assert job.start("foreach#2", "") == [10, 4]
    assert job.start("foreach#2") == [10]


def test_the_second_of_two_does_not_take_the_numbers_of_the_first_when_that_is_removed(tmp_path: Path) -> None:
    job = Checked(tmp_path, called(("foreach", 3), ("foreach#2", 9)))

    with pytest.raises(SinkMissing, match=r"'foreach#2'.*name='foreach#2'"):
        job.start("")
    assert job.start("", dropped=("foreach#2",)) == [4]


def test_a_job_without_functions_says_nothing_of_those_it_had(tmp_path: Path) -> None:
    assert Checked(tmp_path, called(("foreach", 3), ("foreach#2", 9))).start() == []


def test_a_function_that_is_dropped_is_forgotten(tmp_path: Path) -> None:
    term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
    latest = called(("foreach:a", 3), ("foreach:b", 9))
    checkpoint, sink = Checkpoint(directory(str(tmp_path))), sinks.foreach(lambda rows, number: None, "c")

    for dropped, kept in (((), {"foreach:a", "foreach:b"}), (("foreach:a",), {"foreach:b"})):
        outputs = Outputs([sink], checkpoint, latest, term=term, fsync=False, dropped=dropped)
        outputs.begin()
        assert set(outputs.write([Rows(1)], 58, silent=False)) == {*kept, "foreach:c"}


def test_two_outputs_to_one_topic_need_names_as_the_note_of_one_would_be_taken_for_that_of_the_other(tmp_path: Path):
    checkpoint = Checkpoint(directory(str(tmp_path)))
    one, two, other = (Noted(whole=True, label=f"kafka:{name}") for name in ("out", "out", "other"))

    assert claim([one, other], checkpoint, "job", None, ()) == 0
    with pytest.raises(InvalidConfiguration, match=r"one place \(kafka:out\)\..* to one topic.* name=\.\.\."):
        claim([one, two], checkpoint, "job", None, ())


def test_sinks_let_go_of_what_they_hold_when_the_run_ends_whatever_one_of_them_says(tmp_path: Path) -> None:
    gone: list[str] = []

    def refuses() -> None:
        gone.append("refuses")
        raise ConnectionError("away")

    several = [
        Noted(whole=True, let_go=lambda: gone.append("first")),  # type: ignore[arg-type]
        Noted(whole=True),
        Noted(whole=True, let_go=refuses),  # type: ignore[arg-type]
        Noted(whole=True, let_go=lambda: gone.append("last")),  # type: ignore[arg-type]
    ]
    term = Term(number=1, run="run", job="job", host="host", pid=1, time_ms=0, instances=1, reading={})
    outputs = Outputs(several, Checkpoint(directory(str(tmp_path))), None, term=term, fsync=False)  # type: ignore[arg-type]
    outputs.close()
    assert sorted(gone) == ["first", "last", "refuses"]
