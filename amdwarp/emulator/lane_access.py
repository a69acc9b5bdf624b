"""Lanes of the vector ALU: reads and writes of single lanes, masks counted, registers exchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Register
from amdwarp.emulator import arith
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.state import Batch, Closure, merge


@handles("v_readfirstlane_b32")
def bind_read_first_lane(binder: Binder) -> Closure:
    """The first enabled lane's value (lane 0 where none is) to a scalar register."""
    binder.need(2)
    op = binder.ops[1]
    if not isinstance(op, Register) or op.kind == "s":
        source = binder.scalar_source(1)
        put_scalar = binder.scalar_target(0)
        return lambda b: put_scalar(b, source(b))
    row, put = binder.row(op), binder.scalar_target(0)

    def run(b: Batch) -> None:
        values = b.r[0][row]
        if b.mask is None:
            put(b, merge(values[:, 0].tolist()))
        else:
            put(b, merge(values[np.arange(b.n), b.mask.argmax(axis=1)].tolist()))

    return run


def _lane_number(binder: Binder, at: int) -> Callable[[Batch], Any]:
    get, limit = binder.scalar_source(at), binder.lanes - 1

    def lane(b: Batch) -> Any:
        value = get(b)
        return value & limit if isinstance(value, int) else np.array([x & limit for x in value])

    return lane


@handles("v_readlane_b32")
def bind_read_lane(binder: Binder) -> Closure:
    """One lane's value, whether it is enabled or not, to a scalar register."""
    binder.need(3)
    row, put, lane = binder.vector(1, 1), binder.scalar_target(0), _lane_number(binder, 2)
    return lambda b: put(b, merge(b.r[0][row][np.arange(b.n), lane(b)].tolist()))


@handles("v_writelane_b32")
def bind_write_lane(binder: Binder) -> Closure:
    """A scalar to one lane, whether it is enabled or not."""
    binder.need(3)
    row, source, lane = binder.vector(0, 1), binder.scalar_source(1), _lane_number(binder, 2)

    def run(b: Batch) -> None:
        b.r[0][row][np.arange(b.n), lane(b)] = np.array(source(b), np.uint32)

    return run


@handles("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def bind_mbcnt(binder: Binder) -> Closure:
    """Number of set bits below the lane in one half of a mask, plus the second operand."""
    binder.need(3)
    base = 32 if "_hi_" in binder.inst.base else 0
    below = np.array([(1 << max(0, min(32, lane - base))) - 1 for lane in range(binder.lanes)], np.uint32)
    getters = [binder.source(at, "u32") for at in (1, 2)]
    (mask, addend), put = getters, binder.target(0, "u32")
    return lambda b: put(b, arith.population(mask(b) & below) + addend(b), b.mask)


@handles("v_swap_b32")
def bind_swap(binder: Binder) -> Closure:
    """Exchange two registers in the enabled lanes."""
    binder.need(2)
    left, right = binder.vector(0, 1), binder.vector(1, 1)
    put_left, put_right = binder.row_target(left, "u32"), binder.row_target(right, "u32")

    def run(b: Batch) -> None:
        x, y = b.r[0][left].copy(), b.r[0][right].copy()
        put_left(b, y, b.mask)
        put_right(b, x, b.mask)

    return run


@handles("v_permlane16_swap_b32", "v_permlane32_swap_b32")
def bind_row_swap(binder: Binder) -> Closure:
    """Exchange the odd rows of the first register with the even rows of the second; a row is 16 or 32 lanes.

    A pair of lanes is exchanged where both are enabled.
    """
    binder.need(2)
    width = 16 if "16" in binder.inst.base else 32
    left, right = binder.vector(0, 1), binder.vector(1, 1)
    binder.ignore("fi", "bound_ctrl")

    def run(b: Batch) -> None:
        shape = (b.n, -1, 2, width)
        x, y = b.r[0][left].reshape(shape)[:, :, 1], b.r[0][right].reshape(shape)[:, :, 0]
        old_x, old_y = x.copy(), y.copy()
        if b.mask is None:
            x[...], y[...] = old_y, old_x
        else:
            rows = b.mask.reshape(shape)
            np.copyto(x, old_y, where=rows[:, :, 1])
            np.copyto(y, old_x, where=rows[:, :, 0])

    return run
