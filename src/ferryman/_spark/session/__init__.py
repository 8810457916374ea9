"""Spark sessions: settings, advice, workers, and clusters on this machine."""
