"""A broker of Kafka for all tests of this folder, and a session that reads it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import kafka_broker
import pytest
from kafka_topics import Topics, add_connector

NUMBER = itertools.count()


@pytest.fixture(scope="package")
def topics() -> Iterator[Topics]:
    try:
        kafka_broker.connector()
        with kafka_broker.broker() as servers:
            yield Topics(servers)
    except kafka_broker.NotToBeHad as why:
        pytest.skip(str(why))


@pytest.fixture
def topic(topics: Topics) -> str:
    name = f"in-{next(NUMBER)}"
    topics.make(name, 3)
    return name


@pytest.fixture
def with_connector(spark, topics):
    add_connector(spark)
    return spark
