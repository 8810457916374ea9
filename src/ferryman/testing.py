"""Test operators without Spark, on a clock of your own, with crashes, moves and time travel; and sinks, with kills."""

from ferryman._testing.crash_at_row import Crash
from ferryman._testing.harness import Harness
from ferryman._testing.sink_checks import SINK_CHECKS, check_sink

__all__ = ["Crash", "Harness", "SINK_CHECKS", "check_sink"]
