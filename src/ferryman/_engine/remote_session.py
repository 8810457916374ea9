"""Tell a session over Spark Connect from one in this process, and refuse it: a job works beside Spark's own driver.

Its classes are told by where they are defined, so that nobody needs what Connect needs, to be told so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ferryman._log.files.remote import masked
from ferryman._model.errors import ConnectSession

_CONNECT = "pyspark.sql.connect."
_REMOTE = "spark.remote"


def is_remote(given: object) -> bool:
    """Tell whether a session, or a DataFrame, is one of Spark Connect's."""
    return any(kind.__module__.startswith(_CONNECT) for kind in type(given).__mro__)


def refuse_remote(settings: Mapping[str, str]) -> None:
    """Refuse a builder that is to connect to a server."""
    if settings.get(_REMOTE):
        # Behind the address may be a token.
        address = masked(settings[_REMOTE].partition(";")[0])
        refuse(f"the builder was told .remote({address!r})")


def refuse(what: str) -> NoReturn:
    """Refuse to work over Spark Connect, and say what to do."""
    raise ConnectSession(
        f"{what}, and Ferryman does not run over Spark Connect yet: start the job where Spark's driver is, on a "
        'session without .remote (spark.read.format("ferryman") reads its state over Connect too).'
    )
