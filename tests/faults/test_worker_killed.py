"""A Python worker dies in the middle of a task, a task fails and is retried, a task runs twice."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SCRIPT = """
import os, signal, sys
from pathlib import Path
import ferryman
from ferryman import Ferry, Operator, Value, sinks, sources

checkpoint, marks = sys.argv[1], Path(sys.argv[2])

class Fragile(Operator):
    n = Value(int, 0)
    total = Value(int, 0)
    output = "key long, n long, total long"

    def process(self, key, row):
        self.n += 1
        self.total += row.id
        for number, how in ((333, "kill"), (777, "raise"), (1400, "kill")):
            mark = marks / str(number)
            if row.id == number and not mark.exists():
                mark.touch()
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("once")
        yield key, self.n, self.total

spark = ferryman.session("fragile", "local[2,4]", conf={"spark.log.level": "OFF"})
frame = sources.generator(spark, keys=50, rows=2000, rows_per_epoch=200)
memory = sinks.memory()
job = Ferry(spark, checkpoint).stream(frame).key_by("key").process(Fragile).write(memory).start(
    "fragile", instances=2, trigger={"availableNow": True}
)
job.wait()
rows = memory.rows()
assert len(rows) == 2000, len(rows)
state = job.state("Fragile").to_arrow().to_pylist()
want = {}
for row in sources.generated(spark, keys=50, rows=2000).collect():
    n, total = want.get(row.key, (0, 0))
    want[row.key] = (n + 1, total + row.id)
assert {row["key"]: (row["n"], row["total"]) for row in state} == want
assert {path.name for path in marks.iterdir()} == {"333", "777", "1400"}
print("right")
"""

KEPT = """
import sys
import ferryman
from pyspark import TaskContext
from ferryman import Ferry, Operator, Value, count, sinks, sources

class Count(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n

def fail_at_the_end(batches):
    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("once")

spark = ferryman.session("kept", "local[2,4]", conf={"spark.log.level": "OFF"})
frame = sources.generator(spark, keys=100, rows=300, rows_per_epoch=100, key_prefix="s-")
ferry = Ferry(spark, sys.argv[1])
counted = ferry.stream(frame).key_by("key").process(Count)
later = counted.transform(lambda rows: rows.mapInArrow(fail_at_the_end, rows.schema)).key_by("key").aggregate(m=count())
job = ferry.start("kept", later.write(sinks.none()), counted.write(sinks.none()), trigger={"availableNow": True})
job.wait()
assert sum(job.state("Count").to_arrow()["n"].to_pylist()) == 300
assert sum(job.state("aggregate_key").to_arrow()["m"].to_pylist()) == 300
print("right")
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(SCRIPT, id="killed"),
        pytest.param(KEPT, id="failed after its rows were kept", marks=pytest.mark.slow),
    ],
)
def test_killed_workers_and_retried_tasks_change_nothing(code, tmp_path):
    script = tmp_path / "fragile.py"
    script.write_text(textwrap.dedent(code))
    marks = tmp_path / "marks"
    marks.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "checkpoint"), str(marks)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ},
        start_new_session=True,
    )
    assert "right" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
