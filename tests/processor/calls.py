"""Note what a user's code really calls on Spark and on Ferryman, in their workers, without it noticing.

A stream is wrapped: the processors and functions that are given to it get a handle, states, timers and times that
write down each method as it is called, into a file per engine, and pass everything on.
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import GroupedData
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

# The workers cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SPARK, FERRYMAN = "Spark", "Ferryman"
GROUPED = ("transformWithState", "transformWithStateInPandas", "applyInPandasWithState")
STATES = {"getValueState": "ValueState", "getListState": "ListState", "getMapState": "MapState"}


class Calls:
    """What was called on one engine, by all processes: lines of "class.method" in a file."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._driver = os.getpid()
        self._noted: set[str] = set()

    def note(self, what: str, *, by_driver: bool = False) -> None:
        # What a processor does on the driver is a rehearsal.
        if what not in self._noted and by_driver == (os.getpid() == self._driver):
            self._noted.add(what)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(file, f"{what}\n".encode())
            os.close(file)

    def all(self) -> set[str]:
        path = Path(self._path)
        return set(path.read_text().split("\n")) - {""} if path.exists() else set()


class Watched:
    """Another object, whose methods and properties are noted as they are used."""

    def __init__(self, inner: Any, label: str, calls: Calls) -> None:
        self.__dict__.update(inner=inner, label=label, calls=calls)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.inner, name)
        if not callable(found):
            self.calls.note(f"{self.label}.{name}")
            return found

        def call(*args: Any, **named: Any) -> Any:
            self.calls.note(f"{self.label}.{name}")
            made = found(*args, **named)
            if name not in STATES:
                return made
            if inspect.signature(found).bind(*args, **named).arguments.get("ttlDurationMs"):
                self.calls.note(f"{self.label}.{name}(ttlDurationMs)")
            return Watched(made, STATES[name], self.calls)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)


def _watched_processor(processor: StatefulProcessor, calls: Calls) -> StatefulProcessor:
    """Give a processor of a class derived from its own, that notes what it is called with."""
    own = type(processor)

    def wrapping(name: str, labels: dict[int, str]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **named: Any) -> Any:
            calls.note(f"StatefulProcessor.{name}")
            given = inspect.signature(getattr(own, name)).bind(self, *args, **named).arguments.values()
            wrapped = [
                Watched(argument, labels[n], calls) if n in labels else argument for n, argument in enumerate(given)
            ]
            return getattr(own, name)(*wrapped)

        return method

    watched = {
        "init": {1: "StatefulProcessorHandle"},
        "handleInputRows": {3: "TimerValues"},
        "handleExpiredTimer": {2: "TimerValues", 3: "ExpiredTimerInfo"},
        "handleInitialState": {3: "TimerValues"},
        "close": {},
    }
    there = {
        name: labels for name, labels in watched.items() if getattr(own, name) is not getattr(StatefulProcessor, name)
    }
    made = copy.copy(processor)
    made.__class__ = type(own.__name__, (own,), {name: wrapping(name, labels) for name, labels in there.items()})
    return made


def _watched_function(function: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    def call(key: Any, frames: Any, state: Any) -> Any:
        return function(key, frames, Watched(state, "GroupState", calls))

    return call


class WatchedStream:
    """A stream of either engine whose processors are watched, and those after them."""

    def __init__(self, inner: Any, calls: Calls) -> None:
        self.inner, self._calls = inner, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name in GROUPED:
            return self._watching(name, found)
        if name in ("groupBy", "withWatermark", "with_watermark"):
            return lambda *args, **named: WatchedStream(found(*args, **named), self._calls)
        return found

    def _watching(self, name: str, found: Any) -> Any:
        def call(*args: Any, **named: Any) -> WatchedStream:
            declared = inspect.signature(getattr(GroupedData, name))
            more = {argument: named.pop(argument) for argument in list(named) if argument not in declared.parameters}
            given = declared.bind(None, *args, **named).arguments
            given.pop("self")
            for argument, value in given.items():
                if value is not None:
                    self._calls.note(f"groupBy().{name}.{argument}", by_driver=True)
            if name == "applyInPandasWithState":
                given["func"] = _watched_function(given["func"], self._calls)
            else:
                given["statefulProcessor"] = _watched_processor(given["statefulProcessor"], self._calls)
            return WatchedStream(found(**given, **more), self._calls)

        return call
