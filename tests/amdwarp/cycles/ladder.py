"""Matrix products of three textbook pipelines, to hold the model against published measurements of such kernels.

``python tests/amdwarp/cycles/ladder.py`` compiles them for gfx950 and prints the modelled share of the matrix units
beside the published one. The kernels are written for this comparison after the pipelines that the source describes,
not taken from it; four waves, a tile of 256x256x64, 16x16x32 MFMA, copies straight to LDS, padded layouts without
conflicts. Two schedules of this package stand beside published kernels of the same design, tile and wave count, which
are not the same code: ``inter_wave_256`` beside the eight-wave ping-pong kernel, ``intra_wave_256_gfx942`` beside the
four-wave one.

Sources of the measurements: ROCm/gfx950-gluon-tutorials, kernels/gemm/intra_wave/a16w16, README of v4_global_prefetch
(2af4f7da) and of v5_local_prefetch (22c5f0d9): MI355X, 4096x4096x8192 fp16, thread traces, loop only; of the two
designs kernels/gemm/inter_wave/a16w16 (22400349) and kernels/gemm/gfx942/intra_wave (17d0b31a), MI300X.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is not set

from amdwarp.kernels.gemm.configs import GemmSchedule
from amdwarp.kernels.gemm.inter_wave_gfx950 import (
    lds_layout_a,
    lds_layout_b,
    load_layout_a,
    load_layout_b,
    mfma_layout,
)
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, mfma

import amdwarp
from amdwarp import cycles
from amdwarp.cycles import zoo
from amdwarp.runtime import memory_span

M, N, K = 4096, 4096, 4096
#: Layouts of the three pipelines, whatever the package's own schedules are made of.
LAYOUTS = GemmSchedule(woven=True, quarters=False, waves_n=2, mfma=(16, 16, 32))
#: Schedule of the zoo to its GPU and the published share of a kernel of that design.
DESIGNS = {"inter_wave_256": ("gfx950", 99.8), "intra_wave_256_gfx942": ("gfx942", 89.3)}
PUBLISHED = {"sequential": 32.01, "prefetch to LDS": 51.87, "prefetch to registers": 57.67}


@gluon.jit
def fetch(ring, slot, base, at):
    async_copy.buffer_load_to_shared(ring.index(slot), base, at)


@gluon.jit
def product(a, b, c, k, lda, ldb, ldc, S: gl.constexpr, KIND: gl.constexpr):
    """C = A @ B, one tile; B as columns of K. M, N and K are multiples of the tile."""
    SLOTS: gl.constexpr = 1 if KIND == "sequential" else 2
    ACC: gl.constexpr = mfma_layout(S)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
    RIGHT: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    A_LOAD: gl.constexpr = load_layout_a(S)
    B_LOAD: gl.constexpr = load_layout_b(S, True)
    row, column = gl.program_id(0) * 256, gl.program_id(1) * 256
    rows = gl.arange(0, 256, gl.SliceLayout(1, A_LOAD))
    columns = gl.arange(0, 256, gl.SliceLayout(0, B_LOAD))
    a_at = rows[:, None] * lda + gl.arange(0, 64, gl.SliceLayout(0, A_LOAD))[None, :]
    b_at = columns[None, :] * ldb + gl.arange(0, 64, gl.SliceLayout(1, B_LOAD))[:, None]
    a += row * lda
    b += column * ldb
    a_ring = gl.allocate_shared_memory(gl.float16, [SLOTS, 256, 64], lds_layout_a(S))
    b_ring = gl.allocate_shared_memory(gl.float16, [SLOTS, 64, 256], lds_layout_b(S, True))
    acc = gl.zeros((256, 256), gl.float32, ACC)
    steps = k // 64
    for slot in gl.static_range(0 if KIND == "sequential" else 1 if KIND == "prefetch to LDS" else 2):
        fetch(a_ring, slot, a, a_at)
        fetch(b_ring, slot, b, b_at)
        async_copy.commit_group()
        a += 64
        b += 64
    if KIND == "sequential":
        for _ in range(steps):
            fetch(a_ring, 0, a, a_at)
            fetch(b_ring, 0, b, b_at)
            async_copy.commit_group()
            async_copy.wait_group(0)
            acc = mfma(a_ring.index(0).load(LEFT), b_ring.index(0).load(RIGHT), acc)
            a += 64
            b += 64
    elif KIND == "prefetch to LDS":
        for step in range(steps - 1):
            here = step % 2
            fetch(a_ring, 1 - here, a, a_at)
            fetch(b_ring, 1 - here, b, b_at)
            async_copy.commit_group()
            async_copy.wait_group(1)
            acc = mfma(a_ring.index(here).load(LEFT), b_ring.index(here).load(RIGHT), acc)
            a += 64
            b += 64
    else:
        async_copy.wait_group(1)
        x = a_ring.index(0).load(LEFT)
        y = b_ring.index(0).load(RIGHT)
        for step in range(steps - 2):
            here = step % 2
            acc = mfma(x, y, acc)
            async_copy.wait_group(0)
            fetch(a_ring, here, a, a_at)
            fetch(b_ring, here, b, b_at)
            async_copy.commit_group()
            x = a_ring.index(1 - here).load(LEFT)
            y = b_ring.index(1 - here).load(RIGHT)
            a += 64
            b += 64
        acc = mfma(x, y, acc)
    down = row + gl.arange(0, 256, gl.SliceLayout(1, ACC))
    across = column + gl.arange(0, 256, gl.SliceLayout(0, ACC))
    gl.store(c + down[:, None] * ldc + across[None, :], acc.to(gl.float16))


def modelled(kind: str, k: int = K) -> Any:
    """The model's estimate of one of the kernels."""
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "k": "i32", "lda": "i32", "ldb": "i32", "ldc": "i32"}
    hints = {"k": "D", "lda": "D", "ldb": "D", "ldc": "D"}
    constants = {"S": LAYOUTS, "KIND": kind}
    compiled = amdwarp.compile(product, types, constants, "gfx950", attrs=hints, num_warps=4)
    arrays = [np.zeros(shape, np.float16) for shape in ((M, k), (N, k), (M, N))]
    args = [memory_span(array) for array in arrays] + [np.int32(n) for n in (k, k, k, N)]
    return cycles.estimate(compiled, args, (M // 256, N // 256))


def line(name: str, measured: float, loop: Any) -> str:
    """A line of the table."""
    busy = 100 * loop.mfma_busy
    return f"{name:<24} measured {measured:.1f}, modelled {busy:.1f} ({busy / measured - 1:+.1%}), bound {loop.bound}"


def main() -> None:
    """Print the table."""
    print(f"MFMA busy in the loop, %; parameters of gfx950 {cycles.load('gfx950').digest}")
    for kind, measured in PUBLISHED.items():
        print(line(kind, measured, modelled(kind).loops[0]))
    for name, (arch, measured) in DESIGNS.items():
        one = zoo.gemm((M, N, K), schedule=name, arch=arch)
        loop = cycles.estimate(one.compiled, one.args, one.grid).loops[0]
        print(line(name, measured, loop))


if __name__ == "__main__":
    main()
