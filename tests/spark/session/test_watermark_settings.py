"""Settings of Spark's that would change how watermarks count, and do not here: refused, or said to be passed over."""

from __future__ import annotations

import pytest

from ferryman._spark.session.advice import EMPTY_BATCHES, WATERMARK_POLICY, check_watermarks
from ferryman.errors import InvalidConfiguration


def test_the_greatest_of_several_watermarks_is_not_what_a_job_goes_by(caplog: pytest.LogCaptureFixture) -> None:
    for policy in ("max", "MAX"):
        with pytest.raises(InvalidConfiguration, match=rf"{WATERMARK_POLICY}=max.*time, other.*spark\.conf\.set"):
            check_watermarks(["time", "other"], {WATERMARK_POLICY: policy}.get)
    assert not caplog.records


@pytest.mark.parametrize(
    ("declared", "policy"), [(["time"], "max"), ([], "max"), (["time", "other"], "min"), (["time", "other"], None)]
)
def test_of_one_watermark_the_greatest_is_the_least(
    caplog: pytest.LogCaptureFixture, declared: list[str], policy: str | None
) -> None:
    check_watermarks(declared, ({} if policy is None else {WATERMARK_POLICY: policy}).get)
    assert not caplog.records


@pytest.mark.parametrize("declared", [["time"], []])
def test_it_is_said_that_epochs_come_without_data(caplog: pytest.LogCaptureFixture, declared: list[str]) -> None:
    check_watermarks(declared, {EMPTY_BATCHES: "true"}.get)
    assert not caplog.records

    check_watermarks(declared, {EMPTY_BATCHES: "false"}.get)
    assert EMPTY_BATCHES in caplog.text
    assert "idle=None" in caplog.text


def test_a_job_with_several_watermarks_is_refused_before_anything_is_written(spark, tmp_path) -> None:
    from ferryman import Ferry, Operator, sinks

    class Seen(Operator):
        output = "key string"

        def process(self, key, row):
            yield (key,)

    frame = spark.readStream.format("rate").load().selectExpr("'a' AS key", "timestamp AS t", "timestamp AS u")
    spark.conf.set(WATERMARK_POLICY, "max")
    try:
        stream = Ferry(spark, tmp_path / "checkpoint").stream(frame)
        outputs = [
            stream.with_watermark(name, "1 second").key_by("key").process(Seen, name).write(sinks.none())
            for name in ("t", "u")
        ]
        with pytest.raises(InvalidConfiguration, match=WATERMARK_POLICY):
            stream.ferry.start("several", *outputs)
    finally:
        spark.conf.unset(WATERMARK_POLICY)
    assert not (tmp_path / "checkpoint").exists()
