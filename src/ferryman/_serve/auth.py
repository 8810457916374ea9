"""How to get into a state host: the job's token, and certificates where lines are encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.flight as flight

from ferryman._serve.certificates import read

AUTHORIZATION = "authorization"


@dataclass(frozen=True)
class Access:
    """What both ends of a line know.

    Attributes
    ----------
    token
        What callers must know.
    tls
        The directory of certificates on this host. With it both ends show one, signed by the same authority; None for
        a line that is not encrypted.
    """

    token: str
    tls: str | None = None

    def connect(self, location: str) -> Any:
        """Open a line to a state host."""
        if self.tls is None:
            return flight.connect(location)
        certificate, key, authority = read(self.tls)
        return flight.connect(location, tls_root_certs=authority, cert_chain=certificate, private_key=key)

    def options(self, timeout_s: float) -> flight.FlightCallOptions:
        """Give what every call says."""
        return flight.FlightCallOptions(
            timeout=timeout_s, headers=[(AUTHORIZATION.encode(), f"Bearer {self.token}".encode())]
        )

    def location(self, address: str, port: int) -> flight.Location:
        """Give a place to listen on."""
        make = flight.Location.for_grpc_tcp if self.tls is None else flight.Location.for_grpc_tls
        return make(address, port)
