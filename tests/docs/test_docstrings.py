"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ferryman


def with_examples() -> list[str]:
    """Name the modules that have any to run."""
    root = Path(ferryman.__path__[0]).parent
    found = []
    for module in pkgutil.walk_packages(ferryman.__path__, "ferryman."):
        path = root / Path(*module.name.split("."))
        text = (path / "__init__.py" if module.ispkg else path.with_suffix(".py")).read_text()
        if any(">>>" in line and "+SKIP" not in line for line in text.splitlines()):
            found.append(module.name)
    return found


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_hold(spark: SparkSession, name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), extraglobs={"spark": spark})
    assert found.attempted
    assert not found.failed
