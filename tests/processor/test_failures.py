"""What a user sees of a processor that fails, or of a setting that it relies on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside
from processor.kind import Telling
from pyspark.sql import Row

from ferryman.errors import InvalidConfiguration, OperatorFailed


class Failing(Telling):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield self.say(self.deeper(row))

    def deeper(self, row: Row) -> Any:
        return {}[row.word]  # the line that is to be named


def build(df: Any) -> Any:
    return df.groupBy("k").transformWithState(Failing(), "what string", "Append", "None")


def test_the_line_that_raised_is_named(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "k string, word string")
    beside.give([("a", "my own words")])
    with pytest.raises(OperatorFailed) as raised:
        beside.on_ferryman(build)
    said = str(raised.value)
    assert "raised KeyError: 'my own words' in handleInputRows, for key ('a',)" in said
    assert f'File "{__file__}"' in said
    assert "in deeper" in said
    # What lies between is not the user's.
    assert "_spark/processor/processor_runner.py" not in said


def test_frames_of_types_that_are_not_given_here_are_refused_at_the_call(spark: Any, tmp_path: Path) -> None:
    setting = "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"
    own = spark.newSession()
    own.conf.set(setting, "true")
    beside = Beside(own, tmp_path, "k string, word string")
    beside.give([("a", "x")])
    with pytest.raises(InvalidConfiguration, match=rf'spark.conf.unset\("{setting}"\)'):
        beside.on_ferryman(
            lambda df: df.groupBy("k").transformWithStateInPandas(Failing(), "what string", "Append", "None")
        )
