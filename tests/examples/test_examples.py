"""The scripts in examples/ run, print what they say, and are listed where people look."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHOWN = re.compile(r"It prints:\n\n(.*?)\n\"\"\"", re.DOTALL)


def printed(path: Path) -> str:
    """Give what a script says that it prints."""
    found = SHOWN.search(path.read_text(encoding="utf-8"))
    assert found is not None, f"{path.name} does not say what it prints"
    return "".join(f"{line.strip()}\n" for line in found[1].splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(spark: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In the session that is there, as a script of a notebook would.
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out == printed(path)


@pytest.mark.slow
def test_an_example_runs_as_a_script(tmp_path: Path) -> None:
    path = ROOT / "examples" / "spark_processor.py"
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_listed(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
    assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")
    assert f"examples/{path.name}" in (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")


def test_there_are_five() -> None:
    assert len(EXAMPLES) >= 5
