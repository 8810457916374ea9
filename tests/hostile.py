"""Alter a small checkpoint as somebody would who wants harm, with right checksums, and use all that reads one.

Run as a program, it tries altered checkpoints one after the other and says on each line what came of one. A program of
its own, as what it looks for may end the process: `python hostile.py SEED SECONDS`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner
from written_log import hash_of

from ferryman import _cli
from ferryman._engine.outputs import Outputs
from ferryman._engine.recovery import take_over
from ferryman._engine.rewind_plan import plan_rewind
from ferryman._engine.sink import SinkStart
from ferryman._log.check.describe import describe, first_rows
from ferryman._log.check.verify import verify
from ferryman._log.check.way_back import with_way_back
from ferryman._log.files.cards import card_of, evolution_of, schemas_of
from ferryman._log.files.checkpoint import Checkpoint, checksum
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.lock import CheckpointLock
from ferryman._log.files.mend_notes import mended, note_mended
from ferryman._log.files.rewind_note import unfinished_rewind
from ferryman._log.files.term import check_term, settle_term, take_term
from ferryman._log.fold.advance import advance
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.group_bytes import StateWeight
from ferryman._log.fold.mend_snapshots import mend_snapshots
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._log.spark_log.agreement import batch_time, check_agreement
from ferryman._log.spark_log.file_order import files_by_age, hashes
from ferryman._log.spark_log.log_files import SparkLogKeeper, text_of, values_of
from ferryman._log.spark_log.mend import mend_spark_log
from ferryman._model.card import JobCard
from ferryman._model.errors import FerrymanError, MissingDelta
from ferryman._model.held_rows import HeldRows
from ferryman._model.manifest import Manifest, OperatorRecord
from ferryman._model.routing import Pin, RoutingTable
from ferryman._model.watermarks import Watermarks
from ferryman._spark.sinks.parquet import ATTEMPTS, ParquetSink, read_parquet
from ferryman._spark.sinks.sinks import FunctionSink, NoSink
from ferryman._state import store as stores
from ferryman._state.earlier_columns import Evolution
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import HASH, delta_schema

JOB = "0" * 32
GROUPS = 8
LAST = 5
# What reading any altered checkpoint may cost at the most, beyond what reading the sound one does.
MOST_SECONDS = 30
MOST_BYTES = 400 << 20

KEY = KeySchema(pa.schema([("sensor", pa.string())]))
ENTRY = KeySchema(pa.schema([("sensor", pa.string()), ("at", pa.timestamp("us", "UTC"))]), entries=True)
NUMBERS = pa.schema([("n", pa.int64()), ("mean", pa.float64())])
NOTES = pa.schema([("note", pa.string()), ("tags", pa.list_(pa.string())), ("more", pa.struct([("d", pa.date32())]))])
TABLES = {"Columnar": (KEY, NUMBERS, "columnar"), "Notes": (KEY, NOTES, "lmdb"), "Notes.log": (ENTRY, NUMBERS, "lmdb")}


def write(root: Path) -> None:
    """Write a small checkpoint with all that one can have, and beside it what its sink has written."""
    checkpoint = Checkpoint(LocalDirectory(root))
    CheckpointLock(checkpoint.directory, "hostile").release()
    sink = ParquetSink(root.parent / "out")
    sink.claim(JOB)
    sink.begin(SinkStart(epoch=0, term=1))
    term = take_term(checkpoint, "run", "hostile", reading={"cores": "2"})
    settle_term(checkpoint, term, None)
    defaults = Evolution(pa.table({"mean": pa.array([0.5])}), {"note": ("text",)})
    cards = {name: card_of(name.split(".")[0], key, state) for name, (key, state, _) in TABLES.items()}
    cards["Columnar"] = card_of("Columnar", KEY, NUMBERS, defaults)
    checkpoint.create(JobCard(JOB, "hostile", GROUPS, cards))
    routing = RoutingTable.even(1, GROUPS, 2)
    for epoch in range(1, LAST + 1):
        tables = {}
        for name, (key, state, _) in TABLES.items():
            rows = _rows(key, state, epoch)
            owners = np.array(routing.owner)[np.mod(rows.column(HASH).to_numpy(), GROUPS)]
            parts = [(instance, rows.filter(pa.array(owners == instance))) for instance in range(2)]
            tables[name] = tuple(checkpoint.write_delta(epoch, name, instance, part) for instance, part in parts)
        held = {}
        if epoch == LAST:
            waiting = pa.table({HASH: pa.array([0, 8, 1], pa.int64()), "v": ["a", "b", "c"]})
            held = {
                "Columnar": (HeldRows(checkpoint.write_held(epoch, "Columnar", 0, waiting), epoch, (0, 1), (2, 1)),)
            }
            routing = RoutingTable(2, 2, routing.owner, (Pin(hash_of("s0"), 1, "s0"),))
        record = {name: OperatorRecord(9, 9, 9) for name in ("Columnar", "Notes")}
        written = {sink.label: written_by(sink, epoch), "foreach": {"number": epoch - 1}, "none": {}}
        _begin_batch(root, epoch - 1)
        checkpoint.commit(
            Manifest(
                epoch=epoch,
                batch=epoch - 1,
                silent=False,
                time_ms=1_700_000_000_000 + epoch,
                routing=routing,
                operators=record,
                tables=tables,
                sinks={
                    name: {"told": name == sink.label, "path": "out", "written": what} for name, what in written.items()
                },
                watermarks=Watermarks({"t": 5}, 4, 5),
                offsets=({"p": {"0": epoch}}, {"logOffset": epoch - 1}),
                held=held,
                term=term.number,
                spark=SparkLogKeeper(checkpoint, sync=False).take(epoch - 1, checkpoint.latest()),
            )
        )
        (root / "spark" / "commits" / f"{epoch - 1}").write_text('v1\n{"nextBatchWatermarkMs":0}')
        if epoch < LAST:
            sink.commit(epoch, written[sink.label])
            checkpoint.tell(epoch, term.number)
        if epoch == 2:
            write_snapshot(checkpoint, epoch)
    note_mended(checkpoint, ["snapshots/000000000002-Notes-00000-0.parquet"])
    checkpoint.intend(LAST + 1, 1_700_000_000_009)
    # Spark has begun a batch more, and the sink was not told of the last epoch.
    _begin_batch(root, LAST)


def written_by(sink: ParquetSink, epoch: int) -> dict[str, Any]:
    """Have a sink write an epoch, as Spark would."""
    attempt = sink.attempt(epoch)
    folder = Path(sink.path) / ATTEMPTS / attempt
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [epoch]}), folder / "part-00000.parquet")
    return sink.written(attempt, StructType([StructField("n", LongType())]).json())


def _begin_batch(root: Path, batch: int) -> None:
    """Do what Spark does before a batch of two sources, of which one reads files."""
    for folder in ("offsets", "commits", "sources/1"):
        (root / "spark" / folder).mkdir(parents=True, exist_ok=True)
    (root / "spark" / "metadata").write_text('{"id":"feac7f31-bcc8-484a-adda-39e40c503123"}')
    notes = [{"path": f"file:///in/{batch}-{part}", "timestamp": 9 - part, "batchId": batch} for part in range(2)]
    (root / "spark" / "sources" / "1" / f"{batch}").write_text("\n".join(["v1", *map(json.dumps, notes)]))
    told = ["v1", {"batchTimestampMs": 5}, {"p": {"0": batch + 1}}, {"logOffset": batch}]
    lines = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in told)
    (root / "spark" / "offsets" / f"{batch}").write_text(lines)


def _rows(key: KeySchema, state: pa.Schema, epoch: int) -> pa.Table:
    names = [f"s{number}" for number in range(12)]
    columns: dict[str, Any] = {
        HASH: [hash_of(name) for name in names],
        "_deleted": [epoch > 1 and number % 5 == epoch % 5 for number in range(12)],
        "sensor": names,
        "at": [1_000_000 * epoch] * 12,
        "n": range(12),
        "mean": [0.5] * 12,
        "note": [f"note {epoch}"] * 12,
        "tags": [["a", "b"], None, []] * 4,
        "more": [{"d": 5}, None, {"d": None}] * 4,
    }
    schema = delta_schema(key, state)
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


# -- altering --------------------------------------------------------------------------------------


def rewrite(root: Path, name: str, body: Any, text: str | None = None) -> None:
    """Write a JSON file anew, with its checksum."""
    body = text if text is not None else json.dumps(body, separators=(",", ":"))
    (root / name).write_text(f'{{"checksum":"{checksum(body.encode())}","body":{body}}}\n')


def body(root: Path, name: str) -> Any:
    """Read what is in a JSON file."""
    return json.loads((root / name).read_text())["body"]


def replace(root: Path, name: str, data: bytes, **said: Any) -> None:
    """Write a file anew, and name it with its new checksum wherever it is named."""
    (root / name).write_bytes(data)
    for listed in (*root.glob("manifests/*.json"), *root.glob("snapshots/*.json")):
        raw = body(root, (where := str(listed.relative_to(root))))
        if _rename(raw, name, {"checksum": checksum(data), "bytes": len(data), **said}):
            rewrite(root, where, raw)


def _rename(raw: Any, name: str, said: dict[str, Any]) -> bool:
    if isinstance(raw, dict) and raw.get("file") == name:
        raw.update(said)
        return True
    inner = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else ()
    return sum(_rename(item, name, said) for item in inner) > 0


DEEP = json.loads("[" * 90 + "]" * 90)
WILD: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    7,
    8,
    255,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63),
    2**70,
    10**9,
    0.5,
    1e308,
    math.nan,
    "",
    "x",
    "../../../etc/passwd",
    "/etc/passwd",
    "deltas/../../secret",
    "a\x00b",
    "\ud800",
    "²",
    [],
    {},
    [[0, 10**9]],
    [[0, 8]],
    [[0, 4], [1, 4]],
    {"a": []},
    DEEP,
    [None] * 9,
    "A" * 5000,
    "deltas",
    ".",
    "int64",
)


def alter_json(root: Path, dice: random.Random) -> str:
    """Change one value somewhere in one of the JSON files, or the text of it."""
    names = [str(file.relative_to(root)) for file in sorted(root.rglob("*.json"))]
    name = dice.choice(names)
    if dice.random() < 0.03:
        depth = dice.choice((200, 5000, 200_000))
        rewrite(root, name, None, text='{"epoch":' + "[" * depth + "]" * depth + "}")
        return f"{name}: {depth} deep"
    raw = body(root, name)
    at, path = raw, []
    while True:
        keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = dice.choice(keys)
        path.append(key)
        if isinstance(at[key], (dict, list)) and at[key] and dice.random() < 0.85:
            at = at[key]
            continue
        kind = dice.random()
        if kind < 0.1 and isinstance(at, dict):
            del at[key]
        elif kind < 0.15 and isinstance(at, list):
            at.extend(at[:])
        elif kind < 0.2 and isinstance(at, dict):
            at[dice.choice(("x", "../x", "format", "\x1b[31m"))] = at[key]
        elif kind < 0.3 and isinstance(at[key], int):
            at[key] += dice.choice((-1, 1, 256, 2**40))
        elif kind < 0.6 and key in ("schema", "defaults"):
            at[key] = base64.b64encode(damage(bytearray(base64.b64decode(at[key])), dice)).decode()
        elif kind < 0.45:
            at[key] = at[dice.choice(keys)]
        else:
            at[key] = dice.choice(WILD)
        break
    rewrite(root, name, raw)
    return f"{name}: {path}"


def damage(data: bytearray, dice: random.Random) -> bytearray:
    """Change some bytes: single ones, and numbers where numbers may be."""
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        if not data:
            break
        kind = dice.random()
        if kind < 0.4:
            data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif kind < 0.9 and len(data) > 16:
            size, code = dice.choice(((4, "<i"), (8, "<q"), (2, "<h")))
            top = (1 << (8 * size - 1)) - 1
            value = dice.choice((0, 1, -1, 7, 64, 1000, top, -top, top // 2, len(data), dice.randrange(top)))
            start = dice.randrange((len(data) - 8) // 2) * 2
            struct.pack_into(code, data, start, value)
        elif kind < 0.95:
            start = dice.randrange(len(data))
            del data[start : start + dice.choice((1, 8, 64))]
        else:
            start, end = sorted(dice.randrange(len(data)) for _ in range(2))
            data[start:end] = data[start:end] * 2
    return data


def alter_bytes(root: Path, dice: random.Random) -> str:
    """Change bytes of a delta, of held rows, or of a snapshot's file."""
    files = [*sorted(root.glob("deltas/*.arrow")), *sorted(root.glob("snapshots/*.parquet")), *root.glob("held/*")]
    name = str(dice.choice(files).relative_to(root))
    replace(root, name, bytes(damage(bytearray((root / name).read_bytes()), dice)))
    return f"{name}: bytes"


