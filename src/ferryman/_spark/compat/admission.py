"""Admission control of Python data sources: Spark 4.3 has it, 4.1 has not and calls none of what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
    except ImportError:
        ReadLimit = ReadMaxRows = None

        class SupportsTriggerAvailableNow:
            """Stand in for the mixin that Spark 4.1 does not know."""
