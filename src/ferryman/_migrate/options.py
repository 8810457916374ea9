"""What of a job's options its changes go by."""

from __future__ import annotations

from dataclasses import dataclass

from ferryman._routing.sites import Site


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """What of a job's options its changes and state hosts go by; `Ferry` says what each of them means.

    Attributes
    ----------
    isolate
        Whether hot keys are isolated, and put back when they have cooled.
    """

    home: str | None = None
    tls: str | None = None
    isolate: bool = False
    replicas: int = 0
    sites: tuple[Site, ...] = ()
