"""The pages as a whole: their order, their links, and that what they list is all there is."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from bench import against
from click import Group

import ferryman
from ferryman._cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
BENCHMARKS = ROOT / "bench" / "README.md"
PROSE = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", BENCHMARKS]
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_index_has_every_page_in_the_order_of_the_site() -> None:
    listed = [name.removeprefix("../") for name in LINK.findall(page("index.md"))]
    nav = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert ["index.md", *listed] == nav
    assert {path.name for path in PAGES} == {name for name in nav if "/" not in name}


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


LEFT_OPEN = re.compile(r"\b(?:FIGURES?|TODO|TBD|FIXME|XXX+)\b")


@pytest.mark.parametrize("path", [*PROSE, ROOT / "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_word_is_left_that_stands_for_what_was_to_come(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [(number, line) for number, line in enumerate(lines, 1) if LEFT_OPEN.search(line)] == []


# What programs write: one page, and the command that a table was made with.
WRITTEN = DOCS / "evaluation.md"
COMMAND = "`ferryman bench state --keys"


@pytest.mark.parametrize(
    "path", [path for path in PROSE if path != WRITTEN], ids=lambda path: str(path.relative_to(ROOT))
)
def test_lines_are_short_but_for_tables_and_programs(path: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    # A name of a test cannot be cut.
    long = [line for line in prose.splitlines() if len(line) > 120 and " " in line.strip()]
    assert [line for line in long if not line.startswith(("|", COMMAND))] == []


def commands(group: Any, before: str = "ferryman") -> list[str]:
    """Name the commands as they are typed."""
    found = []
    for name, command in group.commands.items():
        typed = f"{before} {name}"
        found += commands(command, typed) if isinstance(command, Group) or hasattr(command, "commands") else [typed]
    return found


def test_the_page_on_the_command_line_has_every_command_and_no_other() -> None:
    there = set(commands(typer.main.get_command(app)))
    words = re.findall(r"^\| `(ferryman [^`]+)`", page("command-line.md"), re.MULTILINE)
    listed = {" ".join(part for part in word.split() if re.fullmatch(r"[a-z-]*[a-z]", part)) for word in words}
    listed = {re.sub(r" --.*", "", words) for words in listed}
    assert listed == there


def test_the_page_on_benchmarks_has_all_that_is_compared_with_earlier_code() -> None:
    section = BENCHMARKS.read_text(encoding="utf-8").split("## against\n")[1].split("\n## ")[0]
    assert {name for name in against.BENCHMARKS if f"`{name}`" not in section} == set()


@pytest.mark.parametrize(
    ("title", "call"),
    [("Ferry", ferryman.Ferry), ("Starting a job", ferryman.Ferry.start), ("The session", ferryman.session)],
)
def test_the_page_on_options_has_every_option_with_its_default(title: str, call: Callable[..., Any]) -> None:
    section = page("options.md").split(f"## {title}\n")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)? ?\|", section, re.MULTILINE))
    options = {
        name: "" if option.default is inspect.Parameter.empty else repr(option.default)
        for name, option in inspect.signature(call).parameters.items()
        if name not in ("self", "unknown")
    }
    assert listed == options


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="make install brings it")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for made in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?https?:[^"'> ]+""", made.read_text())
        assert fetched == [], made.name
