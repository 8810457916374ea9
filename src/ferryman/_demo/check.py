"""Compute what the stream should have found, as a plain Spark batch over the same rows, and compare.

Run as `python -m ferryman._demo.check DIRECTORY`. Nothing of Ferryman takes part in the expected side: it is
SQL over the generated rows. Compared with it, as multisets and bit for bit, are the rows that the sinks list
and the state that the checkpoint holds.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ferryman import sinks
from ferryman._demo.events import Channel
from ferryman._demo.fleet import Fleet
from ferryman._demo.local_spark import local_spark
from ferryman._demo.operators import ALARM, checkpoint_path, sink_path
from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import directory
from ferryman._spark.state import StateView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Question:
    """What to ask of one operator.

    Parameters
    ----------
    operator
        Its name.
    kind
        How it is written, for the reader.
    key
        The column it is keyed by.
    rows
        What its sink should show, as SQL over `readings` and `expected_averages`.
    state
        The same of its state.
    total
        One figure that sums the state up, and what to call it.
    last
        The columns that its sink shows of a key, the one that grows first; only a key's last row is compared.
        None where every row is.
    """

    operator: str
    kind: str
    key: str
    rows: str
    state: str
    total: tuple[str, str]
    last: tuple[str, ...] | None = None


_AVERAGES = """
    SELECT id, sensor, room, value, count(*) OVER before AS n, sum(value) OVER before / count(*) OVER before AS mean
    FROM readings
    WINDOW before AS (PARTITION BY sensor ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"""
_ROOMS = """
    SELECT room, count(*) AS n, sum(value) AS total, min(value) AS low, max(value) AS high, max(mean) AS peak
    FROM expected_averages GROUP BY room"""
_ALARMS = f"""
    SELECT sensor, count(*) AS n, count_if(value >= {ALARM}) AS alarms, min(value) AS low, max(value) AS high
    FROM readings GROUP BY sensor"""

QUESTIONS = (
    Question(
        "RunningAverage",
        "row by row",
        "sensor",
        "SELECT * FROM expected_averages",
        "SELECT sensor, count(*) AS n, sum(value) AS total FROM readings GROUP BY sensor",
        ("sum(total)", "sum of values"),
    ),
    Question(
        "rooms",
        "declared",
        "room",
        _ROOMS,
        _ROOMS,
        ("sum(total)", "sum of values"),
        ("n", "total", "low", "high", "peak"),
    ),
    Question(
        "Alarms",
        "vectorised",
        "sensor",
        _ALARMS,
        _ALARMS,
        ("sum(alarms)", "alarms"),
        ("n", "alarms", "low", "high"),
    ),
)


@dataclass(frozen=True)
class Answer:
    """What was found of one operator, and whether it is what it should be."""

    operator: str
    kind: str
    rows_in: int
    expected_rows_in: int
    rows_out: int
    committed_rows_out: int
    total_of: str
    total: float
    expected_total: float
    state_keys: int
    state_bytes: int
    wrong_rows: int
    wrong_state: int

    @property
    def equal(self) -> bool:
        """Tell whether everything is as it should be."""
        return (
            self.rows_in == self.expected_rows_in
            and self.rows_out == self.committed_rows_out
            and self.total == self.expected_total
            and self.wrong_rows == 0
            and self.wrong_state == 0
        )


def main(out: Path) -> None:
    """Ask all questions, and report each answer."""
    channel = Channel()
    fleet = Fleet.load(out)
    spark = local_spark("ferryman-demo-check")
    fleet.batch(spark).persist().createOrReplaceTempView("readings")
    spark.sql(_AVERAGES).persist().createOrReplaceTempView("expected_averages")
    checkpoint = Checkpoint(directory(str(checkpoint_path(out))))
    for question in QUESTIONS:
        try:
            answer = _answer(spark, checkpoint, out, fleet, question)
            channel.say("answer", **asdict(answer), equal=answer.equal)
        except Exception as error:
            # Damaged files are an answer too; the reader wants the rest of the table all the same.
            reason = str(error).strip().splitlines()[0]
            channel.say("answer", operator=question.operator, kind=question.kind, equal=False, error=reason)
    channel.say("checked", epochs=len(checkpoint.epochs()), snapshots=len(checkpoint.snapshots()))
    spark.stop()


def _answer(spark: SparkSession, checkpoint: Checkpoint, out: Path, fleet: Fleet, question: Question) -> Answer:
    records = [checkpoint.manifest(epoch).operators[question.operator] for epoch in checkpoint.epochs()]
    state = StateView(spark, checkpoint, question.operator, checkpoint.epochs()[-1])
    held, shown = state.df(), sinks.read_parquet(spark, str(sink_path(out, question.operator)))
    rows_out = shown.count()
    expected, expected_state = spark.sql(question.rows), spark.sql(question.state)
    table = state.to_arrow()
    formula, what = question.total
    return Answer(
        question.operator,
        question.kind,
        sum(one.rows for one in records),
        fleet.rows,
        rows_out,
        sum(one.output for one in records),
        what,
        _figure(held, formula),
        _figure(expected_state, formula),
        table.num_rows,
        table.nbytes,
        _differences(_last(shown, question), expected),
        _differences(held, expected_state),
    )


def _last(shown: DataFrame, question: Question) -> DataFrame:
    """Keep the last row of every key, where a sink shows a key in every epoch that touches it."""
    if question.last is None:
        return shown
    rows = shown.selectExpr(question.key, f"struct({', '.join(question.last)}) AS row")
    return rows.groupBy(question.key).agg({"row": "max"}).selectExpr(question.key, "`max(row)`.*")


def _differences(found: DataFrame, expected: DataFrame) -> int:
    """Count the rows that are on one side and not on the other, as often as they are."""
    names = expected.columns
    sides = found.selectExpr(*names, "1L AS side").unionAll(expected.selectExpr(*names, "-1L AS side"))
    apart = sides.groupBy(*names).agg({"side": "sum"})
    return int(_figure(apart, "coalesce(sum(abs(`sum(side)`)), 0L)"))


def _figure(rows: DataFrame, formula: str) -> float:
    found: float = rows.selectExpr(f"{formula} AS figure").collect()[0]["figure"]
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
