"""Which values a state takes: those that Spark keeps, as the same; and they are read at once as they are later."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from processor.kind import shown
from pyspark.serializers import CPickleSerializer
from pyspark.sql import Row
from pyspark.sql.streaming import stateful_processor_api_client as client
from pyspark.sql.types import StructType

from ferryman._operator.run.python_columns import Misfit
from ferryman._spark.processor.declared_state import _record
from ferryman._spark.processor.processor_handle import Recorder
from ferryman.errors import InvalidConfiguration

D = decimal.Decimal
MOMENT = datetime.datetime(2024, 1, 1, 2, 3, 4, 5)
TOKYO = datetime.timezone(datetime.timedelta(hours=9))
Pair = collections.namedtuple("Pair", "a b")

TYPES = (
    *("boolean", "byte", "int", "long", "float", "double", "decimal(10,2)", "string", "binary", "date", "timestamp"),
    *("timestamp_ntz", "interval day to second", "array<int>", "array<double>", "array<string>", "array<date>"),
    *("map<string,int>", "map<string,decimal(5,1)>", "struct<a:int,b:string>", "struct<a:double,b:date>"),
)
VALUES = (
    *(None, True, 0, 1, 300, 2**31, 2**63 - 1, 2**63, -1, 1.0, 1.5, math.nan, math.inf, 1e300, D("1"), D("1.5")),
    *(D("1.555"), D("-1.565"), D("123456789.1"), D("NaN"), "", "1", "abc", b"ab", bytearray(b"ab"), MOMENT.date()),
    *(MOMENT, MOMENT.replace(tzinfo=datetime.timezone.utc), MOMENT.replace(tzinfo=TOKYO), datetime.time(1, 2, 3)),
    *(datetime.timedelta(days=1, microseconds=3), [1, 2], (1, 2), [1.0], [1.5], [True], ["a"], [None], [], [MOMENT]),
    *({}, {"a": 1}, {"a": 1.0}, {1: 1}, {"a": None}, {"a": D("1.25")}, {"a": 1, "b": "x"}, {"b": "x"}, (1, "x")),
    *(Row(a=1, b="x"), Row(b="x", a=1), [1, "x"], [1.5, MOMENT], Pair(1, "x"), (1, "x", 2), np.int64(5)),
    *(np.float32(0.5), np.bool_(True), pd.Timestamp("2024-01-01"), pd.Timedelta("1s"), {1}),
    *(np.datetime64("2024-01-01"), array.array("i", [1, 2])),
)
# Read as one of its type, and not as it was given.
BROUGHT = {
    ("decimal(10,2)", D("1.555")): "Decimal Decimal('1.56')",
    ("decimal(10,2)", D("-1.565")): "Decimal Decimal('-1.57')",
    ("binary", "abc"): "bytes b'abc'",
    ("date", MOMENT): "date datetime.date(2024, 1, 1)",
    ("timestamp_ntz", MOMENT.replace(tzinfo=TOKYO)): f"datetime {MOMENT!r}",
}


def sparks_way(spark: Any, schema: StructType) -> Callable[[Any], Any]:
    """Give what Spark does to a value between `update` and `get`: to the JVM by pickle, and back."""
    jvm, serializer = spark._jvm, CPickleSerializer()
    client._load_numpy()
    java = spark._jsparkSession.parseDataType(schema.json())
    encoders = getattr(jvm.org.apache.spark.sql.catalyst.encoders, "ExpressionEncoder$")
    encoder = getattr(encoders, "MODULE$").apply(java)
    bound = encoder.resolveAndBind(*(getattr(encoder, f"resolveAndBind$default${number}")() for number in (1, 2)))
    deserializer = bound.createDeserializer()
    rows = jvm.org.apache.spark.sql.api.python.PythonSQLUtils

    def way(value: Any) -> Any:
        sent = serializer.dumps(schema.toInternal((client._normalize_state_value(value),)))
        kept = rows.toJVMRow(bytearray(sent), java, deserializer)
        return next(iter(serializer.loads(bytes(rows.toPyRow(kept)))))

    return way


def ours(schema: StructType, value: Any) -> tuple[Any, Any]:
    """Give a value as it is read in its own epoch, and as it is read later."""
    record = _record(schema.json())
    (now,) = taken = record.taken((value,), "state")
    return now, record.tuples(record.columns([taken], "state"))[0][0]


@pytest.mark.skipif(not hasattr(client, "_load_numpy"), reason="this Spark sends values another way")
@pytest.mark.parametrize("kind", TYPES)
def test_a_state_keeps_what_spark_keeps_or_refuses_it(spark: Any, kind: str) -> None:
    schema = StructType.fromDDL(f"v {kind}")
    theirs = sparks_way(spark, schema)
    compared = 0
    for value in VALUES:
        what = f"{kind}: {shown(value)}"
        try:
            now, later = ours(schema, value)
        except Misfit:
            assert (kind, repr(value)) not in [(name, repr(other)) for name, other in BROUGHT], what
            continue
        assert shown(now) == shown(later), f"{what} is read otherwise later"
        try:
            kept = theirs(value)
        except Exception:
            pytest.fail(f"{what} is kept as {shown(later)}, and Spark refuses it")
        if kind == "string" and isinstance(value, (bytes, bytearray)):
            # The name of a Java object.
            continue
        assert _agrees(later, kept), f"{what} is kept as {shown(later)}, and by Spark as {shown(kept)}"
        if isinstance(value, (int, float)) and kept is None:
            assert later == value, what
        compared += 1
    assert compared > 1
    for (name, value), read in BROUGHT.items():
        if name == kind:
            assert shown(ours(schema, value)[1]) == read


def _agrees(later: Any, kept: Any) -> bool:
    """Tell whether two values are the same, but for numbers of another type, for which Spark keeps null."""
    if kept is None:
        return later is None or isinstance(later, (int, float, D))
    if isinstance(later, dict):
        return set(later) == set(kept) and all(_agrees(item, kept[key]) for key, item in later.items())
    if isinstance(later, (list, tuple)):
        alike = type(later).__name__ == type(kept).__name__ and len(later) == len(kept)
        return alike and all(map(_agrees, later, kept))
    return shown(later) == shown(kept)


@pytest.mark.parametrize(
    "fields", ["a long, a long", "s struct<a:int,a:int>", "m map<string,array<struct<a:int,a:int>>>"]
)
def test_two_fields_of_one_name_are_refused_at_the_call(fields: str) -> None:
    recorder = Recorder("operator", "none", ["k"])
    for declare in (
        lambda: recorder.getValueState("value", fields),
        lambda: recorder.getListState("list", fields),
        lambda: recorder.getMapState("map", "n long", fields),
    ):
        with pytest.raises(InvalidConfiguration, match="two fields of one name"):
            declare()
