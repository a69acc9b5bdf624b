"""Barrier objects in LDS (gfx1250): 64 bits that waves arrive on and that a wave polls.

Bits 0-28 pending count, 29-31 phase, 32-47 reload count. An arrival subtracts from the pending count; where that
underflows the phase goes down by one and the count is reloaded. A lane of an arrive instruction arrives once; a tensor
copy with its barrier bit set arrives once for the wave when it completes, and an asynchronous arrive once a lane behind
the copies issued before it. Pending width and counts as Triton initialises and polls them for gfx1250.

Nothing waits for such a copy with a counter, so it completes by itself: here when some wave of the workgroup sleeps,
which is what a polling loop does. So does an LDS atomic that a wave issues to tell others, and does not wait for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.ds import active, address_getter, all_lanes, poison, put_dwords, take_dwords
from amdwarp.emulator.memory import Array, Fault
from amdwarp.emulator.state import Batch, Closure, Workgroup

_PENDING, _PHASE, _RELOAD = (1 << 29) - 1, 29, 0xFFFF


def arrive(group: Workgroup, address: int, count: int) -> int:
    """Arrive on the barrier at LDS `address`; returns what it held before."""
    if address % 8 or address + 8 > group.lds.size:
        raise Fault(f"no barrier object can lie at LDS address {address:#x}")
    words = group.lds.data[address : address + 8].view(np.uint64)
    old = int(words[0])
    pending, phase, reload = old & _PENDING, old >> _PHASE & 7, old >> 32 & _RELOAD
    if count > pending + 1:
        raise Fault(f"{count} arrivals on a barrier that waits for {pending + 1}")
    if count == pending + 1:
        pending, phase = reload, phase - 1 & 7
    else:
        pending -= count
    words[0] = pending | phase << _PHASE | reload << 32
    return old


def _arrive_lanes(b: Any, addresses: Array, counts: Array, on: Array) -> Array:
    found = np.zeros(addresses.shape, np.uint64)
    for wave, lane in zip(*np.nonzero(on), strict=True):
        found[wave, lane] = arrive(b.group, int(addresses[wave, lane]), int(counts[wave, lane]))
    return found


@handles("ds_atomic_barrier_arrive_rtn_b64")
def bind_arrive(binder: Binder) -> Closure:
    """Every lane arrives with its own count; the old barrier is returned."""
    binder.need(3)
    row, data = binder.vector(0, 2), binder.vector(2, 2)
    address = address_getter(binder, 1, binder.take("offset", 0))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        mask, addresses, counts, on = payload
        put_dwords(b, row, _arrive_lanes(b, addresses, counts, on)[..., None].view(np.uint32), mask)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = all_lanes(b, active(b, addresses, 8))
        if b.group.recorder is not None:
            b.group.recorder.access("lds", "atomic", addresses, 8, on)
        counts = take_dwords(b, data, 2)[..., 0]
        poison(b, row, 2)
        b.issue(b.ds, binder.inst, deliver, b.mask, addresses, counts, on, size=-1)
        b.ds[-1].notifies = True

    return run


@handles("ds_atomic_async_barrier_arrive_b64")
def bind_async_arrive(binder: Binder) -> Closure:
    """Every lane arrives once behind the copies issued before."""
    binder.need(1)
    address = address_getter(binder, 0, binder.take("offset", 0))

    def deliver(b: Batch, payload: tuple[Any, ...]) -> None:
        on, addresses = payload
        _arrive_lanes(b, addresses, np.ones_like(addresses), on)
        if b.group.recorder is not None:
            for wave in range(b.n):
                places, counts = np.unique(addresses[wave][on[wave]], return_counts=True)
                for place, count in zip(places.tolist(), counts.tolist(), strict=True):
                    b.group.recorder.notified(place, b.first + wave, count)

    def run(b: Batch) -> None:
        addresses = address(b)
        on = all_lanes(b, active(b, addresses, 8))
        if b.group.recorder is not None:
            b.group.recorder.access("lds", "atomic", addresses, 8, on)
        b.issue(b.asynchronous, binder.inst, deliver, on, addresses)
        b.asynchronous[-1].notifies = True

    return run


def complete_notifying(group: Workgroup) -> None:
    """Complete the operations of every wave up to the last one that others may wait for."""
    for batch in group.scheduler.batches:
        for queue in (batch.tensor, batch.asynchronous, batch.ds):
            last = max((at for at, pending in enumerate(queue) if pending.notifies), default=-1)
            if last >= 0:
                batch.drain(queue, len(queue) - last - 1)
