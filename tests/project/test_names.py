"""Names: a variable is a noun that says what it holds, and the fields of a wide record are named where it is built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ferryman"
# A record with more fields is built by keyword.
MOST_BY_PLACE = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def called_one(tree: ast.AST) -> Iterator[int]:
    """Give the lines where a variable or a parameter is called `one`; beside an `other`, that says enough."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "one" and isinstance(node.ctx, ast.Store):
            yield node.lineno
        elif isinstance(node, Function):
            names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if "one" in names and "other" not in names:
                yield node.lineno


def test_nothing_is_called_one() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in called_one(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("for one in rows: pass", True),
        ("[one for one in rows]", True),
        ("lambda one: one", True),
        ("def merge(self, one, other): pass", False),
        ("one_task = rows", False),
    ],
)
def test_the_name_is_found(code: str, found: bool) -> None:
    assert bool(list(called_one(ast.parse(code)))) is found


def is_wide(node: ast.AST) -> bool:
    """Tell whether a class is a record of more fields than anybody tells apart by their place, and can be so built."""
    if not isinstance(node, ast.ClassDef):
        return False
    made = [ast.unparse(decorator) for decorator in node.decorator_list if "dataclass" in ast.unparse(decorator)]
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    return bool(made) and len(fields) > MOST_BY_PLACE and "kw_only=True" not in made[0]


def test_a_wide_record_is_built_by_keyword() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and is_wide(node)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("head", "fields", "wide"),
    [
        ("@dataclass(frozen=True)", 7, True),
        ("@dataclass(frozen=True, kw_only=True)", 7, False),
        ("@dataclass", 6, False),
        ("", 7, False),
    ],
)
def test_a_wide_record_is_found(head: str, fields: int, wide: bool) -> None:
    body = "".join(f"\n    field_{number}: int" for number in range(fields))
    (node,) = ast.parse(f"{head}\nclass Record:{body}").body

    assert is_wide(node) is wide
