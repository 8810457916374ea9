"""How a job is shown: in a notebook, on a terminal, and where the output is piped."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ferryman._engine.job_shown import JobTable, Watched, live, rows_per_s
from ferryman._engine.progress import EpochProgress
from ferryman.errors import JobFailed


def epoch(number: int, rows: int, committed_ms: int, operators: dict[str, Any] | None = None) -> EpochProgress:
    return EpochProgress(
        epoch=number,
        batch=number,
        silent=False,
        rows=rows,
        output=0,
        keys=0,
        duration_ms=50.0,
        busy_ms=1.0,
        delta_bytes=0,
        time_ms=committed_ms,
        committed_ms=committed_ms,
        watermark_ms=None,
        operators=operators or {},
    )


FACTS = {"rows": 1200, "keys": 7, "output": 3, "late": 0, "busy_ms": [1.0, 12.4]}


@dataclass
class Running(Watched):
    """What a job is to who shows it."""

    name: str = "sensors"
    active: bool = True
    instances: int = 3
    epochs: list[EpochProgress] = field(default_factory=list)
    error: BaseException | None = None
    asked: int = 0

    @property
    def epoch(self) -> int:
        return len(self.epochs)

    def progress(self) -> list[EpochProgress]:
        return list(self.epochs)

    def exception(self) -> BaseException | None:
        return self.error

    def wait_for(self, condition: Any, timeout: float | None = None) -> bool:
        self.asked += 1
        self.epochs.append(epoch(self.asked, 100, self.asked * 1000, {"Count": FACTS}))
        self.active = self.asked < 3
        return bool(condition())


def test_rows_per_second_are_those_of_the_newest_seconds() -> None:
    assert rows_per_s([]) == 0
    assert rows_per_s([epoch(1, 100, 1000)]) == 2000
    assert rows_per_s([epoch(number, 100, number * 1000) for number in range(1, 60)]) == 100
    # A quiet minute in between does not count for what came after it.
    assert rows_per_s([epoch(1, 9, 1000), epoch(2, 500, 61_000), epoch(3, 500, 61_500)]) == pytest.approx(1000 / 60.5)


def test_what_comes_from_a_job_is_text_in_a_notebook() -> None:
    shown = Running("<b>x</b>", epochs=[epoch(1, 1, 1, {"<script>alert(1)</script>": FACTS})])._repr_html_()

    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "&lt;b&gt;x&lt;/b&gt; runs: epoch 1, 20 rows/s, 3 instances" in shown
    assert "<td>1,200</td><td>7</td><td>3</td><td>0</td><td>12</td>" in shown


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (Running(), "sensors runs: epoch 0, 0 rows/s, 3 instances"),
        (Running(active=False, instances=1), "sensors has ended: epoch 0, 0 rows/s, 1 instance"),
        (Running(active=False, error=JobFailed("no rows.\nmore")), "sensors failed: [JOB_FAILED] no rows.: epoch 0, "),
    ],
)
def test_the_head_says_how_it_goes(job: Running, said: str) -> None:
    assert JobTable.of(job).head().startswith(said)


def test_where_the_output_is_piped_there_is_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    job = Running()

    assert job.watch()

    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "sensors runs: epoch 0",
        "sensors runs: epoch 1",
        "sensors runs: epoch 2",
        "sensors has ended: epoch 3",
    ]
    assert not Running().watch(timeout=0), "it still runs"


def test_who_stops_looking_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(Running):
        def wait_for(self, condition: Any, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    job = Interrupted()

    assert not job.watch()
    assert job.active


def test_a_terminal_has_one_table_that_is_written_anew() -> None:
    leader, follower = pty.openpty()
    chunks: list[bytes] = []

    def drain() -> None:
        while chunk := os.read(leader, 1 << 16):
            chunks.append(chunk)
            if b"the end" in chunk:
                return

    reader = threading.Thread(target=drain)
    reader.start()
    with os.fdopen(follower, "w") as out:
        with live(out) as show:
            for number in (1, 2):
                show(JobTable.of(Running(name="[red]x", epochs=[epoch(1, 1, 1, {"Count": FACTS})] * number)))
        print("the end", file=out, flush=True)
        reader.join()
    os.close(leader)
    text = b"".join(chunks).decode()
    assert re.search(r"\[red\]x runs: epoch 1", text)
    assert text.index("epoch 1") < text.index("\x1b[1A") < text.index("epoch 2"), "the cursor goes back in between"
    assert "Count" in text


def test_a_plain_file_has_lines() -> None:
    out = io.StringIO()
    with live(out) as show:
        show(JobTable.of(Running()))
        show(JobTable.of(Running()))
    assert out.getvalue() == "sensors runs: epoch 0, 0 rows/s, 3 instances\n"


@pytest.fixture
def published() -> Iterator[list[dict[str, Any]]]:
    """Be in a notebook: a shell of IPython's that belongs to a kernel, and what it is told to display."""
    pytest.importorskip("IPython", reason="make install brings it")
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.display_pub = CapturingDisplayPublisher()
    shell.kernel = object()
    try:
        yield shell.display_pub.outputs
    finally:
        InteractiveShell.clear_instance()


def test_a_notebook_has_one_display_that_is_updated(
    published: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert Running().watch()

    assert [output["update"] for output in published] == [False, True, True, True]
    assert len({output["transient"]["display_id"] for output in published}) == 1
    assert "has ended: epoch 3" in published[-1]["data"]["text/html"]
    assert capsys.readouterr().out == ""
