"""Tasks: what the kernels compute on each target, and what is refused, by text and line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from triton.experimental.gluon import language as gl

import amdwarp
from amdwarp.emulator import launch

ARCHS = ("gfx942", "gfx950", "gfx1250")
SIZE = 256


@amdwarp.jit
def copy_kernel(x, y, steps, LANES: gl.constexpr, SIZE: gl.constexpr, WAVES: gl.constexpr, RING: gl.constexpr):
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


def lanes(arch: str) -> int:
    return amdwarp.get_target(arch).wave_size


def compiled(kernel: Any, arch: str, waves: int = 4, **constexprs: Any) -> Any:
    signature = {"x": "*fp32", "y": "*fp32", "steps": "i32"}
    return amdwarp.compile(kernel, signature, {"LANES": lanes(arch), **constexprs}, arch, num_warps=waves)


@pytest.mark.parametrize("waves, ring", [(1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("arch", ARCHS)
def test_two_tasks_copy_through_a_ring(arch: str, waves: int, ring: int) -> None:
    kernel = compiled(copy_kernel, arch, SIZE=SIZE, WAVES=waves, RING=ring)
    steps = 7
    x = np.random.default_rng(1).random(steps * SIZE, np.float32)
    y = np.zeros((steps + 1) * SIZE, np.float32)
    assert kernel.metadata.num_warps == 4 + waves
    launch(kernel.asm["amdgcn"], [x, y, steps], (1,), lds_bytes=kernel.metadata.shared)
    assert np.array_equal(y[: steps * SIZE], x)
    assert np.allclose(y[steps * SIZE :], x.reshape(steps, SIZE).sum(0))
