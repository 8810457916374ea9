"""What Spark keeps to itself is used in one place, `_spark/compat`: a new version of Spark is looked at there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ferryman"
COMPAT = SOURCE / "_spark" / "compat"

# Attributes of pyspark's objects.
ATTRIBUTES = {
    *("_jvm", "_jsc", "_jdf", "_jgd", "_jconf", "_jsparkSession", "_jspark", "_jseq", "_jc", "_jbroadcast", "_jsq"),
    *("_gateway", "_active_spark_context", "_instantiatedSession", "_pickled_broadcast_vars", "_broadcastRegistry"),
    *("_accumulatorRegistry", "_create_converter", "_sc", "_df"),
    *("_removed", "_updated", "_timeout_timestamp"),
    *("jvm", "_javaAccumulator", "_python_includes", "_collect_as_arrow"),
}
# Modules that Spark's documentation has not.
MODULES = {
    "pyspark.accumulators",
    "pyspark.core",
    "pyspark.daemon",
    "pyspark.find_spark_home",
    "pyspark.java_gateway",
    "pyspark.serializers",
    "pyspark.sql.classic",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas",
    "pyspark.sql.streaming.datasource",
    "pyspark.worker",
}


def private(tree: ast.AST) -> Iterator[str]:
    """Give what a module uses that is Spark's own matter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            # A module's own object may call something of its own the same.
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.keyword) and node.arg in ATTRIBUTES:
            yield f"line {node.value.lineno}: {node.arg}="
        elif isinstance(node, ast.Import):
            yield from (f"line {node.lineno}: import {name.name}" for name in node.names if _is_private(name.name))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("pyspark", "py4j"):
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                if _is_private(whole) or name.name.startswith("_"):
                    yield f"line {node.lineno}: {whole}"


def _is_private(name: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in MODULES)


def test_what_spark_keeps_to_itself_is_used_in_one_place() -> None:
    found = [
        f"{path.relative_to(SOURCE)} {use}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.is_relative_to(COMPAT)
        for use in private(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "spark.sparkContext._jvm",
        "SparkConf(_jvm=gateway)",
        "gateway.jvm.java.lang.Class",
        "frame._collect_as_arrow()",
        "from pyspark.sql.pandas.types import to_arrow_schema",
        "from pyspark import daemon",
        "import pyspark.java_gateway",
        "from pyspark.sql import _anything",
    ],
)
def test_a_use_is_found(code: str) -> None:
    assert list(private(ast.parse(code)))


def test_every_function_says_where_it_was_tried() -> None:
    silent = [
        f"{path.name}: {node.name}"
        for path in sorted(COMPAT.glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if "4.3" not in (ast.get_docstring(node) or "")
    ]

    assert not silent, "\n".join(silent)
