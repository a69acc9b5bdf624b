"""Transfers of gfx1250 that have LDS at one end: copies from and to global memory, and transposed reads.

A copy to LDS reads memory at issue; its LDS bytes hold poison until the ASYNCcnt wait that covers it. A copy from LDS
reads LDS at issue and again at the wait, and stores poison where the two differ: something overwrote its source while
it was under way. The immediate offset counts for both addresses. A lane whose LDS address is `DROPPED` does nothing.

Transposed reads move elements between fixed lanes whatever the addresses are. For 16 bits, lanes form groups of eight
and destination lane i of a group receives element i of each of its lanes. For 8 bits a group of eight draws from two
runs of four: lanes 0-7 from 0-3 and 8-11, lanes 8-15 from 4-7 and 12-15. For 4 bits a group of sixteen draws from two
runs of eight: lanes 0-15 from 0-7 and 16-23, lanes 16-31 from 8-15 and 24-31. The first two after the published
description of Triton's lowering of these reads for gfx1250; the last from Triton's own compiled kernels, which come out
right under no other order of the source lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import Settled, active, address_getter, poison, put_dwords
from amdwarp.emulator.memory import POISON, Array, gather_block, scatter_block
from amdwarp.emulator.state import Batch, Closure
from amdwarp.emulator.vmem import global_locator, note, operand_count

_SIZES = {"b8": 1, "b32": 4, "b64": 8, "b128": 16}


def _offset(binder: Binder) -> int:
    value = binder.inst.modifier("offset")
    return value if isinstance(value, int) else 0


@handles(*(f"global_load_async_to_lds_{size}" for size in _SIZES))
def bind_copy_to_lds(binder: Binder) -> Closure:
    """Copy from global memory to LDS: LDS address, global address, base."""
    operand_count(binder, 3)
    size = _SIZES[binder.inst.base.rsplit("_", 1)[1]]
    address = address_getter(binder, 0, _offset(binder))
    locator = global_locator(binder, 1)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        on, addresses, values = payload
        scatter_block(b.group.lds.data, addresses, values, size, on)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = active(b, addresses, size)
        located = (locator(b, size)[0], on, None)
        values = b.group.memory.gather(located[0], size, on)
        if b.group.recorder is not None:
            note(b, "read", located, size)
            b.group.recorder.access("lds", "write", addresses, size, on, None, values)
        if on is None or on.any():
            if b.ds:
                b.settle_reads(*_span(addresses, size, on))
            scatter_block(b.group.lds.data, addresses, np.full_like(values, POISON), size, on)
        b.issue(b.asynchronous, binder.inst, deliver, on, addresses, values)

    return run


def _span(addresses: Array, size: int, on: Array | None) -> tuple[Array, Array]:
    """Lowest and highest LDS byte of each wave; empty for a wave that writes nothing."""
    if on is None:
        return addresses.min(axis=1), addresses.max(axis=1) + size
    low = np.where(on, addresses, np.int64(1) << 40).min(axis=1)
    high = np.where(on, addresses + size, 0).max(axis=1)
    return low, high


@handles(*(f"global_store_async_from_lds_{size}" for size in _SIZES))
def bind_copy_from_lds(binder: Binder) -> Closure:
    """Copy from LDS to global memory: global address, LDS address, base."""
    operand_count(binder, 3)
    size = _SIZES[binder.inst.base.rsplit("_", 1)[1]]
    address = address_getter(binder, 1, _offset(binder))
    binder.ops = (binder.ops[0], binder.ops[2])
    locator = global_locator(binder, 0)

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        on, addresses, targets, early = payload
        late = gather_block(b.group.lds.data, addresses, size, on)
        values = np.where(early == late, early, np.uint32(POISON))
        b.group.memory.scatter(targets, values, size, on)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = active(b, addresses, size)
        targets = locator(b, size)[0]
        early = gather_block(b.group.lds.data, addresses, size, on)
        if b.group.recorder is not None:
            b.group.recorder.access("lds", "read", addresses, size, on)
            note(b, "write", (targets, on, None), size, early)
        b.issue(b.asynchronous, binder.inst, deliver, on, addresses, targets, early)

    return run


#: Mnemonic tail: (bits of an element, dwords of a lane).
TRANSPOSED = {"tr16_b128": (16, 4), "tr8_b64": (8, 2), "tr4_b64": (4, 2)}


def source_of(bits: int) -> tuple[Array, Array]:
    """(source lane, element there) of every destination [lane, element]."""
    lane, element = np.arange(32)[:, None], np.arange(16 if bits == 4 else 8)[None, :]
    if bits == 4:
        return (element & 7) + (element & 8) * 2 + (lane & 16) // 2, (lane & 15) + 0 * element
    if bits == 16:
        return (lane & ~7) + element, (lane & 7) + 0 * element
    return (lane & 16) + (element & 3) + (element & 4) * 2 + (lane & 8) // 2, (lane & 7) + 0 * element


@handles(*(f"ds_load_{tail}" for tail in TRANSPOSED))
def bind_read_transposed(binder: Binder) -> Closure:
    """Read and exchange elements between lanes."""
    bits, count = TRANSPOSED[binder.inst.base[len("ds_load_") :]]
    binder.need(2)
    size = 4 * count
    row = binder.vector(0, count)
    address = address_getter(binder, 1, binder.take("offset", 0))
    lanes, elements = source_of(bits)
    dtype: Any = np.uint16 if bits == 16 else np.uint8

    def put(b: Batch, payload: tuple[Any, ...]) -> None:
        put_dwords(b, row, payload[1], payload[0])

    def read_now(b: Batch, payload: tuple[Any, ...]) -> Settled:
        mask, addresses, on = payload
        values = gather_block(b.group.lds.data, addresses, size, on).view(dtype)
        if bits == 4:
            values = np.stack((values & 15, values >> 4), axis=-1).reshape(*values.shape[:2], -1)
        moved = np.ascontiguousarray(values[:, lanes, elements])
        if bits == 4:
            moved = moved[..., 0::2] | moved[..., 1::2] << 4
        return put, (mask, moved.view(np.uint32))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        put(b, read_now(b, payload)[1])

    def run(b: Batch) -> None:
        addresses = address(b)
        on = active(b, addresses, size)
        if b.group.recorder is not None:
            b.group.recorder.access("lds", "read", addresses, size, on, None)
        poison(b, row, count)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, on, early=read_now, size=size)

    return run
