"""Operators that fail: they are named with key and epoch, the epoch is not committed, the job goes on."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from readings import Readings, Trail, check_message, epoch_rows

from ferryman import ArrowOperator, Operator, Value, aggregates
from ferryman.errors import (
    InvalidConfiguration,
    OperatorFailed,
    OperatorsChanged,
    OutputMismatch,
    PinningLost,
    StateSchemaChanged,
)

# The row of the second epoch that the operators below stumble over, and its key, which has five rows by its end.
BAD, BAD_KEY = 11, "s-2"


class Raises(Trail):
    def process(self, key, row):
        if row.id == BAD:
            raise ValueError("cannot make sense of this")
        return super().process(key, row)


class RaisesAtTheEnd(Trail):
    def finish(self, key):
        if self.n == 5 and key == BAD_KEY:
            raise KeyError("nothing there")


class TooFewValues(Trail):
    def process(self, key, row):
        for made in super().process(key, row):
            yield made[:2] if row.id == BAD else made


class WrongType(Trail):
    def process(self, key, row):
        for made in super().process(key, row):
            yield (*made[:2], "many") if row.id == BAD else made


class WrongNames(Trail):
    def process(self, key, row):
        for made in super().process(key, row):
            yield dict(zip(("key", "n", "digets" if row.id == BAD else "digest"), made, strict=True))


class NotARow(Trail):
    def process(self, key, row):
        return 7 if row.id == BAD else list(super().process(key, row))


class StateOfAnotherType(Trail):
    def finish(self, key):
        if self.n == 5 and key == BAD_KEY:
            self.n = "five"


ROW_BY_ROW = {
    Raises: (
        OperatorFailed,
        "raised ValueError: cannot make sense of this for key 's-2' in epoch 2",
        "Fix the operator",
    ),
    RaisesAtTheEnd: (OperatorFailed, "raised KeyError: 'nothing there' for key 's-2' in epoch 2", "Fix the operator"),
    NotARow: (OperatorFailed, "raised TypeError: 'int' object is not iterable for key 's-2' in epoch 2", "Fix the"),
    TooFewValues: (
        OutputMismatch,
        r"epoch 2: for key 's-2' it gave the row \('s-2', 4\)",
        "3 declared columns",
        "Give tuples",
    ),
    WrongNames: (
        OutputMismatch,
        "epoch 2: for key 's-2' it gave the row .*'digets'",
        r"\(key, n, digest\)",
        "dicts with",
    ),
    WrongType: (OutputMismatch, "epoch 2, row .*'many'", "'digest' is declared as int64", "Give a value of that type"),
    StateOfAnotherType: (
        OutputMismatch,
        "epoch 2, key 's-2': state 'n' is declared as int64, and got 'five'",
        "change",
    ),
}


@pytest.mark.parametrize("operator", list(ROW_BY_ROW), ids=lambda operator: operator.__name__)
def test_a_row_by_row_operator_that_fails_is_named_and_its_epoch_is_redone(spark, tmp_path, operator):
    job = Readings(spark, tmp_path)
    error, *says = ROW_BY_ROW[operator]

    job.fails(error, "operator 'Trail'", "epoch was not committed", *says, stream=job.trail(operator))

    job.run()
    job.assert_right()


class Words(Operator):
    output = "first string, second string"

    def process(self, key, row):
        yield (key, key)


class TextForARow(Words):
    def process(self, key, row):
        yield "ab" if row.id == BAD else (key, key)


class NamesForARow(Words):
    def process(self, key, row):
        yield {"first": key, "second": key} if row.id == BAD else (key, key)


@pytest.mark.parametrize(("operator", "shown"), [(TextForARow, "'ab'"), (NamesForARow, "{'first': 's-2'")])
def test_what_only_looks_like_a_row_is_not_taken_for_one(spark, tmp_path, operator, shown):
    job = Readings(spark, tmp_path)

    def words(operator):
        return job.stream().key_by("key").process(operator, name="Words")

    job.fails(
        OutputMismatch, f"operator 'Words', epoch 2: for key 's-2' it gave the row {shown}", stream=words(operator)
    )

    job.run(words(Words))
    assert len(job.sink.rows()) == 24
    assert all(row["first"] == row["second"] == f"s-{row['first'][2:]}" for row in job.sink.rows())


class Totals(ArrowOperator):
    """Vectorised; the classes below spoil what it gives in the second epoch."""

    n = Value(int, 0)
    total = Value(int, 0)
    output = "key string, n long, total long"

    def process(self, batch):
        n = batch.state["n"].to_numpy() + np.bincount(batch.index, minlength=batch.keys.num_rows)
        total = batch.state["total"].to_numpy().copy()
        np.add.at(total, batch.index, batch.rows["id"].to_numpy())
        state = pa.table({"n": n, "total": total})
        output = pa.table({"key": batch.keys["key"], "n": n, "total": total})
        return self.spoil(output, state) if BAD in batch.rows["id"].to_pylist() else (output, state)

    def spoil(self, output, state):
        return output, state


class TotalsRaise(Totals):
    def spoil(self, output, state):
        raise ZeroDivisionError("no rows of that kind")


class TotalsWithoutState(Totals):
    def spoil(self, output, state):
        return output


class TotalsOfTooFewKeys(Totals):
    def spoil(self, output, state):
        return output, state.slice(1)


class TotalsOfAnotherType(Totals):
    def spoil(self, output, state):
        return output, state.set_column(0, "n", pa.array(["many"] * len(state)))


class TotalsOfOtherNames(Totals):
    def spoil(self, output, state):
        return output.rename_columns(["key", "count", "total"]), state


class TotalsAsText(Totals):
    def spoil(self, output, state):
        return output.set_column(2, "total", pa.array(["much"] * len(output))), state


class TotalsAsRows(Totals):
    def spoil(self, output, state):
        return output.to_pylist(), state


class TotalsMarkedBadly(Totals):
    def spoil(self, output, state):
        return output, state.append_column("_deleted", pa.array(["no"] * len(state)))


VECTORISED = {
    TotalsRaise: (OperatorFailed, "raised ZeroDivisionError: no rows of that kind in epoch 2", "'key': 's-", "Fix the"),
    TotalsWithoutState: (OperatorFailed, "raised ValueError", "epoch 2", "Fix the operator"),
    TotalsOfTooFewKeys: (OutputMismatch, r"epoch 2: its new state has \d rows for \d keys", "Return one row per key"),
    TotalsOfAnotherType: (
        OutputMismatch,
        "epoch 2: its new state has .*n string",
        "declared as .n int64",
        "Return the",
    ),
    TotalsOfOtherNames: (
        OutputMismatch,
        "epoch 2: its output has .*count int64",
        "declared as .*n int64",
        "Return the",
    ),
    TotalsAsText: (OutputMismatch, "epoch 2: its output has .*total string", "much", "Return the declared columns"),
    TotalsAsRows: (OutputMismatch, "epoch 2: its output is a list", "Return a pyarrow Table"),
    TotalsMarkedBadly: (OutputMismatch, "epoch 2: the column '_deleted' .* is of type string", "Make it boolean"),
}


@pytest.mark.parametrize("operator", list(VECTORISED), ids=lambda operator: operator.__name__)
def test_a_vectorised_operator_that_fails_is_named_and_its_epoch_is_redone(spark, tmp_path, operator):
    job = Readings(spark, tmp_path)
    error, *says = VECTORISED[operator]

    def totals(operator):
        return job.stream().key_by("key").process(operator, name="Totals")

    job.fails(error, "operator 'Totals'", *says, stream=totals(operator))

    job.run(totals(Totals))
    rows = [row for epoch in (1, 2, 3) for row in epoch_rows(epoch)]
    by_key = {key: [row["id"] for row in rows if row["key"] == key] for key in ("s-0", "s-1", "s-2")}
    assert job.state("Totals") == [(key, len(ids), sum(ids)) for key, ids in by_key.items()]


def test_a_sum_that_leaves_64_bits_fails_its_epoch(spark, tmp_path):
    job = Readings(spark, tmp_path)
    job.put(2, [{**row, "id": (1 << 62) if row["id"] >= BAD else row["id"]} for row in epoch_rows(2)])

    def summed(rows):
        return rows.key_by("key").aggregate(name="Sums", total=aggregates.sum("id"))

    job.fails(OutputMismatch, "total", "64 bits|long", stream=summed(job.stream()))

    job.run(summed(job.stream().where("id < 1000")))
    ids = [number for number in range(24) if not BAD <= number < 16]
    assert job.state("Sums") == [(f"s-{key}", sum(number for number in ids if number % 3 == key)) for key in range(3)]


# -- what is found before anything runs --------------------------------------------------------------


class NoOutput(Operator):
    def process(self, key, row):
        return None


class NoProcess(Operator):
    output = "key string"


class NoVectorisedProcess(ArrowOperator):
    output = "key string"


class NoSchema(Operator):
    output = "key of a string"

    def process(self, key, row):
        return None


class OutputTwice(Operator):
    output = "key string, key long"

    def process(self, key, row):
        return None


class StateNamedAsTheKey(Trail):
    key = Value(int, 0)


class HiddenState(Trail):
    _n = Value(int, 0)


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (NoOutput, "operator 'NoOutput' does not declare its output. Set `output`"),
        (NoProcess, "operator 'NoProcess' has no `process` method. Define process"),
        (NoVectorisedProcess, "operator 'NoVectorisedProcess' has no `process` method. Define process"),
        (NoSchema, "operator 'NoSchema': its output 'key of a string' is not a schema Spark can read. Write it as"),
        (OutputTwice, "operator 'OutputTwice' declares the output column 'key' twice. Give each"),
        (StateNamedAsTheKey, "operator 'StateNamedAsTheKey' keeps state called 'key', .* Give the state another name"),
        (HiddenState, "operator 'HiddenState' declares state '_n'; names with a leading '_'"),
        (Trail(), "needs a class derived from Operator or ArrowOperator, .* Pass the class itself"),
        (dict, "needs a class derived from Operator or ArrowOperator"),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", "object"),
)
def test_an_operator_that_cannot_run_is_refused_where_it_is_named(spark, tmp_path, operator, says):
    keyed = Readings(spark, tmp_path).stream().key_by("key")

    with pytest.raises(InvalidConfiguration) as caught:
        keyed.process(operator)

    check_message(caught.value, InvalidConfiguration, [says])


def test_state_that_would_hide_a_method_is_refused_where_the_class_is_written():
    with pytest.raises(InvalidConfiguration, match=r"'Kept' declares state 'values', .* Give the state another name"):

        class Kept(Operator):
            values = Value(list[float], [])


def test_state_of_a_type_nobody_knows_is_refused_where_it_is_declared():
    with pytest.raises(InvalidConfiguration, match=r"object.* is not a type that state can have\. Use int"):
        Value(object)


def test_a_name_that_cannot_stand_in_a_file_name_is_refused(spark, tmp_path):
    with pytest.raises(InvalidConfiguration, match=r"'a/b' cannot be an operator's name: .* Use letters"):
        Readings(spark, tmp_path).stream().key_by("key").process(Trail, name="a/b")


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({}, "at least one aggregate, for example"),
        ({"n": aggregates.sum("weight")}, "sum.'weight'.: the rows have no such column; use one of key, id, value"),
        ({"n": aggregates.avg("key")}, "avg.'key'.: values of type string cannot be added up; cast"),
        ({"n": aggregates.max("pair")}, "max.'pair'.: type struct.* is not supported; select the one field"),
        ({"key": aggregates.count()}, "'key' has the name of a key column. Give it another name"),
        ({"n": 3}, "n: 3 is not an aggregate; call one of ferryman.aggregates"),
        ({"a": aggregates.sum("x"), "b": aggregates.avg("key")}, "2 settings are wrong:.*a: sum.*b: avg"),
    ],
    ids=["none", "missing", "text", "nested", "named as the key", "no aggregate", "all at once"],
)
def test_aggregates_that_do_not_fit_the_rows_are_all_reported(spark, tmp_path, declared, says):
    stream = Readings(spark, tmp_path).stream().select("*", F.struct("id").alias("pair"))

    with pytest.raises(InvalidConfiguration) as caught:
        stream.key_by("key").aggregate(**declared)

    check_message(caught.value, InvalidConfiguration, [says])


# -- operators that are not those of the checkpoint --------------------------------------------------


class CountsInFloats(Trail):
    n = Value(float, 0.0)


class CountsLess(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (CountsInFloats, "state 'n': int64 -> double"),
        (CountsLess, "state 'digest': int64 -> not there"),
    ],
    ids=["another type", "removed"],
)
def test_a_changed_state_schema_is_refused_and_the_old_one_goes_on(spark, tmp_path, operator, says):
    job = Readings(spark, tmp_path, epochs=1)
    job.run()
    job.epochs = 2
    job.put(2, epoch_rows(2))

    job.fails(
        StateSchemaChanged,
        "operator 'Trail' does not fit",
        says,
        "put the declaration back",
        stream=job.trail(operator),
    )

    job.run()
    job.assert_right()


def test_a_renamed_operator_is_refused_and_the_name_that_keeps_its_state_is_said(spark, tmp_path):
    job = Readings(spark, tmp_path, epochs=1)
    job.run()
    job.epochs = 2
    job.put(2, epoch_rows(2))

    says = ("state of the operators 'Trail', which the job no longer has", "pass name='Trail' to keep its state")
    renamed = job.stream().key_by("key").process(Trail, name="Track")
    job.fails(OperatorsChanged, *says, "start on a new checkpoint", stream=renamed)

    job.run()
    job.assert_right()


# -- transformations between operators ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("move", "says"),
    [
        (lambda rows: rows.repartition(3), "Repartition"),
        (lambda rows: rows.repartition("key"), "RepartitionByExpression"),
        (lambda rows: rows.coalesce(1).where("n > 0"), "Repartition"),
        (lambda rows: rows.union(rows), "Union"),
        (lambda rows: rows.hint("rebalance"), "RebalancePartitions"),
    ],
    ids=["repartition", "repartition by", "coalesce", "union", "rebalance"],
)
def test_a_transformation_that_moves_rows_is_refused_where_it_is_declared(spark, tmp_path, move, says):
    counted = Readings(spark, tmp_path).trail()

    with pytest.raises(PinningLost) as caught:
        counted.transform(move)

    check_message(caught.value, PinningLost, [says, "order per key", "before ferry.stream, or in a sink"])


@pytest.mark.parametrize("move", [lambda rows: rows.coalesce(1), lambda rows: rows.union(rows)])
def test_a_transformation_that_moves_rows_only_later_fails_its_epoch(spark, tmp_path, move):
    job = Readings(spark, tmp_path)
    moving = []

    def through(rows):
        if moving:
            return move(rows)
        return rows

    stream = job.trail().transform(through).key_by("n").aggregate(name="Counts", n_keys=aggregates.count())
    moving.append(True)
    job.fails(PinningLost, "operator 'Trail'", "one partition per instance", "Keep unions", stream=stream, committed=0)

    moving.clear()
    job.run(stream)
    assert job.state("Counts") == [(n, 3) for n in range(1, 9)]


def test_a_transformation_that_gives_no_dataframe_is_refused(spark, tmp_path):
    with pytest.raises(InvalidConfiguration, match=r"transform returned None\. Let it return the DataFrame"):
        Readings(spark, tmp_path).stream().transform(lambda rows: None)


class HoldsALock(Trail):
    lock = threading.Lock()

    def process(self, key, row):
        with self.lock:
            return super().process(key, row)


def test_an_operator_that_cannot_travel_is_refused_before_anything_starts(spark, tmp_path):
    job = Readings(spark, tmp_path)

    with pytest.raises(OperatorFailed, match="cannot be sent to Spark's Python workers") as refused:
        job.run(job.trail(HoldsALock))

    check_message(refused.value, OperatorFailed, ["operator 'Trail'", "lock", "Nothing was started"])
    assert not (job.checkpoint / "manifests").exists()
    job.run()
    job.assert_right()
