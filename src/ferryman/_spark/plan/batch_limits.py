"""How many rows go to Python at once: a limit in rows, and one in bytes where rows may be wide.

To keep to a limit in bytes Spark measures the Arrow batch after every single row, which took three times as long as
all the rest where rows are narrow, and is nothing beside a wide row. So the limit is only set for an epoch whose rows
may be wide: if those of the epoch before were, or if nothing is known of them yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST_ROWS = 20_000

# What Spark takes for no limit, and the largest batch there is where the user has set none.
_NO_LIMIT = (1 << 31) - 1
MOST_BYTES = 256 << 20
# Rows may become so many times as wide from one epoch to the next before a batch is beyond its limit.
_MARGIN = 4


def bytes_of(text: str | None) -> int:
    """Read a number of bytes as Spark writes it, and no more than a batch may have in any case.

    Examples
    --------
    >>> bytes_of("64m") == bytes_of("67108864") == bytes_of("65536 KB") == 64 << 20
    True
    """
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", (text or "").lower())
    if found is None:
        return MOST_BYTES
    scale = 1 << (10 * " kmgt".index(found[2] or " "))
    return min(max(1, int(found[1]) * scale), MOST_BYTES)


def most_bytes(spark: SparkSession) -> int:
    """Give the limit in bytes of a session: what the user has set, else what Spark goes by itself."""
    try:
        return bytes_of(spark.conf.get(BYTES))
    except PySparkException:
        # This Spark knows no such limit.
        return MOST_BYTES


class BatchLimits:
    """Choose the limits of an epoch.

    Parameters
    ----------
    most_bytes
        The user's limit in bytes.
    inputs
        What the operators of the job read. Of columns that are all of a fixed width, the limit in rows is enough.
    """

    def __init__(self, most_bytes: int, inputs: Iterable[pa.Schema]) -> None:
        self.most_bytes = most_bytes
        self._may_vary = any(not _fixed(kind) for schema in inputs for kind in schema.types)
        self._width: int | None = None

    @property
    def narrow(self) -> bool:
        """Tell whether rows are known to be so narrow that the limit in rows is enough."""
        known = self._width is not None and self._width * MOST_ROWS * _MARGIN <= self.most_bytes
        return known or not self._may_vary

    def conf(self) -> dict[str, str]:
        """Give the settings of the next epoch."""
        return {ROWS: str(MOST_ROWS), BYTES: str(_NO_LIMIT if self.narrow else self.most_bytes)}

    def note(self, widths: Iterable[int]) -> None:
        """Learn how wide the rows of an epoch's tasks were; from one without rows there is nothing to learn."""
        widest = max(widths, default=0)
        if widest:
            self._width = widest


def _fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))
