"""Epochs without Spark: what an instance does, what the driver does around it, and how a run begins and recovers."""
