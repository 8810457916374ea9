"""What the page on power cuts says of the histories is what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "power-cuts.md").read_text(encoding="utf-8")
MEASURED = json.loads((ROOT / "bench" / "results" / "histories.json").read_text(encoding="utf-8"))
WORDS = {"One": 1, "Two": 2, "Three": 3, "Four": 4}


def table() -> dict[str, str]:
    """Give what is left out, and after how many histories one is broken."""
    rows = [re.fullmatch(r"\| (.+) \| (\d+|not within 1,000) \|", line) for line in PAGE.splitlines()]
    return {row[1]: row[2] for row in rows if row}


def test_the_table_has_what_was_measured() -> None:
    for one in MEASURED["mutants"]:
        after = one["caught after"]
        assert table()[one["without"]] == ("not within 1,000" if after is None else str(after)), one["without"]


def test_the_page_counts_those_that_were_not_missed() -> None:
    said = re.search(r"^(\w+) (?:was|were) not missed\.", PAGE, re.MULTILINE)
    assert said
    assert WORDS[said[1]] == list(table().values()).count("not within 1,000")
