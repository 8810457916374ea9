"""What state hosts and their callers say to each other: JSON requests, Arrow batches, a token, a checksum per batch."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import xxhash

from ferryman._model.errors import PeerFailed
from ferryman._serve.auth import AUTHORIZATION

# A main copy travels in batches of about so many bytes: large enough to be fast, small enough that nobody has to wait
# long for the line, the store or a core because of one.
PIECE_BYTES = 1 << 20


# Main copies of several tables travel in one stream, group after group, as pieces: which table and group it is of, its
# number among theirs, the epoch that main is at (-1: there is none here), whether it is the last of its table and
# group, the rows, and a checksum of all that.
PIECES = pa.schema(
    [
        ("table", pa.string()),
        ("group", pa.int32()),
        ("number", pa.int32()),
        ("epoch", pa.int64()),
        ("last", pa.bool_()),
        ("rows", pa.large_binary()),
        ("checksum", pa.binary(8)),
    ]
)


@dataclass(frozen=True)
class Take:
    """Ask for the main copies of key groups, in this order or in one that is told later.

    Attributes
    ----------
    tables
        The store of each table.
    groups
        The key groups.
    bytes_per_s
        How fast they may come, where nobody waits for them; None for as fast as they can.
    lane
        A name by which another order can be told while they are being sent.
    """

    tables: Mapping[str, str]
    groups: tuple[int, ...]
    bytes_per_s: float | None = None
    lane: str = ""

    def bytes(self) -> bytes:
        """Write it."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Bring:
    """Ask a host to have key groups at an epoch, from a peer if one is named, else from the checkpoint.

    Attributes
    ----------
    tables
        The store of each table.
    groups
        The key groups, in the order they are wanted.
    to
        The epoch.
    peer
        Where the groups are now; None for the checkpoint.
    bytes_per_s
        How fast to take them from there, where nobody waits for them; None for as fast as can be.
    lane
        A name by which the peer can be told another order.
    """

    tables: Mapping[str, str]
    groups: tuple[int, ...]
    to: int
    peer: str | None = None
    bytes_per_s: float | None = None
    lane: str = ""

    def bytes(self) -> bytes:
        """Write it."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Reorder:
    """Tell a host in which order to send what it has not yet sent on a lane."""

    lane: str
    groups: tuple[int, ...]

    def bytes(self) -> bytes:
        """Write it."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Drop:
    """Ask a host to forget its main copies of key groups."""

    tables: Mapping[str, str]
    groups: tuple[int, ...]

    def bytes(self) -> bytes:
        """Write it."""
        return json.dumps(asdict(self)).encode()


def parse(kind: type[Any], data: bytes) -> Any:
    """Read a request; anything that is not one is refused."""
    try:
        raw = json.loads(data)
        if "groups" in raw:
            raw["groups"] = tuple(int(group) for group in raw["groups"])
        return kind(**raw)
    except (ValueError, TypeError, KeyError) as error:
        raise flight.FlightServerError(f"this is not a request for {kind.__name__}: {error}") from error


@dataclass(frozen=True)
class Head:
    """Say of a piece what it is a piece of."""

    table: str
    group: int
    number: int
    epoch: int
    last: bool

    def digest(self, rows: bytes | memoryview) -> bytes:
        """Give the checksum of a piece with this head and these rows."""
        whole = xxhash.xxh3_64(json.dumps(asdict(self)).encode())
        whole.update(rows)
        return whole.digest()


def piece(head: Head, rows: pa.RecordBatch | None) -> pa.RecordBatch:
    """Wrap some rows of a main copy."""
    data = b"" if rows is None else memoryview(rows.serialize())
    values = [*([value] for value in asdict(head).values()), [data], [head.digest(data)]]
    return pa.RecordBatch.from_arrays(
        [pa.array(value, field.type) for value, field in zip(values, PIECES, strict=True)], schema=PIECES
    )


def cut(part: pa.Table) -> Iterator[pa.RecordBatch]:
    """Cut a main copy into batches of about the size of a piece."""
    for batch in part.to_batches():
        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def unwrap(data: pa.RecordBatch, schemas: Mapping[str, pa.Schema]) -> tuple[Head, pa.RecordBatch | None]:
    """Take a piece apart; altered or alien bytes are refused."""
    if data.num_rows != 1 or any(column.null_count for column in data.columns):
        raise ValueError("it sent something else than a piece of a main copy")
    *values, rows, checksum = (column[0].as_py() for column in data.columns)
    head = Head(*values)
    if head.digest(rows) != checksum:
        raise ValueError("bytes were altered on the way")
    if head.table not in schemas:
        raise ValueError(f"there is no table {head.table!r}")
    if not rows:
        return head, None
    batch = pa.ipc.read_record_batch(pa.py_buffer(rows), schemas[head.table])
    batch.validate(full=True)
    return head, batch


class Token(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Let in only who knows the token: of a state host, its job; of a job's control endpoint, a shell of its user."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}"

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
        """Refuse a call without the token."""
        given = next((values[0] for name, values in headers.items() if name.lower() == AUTHORIZATION), "")
        if not hmac.compare_digest(given.encode(), self._expected.encode()):
            raise flight.FlightUnauthenticatedError(
                "the call did not bring this job's token. A state host serves its own job alone, and a job the "
                "commands of its own user"
            )


def failed(location: str, error: BaseException) -> PeerFailed:
    """Say that a peer could not be used."""
    text = str(error).strip().splitlines()
    return PeerFailed(
        f"the state host at {location} did not do what it was asked to: {text[0] if text else type(error).__name__}. "
        "What it has is in the checkpoint too, and is taken from there."
    )
