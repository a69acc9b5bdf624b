"""The kernels of the corpus; ``lowering_corpus.py`` compiles them. Importing this imports Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# ---- stock Triton


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + columns, value / tl.sum(value, 0), mask=columns < n)


@triton.jit
def layer_norm(x, weight, bias, out, n, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + columns, mask=columns < n, other=0.0).to(tl.float32)
        value = tl.where(columns < n, value - mean, 0.0)
        square += value * value
    scale = 1 / tl.sqrt(tl.sum(square, 0) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        value = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
        value = (value - mean) * scale * tl.load(weight + columns, mask=mask) + tl.load(bias + columns, mask=mask)
        tl.store(out + row * stride + columns, value, mask=mask)


@triton.jit
def matmul(
    a, b, c, m, n, k, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    at_a = a + rows[:, None] * stride_a + depth[None, :]
    at_b = b + depth[:, None] * stride_b + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        acc = tl.dot(tl.load(at_a), tl.load(at_b), acc)
        at_a += BK
        at_b += BK * stride_b
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], acc.to(tl.float16), mask=mask)


@triton.jit
def attention(q, k, v, out, n, stride, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    query = tl.load(q + rows[:, None] * stride + dims[None, :])
    highest = tl.full((BM,), -float("inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + columns[None, :] * stride + dims[:, None])
        score = tl.dot(query, key) * scale
        score = tl.where(rows[:, None] >= columns[None, :], score, -float("inf"))
        new = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        decay = tl.exp2(highest - new)
        norm = norm * decay + tl.sum(weight, 1)
        value = tl.load(v + columns[:, None] * stride + dims[None, :])
        acc = tl.dot(weight.to(tl.float16), value, acc * decay[:, None])
        highest = new
    tl.store(out + rows[:, None] * stride + dims[None, :], (acc / norm[:, None]).to(tl.float16))


@triton.jit
def helper(x, limit):
    if x > limit:
        return x * 2
    return x + limit


@triton.jit(noinline=True)
def outlined(x):
    return x * x + 1


@triton.jit
def first_and_sum(a, i, b, j):
    return a + b, i + j


@triton.jit
def many_ops(x, counts, out, n, limit, BLOCK: tl.constexpr):
    """Control flow with several blocks, regions with several results, atomics, scans, inline assembly."""
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    total, position = tl.reduce((value, offsets), 0, first_and_sum)
    running = tl.associative_scan((value, offsets), 0, first_and_sum)
    if n > limit:
        if n == 7:
            return
        tl.atomic_add(counts + offsets, position + offsets)
    i = 0
    while i < n:
        i += helper(i, limit)
    twice = tl.inline_asm_elementwise("v_mov_b32 $0, $1", "=v,v", [value], dtype=tl.float32, is_pure=True, pack=1)
    tl.device_assert(n < 1000, "n is large")
    bins = tl.histogram(offsets % 16, BLOCK)
    order = tl.sort(running[0])
    tl.store(counts + offsets, bins + tl.cumsum(offsets, 0))
    tl.store(out + offsets, twice + total + order + running[1] + outlined(i))


@triton.jit
def descriptor_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tensor descriptors: tensor data movers on gfx1250, rewritten to pointers elsewhere."""
    tile_a = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    tile_b = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BK, BN])
    tile_c = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(tile_a.load([row, at]), tile_b.load([at, column]), acc)
    tile_c.store([row, column], acc.to(tl.float16))


@triton.jit
def scaled_matmul(a, b, scale_a, scale_b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Microscaled: fp8 times fp4, one scale for 32 elements."""
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    depth, packed, groups = tl.arange(0, BK), tl.arange(0, BK // 2), tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        left = tl.load(a + rows[:, None] * k + at + depth[None, :])
        right = tl.load(b + (at // 2 + packed)[:, None] * BN + columns[None, :])
        left_scale = tl.load(scale_a + rows[:, None] * (k // 32) + at // 32 + groups[None, :])
        right_scale = tl.load(scale_b + columns[:, None] * (k // 32) + at // 32 + groups[None, :])
        acc = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e2m1", acc)
    tl.store(c + rows[:, None] * BN + columns[None, :], acc)


# ---- Gluon


@gluon.jit
def gluon_gemm_staged(
    a, b, c, k, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """Through registers: buffer_load, local_store, local_load, MFMA."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b + columns[None, :]
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    for _ in range(0, k, BK):
        smem_a.store(gl.amd.cdna3.buffer_load(a, at_a))
        smem_b.store(gl.amd.cdna3.buffer_load(b, at_b))
        left = smem_a.load(gl.DotOperandLayout(0, MMA, KW))
        right = smem_b.load(gl.DotOperandLayout(1, MMA, KW))
        acc = gl.amd.cdna3.mfma(left, right, acc)
        at_a += BK
        at_b += BK * stride_b
    store_tile(c, acc, stride_c, MMA, BM, BN)


@gluon.jit
def store_tile(c, acc, stride_c, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, MMA))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, MMA))
    gl.amd.cdna3.buffer_store(acc.to(gl.float16), c, rows[:, None] * stride_c + columns[None, :])


