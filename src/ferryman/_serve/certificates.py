"""The certificates of a host, in a directory: its own with its key, and who must have signed everybody's."""

from __future__ import annotations

from pathlib import Path

_NAMES = ("cert.pem", "key.pem", "ca.pem")


def missing(directory: str) -> list[str]:
    """Name the files that a directory of certificates should have and has not."""
    return [name for name in _NAMES if not (Path(directory) / name).is_file()]


def paths(directory: str) -> tuple[str, str, str]:
    """Say where the certificate is, its key and the authority."""
    certificate, key, authority = (str(Path(directory) / name) for name in _NAMES)
    return certificate, key, authority


def read(directory: str) -> tuple[bytes, bytes, bytes]:
    """Give the certificate, its key and the authority."""
    certificate, key, authority = ((Path(directory) / name).read_bytes() for name in _NAMES)
    return certificate, key, authority
