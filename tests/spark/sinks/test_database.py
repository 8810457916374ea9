"""Rows in a database: those of committed epochs, once, in PostgreSQL and in SQLite."""

from __future__ import annotations

import importlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import postgres
import pyarrow as pa
import pytest
from readings import Readings, epoch_rows, expected

from ferryman import sinks
from ferryman._engine.sink import SinkStart
from ferryman.errors import ForeignCheckpoint, InvalidConfiguration, SinkAhead, SinkMissing
from ferryman.testing import SINK_CHECKS, check_sink

NUMBER = itertools.count()
CHECKS = [pytest.param(check, marks=[pytest.mark.slow] * ("killed" in check)) for check in SINK_CHECKS]


@dataclass(frozen=True)
class Database:
    """A database, and a table of a test's own in it."""

    connect: Callable[[], Any]
    table: str

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            found = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return found
        finally:
            connection.close()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.run(f"SELECT * FROM {self.table}")


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Callable[[], Any]]:
    with postgres.server() as conninfo:
        import psycopg

        yield partial(psycopg.connect, conninfo)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        connect = partial(sqlite3.connect, tmp_path / "rows.db")
    else:
        connect = request.getfixturevalue("postgresql")
    found = Database(connect, f"shown_{next(NUMBER)}")
    found.run(f"CREATE TABLE {found.table} (key VARCHAR(20), n BIGINT, since VARCHAR(20) DEFAULT 'x')")
    found.run(f"CREATE VIEW {found.table}_seen AS SELECT key, n FROM {found.table}")
    return found


def newest(epochs: list[pa.Table]) -> list[dict[str, Any]]:
    """Give the newest row of each key."""
    return list({row["key"]: row for epoch in epochs for row in epoch.to_pylist()}.values())


@pytest.mark.parametrize("check", CHECKS)
def test_rows_that_are_added_pass(check: str, database: Database):
    check_sink(
        check,
        lambda: sinks.database(database.connect, database.table),
        lambda: database.run(f"SELECT * FROM {database.table}_seen"),
        kills=20,
    )


@pytest.mark.slow
@pytest.mark.parametrize("check", SINK_CHECKS)
def test_a_view_with_the_newest_row_of_each_key_passes(check: str, database: Database):
    check_sink(
        check,
        lambda: sinks.database(database.connect, database.table, key="key"),
        lambda: database.run(f"SELECT * FROM {database.table}_seen"),
        expected=newest,
        kills=20,
    )


def begun(database: Database, **options: Any) -> sinks.Sink:
    sink = sinks.database(database.connect, database.table, **options)
    sink.claim("job")
    sink.begin(SinkStart(epoch=0, term=1))
    return sink


def test_a_row_has_the_place_of_the_one_before_it_and_others_stay(database: Database):
    database.run(f"INSERT INTO {database.table} VALUES ('mine', 7, 'before'), ('a', 0, 'before')")
    sink = begun(database, key=["key"])
    for epoch, (keys, numbers) in enumerate([(["a", "b", "a"], [1, 2, 3]), (["b"], [4])], 1):
        written = sink.write_table(pa.table({"key": keys, "n": numbers}), epoch)
        assert sorted(database.rows())[-1] == ("mine", 7, "before"), "nothing is shown before its epoch is committed"
        sink.commit(epoch, written)
    assert {row[:2] for row in database.rows()} == {("mine", 7), ("a", 3), ("b", 4)}


@pytest.mark.parametrize("key", ["key", ["key", "since"]])
def test_a_row_whose_key_is_null_has_the_place_of_the_one_before_it_too(key: str | list[str], database: Database):
    database.run(f"INSERT INTO {database.table} VALUES (NULL, 7, 'other'), ('mine', 7, NULL)")
    sink = begun(database, key=key)
    for epoch in (1, 2):
        rows = pa.table({"key": [None, "a", None], "n": [0, epoch, epoch], "since": pa.array([None] * 3, pa.string())})
        sink.commit(epoch, sink.write_table(rows, epoch))
    others = {("mine", 7)} if key == "key" else {("mine", 7), (None, 7)}
    assert {row[:2] for row in database.rows()} == {(None, 2), ("a", 2)} | others
    assert len(database.rows()) == 2 + len(others)


def test_rows_that_are_gone_before_they_are_shown_are_missed(database: Database):
    sink = begun(database)
    written = sink.write_table(pa.table({"key": ["a"], "n": [1]}), 1)
    database.run(f"DELETE FROM {database.table}_staged")
    with pytest.raises(SinkMissing, match=r"0 of the 1 rows of epoch 1"):
        sink.commit(1, written)
    assert database.rows() == []


