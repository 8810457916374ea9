"""What a user can choose of the autoscaler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ferryman._model.errors import InvalidConfiguration
from ferryman._model.interval import seconds
from ferryman._scale.policies import Policy, TrueRates

Interval = str | float


@dataclass(frozen=True, kw_only=True)
class Autoscale:
    """Have a job choose its number of instances by itself.

    Parameters
    ----------
    min, max
        How many there are at the least and at the most.
    target
        What part of the time the busiest instances should work; for the policy that is used if none is given.
    policy
        Says how many there should be: `TrueRates`, `TargetLatency`, `Seep`, `Schedule`, or a function of your own.
        If left out, `TrueRates(target=target)`.
    window
        Over how long load is measured, and so how long a change is waited for to show what it brought.
    scale_out_after
        For how long a policy has to want more before there are more.
    scale_in_after
        For how long it has to want fewer; then there are as many as it wanted at the most in that time.
    cool_down
        For how long after a change there is no other.
    most_moved
        How many bytes of state may go from host to host in an hour because of it; None for any number.
    dry_run
        Whether it only says what it would do.

    Examples
    --------
    >>> Autoscale(max=8, scale_in_after="30 seconds").scale_in_s
    30.0
    >>> Autoscale(min=0, target=7)
    Traceback (most recent call last):
    ...
    ferryman._model.errors.InvalidConfiguration: [INVALID_CONFIGURATION] 2 settings are wrong:
      - min=0: give a whole number, 1 at the least
      - target=7: give a part of the time, from 0.1 to 0.95
    """

    min: int = 1
    max: int = 16
    target: float = 0.7
    policy: Policy | None = None
    window: Interval = "5 seconds"
    scale_out_after: Interval = "2 seconds"
    scale_in_after: Interval = "1 minute"
    cool_down: Interval = "5 seconds"
    most_moved: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        faults = [*self._number_faults()]
        faults += interval_faults(self, ("window", "scale_out_after", "scale_in_after", "cool_down"))
        if self.policy is not None and not callable(self.policy):
            faults.append(
                f"policy={self.policy!r}: give a policy, such as ferryman.autoscaling.TrueRates(), or a function"
            )
        if not isinstance(self.dry_run, bool):
            faults.append(f"dry_run={self.dry_run!r}: give True or False")
        if faults:
            raise InvalidConfiguration.of(faults)

    def _number_faults(self) -> list[str]:
        faults = []
        if not is_whole(self.min, 1):
            faults.append(f"min={self.min!r}: give a whole number, 1 at the least")
        if not is_whole(self.max, 1):
            faults.append(f"max={self.max!r}: give a whole number, 1 at the least")
        elif is_whole(self.min, 1) and self.max < self.min:
            faults.append(f"max={self.max!r}: it is less than min={self.min!r}")
        if not isinstance(self.target, (int, float)) or not 0.1 <= self.target <= 0.95:
            faults.append(f"target={self.target!r}: give a part of the time, from 0.1 to 0.95")
        if self.most_moved is not None and not is_whole(self.most_moved, 0):
            faults.append(f"most_moved={self.most_moved!r}: give a number of bytes, or leave it out")
        return faults

    @property
    def window_s(self) -> float:
        """Give the window in seconds."""
        return interval_s(self.window)

    @property
    def scale_out_s(self) -> float:
        """Give in seconds for how long more has to be wanted."""
        return interval_s(self.scale_out_after)

    @property
    def scale_in_s(self) -> float:
        """Give in seconds for how long fewer have to be wanted."""
        return interval_s(self.scale_in_after)

    @property
    def cool_down_s(self) -> float:
        """Give in seconds for how long nothing comes after a change."""
        return interval_s(self.cool_down)

    @property
    def chosen(self) -> Policy:
        """Give the policy."""
        return TrueRates(target=self.target, window_s=self.window_s) if self.policy is None else self.policy


def is_whole(value: object, low: int) -> bool:
    """Tell whether a value is a whole number that is not too small."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def interval_faults(options: object, names: Iterable[str]) -> list[str]:
    """List what is wrong with the options that are intervals."""
    faults = []
    for name in names:
        given = getattr(options, name)
        try:
            if not 0 <= interval_s(given) <= 86_400 or (name == "window" and interval_s(given) < 0.5):
                faults.append(f"{name}={given!r}: give an interval of a day at the most, and the window half a second")
        except InvalidConfiguration as error:
            faults.append(f"{name}={given!r}: {error.message}")
    return faults


def interval_s(given: Interval) -> float:
    """Give an interval in seconds."""
    found = seconds(given)
    if found is None:
        raise InvalidConfiguration("None is not an interval. Write it as '5 seconds'.")
    return float(found)
