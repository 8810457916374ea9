"""Loads and stores at raw addresses, for compiled loops over memory-mapped files.

A kernel that works on a hundred mapped files at once cannot take a hundred arrays; it takes their
addresses. Only kernels call this; whoever passes an address in answers for its bounds.
Calls numba only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ferryman._state.compiled import inner

_WORD = ir.IntType(64)
_BYTE = ir.IntType(8)

Lowered = tuple[Any, Callable[..., Any]]


def _loader(width: ir.IntType) -> Callable[..., Lowered]:
    def typed(typing_context: Any, address: Any) -> Lowered:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], width.as_pointer())
            # Byte alignment: keys in a heap start anywhere.
            return builder.zext(builder.load(pointer, align=1), _WORD)

        return types.int64(types.int64), lower

    return typed


def _storer(width: ir.IntType) -> Callable[..., Lowered]:
    def typed(typing_context: Any, address: Any, value: Any) -> Lowered:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], width.as_pointer())
            builder.store(builder.trunc(args[1], width), pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), lower

    return typed


def _fence(typing_context: Any) -> Lowered:
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), lower


fence = cast("Callable[[], None]", intrinsic(_fence))
load: Callable[[int], int] = intrinsic(_loader(_WORD))
load_byte: Callable[[int], int] = intrinsic(_loader(_BYTE))
store: Callable[[int, int], None] = intrinsic(_storer(_WORD))
store_byte: Callable[[int, int], None] = intrinsic(_storer(_BYTE))


@inner
def same_bytes(a: int, b: int, length: int) -> bool:
    """Compare two runs of bytes."""
    i = 0
    while i + 8 <= length:
        if load(a + i) != load(b + i):
            return False
        i += 8
    while i < length:
        if load_byte(a + i) != load_byte(b + i):
            return False
        i += 1
    return True


@inner
def copy_bytes(target: int, source: int, length: int) -> None:
    """Copy a run of bytes to a place that does not overlap it."""
    i = 0
    while i + 8 <= length:
        store(target + i, load(source + i))
        i += 8
    while i < length:
        store_byte(target + i, load_byte(source + i))
        i += 1
