"""Which package rests on which: an import goes down the order below, never up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ferryman"
PAGE = ROOT / "docs" / "architecture.md"

# Lowest first.
ORDER = (
    "_model",
    "_os",
    "_sources",
    "_routing",
    "_state",
    "_operator",
    "_log",
    "_serve",
    "_migrate",
    "_scale",
    "_engine",
    "_spark",
    "_testing",
    "_demo",
    "_cli",
)
# Who needs Spark only through others of its package: streams and tasks that are Spark's, its private matters, its home.
THROUGH_OTHERS = {
    "ferryman._spark.api.pipeline",
    "ferryman._spark.api.rehearsal",
    "ferryman._spark.api.watermark_names",
    "ferryman._spark.plan.chaining",
    "ferryman._spark.plan.express_task",
    "ferryman._spark.processor.input_frames",
    "ferryman._spark.processor.output_frames",
    "ferryman._spark.session.class_archive",
    "ferryman._spark.session.local_cluster",
    "ferryman._spark.session.session_settings",
    "ferryman._spark.session.warm_workers",
    "ferryman._spark.sinks.rewound_sink",
}
# Who names Spark's types, for the type checker alone.
ONLY_TYPES = "_demo"


def imports(tree: ast.AST, *, types: bool = True) -> Iterator[str]:
    """Give the full names that a module imports; without `types`, those that it imports when it runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not types:
            yield from imports(ast.Module(node.orelse, []), types=types)
        else:
            yield from imports(node, types=types)


def read() -> dict[str, ast.Module]:
    """Read every module, by its full name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(("ferryman", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = read()


def package(name: str) -> str | None:
    """Give the package of the order that a module is in; None for a public module, or another's."""
    parts = name.split(".")
    return parts[1] if parts[0] == "ferryman" and len(parts) > 1 and parts[1] in ORDER else None


def is_spark(name: str) -> bool:
    return name.split(".")[0] in ("pyspark", "py4j")


def test_every_package_has_its_place() -> None:
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(ORDER)


def test_the_map_of_the_code_has_the_same_order() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Where the code lives")

    assert re.findall(r"^ {2}(_\w+)/", section, re.M) == list(ORDER)


def test_an_import_goes_down() -> None:
    found = [
        f"{module} -> {name}"
        for module, tree in MODULES.items()
        for name in imports(tree)
        if (own := package(module)) and (other := package(name)) and ORDER.index(other) > ORDER.index(own)
    ]

    assert not found, "\n".join(found)


def test_only_the_package_for_tests_has_what_is_for_tests() -> None:
    found = [
        f"{module} -> {name}"
        for module, tree in MODULES.items()
        for name in imports(tree)
        if package(name) == "_testing" and package(module) != "_testing" and module != "ferryman.testing"
    ]

    assert not found, "\n".join(found)


def test_only_one_package_knows_spark() -> None:
    found = [
        f"{module} -> {name}"
        for module, tree in MODULES.items()
        for name in imports(tree, types=package(module) != ONLY_TYPES)
        if is_spark(name) and package(module) != "_spark"
    ]

    assert not found, "\n".join(found)


def test_what_needs_no_spark_is_not_in_its_package() -> None:
    inside = {
        module: set(imports(tree, types=False)) for module, tree in MODULES.items() if package(module) == "_spark"
    }
    needing = direct = {module for module, names in inside.items() if any(map(is_spark, names))}
    grown = True
    while grown:
        # A name that is imported is a module's, or a module.
        reached = {
            module
            for module, names in inside.items()
            if any(name in needing or name.rpartition(".")[0] in needing for name in names)
        }
        grown = not reached <= needing
        needing = needing | reached
    only_words = {module for module, tree in MODULES.items() if len(tree.body) <= 1}

    found = sorted(set(inside) - needing - only_words)
    assert not found, "\n".join(found)
    # Each of these was thought about; one more may belong below.
    assert set(inside) - direct - only_words == THROUGH_OTHERS
