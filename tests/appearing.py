"""Files that appear whole: a stream may look into its folder at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def appear(path: Path, second: int, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, and let it appear with the time that it is to have.

    Spark takes files by their times. After one that it saw with the time of its writing, others are too old for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    write(draft)
    os.utime(draft, (second, second))
    draft.rename(path)