def test_a_checkpoint_that_has_less_than_the_table_is_refused(database: Database):
    sink = begun(database)
    sink.commit(3, sink.write_table(pa.table({"key": ["a"], "n": [1]}), 3))
    again = sinks.database(database.connect, database.table)
    assert again.claim("job") == 1
    assert again.label == sink.label
    with pytest.raises(SinkAhead, match=r"up to epoch 3 .* goes to epoch 2"):
        again.begin(SinkStart(epoch=2, term=2))
    with pytest.raises(ForeignCheckpoint, match=database.table):
        sinks.database(database.connect, database.table).claim("another")


def test_a_table_that_has_less_than_the_checkpoint_is_refused_even_where_the_newest_epoch_is_empty(database: Database):
    sink = begun(database)
    for epoch in (1, 2, 3):
        written = sink.write_table(pa.table({"key": ["a"], "n": [epoch]}).slice(0, 3 - epoch), epoch)
        sink.commit(epoch, written)
    again = sinks.database(database.connect, database.table)
    again.claim("job")
    again.begin(SinkStart(epoch=3, term=2, written=written))
    database.run(f"UPDATE ferryman_epochs SET epoch = 1 WHERE target = '{database.table}'")
    with pytest.raises(SinkMissing, match=r"up to epoch 2 of this job, and now has them up to epoch 1.*Restore the"):
        again.begin(SinkStart(epoch=3, term=3, written=written))


# As MySQL's own driver is laid out: what marks values stands neither in the outermost package nor beside the class.
NESTED_DRIVER = {
    "nested_driver/__init__.py": "",
    "nested_driver/connector/__init__.py": "paramstyle = 'pyformat'",
    "nested_driver/connector/connection.py": """
import sqlite3

class Cursor(sqlite3.Cursor):
    def execute(self, statement, values=()):
        assert "?" not in statement, "this driver knows %s alone"
        return super().execute(statement.replace("%s", "?"), values)

class Connection(sqlite3.Connection):
    def cursor(self):
        return super().cursor(Cursor)
""",
}


def test_how_a_driver_marks_values_is_found_in_the_package_that_says_it(tmp_path: Path, monkeypatch):
    for name, text in NESTED_DRIVER.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    driver = importlib.import_module("nested_driver.connector.connection")
    database = Database(partial(sqlite3.connect, tmp_path / "rows.db", factory=driver.Connection), "shown")
    plain = Database(partial(sqlite3.connect, tmp_path / "rows.db"), "shown")
    plain.run("CREATE TABLE shown (key VARCHAR(20), n BIGINT)")

    check_sink(
        "whole epochs",
        partial(sinks.database, database.connect, "shown"),
        plain.rows,
    )


def test_what_cannot_be_is_refused_with_a_reason(database: Database, monkeypatch):
    with pytest.raises(InvalidConfiguration, match="rows; drop"):
        sinks.database(database.connect, "rows; drop table rows")
    with pytest.raises(InvalidConfiguration, match=r"no column 'id', but key, n"):
        begun(database, key="id").write_table(pa.table({"key": ["a"], "n": [1]}), 1)
    alone = partial(sqlite3.connect, ":memory:", isolation_level=None)
    with pytest.raises(InvalidConfiguration, match="commits by itself"):
        sinks.database(alone, "rows").claim("job")
    monkeypatch.setattr(sqlite3, "paramstyle", "named")
    with pytest.raises(InvalidConfiguration, match="by qmark, format, pyformat, and this driver wants named"):
        sinks.database(partial(sqlite3.connect, ":memory:"), "rows").claim("job")


class CommitsByItself(sqlite3.Connection):
    """A connection of a driver that commits each statement, and does not say so."""


def test_a_driver_on_which_what_is_rolled_back_stays_is_refused(tmp_path: Path):
    connect = partial(sqlite3.connect, tmp_path / "rows.db", isolation_level=None, factory=CommitsByItself)
    database = Database(connect, "shown")
    database.run("CREATE TABLE shown (key VARCHAR(20), n BIGINT)")
    with pytest.raises(InvalidConfiguration, match="stays when it is rolled back"):
        sinks.database(connect, "shown").claim("job")
    assert [target for target, *_ in database.run("SELECT target FROM ferryman_epochs")] == ["shown"]


def test_a_job_writes_to_a_database(spark, tmp_path, database: Database):
    table = f"trail_{next(NUMBER)}"
    database.run(f"CREATE TABLE {table} (key VARCHAR(20), n BIGINT, digest BIGINT)")
    job = Readings(spark, tmp_path)
    added, view = sinks.database(database.connect, table), sinks.database(database.connect, f"{table}_view", key="key")
    database.run(f"CREATE TABLE {table}_view (key VARCHAR(20) PRIMARY KEY, n BIGINT, digest BIGINT)")
    trail = job.trail()

    outputs = trail.write(added), trail.write(view)
    trail.ferry.start("readings", *outputs, instances=2, trigger={"availableNow": True}).wait()

    state, output = expected(row for epoch in range(1, job.epochs + 1) for row in epoch_rows(epoch))
    assert sorted(database.run(f"SELECT * FROM {table}")) == output
    assert sorted(database.run(f"SELECT * FROM {table}_view")) == state
