"""Keys that cannot be: null, missing, of a type that cannot be hashed. A clear error, and nothing is lost."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from readings import Readings, Trail, check_message, epoch_rows

from ferryman import aggregates
from ferryman.errors import InvalidConfiguration, MissingKey, NullKey, StateSchemaChanged, UnhashableKey


def with_a_null(epoch):
    return [{**row, "key": None if row["id"] == 11 else row["key"]} for row in epoch_rows(epoch)]


def test_a_null_key_fails_its_epoch_and_no_row_is_lost(spark, tmp_path):
    job = Readings(spark, tmp_path)
    job.put(2, with_a_null(2))

    job.fails(
        NullKey, "operator 'Trail', epoch 2", "1 rows have no value in the key column 'key'", "'id': 11", "Filter"
    )

    named = job.stream().transform(lambda rows: rows.withColumn("key", F.coalesce("key", F.lit("s-2"))))
    job.run(named.key_by("key").process(Trail))
    job.assert_right()


def test_a_null_in_one_of_several_key_columns_fails_a_vectorised_aggregate_too(spark, tmp_path):
    job = Readings(spark, tmp_path)
    job.put(2, with_a_null(2))

    def counted(rows):
        return rows.key_by("id", "key").aggregate(name="Counts", n=aggregates.count())

    job.fails(NullKey, "operator 'Counts', epoch 2", "key column 'key'", stream=counted(job.stream()))

    job.run(counted(job.stream().where("key is not null")))
    assert [key for key, *_ in job.state("Counts")] == [number for number in range(24) if number != 11]


def test_a_key_column_that_is_missing_is_named_with_those_there_are(spark, tmp_path):
    job = Readings(spark, tmp_path)

    with pytest.raises(MissingKey) as caught:
        job.stream().key_by("key", "room", "site")

    check_message(caught.value, MissingKey, ["no column 'room', 'site'", "it has 'key', 'id', 'value'", "Key by one"])
    assert not job.checkpoint.exists()
    job.run()
    job.assert_right()


def test_a_key_of_no_columns_or_of_one_twice_is_refused(spark, tmp_path):
    stream = Readings(spark, tmp_path).stream()

    with pytest.raises(MissingKey, match="at least one column"):
        stream.key_by()
    with pytest.raises(InvalidConfiguration, match=r"twice: key, key\. Name each once"):
        stream.key_by("key", "key")


@pytest.mark.parametrize(
    ("kind", "made_of"),
    [
        ("array<string>", "array(key)"),
        ("map<string,bigint>", "map(key, id)"),
        ("struct<key:string,id:bigint>", "struct(key, id)"),
        ("variant", "parse_json(to_json(struct(key)))"),
        ("interval day to second", "make_dt_interval(id)"),
        ("interval year to month", "make_ym_interval(id)"),
        ("void", "null"),
    ],
)
def test_a_key_of_a_type_that_cannot_be_hashed_is_refused_before_anything_runs(spark, tmp_path, kind, made_of):
    job = Readings(spark, tmp_path)
    stream = job.stream().transform(lambda rows: rows.withColumn("odd", F.expr(made_of)))

    with pytest.raises(UnhashableKey) as caught:
        stream.key_by("key", "odd")

    check_message(caught.value, UnhashableKey, [f"column 'odd' is of type {kind}", "no single canonical", "Key by its"])
    assert not job.checkpoint.exists()


def test_a_column_that_python_cannot_have_is_named_where_it_is_no_key(spark, tmp_path):
    stream = Readings(spark, tmp_path).stream().select("key", F.expr("make_ym_interval(id)").alias("span"))

    with pytest.raises(InvalidConfiguration, match=r"span.*Leave the column out"):
        stream.key_by("key").process(Trail)


@pytest.mark.parametrize("name", ["_hash", "_seq", "_token", "_deleted"])
def test_a_column_with_a_reserved_name_is_refused(spark, tmp_path, name):
    stream = Readings(spark, tmp_path).stream().select("key", F.col("id").alias(name))

    with pytest.raises(InvalidConfiguration, match=rf"column '{name}'.*Rename the column"):
        stream.key_by("key")


@pytest.mark.parametrize("other", ["key", "KEY"])
def test_two_columns_of_one_name_are_refused(spark, tmp_path, other):
    stream = Readings(spark, tmp_path).stream().select("key", F.col("id").alias(other))

    with pytest.raises(InvalidConfiguration, match=r"several columns called 'key'\. Rename all but one"):
        stream.key_by("key")


def test_a_key_that_gets_another_type_is_refused_and_the_job_goes_on_with_the_old_one(spark, tmp_path):
    job = Readings(spark, tmp_path)
    job.run()
    job.epochs = 4
    job.put(4, epoch_rows(4))
    number = job.stream().transform(lambda rows: rows.withColumn("key", F.substring("key", 3, 1).cast("long")))

    job.fails(
        StateSchemaChanged,
        "operator 'Trail' does not fit its state",
        "key 'key': string -> int64",
        "put the declaration back, or start on a new checkpoint",
        stream=number.key_by("key").process(Trail),
        committed=3,
    )

    job.run()
    job.assert_right()
