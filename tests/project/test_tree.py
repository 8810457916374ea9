"""The tree itself: what no file may contain, and what every module must have."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

# Character classes keep these patterns from finding themselves.
MACHINE_PATH = re.compile(r"/[r]oot/|/[h]ome/\w|/[U]sers/\w|/[w]ork/(?:main|shared)|/[t]mp/venv")
REGISTRY = re.compile(r"[p]ythonhosted\.org|[p]ypi\.org/simple|--(?:extra-)?[i]ndex-url[ =]|--[f]ind-links[ =]")


def tracked() -> list[Path]:
    """List the files under version control, or, in a copy without it, those that would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0 and (ROOT / ".git").exists():
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    made = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not made & set(path.relative_to(ROOT).parts)]


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["machine path", "registry"])
def test_no_file_names_a_machine_or_a_registry(pattern: re.Pattern[str]) -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]

    assert found == []


@pytest.mark.parametrize(
    "text",
    ["see /ro" + "ot/x", "/ho" + "me/ann/x", "--index" + "-url x", "https://files.python" + "hosted.org/x"],
)
def test_the_patterns_find_what_they_are_for(text: str) -> None:
    assert MACHINE_PATH.search(text) or REGISTRY.search(text)


def test_the_lock_pins_every_dependency_and_names_no_place() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    declared = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M)
    assert declared is not None
    names = re.findall(r'^\s*"([a-z0-9-]+)', declared[1], re.M)

    assert "pyspark" in names
    assert [name for name in names if not re.search(rf"^{name}==\d", lock, re.M)] == []
    assert "://" not in lock
    assert " @ " not in lock


def test_every_module_says_what_it_is_for() -> None:
    assert SOURCES
    assert [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_module_is_longer_than_500_lines() -> None:
    assert [str(path.relative_to(ROOT)) for path in SOURCES if len(path.read_text().splitlines()) > 500] == []


def test_no_two_test_files_have_one_name() -> None:
    # pytest would collect only the first of them.
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []
