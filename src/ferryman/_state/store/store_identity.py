"""The directory of one store inside a home: whose it is, and starting afresh when it is not ours.

A store's files are not synced to disk, so after the machine restarts they may be a mixture of old and
new: they are only good for the boot that wrote them. Calls the filesystem and `locks`.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from ferryman._state.keys import KeySchema
from ferryman._state.store.locks import Locks

_FORMAT = 2
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def _fields(schema: pa.Schema) -> list[list[str]]:
    return [[field.name, str(field.type)] for field in schema]


def identity(backend: str, key: KeySchema, state: pa.Schema, groups: int) -> dict[str, object]:
    """Describe all that a store's files depend on."""
    return {
        "format": _FORMAT,
        "backend": backend,
        "boot": _BOOT.read_text().strip() if _BOOT.exists() else "",
        "key": _fields(key.fields),
        "state": _fields(state),
        "groups": groups,
    }


def claim(directory: Path, wanted: dict[str, object], furnish: Callable[[Path], None]) -> Path:
    """Give the directory with the store's files, new and empty if those there are of another identity.

    The files live in a directory of their own with a fresh name, so that a task of the former store
    that is still running cannot write into its successor. `furnish` puts into a new one what every
    process must find there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    record = directory / "identity.json"
    with Locks(directory / "opening.lock") as locks, locks.held_all():
        found = _read(record)
        files = directory / str(found.pop("files", ""))
        if found == wanted and files != directory and files.is_dir():
            return files
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
        files = directory / uuid.uuid4().hex
        files.mkdir()
        furnish(files)
        draft = directory / "identity.json.new"
        draft.write_text(json.dumps({**wanted, "files": files.name}, indent=1))
        os.replace(draft, record)
        return files


def backend_of(directory: Path) -> str | None:
    """Give the backend that a store's files are of; None where there are none."""
    found = _read(directory / "identity.json").get("backend")
    return None if found is None else str(found)


def _read(record: Path) -> dict[str, object]:
    try:
        content = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
