"""Lane exchange by the LDS unit: no LDS memory is touched, but the operations stand in its queue."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import address_getter, all_lanes, poison, put_dwords
from amdwarp.emulator.state import Batch, Closure


@handles("ds_bpermute_b32", "ds_permute_b32")
def bind_permute(binder: Binder) -> Closure:
    """bpermute: lane i reads the lane that its address / 4 names. permute: lane i writes to it.

    Disabled lanes give 0.
    """
    binder.need(3)
    row, data = binder.vector(0, 1), binder.vector(2, 1)
    address = address_getter(binder, 1, binder.take("offset", 0))
    pull = "bpermute" in binder.inst.base
    lanes = binder.lanes

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, values = payload
        put_dwords(b, row, values[..., None], mask)

    def run(b: Batch) -> None:
        other = address(b) >> 2 & lanes - 1
        values = b.r[0][data] if b.mask is None else np.where(b.mask, b.r[0][data], np.uint32(0))
        if pull:
            moved = np.take_along_axis(values, other, axis=1)
        else:
            moved = np.zeros_like(values)
            waves, sources = np.nonzero(all_lanes(b, b.mask))
            moved[waves, other[waves, sources]] = values[waves, sources]
        poison(b, row, 1)
        b.issue(b.ds, binder.inst, deliver, b.mask, moved)

    return run


@handles("ds_swizzle_b32")
def bind_swizzle(binder: Binder) -> Closure:
    """A fixed lane pattern: four lanes (bit 15 of the offset), or and/or/xor masks within 32 lanes."""
    binder.need(2)
    row, data = binder.vector(0, 1), binder.vector(1, 1)
    code = binder.take("offset", 0)
    if not isinstance(code, int):
        raise binder.fail("the swizzle must be written as a number")
    lane = np.arange(binder.lanes)
    if code & 0x8000:
        source = lane & ~3 | code >> 2 * (lane & 3) & 3
    else:
        within = ((lane & 31 & code & 31) | code >> 5 & 31) ^ code >> 10 & 31
        source = lane & ~31 | within

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, values = payload
        put_dwords(b, row, values[..., None], mask)

    def run(b: Batch) -> None:
        values = b.r[0][data] if b.mask is None else np.where(b.mask, b.r[0][data], np.uint32(0))
        moved = values.take(source, axis=1)
        poison(b, row, 1)
        b.issue(b.ds, binder.inst, deliver, b.mask, moved)

    return run
