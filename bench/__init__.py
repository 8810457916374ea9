"""Benchmarks: every figure of the README comes from here. Users of the public API, like any other."""