def alter_rows(root: Path, dice: random.Random) -> str:
    """Write a delta or a snapshot's file that is sound in itself, with other rows, columns or encodings."""
    parquet = dice.random() < 0.4
    files = sorted(root.glob("snapshots/*.parquet" if parquet else "deltas/*.arrow"))
    name = str(dice.choice(files).relative_to(root))
    rows = pq.read_table(root / name) if parquet else pa.ipc.open_file(str(root / name)).read_all()
    kind, place = dice.randrange(9), dice.randrange(rows.num_columns)
    column = rows.schema.field(place)
    if kind == 0:
        rows = rows.drop_columns([column.name])
    elif kind == 1:
        rows = rows.append_column(column.name, rows.column(place))
    elif kind == 2:
        rows = rows.set_column(place, column.name, pa.nulls(rows.num_rows, column.type))
    elif kind == 3:
        wild = dice.choice((pa.string(), pa.int8(), pa.binary(), pa.null(), pa.list_(pa.null()), pa.date64()))
        rows = rows.set_column(place, pa.field(column.name, wild), pa.nulls(rows.num_rows, wild))
    elif kind == 4:
        rows = pa.concat_tables([rows] * 3)
    elif kind == 5:
        with contextlib.suppress(pa.ArrowException):
            rows = rows.set_column(place, column.name, rows.column(place).combine_chunks().dictionary_encode())
    elif kind == 6:
        rows = rows.slice(0, 0)
    elif kind == 7:
        rows = rows.set_column(0, HASH, pa.array([dice.choice((-(2**63), 2**63 - 1, 0))] * rows.num_rows, pa.int64()))
    elif kind == 8:
        rows = pa.concat_tables([rows.slice(0, 1)] * 200_000).combine_chunks()
    sink = io.BytesIO()
    if parquet:
        groups = dice.choice((b"[0]", b"[0,1,2,3,4,5,6,7]", b"[-1]", b"[1e9]", b"{}", b"[" * 9999, b"[0,0]"))
        meta = {} if dice.random() < 0.2 else {b"ferryman.groups": groups}
        pq.write_table(rows.replace_schema_metadata(meta), sink, compression=dice.choice(("zstd", "none", "gzip")))
    else:
        options = pa.ipc.IpcWriteOptions(compression=dice.choice((None, None, "zstd", "lz4")))
        with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
    data = sink.getvalue()
    if dice.random() < 0.2:
        data = bytes(damage(bytearray(data), dice))
    replace(root, name, data, **({"rows": rows.num_rows} if dice.random() < 0.7 else {}))
    return f"{name}: rows {kind}"


