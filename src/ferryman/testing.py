"""Test operators without Spark: on a clock of your own, with crashes, moves and time travel."""

from ferryman._testing.harness import Crash, Harness

__all__ = ["Crash", "Harness"]
