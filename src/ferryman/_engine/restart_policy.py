"""Whether a driver that has failed is started again, and after how long: frozen records in and out, no clock, no dice.

`supervisor` does what it says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# What a driver ends with the next time too, until somebody changes the job, its options or its checkpoint.
LASTING = frozenset(
    {
        "CheckpointInUse",
        "CorruptCheckpoint",
        "ForeignCheckpoint",
        "InvalidConfiguration",
        "JavaMissing",
        "MissingDelta",
        "MissingKey",
        "ModuleNotFoundError",
        "NewerFormat",
        "NotOnStream",
        "OperatorsChanged",
        "RewindUnfinished",
        "SinkAhead",
        "SinkMissing",
        "SourceRowsGone",
        "SourcesChanged",
        "StateSchemaChanged",
        "Superseded",
        "SyntaxError",
        "UnfencedStorage",
        "UnhashableKey",
        "UnknownOption",
    }
)


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """How patient to be.

    Attributes
    ----------
    failures
        After how many failures to give up, with no epoch committed in between.
    window_s
        Failures that were longer ago do not count.
    first_s, most_s
        How long to wait after the first of them, and at the most; each time twice as long as before.
    """

    failures: int = 10
    window_s: float = 3600.0
    first_s: float = 1.0
    most_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a driver has failed.

    Attributes
    ----------
    at_s
        When, by a clock that only measures.
    how
        For people: what it has ended with.
    error
        The class of the error that ended it; empty where it could not tell, as when it was killed.
    epochs
        How many epochs it had committed.
    """

    at_s: float
    how: str
    error: str = ""
    epochs: int = 0


@dataclass(frozen=True)
class Wait:
    """Start it again after a while."""

    seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Do not start it again; `lasting` where that would change nothing."""

    reason: str
    lasting: bool


@dataclass(frozen=True)
class Failures:
    """When drivers have failed since the last epoch was committed."""

    at_s: tuple[float, ...] = ()

    def after(self, ending: Ending, policy: RestartPolicy, chance: float) -> tuple[Failures, Wait | GiveUp]:
        """Learn that a driver has failed, and say what now.

        Parameters
        ----------
        chance
            From 0 to 1: by how much the wait is shorter, a fifth at the most, so that many do not come back at once.

        Examples
        --------
        >>> failures, now = Failures().after(Ending(at_s=5, how="killed"), RestartPolicy(), 0.0)
        >>> failures.after(Ending(at_s=9, how="killed"), RestartPolicy(), 0.5)
        (Failures(at_s=(5, 9)), Wait(seconds=1.8))
        """
        earlier = () if ending.epochs else self.at_s
        kept = tuple(at_s for at_s in earlier if ending.at_s - at_s <= policy.window_s)
        failures = replace(self, at_s=(*kept, ending.at_s))
        if ending.error in LASTING:
            return failures, GiveUp(f"another start would end the same way ({ending.how})", True)
        count = len(failures.at_s)
        if count >= policy.failures:
            took = ending.at_s - failures.at_s[0]
            times = "it has failed" if count == 1 else f"it has failed {count} times in {took:.0f} s"
            return failures, GiveUp(f"{times}, with no epoch committed in between; the last time: {ending.how}", False)
        # No power of two that a float does not hold.
        wait_s = min(policy.most_s, policy.first_s * 2.0 ** min(count - 1, 64))
        return failures, Wait(wait_s * (1 - 0.2 * chance))
