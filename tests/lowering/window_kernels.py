"""Kernels with intra-wave windows, for the tests; importing this imports Triton, so do it in a child process.

Each is small and can be run: ``a`` and ``b`` hold ``n + 4`` tiles of ROWS x DEPTH fp16 elements one after the other,
the tiles of ``b`` as columns x depth; ``out`` is ROWS x ROWS fp32 and gets the sum of the tiles' products, or nearly.
"""

# ruff: noqa: B007, SIM117 - what reads well in plain Python is not always taken by Triton's front end

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns when it is not set

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import amdwarp

ROWS, DEPTH = 128, 64
TILE = tl.constexpr(ROWS * DEPTH)
WAVE_SIZE = {"gfx942": 64, "gfx950": 64, "gfx1250": 32}
CDNA = ("gfx942", "gfx950")
ALL = ("gfx942", "gfx950", "gfx1250")


def layouts(arch: str, waves: int = 4) -> dict[str, Any]:
    """Constants that every Gluon kernel here takes."""
    lanes, width = WAVE_SIZE[arch], 4 if arch == "gfx942" else 8
    if arch == "gfx1250":
        matrix = gl.amd.AMDWMMALayout(3, True, [[0, 1], [1, 0]], None, [16, 16, 32])
    else:
        depth = 16 if arch == "gfx942" else 32
        matrix = gl.amd.AMDMFMALayout(3 if arch == "gfx942" else 4, [16, 16, depth], True, [2, waves // 2])
    return {
        "BLOCKED": gl.BlockedLayout([1, 8], [lanes // 8, 8], [waves, 1], [1, 0]),
        "SHARED": gl.SwizzledSharedLayout(8, 1, 8, [1, 0]),
        "MATRIX": matrix,
        "LEFT": gl.DotOperandLayout(0, matrix, width),
        "RIGHT": gl.DotOperandLayout(1, matrix, width),
        "WMMA": arch == "gfx1250",
    }


@gluon.jit
def offsets(rows: gl.constexpr, columns: gl.constexpr, LAYOUT: gl.constexpr):
    down = gl.arange(0, rows, gl.SliceLayout(1, LAYOUT))[:, None] * columns
    return down + gl.arange(0, columns, gl.SliceLayout(0, LAYOUT))[None, :]


@gluon.jit
def load(pointer, at, WMMA: gl.constexpr):
    if WMMA:
        tile = gl.amd.gfx1250.buffer_load(pointer, at)
    else:
        tile = gl.amd.cdna3.buffer_load(pointer, at)
    return tile


@gluon.jit
def dot(left, right, acc, WMMA: gl.constexpr):
    if WMMA:
        acc = gl.amd.gfx1250.wmma(left, right, acc)
    else:
        acc = gl.amd.cdna3.mfma(left, right, acc)
    return acc


@gluon.jit
def fill(memory, pointer, tile, BLOCKED: gl.constexpr, WMMA: gl.constexpr):
    memory.store(load(pointer, offsets(128, 64, BLOCKED) + tile * TILE, WMMA))


@amdwarp.jit
def single(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """One region: LDS reads and global loads of later tiles beside the product of this one."""
    at = offsets(128, 64, BLOCKED)
    left = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    fill(left, a, 0, BLOCKED, WMMA)
    fill(right, b, 0, BLOCKED, WMMA)
    x = left.load(LEFT)
    y = right.permute([1, 0]).load(RIGHT)
    fill(left, a, 1, BLOCKED, WMMA)
    fill(right, b, 1, BLOCKED, WMMA)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    for i in range(n):
        with amdwarp.warp_pipeline_stage("load and compute", scope="intra_wave"):
            next_x = left.load(LEFT)
            next_y = right.permute([1, 0]).load(RIGHT)
            far_x = load(a, at + (i + 2) * TILE, WMMA)
            far_y = load(b, at + (i + 2) * TILE, WMMA)
            acc = dot(x, y, acc, WMMA)
        left.store(far_x)
        right.store(far_y)
        x = next_x
        y = next_y
    gl.store(out + offsets(128, 128, MATRIX), acc)


@amdwarp.jit
def unrolled(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """Two windows a loop, which alternate between two sets of registers."""
    left = gl.allocate_shared_memory(gl.float16, [2, 128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [2, 128, 64], SHARED)
    for slot in gl.static_range(2):
        fill(left.index(slot), a, slot, BLOCKED, WMMA)
        fill(right.index(slot), b, slot, BLOCKED, WMMA)
    x = left.index(0).load(LEFT)
    y = right.index(0).permute([1, 0]).load(RIGHT)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    for i in range(0, n, 2):
        with amdwarp.warp_pipeline_stage("even", scope="intra_wave"):
            odd_x = left.index(1).load(LEFT)
            odd_y = right.index(1).permute([1, 0]).load(RIGHT)
            acc = dot(x, y, acc, WMMA)
        with amdwarp.warp_pipeline_stage("odd", scope="intra_wave"):
            x = left.index(0).load(LEFT)
            y = right.index(0).permute([1, 0]).load(RIGHT)
            acc = dot(odd_x, odd_y, acc, WMMA)
    gl.store(out + offsets(128, 128, MATRIX), acc)


@amdwarp.jit
def paired_write(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """Two regions: stores to the other LDS slot and global loads, then the product."""
    at = offsets(128, 64, BLOCKED)
    left = gl.allocate_shared_memory(gl.float16, [2, 128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [2, 128, 64], SHARED)
    fill(left.index(0), a, 0, BLOCKED, WMMA)
    fill(right.index(0), b, 0, BLOCKED, WMMA)
    far_x = load(a, at + TILE, WMMA)
    far_y = load(b, at + TILE, WMMA)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    for i in range(n):
        x = left.index(i % 2).load(LEFT)
        y = right.index(i % 2).permute([1, 0]).load(RIGHT)
        with amdwarp.warp_pipeline_stage("refill", scope="intra_wave", pair=3):
            left.index((i + 1) % 2).store(far_x)
            right.index((i + 1) % 2).store(far_y)
            far_x = load(a, at + (i + 2) * TILE, WMMA)
            far_y = load(b, at + (i + 2) * TILE, WMMA)
        with amdwarp.warp_pipeline_stage("product", scope="intra_wave", pair=3):
            acc = dot(x, y, acc, WMMA)
    gl.store(out + offsets(128, 128, MATRIX), acc)


@amdwarp.jit
def paired_copy(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """Two pairs a loop with one id: copies from global memory to LDS and LDS reads, beside products."""
    at = offsets(128, 64, BLOCKED)
    left = gl.allocate_shared_memory(gl.float16, [4, 128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [4, 128, 64], SHARED)
    for slot in gl.static_range(3):
        gl.amd.cdna4.async_copy.buffer_load_to_shared(left.index(slot), a, at + slot * TILE)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(right.index(slot), b, at + slot * TILE)
        gl.amd.cdna4.async_copy.commit_group()
    gl.amd.cdna4.async_copy.wait_group(0)
    x = left.index(0).load(LEFT)
    y = right.index(0).permute([1, 0]).load(RIGHT)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    for i in range(0, n, 2):
        with amdwarp.warp_pipeline_stage("copy", scope="intra_wave", pair=0):
            odd_x = left.index((i + 1) % 4).load(LEFT)
            odd_y = right.index((i + 1) % 4).permute([1, 0]).load(RIGHT)
            gl.amd.cdna4.async_copy.buffer_load_to_shared(left.index((i + 3) % 4), a, at + (i + 3) * TILE)
            gl.amd.cdna4.async_copy.buffer_load_to_shared(right.index((i + 3) % 4), b, at + (i + 3) * TILE)
            gl.amd.cdna4.async_copy.commit_group()
        with amdwarp.warp_pipeline_stage("product", scope="intra_wave", pair=0):
            acc = dot(x, y, acc, WMMA)
        gl.amd.cdna4.async_copy.wait_group(0)
        with amdwarp.warp_pipeline_stage("product", scope="intra_wave", pair=0):
            acc = dot(odd_x, odd_y, acc, WMMA)
        with amdwarp.warp_pipeline_stage("copy", scope="intra_wave", pair=0):
            x = left.index((i + 2) % 4).load(LEFT)
            y = right.index((i + 2) % 4).permute([1, 0]).load(RIGHT)
            gl.amd.cdna4.async_copy.buffer_load_to_shared(left.index(i % 4), a, at + (i + 4) * TILE)
            gl.amd.cdna4.async_copy.buffer_load_to_shared(right.index(i % 4), b, at + (i + 4) * TILE)
            gl.amd.cdna4.async_copy.commit_group()
        gl.amd.cdna4.async_copy.wait_group(0)
    gl.store(out + offsets(128, 128, MATRIX), acc)


@amdwarp.jit
def straight(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """No loop."""
    left = gl.allocate_shared_memory(gl.float16, [2, 128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [2, 128, 64], SHARED)
    for slot in gl.static_range(2):
        fill(left.index(slot), a, slot, BLOCKED, WMMA)
        fill(right.index(slot), b, slot, BLOCKED, WMMA)
    x = left.index(0).load(LEFT)
    y = right.index(0).permute([1, 0]).load(RIGHT)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    with amdwarp.warp_pipeline_stage(scope="intra_wave"):
        next_x = left.index(1).load(LEFT)
        next_y = right.index(1).permute([1, 0]).load(RIGHT)
        acc = dot(x, y, acc, WMMA)
    acc = dot(next_x, next_y, acc, WMMA)
    gl.store(out + offsets(128, 128, MATRIX), acc)


@amdwarp.jit
def softmax(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """Exponentials of the tile before beside the product of this one."""
    left = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    fill(left, a, 0, BLOCKED, WMMA)
    fill(right, b, 0, BLOCKED, WMMA)
    x = left.load(LEFT)
    y = right.permute([1, 0]).load(RIGHT)
    score = gl.zeros([128, 128], gl.float32, MATRIX)
    total = gl.zeros([128, 128], gl.float32, MATRIX)
    for i in range(n):
        with amdwarp.warp_pipeline_stage("softmax", scope="intra_wave"):
            next_x = left.load(LEFT)
            weight = gl.exp2(score * 0.125 - 1.0)
            next_score = dot(x, y, gl.zeros([128, 128], gl.float32, MATRIX), WMMA)
        total += weight
        score = next_score
        x = next_x
    gl.store(out + offsets(128, 128, MATRIX), total)


@amdwarp.jit
def staged(
    a, b, out, n,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr,
):  # fmt: skip
    """Windows inside the two stages of an inter-wave pipeline; eight waves."""
    left = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    right = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    fill(left, a, 0, BLOCKED, WMMA)
    fill(right, b, 0, BLOCKED, WMMA)
    x = left.load(LEFT)
    y = right.permute([1, 0]).load(RIGHT)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    for i in range(0, n, 2):
        with amdwarp.warp_pipeline_stage("one", priority=1):
            with amdwarp.warp_pipeline_stage("one inside", scope="intra_wave"):
                odd_x = left.load(LEFT)
                odd_y = right.permute([1, 0]).load(RIGHT)
                acc = dot(x, y, acc, WMMA)
        with amdwarp.warp_pipeline_stage("two"):
            with amdwarp.warp_pipeline_stage("two inside", scope="intra_wave"):
                x = left.load(LEFT)
                y = right.permute([1, 0]).load(RIGHT)
                acc = dot(odd_x, odd_y, acc, WMMA)
    gl.store(out + offsets(128, 128, MATRIX), acc)


@amdwarp.jit
@triton.jit
def stock(a, b, out, n, ROWS: tl.constexpr, DEPTH: tl.constexpr):
    """A plain Triton kernel: global loads of the next tiles beside the product of these."""
    rows, depth = tl.arange(0, ROWS), tl.arange(0, DEPTH)
    at_a = a + rows[:, None] * DEPTH + depth[None, :]
    at_b = b + rows[None, :] * DEPTH + depth[:, None]
    acc = tl.zeros((ROWS, ROWS), tl.float32)
    x, y = tl.load(at_a), tl.load(at_b)
    for _ in range(n):
        at_a += ROWS * DEPTH
        at_b += ROWS * DEPTH
        with amdwarp.warp_pipeline_stage("ahead", scope="intra_wave"):
            next_x = tl.load(at_a)
            next_y = tl.load(at_b)
            acc = tl.dot(x, y, acc)
        x, y = next_x, next_y
    tl.store(out + rows[:, None] * ROWS + rows[None, :], acc)


@amdwarp.jit
def bytes_beside(
    a, b, out, n, stride,
    BLOCKED: gl.constexpr, SHARED: gl.constexpr, MATRIX: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    WMMA: gl.constexpr, QUADS: gl.constexpr,
):  # fmt: skip
    """Loads of single bytes, of which LLVM joins some that nothing in the layout says it can."""
    left = gl.allocate_shared_memory(gl.float16, [128, 64], SHARED)
    fill(left, b, 0, BLOCKED, WMMA)
    x = left.load(LEFT)
    y = left.permute([1, 0]).load(RIGHT)
    acc = gl.zeros([128, 128], gl.float32, MATRIX)
    total = gl.zeros([128, 64], gl.int8, QUADS)
    rows = gl.arange(0, 128, gl.SliceLayout(1, QUADS))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, QUADS))[None, :]
    for i in range(n):
        with amdwarp.warp_pipeline_stage("bytes", scope="intra_wave"):
            single = gl.load(a + i + rows * stride + columns)
            acc = dot(x, y, acc, WMMA)
        total += single
    gl.store(out + offsets(128, 128, MATRIX), acc)
    gl.store(out + 128 * 128 + offsets(128, 64, QUADS), total.to(gl.float32))


def compile_bytes(arch: str) -> Any:
    """``bytes_beside`` for a CDNA target; ``a`` holds int8."""
    signature = {"a": "*i8", "b": "*fp16", "out": "*fp32", "n": "i32", "stride": "i32"}
    constants = layouts(arch) | {"QUADS": gl.BlockedLayout([2, 4], [4, 16], [2, 2], [1, 0])}
    return amdwarp.compile(bytes_beside, signature, constants, arch, num_warps=4)


@dataclass(frozen=True)
class Case:
    """One kernel of the list: for which targets, with how many waves, and whether it is Gluon."""

    kernel: Any
    archs: tuple[str, ...] = ALL
    waves: int = 4
    gluon: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def constexprs(self, arch: str) -> dict[str, Any]:
        return layouts(arch, self.waves) if self.gluon else {"ROWS": ROWS, "DEPTH": DEPTH}

    def compile(self, arch: str) -> Any:
        signature = {"a": "*fp16", "b": "*fp16", "out": "*fp32", "n": "i32"}
        options = {"num_warps": self.waves, **self.options}
        return amdwarp.compile(self.kernel, signature, self.constexprs(arch), arch, **options)


CASES = {
    "single": Case(single),
    "unrolled": Case(unrolled),
    "paired_write": Case(paired_write),
    "paired_copy": Case(paired_copy, ("gfx950",)),
    "straight": Case(straight),
    "softmax": Case(softmax),
    "staged": Case(staged, CDNA, 8),
    "stock": Case(stock, gluon=False),
}
