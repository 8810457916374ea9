"""Policies by the names that a shell knows them by, and options of the autoscaler as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferryman._model.errors import InvalidConfiguration
from ferryman._scale.options import Autoscale
from ferryman._scale.policies import Policy, Seep, TargetLatency, TrueRates

NAMES = ("true-rates", "seep", "latency")


def policy_of(name: str, *, target: float = 0.7, window_s: float = 5.0, latency_s: float | None = None) -> Policy:
    """Make a policy of a name.

    Examples
    --------
    >>> policy_of("latency", latency_s=2.0)
    TargetLatency(seconds=2.0, window_s=5.0, margin=0.8)
    """
    if name == "true-rates":
        return TrueRates(target=target, window_s=window_s)
    if name == "seep":
        return Seep(above=target, report_s=window_s)
    if name == "latency" and latency_s is not None:
        return TargetLatency(seconds=latency_s, window_s=window_s)
    if name == "latency":
        raise InvalidConfiguration("policy 'latency': say how long the slowest rows may take, with --latency.")
    raise InvalidConfiguration(f"policy {name!r}: give one of {', '.join(NAMES)}.")


def options_of(raw: Mapping[str, Any]) -> Autoscale:
    """Read options as a shell gives them; a policy is a name there."""
    given = dict(raw)
    policy, latency_s = given.pop("policy", None), given.pop("latency_s", None)
    try:
        options = Autoscale(**given)
    except TypeError as error:
        raise InvalidConfiguration(f"the autoscaler takes no such options: {error}.") from error
    if policy is None:
        return options
    named = policy_of(policy, target=options.target, window_s=options.window_s, latency_s=latency_s)
    return Autoscale(**given, policy=named)
