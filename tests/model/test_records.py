"""Records: what goes out as JSON comes back equal."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._model.card import FORMAT, JobCard, TableCard
from ferryman._model.delta import DeltaRef
from ferryman._model.json_values import MOST_TIME_MS
from ferryman._model.manifest import Manifest, OperatorRecord
from ferryman._model.routing import RoutingTable
from ferryman._model.snapshot import Snapshot, SnapshotFile
from ferryman._model.watermarks import Watermarks

COUNTS = st.integers(0, 2**63 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True)
FILES = NAMES.map("deltas/{}".format)
REFS = st.builds(DeltaRef, FILES, st.integers(0, 63), COUNTS, COUNTS, NAMES)
RECORDS = st.builds(OperatorRecord, COUNTS, COUNTS, COUNTS, COUNTS)
WATERMARKS = st.builds(
    Watermarks,
    st.dictionaries(NAMES, LONGS, max_size=2),
    st.none() | LONGS,
    st.none() | LONGS,
)
TABLES = st.integers(1, 16).flatmap(
    lambda instances: st.builds(
        RoutingTable,
        COUNTS,
        st.just(instances),
        st.lists(st.integers(0, instances - 1), min_size=1, max_size=64).map(tuple),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
SINKS = st.just({}) | st.fixed_dictionaries(
    {"told": st.booleans(), "path": st.text(), "written": st.dictionaries(st.text(), JSON, max_size=3)}
)
MANIFESTS = st.builds(
    Manifest,
    epoch=COUNTS,
    batch=st.integers(-1, 2**63 - 1),
    silent=st.booleans(),
    time_ms=st.integers(0, MOST_TIME_MS),
    routing=TABLES,
    operators=st.dictionaries(NAMES, RECORDS, max_size=3),
    tables=st.dictionaries(NAMES, st.lists(REFS, max_size=3).map(tuple), max_size=3),
    sinks=st.dictionaries(st.text(), SINKS, max_size=2),
    watermarks=WATERMARKS,
    offsets=st.lists(JSON, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(MANIFESTS)
def test_a_manifest_survives_json(manifest: Manifest) -> None:
    assert Manifest.parse(json.loads(json.dumps(manifest.json()))) == manifest


@given(TABLES)
def test_a_routing_table_survives_json(table: RoutingTable) -> None:
    assert RoutingTable.parse(json.loads(json.dumps(table.json()))) == table


@given(st.integers(1, 512), st.data())
def test_an_even_table_gives_each_instance_one_run_and_all_about_as_much(groups: int, data: st.DataObject) -> None:
    instances = data.draw(st.integers(1, groups))
    table = RoutingTable.even(1, groups, instances)
    shares = [table.owner.count(instance) for instance in range(instances)]

    assert list(table.owner) == sorted(table.owner)
    assert len(table.owner) == sum(shares) == groups
    assert max(shares) - min(shares) <= 1


def test_an_even_table_is_written_as_one_run_per_instance() -> None:
    assert RoutingTable.even(3, 256, 4).json() == {
        "version": 3,
        "instances": 4,
        "runs": [[0, 64], [1, 64], [2, 64], [3, 64]],
    }


def test_a_card_and_a_snapshot_survive_json() -> None:
    card = JobCard(
        "id",
        "job",
        16,
        {"A": TableCard(operator="A", key=(("k", "string"),), state=(("n", "int64"), ("s", "string")), schema="x")},
    )
    file = SnapshotFile(file="snapshots/x.parquet", first=0, last=7, rows=10, bytes=100, checksum="abc")
    snapshot = Snapshot(4, {"A": (file, dataclasses.replace(file, first=8, last=9, bytes=11, decoded=40)), "B": ()})

    assert JobCard.parse(json.loads(json.dumps(asdict(card)))) == card
    assert Snapshot.parse(json.loads(json.dumps(asdict(snapshot)))) == snapshot
    assert snapshot.bytes == 111
    assert card.format == FORMAT


def test_records_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RoutingTable.even(1, 2, 1).version = 2  # type: ignore[misc]
