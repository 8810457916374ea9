"""The table of the page on migrating: of every method what was found out about it, and by which test."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating-from-transformWithState.md"

BESIDE = "same rows as Spark"
ALONE = "tested on Ferryman alone"

_LINE = re.compile(r"\| `(.+?)` \| `(.+?)` \| (.+?) \| `(.+?)` \|")


def lines() -> list[tuple[str, str, str]]:
    """List the table: "class.method", status, and the test that shows it."""
    between = PAGE.read_text().split("<!-- methods: begin -->\n")[1].split("<!-- methods: end -->")[0]
    matched = [_LINE.fullmatch(line) for line in between.splitlines()[2:]]
    return [(f"{match[1]}.{match[2]}", match[3], match[4]) for match in matched if match is not None]


def claims(test: str) -> list[tuple[str, str]]:
    """List what a test is said to show, with the status."""
    return [(method, status) for method, status, shown_by in lines() if shown_by == test]
