"""A socket that listens at a given address."""

from __future__ import annotations

import ipaddress
import socket

from ferryman._model.errors import InvalidConfiguration, SourceRefused


def split(address: str) -> tuple[str, int]:
    """Give host and port of `host:port`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidConfiguration.of([f"address: {address!r} is not host:port"])
    return host.strip("[]"), int(port)


def is_local(address: str) -> bool:
    """Tell whether only processes of this machine reach an address."""
    host, _ = split(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(address: str) -> socket.socket:
    """Listen."""
    host, port = split(address)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise SourceRefused(
            f"cannot listen on {address}: {error.strerror}. Another process listens there, or this machine does not "
            "have that address. Give another one; port 0 takes any that is free."
        ) from error
