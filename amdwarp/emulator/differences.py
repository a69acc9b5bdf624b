"""Byte arithmetic of the vector ALU: sums of absolute differences, averages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import Batch, Closure

Function = Callable[..., Any]
I64, U32, U64 = np.int64, np.uint32, np.uint64


def _field(value: Any, at: int, width: int) -> Array:
    """Bits [at, at + width) of an unsigned value as int64."""
    wide = np.asarray(value).astype(U64)
    return (wide >> U64(at) & U64((1 << width) - 1)).astype(I64)


def differences(a: Any, b: Any, width: int, *, masked: bool = False) -> Any:
    """Sum of the absolute differences of the fields of two dwords; `masked`: where the second's field is not 0."""
    total: Any = I64(0)
    for at in range(0, 32, width):
        x, y = _field(a, at, width), _field(b, at, width)
        difference = np.abs(x - y)
        total = total + (np.where(y != 0, difference, I64(0)) if masked else difference)
    return total


#: Mnemonic to the exact sum of three dwords as int64.
SUMS_OF_DIFFERENCES: dict[str, Function] = {
    "v_sad_u8": lambda a, b, c: differences(a, b, 8) + _field(c, 0, 32),
    "v_sad_hi_u8": lambda a, b, c: (differences(a, b, 8) << I64(16)) + _field(c, 0, 32),
    "v_sad_u16": lambda a, b, c: differences(a, b, 16) + _field(c, 0, 32),
    "v_sad_u32": lambda a, b, c: differences(a, b, 32) + _field(c, 0, 32),
    "v_msad_u8": lambda a, b, c: differences(a, b, 8, masked=True) + _field(c, 0, 32),
}


def low_dword(function: Function) -> Function:
    """The lower 32 bits of an exact sum."""
    return lambda *args: (function(*args) & I64(0xFFFFFFFF)).astype(U32)


def average(a: Any, b: Any, c: Any) -> Any:
    """Byte by byte (a + b + lowest bit of c) / 2."""
    out: Any = U32(0)
    for at in (0, 8, 16, 24):
        total = _field(a, at, 8) + _field(b, at, 8) + _field(c, at, 1)
        out = out | (total >> I64(1)).astype(U32) << U32(at)
    return out


#: Four differences at byte offsets 0 to 3 of the first source: mnemonic to (bits of a result, masked).
_FOUR = {"v_qsad_pk_u16_u8": (16, False), "v_mqsad_pk_u16_u8": (16, True), "v_mqsad_u32_u8": (32, True)}


@handles(*_FOUR)
def bind_four(binder: Binder) -> Closure:
    """Four sums of differences, each with its own addend."""
    bits, masked = _FOUR[binder.inst.base]
    binder.need(4)
    count = bits * 4 // 32
    row, clamp = binder.vector(0, count), binder.flag("clamp")
    window, reference = binder.source(1, "u64"), binder.source(2, "u32")
    addend = _dwords(binder, count)
    puts = [binder.row_target(row + at, "u32") for at in range(count)]
    top = (1 << bits) - 1

    def run(b: Batch) -> None:
        data, other, words = np.asarray(window(b)), reference(b), addend(b)
        sums = []
        for at in range(4):
            moved = (data >> U64(8 * at) & U64(0xFFFFFFFF)).astype(U32)
            old = _field(words[at * bits // 32], at * bits % 32, bits)
            total = differences(moved, other, 8, masked=masked) + old
            sums.append(np.minimum(total, top) if clamp else total & top)
        for at, put in enumerate(puts):
            value = sums[at] if bits == 32 else sums[2 * at] | sums[2 * at + 1] << I64(16)
            put(b, np.asarray(value).astype(U32), b.mask)

    return run


def _dwords(binder: Binder, count: int) -> Callable[[Batch], list[Any]]:
    """Copies of the dwords of operand 4, a register tuple or constant."""
    op = binder.ops[3]
    if count == 4 or getattr(op, "kind", "s") != "s":
        row = binder.vector(3, count)
        return lambda b: [b.r[0][row + at].copy() for at in range(count)]
    wide = binder.source(3, "u64")
    return lambda b: [(np.asarray(wide(b)) >> U64(32 * at) & U64(0xFFFFFFFF)).astype(U32) for at in range(2)]
