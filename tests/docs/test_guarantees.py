"""Every promise names its test, and every test that is named is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 20


def rows_of_tables() -> list[str]:
    """Give the rows of the page's tables, without their heads."""
    lines = PAGE.splitlines()
    return [
        line
        for number, line in enumerate(lines)
        if line.startswith("|") and not line.startswith("| ---") and not lines[number + 1].startswith("| ---")
    ]


def test_every_row_names_a_test_or_says_that_it_is_not_tested() -> None:
    rows = rows_of_tables()
    silent = [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row) and "not tested" not in row]
    assert len(rows) > 20
    assert silent == []


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_the_page_names_is_there(file: str, name: str) -> None:
    path = ROOT / file
    assert path.is_file()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
