"""A kernel of two tasks that the sanitizer must find nothing wrong with: a ring between them, and barriers of each."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

import amdwarp


@amdwarp.jit
def ring_of_slots(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr, WAVES: gl.constexpr, RING: gl.constexpr):
    """One task loads into the slots of a ring, the other sums what it finds there."""
    ring = gl.allocate_shared_memory(gl.float32, [RING, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = amdwarp.alloc_barriers(RING, arrivals=WAVES)
    empty = amdwarp.alloc_barriers(RING, arrivals=4)
    with amdwarp.async_tasks():
        with amdwarp.async_task("default"):
            own: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
            offsets = gl.arange(0, SIZE, layout=own)
            total = gl.zeros([SIZE], gl.float32, layout=own)
            for step in range(steps):
                amdwarp.barrier_wait(full.index(step % RING), step // RING & 1)
                value = ring.index(step % RING).load(own)
                amdwarp.barrier_arrive(empty.index(step % RING), release="lds")
                gl.store(y + step * SIZE + offsets, value)
                total += value
        with amdwarp.async_task(num_warps=WAVES):
            wide: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
            for step in range(steps):
                value = gl.load(x + step * SIZE + gl.arange(0, SIZE, layout=wide))
                amdwarp.barrier_wait(empty.index(step % RING), step // RING & 1 ^ 1)
                ring.index(step % RING).store(value)
                amdwarp.barrier_arrive(full.index(step % RING))
    gl.store(y + steps * SIZE + offsets, total)
