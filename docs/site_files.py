"""Have the site hold the results that its pages link to: they are beside docs/, in bench/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Add what was measured, and the page on it."""
    for path in (ROOT / "bench/README.md", *sorted((ROOT / "bench/results").iterdir())):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Have links lead to where these are in the site."""
    inside_bench = page.file.src_uri.startswith("bench/")
    return markdown.replace(*(("](../docs/", "](../") if inside_bench else ("](../bench/", "](bench/")))
