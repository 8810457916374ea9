"""The page on internals names files, functions and locks: every one of them is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferryman

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(ferryman.__path__[0])
PAGE = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\n]+)`", PAGE))
FILES = sorted(word for word in WORDS if re.fullmatch(r"[\w/]+(\.py|/)", word))
NAMES = sorted(word for word in WORDS if re.fullmatch(r"_[a-z]+(\.\w+)+", word))
THREADS = sorted(word for word in WORDS if re.fullmatch(r"ferryman-[a-z-]+", word))


def found(name: str) -> bool:
    """Tell whether there is something of a name: in a module, in a class, or given to itself by a class."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            holder = importlib.import_module(".".join(("ferryman", *parts[:end])))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if inspect.isclass(holder) and f"self.{part}" in inspect.getsource(holder):
                return True
            if not hasattr(holder, part):
                return False
            holder = getattr(holder, part)
        return True
    return False


def test_the_page_names_things() -> None:
    assert len(FILES) > 10
    assert len(NAMES) > 60


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_the_page_names_is_there(file: str) -> None:
    assert (PACKAGE / file).exists() or (ROOT / file).exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_page_is_there(name: str) -> None:
    assert found(name)


def test_every_thread_is_on_the_page_and_no_other() -> None:
    code = "".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py") if "_demo" not in file.parts)
    assert sorted(set(re.findall(r'name(?:_prefix)?="(ferryman-[a-z-]+)"', code))) == THREADS


WAITED_FOR = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}


def makes_lock(tree: ast.AST) -> bool:
    """Tell whether code makes something that threads wait for."""
    calls = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(name.removeprefix("threading.") in WAITED_FOR for name in calls)


def locks(tree: ast.AST, where: str, within: str = "") -> Iterator[str]:
    """Name the locks that a module makes: by module, or class; one that only a function has by the function."""
    globals_ = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from locks(node, f"{where}.{node.name}", "class")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = "method" if within == "class" else "function"
            yield from locks(node, where if inner == "method" else f"{where}.{node.name}", f"{inner} {node.name}")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and makes_lock(node.value):
            target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            kind, _, function = within.partition(" ")
            if target.startswith("self."):
                yield f"{where}.{target.removeprefix('self.')}"
            elif not kind or kind == "class":
                yield f"{where}.{target}"
            elif target not in globals_:
                yield f"{where}.{function}" if kind == "method" else where
        else:
            yield from locks(node, where, within)


def locks_of_the_code() -> set[str]:
    return {
        name
        for file in PACKAGE.rglob("*.py")
        for name in locks(
            ast.parse(file.read_text(encoding="utf-8")), ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        )
    }


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_lock_is_on_the_page() -> None:
    assert sorted(locks_of_the_code() - set(re.findall(r"`([^`\n]+)`", section("Locks")))) == []


def test_every_lock_on_the_page_is_made() -> None:
    in_process, _, between = section("Locks").partition("Between processes")
    listed = re.findall(r"^\| `(_[^`\n]+)`", in_process, re.MULTILINE)

    assert between
    assert len(listed) > 15
    assert sorted(set(listed) - locks_of_the_code()) == []


def test_a_lock_that_is_named_by_its_class_alone_is_there() -> None:
    short = set(re.findall(r"`([A-Z]\w+\.\w+)`", PAGE))

    assert short
    assert {name for name in short if not any(lock.endswith(f".{name}") for lock in locks_of_the_code())} == set()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("_guard = threading.Lock()", "here._guard"),
        ("class A:\n  def __init__(self):\n    self._a = [Condition() for _ in range(3)]", "here.A._a"),
        ("class A:\n  def run(self):\n    with x:\n      done = threading.Event()", "here.A.run"),
        ("def run():\n  done = threading.Event()", "here.run"),
    ],
)
def test_a_lock_is_found_wherever_it_is_made(code: str, name: str) -> None:
    assert list(locks(ast.parse(code), "here")) == [name]


def test_a_name_that_is_gone_is_noticed() -> None:
    assert not found("_engine.task.no_such")
    assert not found("_engine.no_such.run")
    assert not found("_spark.api.job.Job._no_such")