@gluon.jit
def gluon_gemm_async(
    a, b, c, k, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """Direct to LDS, two buffers: buffer_load_to_shared, commit, wait, MFMA."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [2, BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [2, BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b + columns[None, :]
    gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(0), a, at_a)
    gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(0), b, at_b)
    gl.amd.cdna4.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    slot = 0
    for _ in range(0, k - BK, BK):
        at_a += BK
        at_b += BK * stride_b
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(1 - slot), a, at_a)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(1 - slot), b, at_b)
        gl.amd.cdna4.async_copy.commit_group()
        gl.amd.cdna4.async_copy.wait_group(1)
        left = smem_a.index(slot).load(gl.DotOperandLayout(0, MMA, KW))
        right = smem_b.index(slot).load(gl.DotOperandLayout(1, MMA, KW))
        acc = gl.amd.cdna4.mfma(left, right, acc)
        slot = 1 - slot
    gl.amd.cdna4.async_copy.wait_group(0)
    left = smem_a.index(slot).load(gl.DotOperandLayout(0, MMA, KW))
    right = smem_b.index(slot).load(gl.DotOperandLayout(1, MMA, KW))
    store_tile(c, gl.amd.cdna4.mfma(left, right, acc), stride_c, MMA, BM, BN)


@gluon.jit
def gluon_warp_pipeline(
    a, b, c, k, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """Stock two-stage pipelining of two wave groups."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [3, BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [3, BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b + columns[None, :]
    for i in gl.static_range(2):
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(i), a, at_a + i * BK)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(i), b, at_b + i * BK * stride_b)
        gl.amd.cdna4.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    gl.amd.cdna4.async_copy.wait_group(1)
    for step in range(k // BK - 2):
        with gl.amd.warp_pipeline_stage("load", priority=1):
            left = smem_a.index(step % 3).load(gl.DotOperandLayout(0, MMA, KW))
            right = smem_b.index(step % 3).load(gl.DotOperandLayout(1, MMA, KW))
            ahead = step + 2
            gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(ahead % 3), a, at_a + ahead * BK)
            gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(ahead % 3), b, at_b + ahead * BK * stride_b)
            gl.amd.cdna4.async_copy.commit_group()
        gl.amd.cdna4.async_copy.wait_group(1)
        with gl.amd.warp_pipeline_stage("mfma", priority=0):
            acc = gl.amd.cdna4.mfma(left, right, acc)
    store_tile(c, acc, stride_c, MMA, BM, BN)


@gluon.jit
def gluon_persistent(
    a, b, c, k, tiles, stride_a, stride_b, stride_c,
    MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr, KW: gl.constexpr,
):  # fmt: skip
    """A loop over tiles around the loop over K."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        rows = tile * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
        at_a = rows[:, None] * stride_a + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
        at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * stride_b
        at_b += gl.arange(0, BN, gl.SliceLayout(0, load_b))[None, :]
        acc = gl.zeros((BM, BN), gl.float32, MMA)
        for step in range(0, k, BK):
            left = gl.convert_layout(gl.amd.cdna3.buffer_load(a, at_a + step), gl.DotOperandLayout(0, MMA, KW))
            right = gl.amd.cdna3.buffer_load(b, at_b + step * stride_b)
            acc = gl.amd.cdna3.mfma(left, gl.convert_layout(right, gl.DotOperandLayout(1, MMA, KW)), acc)
        out = (tile * BM + gl.arange(0, BM, gl.SliceLayout(1, MMA)))[:, None] * stride_c
        out += gl.arange(0, BN, gl.SliceLayout(0, MMA))[None, :]
        gl.amd.cdna3.buffer_store(acc.to(gl.float16), c, out)


@gluon.jit
def gluon_tdm(a, b, c, m, n, k, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """Tensor data mover and WMMA."""
    pad_a: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BK, 8]], [BM, BK], [1, 0])
    pad_b: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BN, 8]], [BK, BN], [1, 0])
    tile_a = gl.amd.gfx1250.tdm.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK], pad_a)
    tile_b = gl.amd.gfx1250.tdm.make_tensor_descriptor(b, [k, n], [n, 1], [BK, BN], pad_b)
    smem_a = gl.allocate_shared_memory(gl.float16, [2, BM, BK], pad_a)
    smem_b = gl.allocate_shared_memory(gl.float16, [2, BK, BN], pad_b)
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    for step in range(k // BK):
        gl.amd.gfx1250.tdm.async_load(tile_a, [row, step * BK], smem_a.index(step % 2))
        gl.amd.gfx1250.tdm.async_load(tile_b, [step * BK, column], smem_b.index(step % 2))
        gl.amd.gfx1250.tdm.async_wait(0)
        left = smem_a.index(step % 2).load(gl.DotOperandLayout(0, MMA, 8))
        right = smem_b.index(step % 2).load(gl.DotOperandLayout(1, MMA, 8))
        acc = gl.amd.gfx1250.wmma(left, right, acc)
    rows = row + gl.arange(0, BM, gl.SliceLayout(1, MMA))
    columns = column + gl.arange(0, BN, gl.SliceLayout(0, MMA))
    gl.amd.gfx1250.buffer_store(acc.to(gl.float16), c, rows[:, None] * n + columns[None, :])


@gluon.jit
def produce(x, smem, ready, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    smem.store(gl.load(x + gl.arange(0, BLOCK, layout)))
    gl.amd.gfx1250.mbarrier.arrive(ready)


@gluon.jit
def consume(out, smem, ready, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    gl.amd.gfx1250.mbarrier.wait(ready, 0)
    gl.store(out + gl.arange(0, BLOCK, layout), smem.load(layout) + 1.0)


@gluon.jit
def gluon_specialized(x, out, BLOCK: gl.constexpr):
    """Warp specialization: isolated regions, an mbarrier between them."""
    smem = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = gl.allocate_shared_memory(gl.int64, [1], gl.amd.gfx1250.mbarrier.MBarrierLayout())
    gl.amd.gfx1250.mbarrier.init(ready, 4)
    gl.warp_specialize([(consume, (out, smem, ready, BLOCK)), (produce, (x, smem, ready, BLOCK))], [4])
