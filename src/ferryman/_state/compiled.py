"""The one decorator that every compiled loop over keys and stores goes through.

Each kernel is compiled for exactly one signature, lazily, and cached on disk, so that a fresh Python
worker loads machine code instead of compiling it. `kernels.warm`
compiles all of them ahead of the stream.
Calls numba only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import register_jitable

P = ParamSpec("P")
R = TypeVar("R")

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def view(dtype: types.Type, ndim: int = 1) -> types.Array:
    """Name the type of an array a kernel only reads; Arrow buffers arrive read-only, others convert."""
    return types.Array(dtype, ndim, "C", readonly=True)


def room(dtype: types.Type, ndim: int = 1) -> types.Array:
    """Name the type of an array a kernel writes."""
    return types.Array(dtype, ndim, "C")


I64 = types.int64
INTS = view(I64)
BYTES = view(types.uint8)

ALL: list[Kernel[..., Any]] = []


class Kernel(Generic[P, R]):
    """Hold one compiled loop and compile it, or load it, on the first call."""

    def __init__(self, function: Callable[P, R], signature: tuple[types.Type, ...]) -> None:
        self._function = function
        self._signature = signature
        self._dispatcher: Any = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        ALL.append(self)

    def compile(self) -> None:
        """Compile for the declared signature and refuse every other."""
        if self._dispatcher is not None:
            return
        try:
            dispatcher = njit(cache=True, nogil=True)(self._function)
            dispatcher.compile(self._signature)
        except (RuntimeError, OSError):
            # No place for a cache can be written (read-only install, no home directory, full disk):
            # a slow start beats none.
            dispatcher = njit(nogil=True)(self._function)
            dispatcher.compile(self._signature)
        dispatcher.disable_compile()
        self._dispatcher = dispatcher

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._dispatcher is None:
            self.compile()
        result: R = self._dispatcher(*args)
        return result


def kernel(*signature: types.Type) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Compile a function for the given argument types, cached on disk and without the GIL."""

    def decorate(function: Callable[P, R]) -> Kernel[P, R]:
        return Kernel(function, signature)

    return decorate


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Let kernels call a function; from Python it stays the plain function it is.

    The disk cache notices changes in a kernel's own file only: after editing one of these elsewhere,
    touch the files of the kernels that call it.
    """
    shared: Callable[P, R] = register_jitable(function)
    return shared
