"""What a failure is called on either side: to our users it is a FerrymanError, to Spark a few words.

An error that leaves an epoch goes to Spark as a text. When a query was stopped meanwhile, Spark looks through that text
for its own interruption, by a pattern that takes a stack as deep as the text is long; a whole trace of Java's
overflows it. So Spark is told little, and what it looks for by name.
"""

from __future__ import annotations

import re

from ferryman._engine.kafka_errors import kafka_error
from ferryman._model.errors import FerrymanError, JobFailed, from_text

# What Spark looks for, and in which words.
_INTERRUPTED = re.compile(
    r"java\.lang\.InterruptedException|java\.io\.InterruptedIOException|"
    r"java\.nio\.channels\.ClosedByInterruptException"
)
_CANCELLED = re.compile(r"org\.apache\.spark\.SparkException: .*cancelled.*")
# Jobs of a query that Spark has stopped, ended by us because they began just after that.
_ENDED_BY_US = re.compile(r"cancelled part of cancelled job tags ferryman-")
_AS_SPARK_SAYS = "py4j.protocol.Py4JJavaError: An error occurred while calling"
_MOST_LETTERS = 1000


class EpochFailed(Exception):
    """Tells Spark that an epoch failed; the error itself is the job's."""


def as_ferryman(error: BaseException, job: str) -> BaseException:
    """Find the FerrymanError inside what Spark raised; else wrap it."""
    if isinstance(error, FerrymanError):
        return error
    found = from_text(str(error))
    if found is not None:
        found.__cause__ = error
        return found
    kafkas = kafka_error(str(error), job)
    if kafkas is not None:
        kafkas.__cause__ = error
        return kafkas
    wrapped = JobFailed(
        f"job {job!r} ended with {type(error).__name__}: {error}\nAn epoch counts whole or not at all, so nothing is "
        "lost. Remove the cause and start the job again: it goes on after the last committed epoch."
    )
    wrapped.__cause__ = error
    return wrapped


def as_spark(error: BaseException, job: str) -> EpochFailed:
    """Say what failed in so few words that Spark can read them.

    Examples
    --------
    >>> print(as_spark(ValueError("no such key"), "fleet"))
    job 'fleet': ValueError: no such key
    >>> print(as_spark(ValueError("Job 7 cancelled part of cancelled job tags ferryman-1"), "fleet"))
    job 'fleet': ValueError: Job 7 cancelled part of cancelled job tags ferryman-1
    py4j.protocol.Py4JJavaError: An error occurred while calling it: java.lang.InterruptedException
    """
    whole = str(error)
    said = f"job {job!r}: {type(error).__name__}: {whole}"
    if len(said) > _MOST_LETTERS:
        said = f"{said[:_MOST_LETTERS]} ... (the job itself has the whole error)"
    if found := _INTERRUPTED.search(whole):
        said = f"{said}\n{_AS_SPARK_SAYS} it: {found[0]}"
    elif _ENDED_BY_US.search(whole):
        said = f"{said}\n{_AS_SPARK_SAYS} it: java.lang.InterruptedException"
    elif found := _CANCELLED.search(whole):
        said = f"{said}\n{found[0][:_MOST_LETTERS]}"
    return EpochFailed(said)
