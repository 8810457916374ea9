"""A file mapped into memory at an address that kernels can use.

Python's own mmap keeps a file descriptor per mapping, and a store maps hundreds of files; this keeps
none. Calls the C library.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from ferryman._state.compiled import Ints

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """Map the first `size` bytes of an open file, shared with every process that maps it.

    Attributes
    ----------
    file
        The number of the file in its filesystem.
    address
        Where the bytes are.
    size
        How many there are.
    """

    def __init__(self, file: int, size: int) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, size, access, mmap.MAP_SHARED, file, 0)
        if address is None or address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot map {size} bytes of the store: {os.strerror(number)}")
        self.file = os.fstat(file).st_ino
        self.address: int = address
        self.size = size

    @classmethod
    def of_file(cls, path: Path, size: int) -> Mapping:
        """Map a file that exists."""
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return cls(file, size)
        finally:
            os.close(file)

    def words(self) -> Ints:
        """Give the bytes as an array, which must not be used after `close`."""
        content = (ctypes.c_int64 * (self.size // 8)).from_address(self.address)
        return np.ctypeslib.as_array(content)

    def close(self) -> None:
        """Unmap."""
        if self.address:
            _libc.munmap(self.address, self.size)
            self.address = 0
