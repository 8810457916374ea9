"""Test operators without Spark: on a clock of your own, with crashes, moves and time travel."""

from ferryman._testing.crash_at_row import Crash
from ferryman._testing.harness import Harness

__all__ = ["Crash", "Harness"]
