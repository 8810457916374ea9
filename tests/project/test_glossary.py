"""The glossary and the tree: a module is named after a word of the glossary, or is a plain technical noun."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ferryman"
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
# The demo has a small world of its own, and the command line the names that are typed.
ELSEWHERE = {"_demo", "_cli"}
MODULES = sorted(
    path
    for path in SOURCE.glob("_*/**/*.py")
    if path.stem != "__init__" and path.relative_to(SOURCE).parts[0] not in ELSEWHERE
)
# What any engineer knows, or Spark, Python or a database calls so.
PLAIN = {
    *(
        "advice",
        "auth",
        "byte",
        "calls",
        "column",
        "estimate",
        "hash",
        "row",
        "time",
        "certificate",
        "choice",
        "client",
        "cluster",
        "codec",
        "code",
        "compile",
        "compiled",
    ),
    *(
        "contract",
        "conversion",
        "database",
        "dataframe",
        "ddl",
        "directory",
        "disk",
        "encryption",
        "environment",
        "error",
    ),
    *(
        "file",
        "frame",
        "generator",
        "hour",
        "interval",
        "java",
        "http",
        "kafka",
        "mqtt",
        "launch",
        "limit",
        "lock",
        "mapping",
        "memory",
        "name",
    ),
    *("option", "parquet", "process", "record", "remote", "schema", "session", "setting", "spec", "stderr", "struct"),
    *("type", "wire", "worker", "zone"),
    # Verbs and adjectives of Spark's own API, or of one that is known by them.
    *("admission", "batch", "grouped", "keyed", "partitioned", "read", "reconfiguring", "start", "wake"),
}


def plain(word: str) -> str:
    """Give the singular of a word."""
    for plural, singular in (("ies", "y"), ("ches", "ch"), ("sses", "ss"), ("opses", "opsis"), ("s", "")):
        if word.endswith(plural) and not word.endswith(("ss", "is")):
            return word[: -len(plural)] + singular
    return word


def terms(page: str) -> set[frozenset[str]]:
    """Give the terms of the glossary, each as its words."""
    listed = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)[2:]
    return {
        frozenset(plain(word) for word in re.findall(r"[a-z]+", term.lower()))
        for several in listed
        for term in several.split(",")
    }


TERMS = terms(PAGE)


def is_known(name: str) -> bool:
    """Tell whether a module has a term of the glossary in its name, or a plain noun."""
    words = {plain(word) for word in name.split("_")}
    return bool(words & {plain(word) for word in PLAIN}) or any(term <= words for term in TERMS)


def test_every_module_is_named_after_a_word_that_is_explained() -> None:
    assert [str(path.relative_to(SOURCE)) for path in MODULES if not is_known(path.stem)] == []


@pytest.mark.parametrize(("name", "known"), [("held_rows", True), ("silent_epochs", True), ("helper", False)])
def test_a_name_that_nobody_explains_is_found(name: str, known: bool) -> None:
    assert is_known(name) is known


def test_every_plain_noun_is_in_use() -> None:
    used = {plain(word) for path in MODULES for word in path.stem.split("_")}

    assert {word for word in PLAIN if plain(word) not in used} == set()


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`(_[\w/]+(?:\.py|/))`", PAGE))))
def test_a_file_that_the_glossary_names_is_there(file: str) -> None:
    assert (SOURCE / file).exists()
