"""Compute what the stream should have found, as a plain Spark batch over the same rows, and compare.

The driver calls it when it has finished; `python -m ferryman._demo.check DIRECTORY` does it again at any time.
Nothing of Ferryman takes part in the expected side: it is SQL over the generated rows. Compared with it, as
multisets and bit for bit, are the rows that the sinks list and the state that the checkpoint holds.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ferryman import sinks
from ferryman._demo.events import Channel
from ferryman._demo.fleet import Fleet
from ferryman._demo.local_spark import local_spark
from ferryman._demo.operators import ALARM, checkpoint_path, sink_path
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._spark.api.state_view import StateView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
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
        The column of the state whose sum says most, and what to call it.
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
        operator="RunningAverage",
        kind="row by row",
        key="sensor",
        rows="SELECT * FROM expected_averages",
        state="SELECT sensor, count(*) AS n, sum(value) AS total FROM readings GROUP BY sensor",
        total=("total", "sum of values"),
    ),
    Question(
        operator="rooms",
        kind="declared",
        key="room",
        rows=_ROOMS,
        state=_ROOMS,
        total=("total", "sum of values"),
        last=("n", "total", "low", "high", "peak"),
    ),
    Question(
        operator="Alarms",
        kind="vectorised",
        key="sensor",
        rows=_ALARMS,
        state=_ALARMS,
        total=("alarms", "alarms"),
        last=("n", "alarms", "low", "high"),
    ),
)


@dataclass(frozen=True, kw_only=True)
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


class Expected(NamedTuple):
    """What plain Spark finds for one question."""

    rows: pa.Table
    state: pa.Table


def main(out: Path) -> None:
    """Check a run of which no process is left."""
    spark = local_spark("ferryman-demo-check")
    check(spark, out, Channel())
    spark.stop()


def check(spark: SparkSession, out: Path, channel: Channel) -> None:
    """Ask all questions, and report each answer."""
    fleet = Fleet.load(out)
    fleet.batch(spark).persist().createOrReplaceTempView("readings")
    spark.sql(_AVERAGES).persist().createOrReplaceTempView("expected_averages")
    expected = [
        Expected(spark.sql(question.rows).toArrow(), spark.sql(question.state).toArrow()) for question in QUESTIONS
    ]
    checkpoint = Checkpoint(directory(str(checkpoint_path(out))))
    for question, right in zip(QUESTIONS, expected, strict=True):
        try:
            answer = _answer(spark, checkpoint, out, fleet, question, right)
            channel.say("answer", **asdict(answer), equal=answer.equal)
        except Exception as error:
            # Damaged files are an answer too; the reader wants the rest of the table all the same.
            reason = str(error).strip().splitlines()[0]
            channel.say("answer", operator=question.operator, kind=question.kind, equal=False, error=reason)
    channel.say("checked", epochs=len(checkpoint.epochs()), snapshots=len(checkpoint.snapshots()))


def _answer(
    spark: SparkSession, checkpoint: Checkpoint, out: Path, fleet: Fleet, question: Question, expected: Expected
) -> Answer:
    records = [checkpoint.manifest(epoch).operators[question.operator] for epoch in checkpoint.epochs()]
    state = StateView(spark, checkpoint, question.operator, checkpoint.epochs()[-1]).to_arrow()
    shown = sinks.read_parquet(spark, str(sink_path(out, question.operator))).toArrow()
    column, what = question.total
    return Answer(
        operator=question.operator,
        kind=question.kind,
        rows_in=sum(record.rows for record in records),
        expected_rows_in=fleet.rows,
        rows_out=shown.num_rows,
        committed_rows_out=sum(record.output for record in records),
        total_of=what,
        total=pc.sum(state[column]).as_py(),
        expected_total=pc.sum(expected.state[column]).as_py(),
        state_keys=state.num_rows,
        state_bytes=state.nbytes,
        wrong_rows=_differences(_last(shown, question), expected.rows),
        wrong_state=_differences(state, expected.state),
    )


def _last(shown: pa.Table, question: Question) -> pa.Table:
    """Keep the last row of every key, where a sink shows a key in every epoch that touches it."""
    if question.last is None:
        return shown
    # In one thread, as only then Arrow keeps the order that `last` asks for.
    rows = shown.sort_by(question.last[0]).group_by(question.key, use_threads=False)
    last = rows.aggregate([(name, "last") for name in question.last])
    return last.rename_columns([name.removesuffix("_last") for name in last.column_names])


def _differences(found: pa.Table, expected: pa.Table) -> int:
    """Count the rows that are on one side and not on the other, as often as they are."""
    names = expected.column_names
    sides = [
        side.select(names).append_column("side", pa.repeat(pa.scalar(sign, pa.int64()), side.num_rows))
        for side, sign in ((found, 1), (expected, -1))
    ]
    apart = pa.concat_tables(sides, promote_options="permissive").group_by(names).aggregate([("side", "sum")])
    return int(pc.sum(pc.abs(apart["side_sum"])).as_py() or 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
