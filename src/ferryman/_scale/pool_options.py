"""What a user can choose of the executors that a job asks Spark for."""

from __future__ import annotations

from dataclasses import dataclass

from ferryman._model.errors import InvalidConfiguration
from ferryman._scale.options import Interval, interval_faults, interval_s, is_whole


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Have a job ask Spark for executors as its instances grow, and give them back as they shrink.

    Parameters
    ----------
    min, max
        How many executors there are at the least and at the most.
    instances_each
        How many instances are wanted on each; as many as an executor has cores if left out.
    patience
        For how long executors that were asked for are waited for. Then the job goes on with those there are, and they
        are asked for again later.
    give_back_after
        For how long there have to be more than are needed before some are given back.

    Examples
    --------
    >>> Pool(max=8, instances_each=2).executors_for(5, cores=None)
    3
    >>> Pool(min=0, patience="soon")
    Traceback (most recent call last):
    ...
    ferryman._model.errors.InvalidConfiguration: [INVALID_CONFIGURATION] 2 settings are wrong:
      - min=0: give a whole number, 1 at the least
      - patience='soon': 'soon' is not an interval. Write it as '5 seconds' or '500 milliseconds'.
    """

    min: int = 1
    max: int = 4
    instances_each: int | None = None
    patience: Interval = "1 minute"
    give_back_after: Interval = "10 seconds"

    def __post_init__(self) -> None:
        faults = [
            f"{name}={getattr(self, name)!r}: give a whole number, 1 at the least"
            for name in ("min", "max", "instances_each")
            if not is_whole(getattr(self, name), 1) and not (name == "instances_each" and self.instances_each is None)
        ]
        if not faults and self.max < self.min:
            faults.append(f"max={self.max!r}: it is less than min={self.min!r}")
        faults += interval_faults(self, ("patience", "give_back_after"))
        if faults:
            raise InvalidConfiguration.of(faults)

    @property
    def patience_s(self) -> float:
        """Give in seconds for how long executors are waited for."""
        return interval_s(self.patience)

    @property
    def give_back_s(self) -> float:
        """Give in seconds for how long there have to be too many."""
        return interval_s(self.give_back_after)

    def each(self, cores: int | None) -> int:
        """Give how many instances are wanted on an executor that has so many cores."""
        return self.instances_each or cores or 1

    def executors_for(self, instances: int, cores: int | None) -> int:
        """Give how many executors there should be for so many instances."""
        return max(self.min, min(self.max, -(-instances // self.each(cores))))