def alter_names(root: Path, dice: random.Random) -> str:
    """Put files where none belong, or have others for them."""
    number = dice.choice(("999999999999", "999999999999999999", "0000000000003", "9" * 40, "²" * 12))
    folder = dice.choice(("manifests", "snapshots", "spark/commits", "spark/offsets"))
    name = f"{folder}/{number}" + ("" if folder.startswith("spark") else ".json")
    kind = dice.randrange(4)
    if kind == 0:
        (root / name).write_bytes(b"{}")
    elif kind == 1:
        shutil.copy(root / f"manifests/{LAST:012d}.json", root / name)
    elif kind == 2:
        victim = dice.choice([file for file in sorted(root.rglob("*")) if file.is_file()])
        victim.unlink()
        dice.choice((lambda: victim.mkdir(), lambda: victim.symlink_to("/dev/zero"), lambda: os.mkfifo(victim)))()
        name = str(victim.relative_to(root))
    else:
        raw = body(root, f"manifests/{LAST:012d}.json")
        raw["epoch"] = int(number) if number.isascii() else 1
        rewrite(root, f"manifests/{number[:18]}.json", raw)
    return f"{name}: name {kind}"


def alter_plain(root: Path, dice: random.Random) -> str:
    """Change what has no checksum: a file of Spark's log, or one of those that a sink keeps."""
    files = sorted(file for file in (root / "spark").rglob("*") if file.is_file())
    file = dice.choice(files + sorted((root.parent / "out" / "_ferryman").glob("*.json")))
    kind = dice.random()
    if kind < 0.3:
        file.write_bytes(damage(bytearray(file.read_bytes()), dice))
        return f"{file.name} in {file.parent.name}: bytes"
    lines = file.read_text().splitlines()
    place = dice.randrange(len(lines))
    depth = dice.choice((90, 5000, 200_000))
    wild = ["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "1e999", "NaN", "9" * 5000]
    try:
        raw = json.loads(lines[place])
    except ValueError:
        raw = None
    if isinstance(raw, dict) and raw and kind < 0.85:
        name = dice.choice(list(raw))
        inner = dice.choice((*WILD, *wild, *wild))
        if name == "schema" and dice.random() < 0.7:
            tree = json.loads(raw["schema"])
            tree["fields"][0][dice.choice(("name", "type", "nullable", "metadata"))] = dice.choice(WILD)
            inner = json.dumps(tree)
        elif name == "files" and dice.random() < 0.7:
            inner = [dice.choice(("..", ".", "", "a/b", "../../../victim/letter", "part-00000.parquet", 7, None))]
        elif name == "attempt" and dice.random() < 0.7:
            inner = dice.choice(("../../../victim", "..", "", raw["attempt"].replace("1", "2")))
        if inner in wild and dice.random() < 0.7:
            # As a value of JSON, and not as a text.
            rest = json.dumps({other: value for other, value in raw.items() if other != name})[1:]
            lines[place] = f'{{"{name}":{inner}{"," if rest != "}" else ""}{rest}'
        else:
            lines[place] = json.dumps({**raw, name: inner})
    else:
        lines[place] = dice.choice(wild)
    file.write_text("\n".join(lines))
    return f"{file.name} in {file.parent.name}: line {place}"


def alter_note(root: Path, dice: random.Random) -> str:
    """Have a rewind be under way, by a note that somebody else wrote."""
    moved = {**body(root, f"manifests/{LAST:012d}.json"), "epoch": LAST}
    label = next(name for name in moved["sinks"] if name.startswith("parquet"))
    raw = {"to": LAST - 1, "newest": LAST, "sinks": {label: str(root.parent / "out")}, "moved": moved}
    raw["moved"] = dice.choice((None, moved))
    kind = dice.choice(("", *raw))
    if kind == "sinks":
        raw["sinks"] = dice.choice(({label: str(root.parent / "victim")}, {"x": "../victim"}, *WILD))
    elif kind:
        raw[kind] = dice.choice(WILD)
    rewrite(root, "rewind.json", raw)
    return f"rewind.json: {kind}"


ALTERATIONS: tuple[Callable[[Path, random.Random], str], ...] = (
    alter_json,
    alter_json,
    alter_json,
    alter_bytes,
    alter_bytes,
    alter_bytes,
    alter_rows,
    alter_rows,
    alter_plain,
    alter_plain,
    alter_names,
    alter_note,
)


# What is no file any more cannot be altered again.
_LATER = (alter_bytes, alter_rows, alter_json, alter_note, alter_plain, alter_names).index

# -- using -----------------------------------------------------------------------------------------


def uses(root: Path, home: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give all that reads a checkpoint."""
    checkpoint = Checkpoint(LocalDirectory(root))

    def advanced(name: str) -> None:
        key, state, backend = TABLES[name]
        with contextlib.closing(stores.open(backend, home / name, key, state, GROUPS)) as store:
            every = np.arange(GROUPS)
            advance(store, checkpoint, name, every, LAST, key=key, state=state, total=GROUPS, evolution=evolution(name))
            for group in range(GROUPS):
                rows = store.scan(group, LAST)
                rows.validate(full=True)
                rows.column("sensor").to_pylist()

    def evolution(name: str) -> Evolution:
        return evolution_of(checkpoint.job_card().tables[name])

    def started() -> None:
        latest = checkpoint.latest()
        check_agreement(checkpoint, latest)
        for ones in latest.held.values() if latest else ():
            for rows in ones:
                checkpoint.read_delta(rows.file).column(0).to_pylist()
        StateWeight(checkpoint, GROUPS).by_group(latest.epoch if latest else 0)

    def files() -> None:
        latest = checkpoint.latest()
        texts = [
            *(latest.spark.offsets if latest else {}).items(),
            (LAST, text_of(checkpoint, f"spark/offsets/{LAST}")),
        ]
        before: tuple[Any, ...] = ()
        for _, text in texts:
            after = values_of(text or "")
            hashes(files_by_age(checkpoint, before, after))
            before = after

    def took_over(locked: bool) -> None:
        with CheckpointLock(checkpoint.directory, "hostile"):
            card = checkpoint.job_card()
            outputs = [ParquetSink(root.parent / "out"), FunctionSink(print), NoSink()]
            takeover = take_over(checkpoint, card, outputs, instances=2, reading={"cores": "2"}, locked=locked)
            check_term(checkpoint, takeover.term)
            Outputs(outputs, checkpoint, takeover.latest, term=takeover.term, fsync=not locked).begin()

    def described() -> None:
        card = checkpoint.job_card()
        for table in card.tables.values():
            schemas_of(table)
        json.dumps(describe(checkpoint).json(), default=str)
        for name in card.tables:
            first_rows(checkpoint, name, LAST, 5).to_pydict()

    def command(*line: str) -> None:
        done = CliRunner().invoke(_cli.app, list(line))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception

    def rewound(*options: str) -> None:
        # One that was begun is finished, by a note that may be altered.
        begun = unfinished_rewind(checkpoint)
        if begun is not None:
            options = ("--keep-offsets",) if begun.moved else ()
        command("rewind", str(root), "--to-epoch", str(begun.to if begun else LAST), "--yes", *options)

    def mended_all() -> None:
        names = [f"snapshots/{name}" for name in checkpoint.directory.list("snapshots")]
        mend_snapshots(checkpoint, checkpoint.job_card(), names)
        mended(checkpoint)

    yield "verify", lambda: verify(checkpoint).json()
    yield "describe", described
    yield "start", started
    for name in TABLES:
        yield f"advance {name}", lambda name=name: advanced(name)
        yield f"rebuild {name}", lambda name=name: rebuild(checkpoint, name, LAST).to_pylist()
    yield "ferryman state", lambda: command("state", str(root), "--operator", "Notes")
    yield "ferryman state --json", lambda: command("state", str(root), "--operator", "Notes.log", "--json")
    yield "ferryman verify", lambda: command("verify", str(root))
    yield "snapshot", lambda: write_snapshot(checkpoint, LAST)
    yield "prune", lambda: prune(checkpoint, LAST)
    yield "files", files
    yield "batch", lambda: (SparkLogKeeper(checkpoint, sync=True).take(LAST, None), batch_time(checkpoint, LAST))
    yield "rows of the sink", lambda: read_parquet(_NoSession(), root.parent / "out")  # type: ignore[arg-type]
    yield "mend", lambda: mend_spark_log(checkpoint, checkpoint.latest())
    yield "way back", lambda: with_way_back(checkpoint, MissingDelta("deltas/x is missing."))
    yield "mend snapshots", mended_all
    yield "plan of a rewind", lambda: plan_rewind(checkpoint, checkpoint.job_card(), LAST)
    yield "unfinished rewind", lambda: unfinished_rewind(checkpoint)
    for locked in (True, False):
        yield f"take over, locked {locked}", lambda locked=locked: took_over(locked)
    yield "rewind", rewound
    yield "rewind with offsets", lambda: rewound("--keep-offsets")


class _NoSession:
    """Read nothing, in the place of a SparkSession."""

    read = property(lambda self: self)

    def schema(self, schema: StructType) -> _NoSession:
        """Take the columns."""
        schema.simpleString()
        return self

    def parquet(self, *files: str) -> list[str]:
        """Take the files."""
        return [*files]

    def createDataFrame(self, rows: list[Any], schema: StructType) -> list[Any]:
        """Take no rows."""
        return rows


def outside(root: Path) -> set[str]:
    """List what is beside a checkpoint and its sink: nothing may come or go there."""
    victim = root.parent / "victim"
    return {path.name for path in root.parent.iterdir()} | {str(path) for path in victim.rglob("*")}


def laid_out(sound: Path, work: Path) -> Path:
    """Copy a sound checkpoint and its sink, beside what is no business of theirs; give the checkpoint."""
    for place in ("checkpoint", "out", "victim", "home"):
        shutil.rmtree(work / place, ignore_errors=True)
    (work / "victim").mkdir()
    (work / "victim" / "letter").write_text("dear")
    shutil.copytree(sound.parent / "out", work / "out")
    return shutil.copytree(sound, work / "checkpoint")


def chosen(dice: random.Random) -> list[Callable[[Path, random.Random], str]]:
    """Choose how to alter a checkpoint: in one way, or in two."""
    first, second = dice.choices(ALTERATIONS, k=2)
    return [first] if alter_json not in (first, second) or dice.random() < 0.7 else sorted([first, second], key=_LATER)


def attempt(seed: int, sound: Path, work: Path) -> list[str]:
    """Alter a checkpoint and use it; give what must not be."""
    dice = random.Random(seed)
    root, home = laid_out(sound, work), work / "home"
    done = [alter(root, dice) for alter in chosen(dice)]
    beside = outside(root)
    wrong = []
    for name, use in uses(root, home):
        began = time.monotonic()
        try:
            use()
        except FerrymanError:
            pass
        except Exception:
            wrong.append(f"{name}: {traceback.format_exc(limit=-3)}")
        if time.monotonic() - began > MOST_SECONDS:
            wrong.append(f"{name}: took {time.monotonic() - began:.0f} s")
    if outside(root) - {"home"} != beside - {"home"}:
        wrong.append("it wrote outside of its directory")
    return [f"seed {seed} ({'; '.join(done)}): {fault}" for fault in wrong]


def main() -> None:
    """Try seeds from the one given, for so many seconds."""
    first, seconds = int(sys.argv[1]), float(sys.argv[2])
    with tempfile.TemporaryDirectory() as place:
        sound, work = Path(place) / "sound", Path(place) / "work"
        work.mkdir()
        write(sound)
        for name, use in uses(laid_out(sound, work), work / "home"):
            print(f"sound: {name}", flush=True)
            use()
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        until, seed = time.monotonic() + seconds, first
        while time.monotonic() < until:
            print(f"seed {seed}", flush=True)
            signal.alarm(4 * MOST_SECONDS)
            for line in attempt(seed, sound, work):
                print(f"WRONG {line}", flush=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            if peak - base > MOST_BYTES:
                print(f"WRONG seed {seed}: memory grew by {(peak - base) >> 20} MB", flush=True)
                base = peak
            seed += 1
        print(f"tried {seed - first}", flush=True)


if __name__ == "__main__":
    main()
