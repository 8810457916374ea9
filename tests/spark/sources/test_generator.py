"""The generator: the same rows however they are read, at the pace asked for, or a clear error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ferryman._sources.generated_rows import GeneratorOptions, generate
from ferryman._spark.sources.generator import FORMAT, GeneratorStreamReader, RowRange
from ferryman.errors import InvalidConfiguration, UnknownOption
from ferryman.sources import generated, generator

SECOND = 1_000_000


def drain(stream: DataFrame, checkpoint: Path) -> list[list[int]]:
    """Run a bounded stream to its end and give the ids of every epoch."""
    epochs: list[list[int]] = []

    def collect(batch: DataFrame, epoch: int) -> None:
        epochs.append([row.id for row in batch.select("id").collect()])

    query = (
        stream.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return epochs


def offsets_of(reader: GeneratorStreamReader, begin: int, limit: object = None) -> int:
    return reader.latestOffset({"rows": begin}, limit or reader.getDefaultReadLimit())["rows"]  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 500), st.integers(0, 500), st.sampled_from([0.0, 1.1]))
def test_a_row_does_not_depend_on_the_range_read(at: int, before: int, after: int, skew: float) -> None:
    options = GeneratorOptions(keys=97, seed=5, skew=skew, key_prefix="sensor-")
    whole = generate(options, max(0, at - before), at + after + 1)
    alone = generate(options, at, at + 1)
    assert whole.slice(min(at, before), 1).to_pylist() == alone.to_pylist()


def test_another_seed_gives_other_rows() -> None:
    one, other = (generate(GeneratorOptions(seed=seed), 0, 1000) for seed in (1, 2))
    assert one.column("id").equals(other.column("id"))
    agreeing = np.mean(np.asarray(one.column("key")) == np.asarray(other.column("key")))
    assert agreeing < 0.02


def scatter(x: int) -> int:
    """Apply splitmix64's finaliser one number at a time, in Python's own integers."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_rows_are_those_of_splitmix64() -> None:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    rows = generate(GeneratorOptions(keys=100, seed=-7, key_prefix="sensor-", interval_ms=250), 0, 50)
    for i, row in enumerate(rows.to_pylist()):
        key, value = (scatter((scatter(-7 % 2**64) + n * 0x9E3779B97F4A7C15) % 2**64) for n in (2 * i + 1, 2 * i + 2))
        assert row == {
            "id": i,
            "key": f"sensor-{(key >> 11) * 100 >> 53}",
            "value": (value >> 32) % 6400 / 64,
            "event_time": start + timedelta(milliseconds=250 * i),
        }


def test_values_add_up_to_the_same_in_any_order() -> None:
    values = np.asarray(generate(GeneratorOptions(), 0, 100_000).column("value"))
    shuffled = np.random.default_rng(0).permutation(values)
    assert np.cumsum(values)[-1] == np.cumsum(shuffled)[-1]
    assert 0 <= values.min() < 1 < 99 < values.max() < 100


def test_uniform_keys_are_all_used_about_equally() -> None:
    counts = np.bincount(np.asarray(generate(GeneratorOptions(keys=50), 0, 100_000).column("key")), minlength=50)
    assert len(counts) == 50
    # 2000 expected each, standard deviation 44.
    assert counts.min() > 1750
    assert counts.max() < 2250


def test_skewed_keys_follow_zipf() -> None:
    rows = generate(GeneratorOptions(keys=1000, skew=1.0), 0, 200_000)
    counts = np.bincount(np.asarray(rows.column("key")), minlength=1000)
    expected = 200_000 / np.sum(1 / np.arange(1, 1001))
    assert len(counts) == 1000
    assert counts[0] == pytest.approx(expected, rel=0.05)
    assert counts[1] == pytest.approx(expected / 2, rel=0.05)
    assert counts[9] == pytest.approx(expected / 10, rel=0.1)


def test_rate_spaces_event_times() -> None:
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)
    rows = generate(GeneratorOptions(rate=4.0, start=start), 0, 9)
    assert rows.column("event_time").to_pylist()[8] == start + timedelta(seconds=2)


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 50_000), st.integers(1, 9))
def test_partitions_cover_a_range_once_and_in_order(begin: int, length: int, partitions: int) -> None:
    parts = GeneratorOptions(partitions=partitions).partition_ranges(begin, begin + length)
    assert len(parts) <= partitions
    assert [row for start, end in parts for row in (start, end)] == sorted(
        row for start, end in parts for row in (start, end)
    )
    assert (not parts) == (length == 0)
    if parts:
        assert (parts[0][0], parts[-1][1]) == (begin, begin + length)
    assert sum(end - start for start, end in parts) == length


