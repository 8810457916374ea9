"""What is wrong with the options of a ferry and of a start: every fault is found, so that all are told at once."""

from __future__ import annotations

import difflib
import inspect
import os
from typing import Any

from ferryman._model.errors import UnknownOption
from ferryman._routing.sites import site_faults
from ferryman._scale.options import Autoscale
from ferryman._serve.certificates import missing
from ferryman._state import store as stores


def _whole(value: object, low: int, high: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_path(value: object) -> bool:
    """Tell whether a value can be a path."""
    return isinstance(value, (str, os.PathLike)) and bool(str(value).strip())


def number_faults(groups: object, retain: object, snapshot_every: object, replicas: object) -> list[str]:
    """List what is wrong with the options that are numbers."""
    faults = []
    if groups is not None and not _whole(groups, 1, 32768):
        faults.append(f"groups={groups!r}: give a whole number from 1 to 32768")
    if not _whole(retain, 1):
        faults.append(f"retain={retain!r}: give the number of epochs to keep, 1 at the least")
    if not _whole(snapshot_every, 1):
        faults.append(f"snapshot_every={snapshot_every!r}: give a number of epochs, 1 at the least")
    if not _whole(replicas, 0):
        faults.append(f"replicas={replicas!r}: give how many other hosts keep a host's state, 0 for none")
    return faults


def place_faults(home: object, store: object, tls: Any) -> list[str]:
    """List what is wrong with the options that say where things are."""
    faults = []
    if home is not None and not is_path(home):
        faults.append(f"home={home!r}: give a local directory, or leave it out")
    if store is not None and store not in stores.GENERAL:
        faults.append(f"store={store!r}: give {stores.listed(stores.GENERAL)}, or leave it out")
    if tls is not None and not is_path(tls):
        faults.append(f"tls={tls!r}: give a local directory with cert.pem, key.pem and ca.pem, or leave it out")
    elif tls is not None and (lacking := missing(os.fspath(tls))):
        faults.append(f"tls={tls!r}: there is no {', no '.join(lacking)} in that directory on this host")
    return faults


def other_faults(hot_keys: object, sites: Any, clock: object, autoscale: object, **switches: object) -> list[str]:
    """List what is wrong with the other options."""
    faults = []
    if autoscale is not None and not isinstance(autoscale, Autoscale):
        faults.append(f"autoscale={autoscale!r}: give ferryman.Autoscale(...), or leave it out")
    if hot_keys not in ("report", "isolate"):
        faults.append(f"hot_keys={hot_keys!r}: give 'report' or 'isolate'")
    faults += site_faults(sites)
    if clock is not None and not callable(clock):
        faults.append(f"clock={clock!r}: give a function that gives milliseconds since 1970, or leave it out")
    for option, value in switches.items():
        if not isinstance(value, bool):
            faults.append(f"{option}={value!r}: give True or False")
    return faults


def start_faults(
    name: object, outputs: tuple[object, ...], kind: type, instances: object, trigger: object
) -> list[str]:
    """List what is wrong with the arguments of a start, as far as it can be told without the checkpoint.

    Outputs are all of one `kind`.
    """
    faults = []
    if not (isinstance(name, str) and name.strip()):
        faults.append(f"name={name!r}: give the job a name; its checkpoint is known by it")
    if not outputs or not all(isinstance(output, kind) for output in outputs):
        faults.append("outputs: give one at the least; an output is what stream.write(sink) returns")
    if instances is not None and not _whole(instances, 1):
        faults.append(f"instances={instances!r}: give a whole number, 1 at the least")
    known = ("processingTime", "availableNow", "once")
    if trigger is not None and not (isinstance(trigger, dict) and len(trigger) <= 1 and set(trigger) <= set(known)):
        faults.append(f'trigger={trigger!r}: give one of {", ".join(known)}, for example {{"availableNow": True}}')
    return faults


def refuse_unknown(unknown: dict[str, Any], function: Any, label: str) -> None:
    """Refuse options that there are not, and say which was meant."""
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name != "self"
    ]
    if unknown:
        lines = []
        for name in unknown:
            close = difflib.get_close_matches(name, known, 1)
            lines.append(f"{name!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
        raise UnknownOption(f"{label} has no option {', '.join(lines)}. It has: {', '.join(known)}.")
