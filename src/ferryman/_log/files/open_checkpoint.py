"""Open a checkpoint to read it, beside a job that runs or without one: nothing is locked and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ferryman._log.files.checkpoint import Checkpoint, unreachable
from ferryman._log.files.directory import directory
from ferryman._log.files.remote import masked
from ferryman._model.errors import CorruptCheckpoint, ForeignCheckpoint


@contextmanager
def opened(path: str) -> Iterator[Checkpoint]:
    """Open a checkpoint to read; what the filesystem refuses becomes one of our errors."""
    try:
        yield Checkpoint(directory(path))
    except NotADirectoryError as error:
        raise ForeignCheckpoint(f"{masked(path)} is a file. Give the checkpoint directory of a job.") from error
    except BrokenPipeError:
        raise
    except ConnectionError as error:
        raise unreachable(masked(path), error) from error
    except OSError as error:
        raise CorruptCheckpoint(
            f"{masked(path)} cannot be read: {error.strerror or error}. Check the permissions and the disk."
        ) from error
