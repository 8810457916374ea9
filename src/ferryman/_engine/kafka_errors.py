"""What Spark's Kafka connector ends a query with, said so that it can be acted upon. Pure.

Its errors come as text, in Java's words: that of a task in the middle of a trace, that of a query with its whole plan.
"""

from __future__ import annotations

import re

from ferryman._model.errors import FerrymanError, SourceRowsGone, SourceUnavailable

_GONE = re.compile(r"Some data may have been lost because they are not available in Kafka|KAFKA_DATA_LOSS")
_REASON = re.compile(
    r"Reason: (?P<reason>.+?)(?=\n\s*(?:\n|at |=== |with consumer group|Caused by|This could be)|\Z)", re.DOTALL
)
_NO_TOPIC = re.compile(r"UnknownTopicOrPartitionException: (?P<reason>[^\n]*)")
_SILENT = re.compile(r"org\.apache\.kafka\.common\.errors\.TimeoutException: (?P<reason>[^\n]*)")
_REFUSED = re.compile(
    r"org\.apache\.kafka\.common\.errors\.\w*(?:Authentication|Authorization)Exception: (?P<reason>[^\n]*)"
)
_INTACT = "What is committed is intact, and the next start goes on after it."


def kafka_error(text: str, job: str) -> FerrymanError | None:
    """Find what Kafka has against a job inside of what Spark said; None if it is not that.

    Examples
    --------
    >>> said = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this."
    >>> kafka_error(said, "fleet").error_class, kafka_error("something else", "fleet")
    ('SOURCE_UNAVAILABLE', None)
    """
    if _GONE.search(text):
        found = _REASON.search(text)
        reason = "" if found is None else f" ({' '.join(found['reason'].split()).rstrip('.')})"
        return SourceRowsGone(
            f"job {job!r} was to read rows that Kafka does not have any more{reason}: its retention took them before "
            "the job came to them, or the topic was deleted and made anew. No one can give them back. State and sinks "
            "are intact up to the last committed epoch. To go on without these rows, start the job with "
            '.option("failOnDataLoss", "false") once, and then as before; of an epoch that was under way it then '
            "takes what is left. To keep it from happening again, give the topic a longer retention.ms, or the job "
            "more instances."
        )
    if found := _NO_TOPIC.search(text):
        return SourceUnavailable(
            f"job {job!r} wants a topic, or a partition of one, that Kafka does not have ({found['reason']}) Is its "
            "name right, and are these the right brokers? If it was deleted, what was not read of it is gone. "
            f"{_INTACT}"
        )
    if found := _REFUSED.search(text):
        return SourceUnavailable(
            f"Kafka refuses job {job!r}: {found['reason']} Look at the options kafka.security.protocol and "
            f"kafka.sasl.*, and at what this user may do. {_INTACT}"
        )
    if found := _SILENT.search(text):
        return SourceUnavailable(
            f"Kafka does not answer job {job!r}: {found['reason']} See whether kafka.bootstrap.servers are the right "
            f"ones, up and within reach of driver and executors. {_INTACT}"
        )
    return None