def test_rate_bounds_what_is_available() -> None:
    options = GeneratorOptions(rate=100.0, rows=1000, start=datetime(1970, 1, 2, tzinfo=timezone.utc))
    due = options.first_event_us
    assert options.available(due - SECOND) == 0
    assert options.available(due + SECOND // 2) == 50
    assert options.available(due + 3600 * SECOND) == 1000


def test_a_rated_reader_catches_up_in_bounded_epochs_and_then_waits() -> None:
    start = datetime.now(timezone.utc) - timedelta(hours=1)
    reader = GeneratorStreamReader(GeneratorOptions(rate=1.0, rows_per_epoch=3000, start=start))
    first = offsets_of(reader, 0)
    second = offsets_of(reader, first)
    assert first == 3000
    assert 3600 <= second <= 3660


def test_a_reader_never_takes_rows_back() -> None:
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    reader = GeneratorStreamReader(GeneratorOptions(rate=1.0, start=tomorrow))
    assert offsets_of(reader, 0) == 0
    assert offsets_of(reader, 500) == 500


def test_a_reader_asked_for_all_ignores_its_own_limit() -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    reader = GeneratorStreamReader(GeneratorOptions(rows=100, rows_per_epoch=10))
    assert offsets_of(reader, 20, ReadAllAvailable()) == 100


def test_a_reader_without_admission_control_goes_by_the_ranges_it_reads() -> None:
    reader = GeneratorStreamReader(GeneratorOptions(rows=25, rows_per_epoch=10))
    assert reader.latestOffset() == {"rows": 10}
    assert reader.latestOffset() == {"rows": 10}
    assert reader.partitions({"rows": 0}, {"rows": 10}) == [RowRange(0, 10)]
    assert reader.latestOffset() == {"rows": 20}
    # What Spark shows of the last epoch when it restarts a stream.
    restarted = GeneratorStreamReader(GeneratorOptions(rows=25, rows_per_epoch=10))
    restarted.partitions({"rows": 10}, {"rows": 20})
    assert restarted.latestOffset() == {"rows": 25}


def test_a_batch_reads_exactly_what_the_stream_reads(spark: SparkSession, tmp_path: Path) -> None:
    shape = {"keys": 40, "seed": 3, "skew": 0.8, "key_prefix": "sensor-", "interval_ms": 20.0}
    seen: list[tuple[object, ...]] = []
    query = (
        generator(spark, rows=5000, rows_per_epoch=1200, partitions=2, **shape)  # type: ignore[arg-type]
        .writeStream.foreachBatch(lambda batch, epoch: seen.extend(map(tuple, batch.collect())))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    batch = generated(spark, rows=5000, **shape)  # type: ignore[arg-type]
    assert batch.columns == ["id", "key", "value", "event_time"]
    assert sorted(seen) == sorted(map(tuple, batch.collect()))
    assert len(seen) == 5000


def test_available_now_ends_a_bounded_stream_in_bounded_epochs(spark: SparkSession, tmp_path: Path) -> None:
    epochs = drain(generator(spark, rows=2500, rows_per_epoch=1000), tmp_path)
    assert [len(epoch) for epoch in epochs] == [1000, 1000, 500]


def test_a_restart_continues_without_loss_or_repetition(spark: SparkSession, tmp_path: Path) -> None:
    first = drain(generator(spark, rows=1500, rows_per_epoch=1000), tmp_path)
    second = drain(generator(spark, rows=4000, rows_per_epoch=1000), tmp_path)
    assert [len(epoch) for epoch in second] == [1000, 1000, 500]
    assert sorted(row for epoch in first + second for row in epoch) == list(range(4000))


def test_a_replayed_epoch_reads_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def fail_once(batch: DataFrame, epoch: int) -> None:
        seen.append([row.id for row in batch.collect()])
        if len(seen) == 2:
            raise RuntimeError("the epoch does not commit")

    def run() -> None:
        query = (
            generator(spark, rows=3000, rows_per_epoch=1000, partitions=2)
            .writeStream.foreachBatch(fail_once)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    with pytest.raises(PySparkException, match="the epoch does not commit"):
        run()
    run()
    assert [sorted(rows) for rows in seen] == [list(range(begin, begin + 1000)) for begin in (0, 1000, 1000, 2000)]
    assert seen[1] == seen[2]


def test_a_rated_stream_reads_what_is_due_and_no_more(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime.now(timezone.utc) - timedelta(hours=1)
    epochs = drain(generator(spark, rate=2.0, start=start), tmp_path)
    assert 7200 <= sum(map(len, epochs)) <= 7200 + 2 * 120


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"keys": 0}, ["keys"]),
        ({"rows": 1.5}, ["rows"]),
        ({"rate": float("nan")}, ["rate"]),
        ({"start": "yesterday"}, ["start"]),
        ({"rate": 1.0, "interval_ms": 5.0}, ["interval_ms"]),
        ({"keys": -1, "skew": -0.5, "rows_per_epoch": "many", "key_prefix": ""},
         ["keys", "skew", "rows_per_epoch", "key_prefix"]),
    ],
)  # fmt: skip
def test_every_bad_option_is_listed_at_once(options: Mapping[str, object], named: list[str]) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        GeneratorOptions.of(options)
    assert [line.split(":")[0].strip(" -") for line in str(caught.value).splitlines()[1:]] == named


def test_public_functions_check_before_spark_does(spark: SparkSession) -> None:
    with pytest.raises(InvalidConfiguration, match="partitions"):
        generator(spark, partitions=0)
    with pytest.raises(InvalidConfiguration, match="start: needed with rate"):
        generated(spark, rows=10, rate=5.0)


def test_an_unknown_option_is_refused_with_the_known_ones(spark: SparkSession) -> None:
    with pytest.raises(UnknownOption, match=r"no option 'kees'.*keys, rows, rate"):
        GeneratorOptions.of({"kees": "5"})
    generator(spark)
    with pytest.raises(PySparkException, match="UNKNOWN_OPTION"):
        spark.read.format(FORMAT).options(kees=5).load()


def test_options_survive_the_way_through_spark() -> None:
    options = GeneratorOptions(
        keys=5, rows=9, rate=2.5, seed=-3, skew=0.7, start=datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
    )
    assert GeneratorOptions.of(options.as_strings()) == options


def test_available_now_refuses_a_stream_without_an_end(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no end that availableNow could reach"):
        drain(generator(spark), tmp_path)
