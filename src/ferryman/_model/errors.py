"""Everything that can go wrong, one class per thing, each with an ALL_CAPS error class.

A message says what happened, why, and what to do. Errors raised in a Python worker travel to the
driver as text inside Spark's own exception; `from_text` finds them there and gives back the class.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path

_END = "[/FERRYMAN]"
_PACKAGE = Path(__file__).resolve().parents[1]


class FerrymanError(Exception):
    """Base of every error Ferryman raises.

    Examples
    --------
    >>> from ferryman.errors import FerrymanError, UnknownOption
    >>> issubclass(UnknownOption, FerrymanError)
    True
    >>> UnknownOption.error_class
    'UNKNOWN_OPTION'
    """

    error_class = "FERRYMAN_ERROR"

    def __init_subclass__(cls) -> None:
        cls.error_class = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"[{self.error_class}] {self.message}"


class InvalidConfiguration(FerrymanError):
    """One or more settings are wrong; all of them are listed."""

    @classmethod
    def of(cls, faults: Iterable[str]) -> InvalidConfiguration:
        """Collect every fault into one error."""
        listed = list(faults)
        head = "1 setting is wrong" if len(listed) == 1 else f"{len(listed)} settings are wrong"
        return cls(head + ":" + "".join(f"\n  - {fault}" for fault in listed))


class UnknownOption(FerrymanError):
    """An option that does not exist."""


class ConnectSession(FerrymanError):
    """A session over Spark Connect, on which no job runs."""


class SourcesChanged(FerrymanError):
    """The sources of a job are not those that its checkpoint has read, and cannot take their places."""


class SourceRowsGone(FerrymanError):
    """Rows that a source was to give are not there any more."""


class SourceUnavailable(FerrymanError):
    """A source that cannot be read now: a topic that is not there, brokers that do not answer."""


class NullKey(FerrymanError):
    """A row whose key is null."""


class MissingKey(FerrymanError):
    """A key column that the stream does not have."""


class UnhashableKey(FerrymanError):
    """A key column of a type that cannot be a key."""


class KeysTooLarge(FerrymanError):
    """More bytes of keys at once than Arrow has room for."""


class ForeignCheckpoint(FerrymanError):
    """A checkpoint directory that belongs to another job, or is not Ferryman's."""


class NewerFormat(FerrymanError):
    """A checkpoint written by a newer Ferryman."""


class CorruptCheckpoint(FerrymanError):
    """A file of the checkpoint that is truncated, altered or unreadable."""


class MissingDelta(FerrymanError):
    """A file that a manifest names and the checkpoint does not hold."""


class EpochGone(FerrymanError):
    """An epoch that cannot be gone back to: forgotten, damaged, or never committed."""


class RewindUnfinished(FerrymanError):
    """A checkpoint that is on its way back to an earlier epoch, which was not finished."""


class CheckpointUnwritable(FerrymanError):
    """The checkpoint directory cannot be written: disk full, read-only, or no permission."""


class CheckpointUnreachable(FerrymanError):
    """The store of a checkpoint does not answer."""


class HomeUnwritable(FerrymanError):
    """The home, where a host keeps main copies, cannot be written: disk full, read-only, or no permission."""


class CheckpointInUse(FerrymanError):
    """Another job runs on this checkpoint."""


class CorruptIngestLog(FerrymanError):
    """A file of an ingest log that is altered, unreadable or gone."""


class IngestLogUnwritable(FerrymanError):
    """An ingest log cannot be written: disk full, read-only, or no permission."""


class IngestLogFull(FerrymanError):
    """An ingest log has as many bytes as it may have, and what is in it is not committed yet."""


class IngestLogInUse(FerrymanError):
    """Another job writes to this ingest log."""


class SourceRefused(FerrymanError):
    """A system that a source reads from refuses it: wrong credentials, no permission, or another in its place."""


class Superseded(CheckpointInUse):
    """A newer run has taken the checkpoint over; this one may not write any more."""


class UnfencedStorage(FerrymanError):
    """Storage that cannot keep two drivers apart."""


class SinkMissing(FerrymanError):
    """A committed epoch waits to be shown by a sink that the job no longer has, or rows of it are gone."""


class SinkAhead(FerrymanError):
    """A sink has rows of epochs that the checkpoint no longer has, and cannot take them back."""


class SchemaDrift(FerrymanError):
    """The rows do not fit the columns of the table that a sink writes to."""


class OperatorsChanged(FerrymanError):
    """The operators of the job are not those of its checkpoint."""


class StateSchemaChanged(FerrymanError):
    """An operator's key or state schema does not fit what its checkpoint holds."""


class NotOnStream(FerrymanError, AttributeError):
    """A name of Spark's DataFrame or GroupedData that a stream does not have; the message says what to write."""


class LookupFailed(FerrymanError):
    """A table that a job looks up cannot be read, is too large, or is not as it was declared."""


class OperatorFailed(FerrymanError):
    """A user's operator raised."""


class OutputMismatch(FerrymanError):
    """An operator's output or new state does not fit its declared schema."""


class LateOutput(FerrymanError):
    """An operator put out a row that is late already for the operators after it."""


class StateMisused(FerrymanError):
    """An operator used its state in a way that cannot be kept."""


class StaleTask(FerrymanError):
    """A task of an epoch that is over; its work is not wanted any more."""


class PinningLost(FerrymanError):
    """The plan of an epoch does not have one partition per instance."""


class InvalidPlan(FerrymanError):
    """A reconfiguration that cannot be, or would change nothing."""


class NothingMoves(InvalidPlan):
    """A reconfiguration that would change nothing, as everything is as it is to be."""


class PlanUnderWay(FerrymanError):
    """Another reconfiguration has not ended yet."""


class PeerFailed(FerrymanError):
    """A state host that is not there, refuses, stalls or sends what it should not."""


class JobFailed(FerrymanError):
    """A job ended with an error that is not Ferryman's own."""


class JavaMissing(FerrymanError):
    """No Java that Spark can run on."""


def to_text(error: FerrymanError) -> str:
    """Write an error so that `from_text` can find it in a longer text."""
    return f"[FERRYMAN:{type(error).__name__}]{error.message}{_raised_at(error)}{_END}"


def _raised_at(error: FerrymanError) -> str:
    """Say where the user's own code raised: from a worker nothing but text comes back."""
    if not isinstance(error, OperatorFailed) or error.__cause__ is None:
        return ""
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    own = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    return "\nIt was raised here:\n" + "".join(traceback.format_list(own)).rstrip() if own else ""


def from_text(text: str) -> FerrymanError | None:
    """Find an error written by `to_text` inside the text of Spark's exception."""
    found = re.search(r"\[FERRYMAN:(\w+)\](.*?)" + re.escape(_END), text, re.DOTALL)
    if found is None:
        return None
    return _kinds(FerrymanError).get(found[1], FerrymanError)(found[2])


def _kinds(cls: type[FerrymanError]) -> dict[str, type[FerrymanError]]:
    below = (name_of for kind in cls.__subclasses__() for name_of in _kinds(kind).items())
    return {cls.__name__: cls, **dict(below)}
