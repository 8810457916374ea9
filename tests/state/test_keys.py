"""Keys in canonical form: what is equal stays equal, what differs stays apart, and all of it decodes."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._model import errors
from ferryman._model.errors import KeysTooLarge, NullKey, UnhashableKey
from ferryman._state.keys import Keys, KeySchema, distinct, last

MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 999999)

COLUMNS = {
    "bool": (pa.bool_(), [True, False, True]),
    "int8": (pa.int8(), [-128, 127, 0]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1, 0]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "date32": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1970, 1, 1)]),
    "timestamp": (pa.timestamp("us"), [MOMENT, datetime.datetime(1900, 1, 1), MOMENT]),
    "timestamp_ns": (pa.timestamp("ns", "UTC"), [1, -1, 2**62]),
    "float32": (pa.float32(), [1.5, float("inf"), -2.25]),
    "float64": (pa.float64(), [1e300, float("-inf"), 0.1]),
    "decimal": (pa.decimal128(38, 3), [Decimal("-1.125"), Decimal("9" * 35), Decimal(0)]),
    "string": (pa.string(), ["", "grüß", "a\0b"]),
    "binary": (pa.binary(), [b"", b"\xff\0", b"x" * 700]),
    "large_string": (pa.large_string(), ["", "z", "zz"]),
    "large_binary": (pa.large_binary(), [b"\0", b"", b"\0\0"]),
}


def keys_of(*arrays: pa.Array, hashes: list[int] | None = None) -> Keys:
    schema = KeySchema(pa.schema([(f"k{i}", each.type) for i, each in enumerate(arrays)]))
    given_hashes = np.array(hashes if hashes is not None else range(len(arrays[0])), np.int64)
    return Keys.of(schema, given_hashes, arrays)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_single_column_decodes_to_what_it_was(name: str) -> None:
    dtype, values = COLUMNS[name]
    array = pa.array(values, dtype)
    keys = keys_of(array)
    assert keys.schema.kind == ("bytes" if name in ("decimal",) or "string" in name or "bin" in name else "word")
    assert keys.columns() == [array]
    assert keys.take(np.array([2, 0])).columns() == [array.take(pa.array([2, 0]))]


def test_a_key_of_every_type_at_once_decodes_to_what_it_was() -> None:
    arrays = [pa.array(values, dtype) for dtype, values in COLUMNS.values()]
    keys = keys_of(*arrays)
    assert keys.schema.kind == "bytes"
    assert keys.columns() == arrays
    assert keys.take(np.array([1])).columns() == [each.slice(1, 1) for each in arrays]


@pytest.mark.parametrize("name", COLUMNS)
def test_sliced_and_chunked_columns_give_the_same_keys_as_whole_ones(name: str) -> None:
    dtype, values = COLUMNS[name]
    array = pa.array([*values, *values], dtype)
    whole = keys_of(array)
    sliced = keys_of(array.slice(1, 4))
    assert [sliced.raw(i) for i in range(4)] == [whole.raw(i + 1) for i in range(4)]
    schema = KeySchema(pa.schema([("k", dtype)]))
    chunked = Keys.of(schema, np.arange(6), [pa.chunked_array([array.slice(0, 2), array.slice(2)])])
    assert [chunked.raw(i) for i in range(6)] == [whole.raw(i) for i in range(6)]


def test_keys_made_from_raw_bytes_are_the_same_keys() -> None:
    for arrays in ([pa.array([5, -5])], [pa.array(["", "xy"])], [pa.array(["a", "b"]), pa.array([1, 2])]):
        keys = keys_of(*arrays)
        again = Keys.of_raw(keys.schema, keys.hash, [keys.raw(0), keys.raw(1)])
        assert again.columns() == arrays


def test_fields_of_a_composite_key_do_not_run_into_each_other() -> None:
    keys = keys_of(pa.array(["ab", "a", ""]), pa.array(["c", "bc", "abc"]), hashes=[0, 0, 0])
    assert len({keys.raw(i) for i in range(3)}) == 3
    assert distinct(keys)[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()])
def test_zeros_are_one_key_and_nans_are_one_key(dtype: pa.DataType) -> None:
    bits = {4: (0x7FC00000, 0x7F800001, 0xFFC00001), 8: (0x7FF8 << 48, 0x7FF0 << 48 | 1, 0xFFF8 << 48 | 7)}
    width = dtype.bit_width // 8
    nans = np.array(bits[width], f"u{width}").view(f"f{width}")
    array = pa.array(np.concatenate((np.array([0.0, -0.0], f"f{width}"), nans)), dtype)
    keys = keys_of(array, hashes=[1, 1, 2, 2, 2])
    assert distinct(keys)[0].tolist() == [0, 0, 1, 1, 1]
    composite = keys_of(array, pa.array([0] * 5), hashes=[1, 1, 2, 2, 2])
    assert distinct(composite)[0].tolist() == [0, 0, 1, 1, 1]


def test_a_null_key_is_refused_and_the_column_named() -> None:
    with pytest.raises(NullKey, match="k1"):
        keys_of(pa.array([1, 2]), pa.array(["a", None]))


def test_every_column_that_cannot_be_a_key_is_named() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64())), ("b", pa.int64()), ("c", pa.uint8())])
    with pytest.raises(UnhashableKey, match=r"a \(list.*c \(uint8\)"):
        KeySchema(schema)
    with pytest.raises(UnhashableKey, match="no columns"):
        KeySchema(pa.schema([]))


@pytest.mark.parametrize("groups", [1, 7, 256])
def test_the_group_is_the_floor_modulus_of_the_hash(groups: int) -> None:
    hashes = [-(2**63), -257, -1, 0, 1, 255, 256, 2**63 - 1]
    keys = keys_of(pa.array(range(len(hashes))), hashes=hashes)
    assert keys.groups(groups).tolist() == [each % groups for each in hashes]


VALUES = st.lists(st.integers(0, 30), max_size=200)


@settings(max_examples=60, deadline=None)
@given(VALUES, st.sampled_from(["word", "string", "composite"]), st.sampled_from([1, 3, 2**32, 2**60 + 1]))
def test_distinct_and_last_agree_with_a_dictionary_whatever_the_hashes(
    values: list[int], kind: str, spread: int
) -> None:
    words = pa.array(values, pa.int64())
    text = pa.array(["x" * each for each in values], pa.string())
    arrays = {"word": [words], "string": [text], "composite": [text, words]}[kind]
    # Forged: equal keys have equal hashes, but so have many different ones.
    keys = keys_of(*arrays, hashes=[each % 5 * spread for each in values])
    seen: dict[int, int] = {}
    final: dict[int, int] = {}
    for row, value in enumerate(values):
        seen.setdefault(value, row)
        final[value] = row
    index, first = distinct(keys)
    assert first.tolist() == list(seen.values())
    assert [values[first[i]] for i in index] == values
    assert last(keys).tolist() == [final[value] for value in seen]


def test_distinct_outgrows_its_first_index() -> None:
    values = np.arange(50_000) % 20_011
    for keys in (
        keys_of(pa.array(values), hashes=(values * 0x9E3779B97F4A7C1 - 2**62).tolist()),
        keys_of(pa.array(values).cast(pa.string()), hashes=(values * 0x9E3779B97F4A7C1 - 2**62).tolist()),
    ):
        index, first = distinct(keys)
        assert first.tolist() == list(range(20_011))
        assert (index == values).all()


def test_kernels_work_where_no_cache_can_be_written(tmp_path: Path) -> None:
    code = (
        "import numpy as np, pyarrow as pa; from ferryman._state.keys import *;"
        "import ferryman; assert '.zip' in ferryman.__path__[0];"
        "k = Keys.of(KeySchema(pa.schema([('k', pa.int64())])), np.zeros(3, np.int64), [pa.array([1, 2, 1])]);"
        "print(distinct(k)[0].tolist())"
    )
    package = Path(errors.__file__).parents[1]
    with zipfile.ZipFile(tmp_path / "ferryman.zip", "w") as archive:
        archive.writestr("ferryman/__init__.py", "")
        for each in [*package.glob("_model/*.py"), *package.glob("_state/*.py")]:
            archive.write(each, Path("ferryman") / each.relative_to(package))
    # Neither a zip file nor anything below a device file can be written, not even by root.
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "IPYTHONDIR"), "/dev/null")
    env = {**os.environ, **nowhere, "PYTHONPATH": str(tmp_path / "ferryman.zip")}
    env.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0, 1, 0]", done.stderr


@pytest.mark.parametrize("name", COLUMNS)
def test_a_null_is_a_key_of_its_own_where_nulls_are_values(name: str) -> None:
    dtype, values = COLUMNS[name]
    array = pa.array([values[0], None, values[1], None, *values[2:]], dtype)
    schema = KeySchema(pa.schema([("k", dtype), ("n", pa.int32())]), nulls=True)
    numbers = pa.array([1, None, None, None, 1], pa.int32())
    keys = Keys.of(schema, np.zeros(len(array), np.int64), [array, numbers])
    assert keys.columns() == [array, numbers]
    assert keys.raw(1) == keys.raw(3)
    assert len({keys.raw(row) for row in range(len(array))}) == len(
        set(zip(array.to_pylist(), numbers.to_pylist(), strict=True))
    )
    assert distinct(keys)[0][1] == distinct(keys)[0][3]
    # What no value is stands first, and a zero or an empty text is something else.
    empty = {"string": "", "large_string": "", "binary": b"", "large_binary": b"", "bool": False}.get(name)
    if empty is not None:
        two = Keys.of(
            KeySchema(pa.schema([("k", dtype)]), nulls=True), np.zeros(2, np.int64), [pa.array([None, empty], dtype)]
        )
        assert two.raw(0) < two.raw(1)


def test_more_text_than_arrow_has_room_for_is_refused_and_not_wrapped() -> None:
    schema = KeySchema(pa.schema([("key", pa.string())]))
    # Only where the keys begin and end is looked at, so there need not be any.
    keys = Keys(schema, np.zeros(2, np.int64), offsets=np.array([0, 1 << 30, 1 << 31]), data=np.empty(0, np.uint8))

    with pytest.raises(KeysTooLarge, match="2147483648 bytes"):
        keys.columns()
