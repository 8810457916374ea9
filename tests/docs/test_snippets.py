"""Every Python snippet of README and docs runs; where the page shows its output, that is what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The programs of the format page need a checkpoint to read; tests/log/files/test_format_page.py runs them on one.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem != "checkpoint-format"),
]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\nIt prints:\n\n```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)

SNIPPETS = [
    pytest.param(code, output, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (code, output) in enumerate(BLOCK.findall(page.read_text()))
]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "output"), SNIPPETS)
def test_a_snippet_runs_and_prints_what_the_page_says(code: str, output: str, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "FERRYMAN_DOCS": str(ROOT / "docs")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    if output:
        assert done.stdout == output


def test_the_readme_shows_its_output() -> None:
    assert BLOCK.findall((ROOT / "README.md").read_text())[0][1]
