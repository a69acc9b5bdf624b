"""Scratch instructions: one private block of memory for each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.asm import Immediate, Register, Symbol
from amdwarp.asm.program import M0
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import all_lanes, poison, put_dwords, put_half, take_dwords
from amdwarp.emulator.memory import POISON, Array, Fault, gather_block, scatter_block
from amdwarp.emulator.state import Batch, Closure, expand
from amdwarp.emulator.vmem import LDS_LOADS, LOADS, STORES, operand_count, sign_extended, wave_column


def scratch_address(binder: Binder, at: int) -> Callable[[Batch], Array]:
    """Byte offsets int64 [waves, lanes] within the lane's block: vaddr or off, saddr or off, immediate."""
    offset = binder.take("offset", 0)
    vector, scalar = binder.ops[at], binder.ops[at + 1]
    row = None if vector == Symbol("off") else binder.vector(at, 1)
    if isinstance(scalar, (Immediate, Register)):
        get = binder.scalar_source(at + 1)
    elif scalar == Symbol("off"):
        get = None
    else:
        raise binder.fail(f"operand {at + 2} must be a scalar register or off")

    def address(b: Batch) -> Array:
        inside: Array = np.full((b.n, b.group.lanes), offset, np.int64)
        if row is not None:
            inside += b.r[2][row]
        if get is not None:
            inside += wave_column(get(b), b.n)
        return inside

    return address


def _scratch_index(b: Batch, inside: Array, size: int) -> Array:
    """Flat byte index into the workgroup's scratch [wave, lane, byte]."""
    block = b.group.scratch.shape[-1]
    mask = all_lanes(b, b.mask)
    bad = mask & ((inside < 0) | (inside + size > block))
    if bad.any():
        wave, lane = (int(axis[0]) for axis in np.nonzero(bad))
        at = int(inside[wave, lane])
        raise Fault(f"scratch offset {at} + {size} is outside the lane's {block} bytes", wave, lane)
    lanes = np.arange(b.n * b.group.lanes, dtype=np.int64).reshape(b.n, -1) + b.first * b.group.lanes
    return lanes * block + inside


@handles(*(f"scratch_load_{tail}" for tail in LOADS))
def bind_scratch_load(binder: Binder) -> Closure:
    """Load from the lane's private memory."""
    operand_count(binder, 3)
    size, count, is_signed, part = LOADS[binder.inst.base[len("scratch_load_") :]]
    row, address = binder.vector(0, count), scratch_address(binder, 1)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put_dwords(b, row, payload[1], payload[0])

    def run(b: Batch) -> None:
        values = _read_scratch(b, address(b), size)
        if is_signed:
            values = sign_extended(values, size)
        if part:
            values = put_half(values, b.r[0][row], part)
        poison(b, row, count)
        b.issue(b.vm, binder.inst, deliver, b.mask, values)

    return run


def _read_scratch(b: Batch, inside: Array, size: int) -> Array:
    values = _gather_scratch(b, _scratch_index(b, inside, size), size)
    if b.group.recorder is not None:
        b.group.recorder.access("scratch", "read", inside, size, b.mask)
    return values


@handles(*(f"scratch_load_lds_{tail}" for tail in LDS_LOADS if "x" not in tail))
def bind_scratch_load_lds(binder: Binder) -> Closure:
    """Load from private memory straight to LDS: lane l writes a dword at M0 + 4 * l."""
    operand_count(binder, 2)
    size, _, is_signed, _ = LDS_LOADS[binder.inst.base[len("scratch_load_lds_") :]]
    immediate = binder.inst.modifier("offset")
    constant = immediate if isinstance(immediate, int) else 0
    address, step = scratch_address(binder, 0), 4 * np.arange(binder.lanes, dtype=np.int64)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        on, addresses, values = payload
        scatter_block(b.group.lds.data, addresses, values, 4, on)

    def run(b: Batch) -> None:
        values = _read_scratch(b, address(b), size)
        if is_signed:
            values = sign_extended(values, size)
        addresses = np.array(expand(b.s[M0], b.n), np.int64)[:, None] + constant + step
        b.group.lds.check(addresses, 4, b.mask)
        if b.group.recorder is not None:
            b.group.recorder.access("lds", "write", addresses, 4, b.mask, None, values)
        scatter_block(b.group.lds.data, addresses, np.full_like(values, POISON), 4, b.mask)
        b.issue(b.vm, binder.inst, deliver, b.mask, addresses, values)

    return run


def _gather_scratch(b: Batch, index: Array, size: int) -> Array:
    return gather_block(b.group.scratch.reshape(-1), index, size, b.mask)


@handles(*(f"scratch_store_{tail}" for tail in STORES))
def bind_scratch_store(binder: Binder) -> Closure:
    """Store to the lane's private memory: vaddr, data, saddr."""
    operand_count(binder, 3)
    size, count, upper = STORES[binder.inst.base[len("scratch_store_") :]]
    row = binder.vector(1, count)
    binder.ops = (binder.ops[0], binder.ops[2])
    address = scratch_address(binder, 0)

    def run(b: Batch) -> None:
        inside = address(b)
        values = take_dwords(b, row, count)
        if upper:
            values = values >> np.uint32(16)
        index = _scratch_index(b, inside, size)
        scatter_block(b.group.scratch.reshape(-1), index, values, size, b.mask)
        if b.group.recorder is not None:
            b.group.recorder.access("scratch", "write", inside, size, b.mask)
        b.issue(b.stores, binder.inst, None, b.mask)

    return run
