"""Kernels that the sanitizer must find nothing wrong with; ``sanitizer_corpus.py`` compiles and runs them."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# ---- stock Triton


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * columns + at, mask=mask, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + at, value / tl.sum(value, axis=0), mask=mask)


@triton.jit
def layer_norm(x, out, weight, bias, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / columns
    centred = tl.where(mask, value - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    w, b = tl.load(weight + at, mask=mask), tl.load(bias + at, mask=mask)
    tl.store(out + row * columns + at, centred * rstd * w + b, mask=mask)


@triton.jit
def layer_norm_loop(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    mean = tl.sum(total, axis=0) / columns
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.where(at < columns, tl.load(x + row * columns + at, mask=at < columns, other=0.0) - mean, 0.0)
        square += value * value
    rstd = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + 1e-5)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        tl.store(out + row * columns + at, (value - mean) * rstd, mask=at < columns)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa, pb = a + rm[:, None] * K + rk[None, :], b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(pa, mask=rm[:, None] < M, other=0.0)
        y = tl.load(pb, mask=rn[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * N
    where = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=where)


@triton.jit
def matmul_nt(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa, pb = a + rm[:, None] * K + rk[None, :], b + rk[:, None] + rn[None, :] * K
    acc = tl.zeros((BM, BN), c.dtype.element_ty if c.dtype.element_ty == tl.int32 else tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_masked_k(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + rk
        x = tl.load(a + rm[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        y = tl.load(b + k[:, None] * N + rn[None, :], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def matmul_persistent(a, b, c, N, K, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rk = tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rm, rn = tile * BM + tl.arange(0, BM), tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
            y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
            acc = tl.dot(x, y, acc)
        tl.store(c + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def matmul_split_k(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    part = tl.program_id(0)
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        k = start + rk
        acc = tl.dot(tl.load(a + rm[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + rn[None, :]), acc)
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def matmul_scaled(
    a, b, c, sa, sb, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr,
    PA: tl.constexpr, PB: tl.constexpr,
):  # fmt: skip
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    rka, rkb, rs = tl.arange(0, BK // PA), tl.arange(0, BK // PB), tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * (K // PA) + k // PA + rka[None, :])
        y = tl.load(b + (k // PB + rkb[:, None]) + rn[None, :] * (K // PB))
        s = tl.load(sa + rm[:, None] * (K // 32) + k // 32 + rs[None, :])
        t = tl.load(sb + rn[:, None] * (K // 32) + k // 32 + rs[None, :])
        acc = tl.dot_scaled(x, s, FA, y, t, FB, acc)
    tl.store(c + rm[:, None] * BN + rn[None, :], acc)


@triton.jit
def chained_dots(a, b, c, out, BM: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr):
    rm, rk, rn = tl.arange(0, BM), tl.arange(0, BK), tl.arange(0, BN)
    x, y = tl.load(a + rm[:, None] * BK + rk[None, :]), tl.load(b + rk[:, None] * BN + rn[None, :])
    z = tl.load(c + rn[:, None] * BN + rn[None, :])
    first = tl.dot(x, y)
    tl.store(out + rm[:, None] * BN + rn[None, :], tl.dot(first.to(tl.float16), z))


@triton.jit
def reductions(x, out_sum, out_max, out_arg, out_scan, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(out_sum + r, tl.sum(value, axis=1))
    tl.store(out_max + c, tl.max(value, axis=0))
    tl.store(out_arg + r, tl.argmax(value, axis=1))
    tl.store(out_scan + r[:, None] * COLUMNS + c[None, :], tl.cumsum(value, axis=1))


@triton.jit
def histogram(x, out, BLOCK: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BINS), tl.histogram(value, BINS))


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def gather(x, index, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), 0))


@triton.jit
def transpose(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(out + c[:, None] * ROWS + r[None, :], tl.trans(value))


@triton.jit
def scan(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(out + r[:, None] * COLUMNS + c[None, :], tl.cumsum(value, axis=0))


@triton.jit
def attention(
    q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    rm, rn, rd = block * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + base + rm[:, None] * D + rd[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, (block + 1) * BM if CAUSAL else length, BN):
        keys = tl.load(k + base + (start + rn[None, :]) * D + rd[:, None])
        score = tl.dot(queries, keys) * scale
        if CAUSAL:
            score = tl.where(rm[:, None] >= start + rn[None, :], score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, axis=1))
        p = tl.exp2(score - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, axis=1)
        values = tl.load(v + base + (start + rn[:, None]) * D + rd[None, :])
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
        top = new_top
    tl.store(out + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def atomics(counter, sums, slots, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    old = tl.atomic_add(counter, 1)
    tl.store(slots + old, tl.program_id(0))
    tl.atomic_add(sums + at % 7, tl.load(x + at, mask=mask, other=0.0), mask=mask)
    tl.atomic_max(counter + 1, tl.program_id(0))


@triton.jit
def last_reduces(x, partial, counter, out, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Workgroups hand over through memory: the one that arrives last adds up what the others stored."""
    part = tl.program_id(0)
    tl.store(partial + part, tl.sum(tl.load(x + part * BLOCK + tl.arange(0, BLOCK)), axis=0))
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem="acq_rel")
    if arrived == PARTS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PARTS)), axis=0))


@triton.jit
def rope(x, cos, sin, out, HALF: tl.constexpr, ROWS: tl.constexpr):
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, HALF)
    first = tl.load(x + r[:, None] * 2 * HALF + c[None, :])
    second = tl.load(x + r[:, None] * 2 * HALF + HALF + c[None, :])
    co, si = tl.load(cos + r[:, None] * HALF + c[None, :]), tl.load(sin + r[:, None] * HALF + c[None, :])
    tl.store(out + r[:, None] * 2 * HALF + c[None, :], first * co - second * si)
    tl.store(out + r[:, None] * 2 * HALF + HALF + c[None, :], second * co + first * si)


@triton.jit
def division(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a, b = tl.load(x + at, mask=mask, other=1), tl.load(y + at, mask=mask, other=1)
    tl.store(out + at, a / b + tl.exp(a) * tl.sqrt(tl.abs(b)) + tl.math.rsqrt(tl.abs(a) + 1), mask=mask)


@triton.jit
def integer_division(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    b = tl.where(b == 0, 1, b)
    tl.store(out + at, a // b + a % b)


# ---- Gluon


@gluon.jit
def store_tile(c, acc, n, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, MMA))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, MMA))
    gl.amd.cdna3.buffer_store(acc.to(gl.float16), c, rows[:, None] * n + columns[None, :])


@gluon.jit
def gluon_staged(
    a, b, c, n, k, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    KW: gl.constexpr,
):  # fmt: skip
    """Through registers, one buffer: load, store to LDS, read from LDS, matrix instructions."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * k + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * n + columns[None, :]
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    for _ in range(0, k, BK):
        smem_a.store(gl.amd.cdna3.buffer_load(a, at_a))
        smem_b.store(gl.amd.cdna3.buffer_load(b, at_b))
        left = smem_a.load(gl.DotOperandLayout(0, MMA, KW))
        right = smem_b.load(gl.DotOperandLayout(1, MMA, KW))
        acc = gl.amd.cdna3.mfma(left, right, acc)
        at_a += BK
        at_b += BK * n
    store_tile(c, acc, n, MMA, BM, BN)


@gluon.jit
def gluon_async(
    a, b, c, n, k, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    KW: gl.constexpr,
):  # fmt: skip
    """Direct to LDS, two buffers."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [2, BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [2, BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * k + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * n + columns[None, :]
    gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(0), a, at_a)
    gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(0), b, at_b)
    gl.amd.cdna4.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    slot = 0
    for _ in range(0, k - BK, BK):
        at_a += BK
        at_b += BK * n
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
    store_tile(c, gl.amd.cdna4.mfma(left, right, acc), n, MMA, BM, BN)


@gluon.jit
def gluon_async_ring(
    a, b, c, n, k, MMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    KW: gl.constexpr,
):  # fmt: skip
    """Direct to LDS, three buffers, copies two steps ahead; steps behind K are masked."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [WARPS, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [WARPS, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    smem_a = gl.allocate_shared_memory(gl.float16, [3, BM, BK], shared)
    smem_b = gl.allocate_shared_memory(gl.float16, [3, BK, BN], shared)
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    at_a = rows[:, None] * k + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    at_b = gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * n + columns[None, :]
    steps = k // BK
    for i in gl.static_range(2):
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(i), a, at_a + i * BK, mask=i < steps)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(i), b, at_b + i * BK * n, mask=i < steps)
        gl.amd.cdna4.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, MMA)
    for step in range(steps):
        gl.amd.cdna4.async_copy.wait_group(1)
        left = smem_a.index(step % 3).load(gl.DotOperandLayout(0, MMA, KW))
        right = smem_b.index(step % 3).load(gl.DotOperandLayout(1, MMA, KW))
        ahead = step + 2
        slot = ahead % 3
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_a.index(slot), a, at_a + ahead * BK, mask=ahead < steps)
        gl.amd.cdna4.async_copy.buffer_load_to_shared(smem_b.index(slot), b, at_b + ahead * BK * n, mask=ahead < steps)
        gl.amd.cdna4.async_copy.commit_group()
        acc = gl.amd.cdna4.mfma(left, right, acc)
    store_tile(c, acc, n, MMA, BM, BN)


@gluon.jit
def gluon_convert(x, out, ROWS: gl.constexpr, COLUMNS: gl.constexpr, WARPS: gl.constexpr):
    """A layout conversion through LDS."""
    rows_first: gl.constexpr = gl.BlockedLayout([1, 4], [4, 16], [WARPS, 1], [1, 0])
    columns_first: gl.constexpr = gl.BlockedLayout([4, 1], [16, 4], [1, WARPS], [0, 1])
    r, c = gl.arange(0, ROWS, gl.SliceLayout(1, rows_first)), gl.arange(0, COLUMNS, gl.SliceLayout(0, rows_first))
    value = gl.convert_layout(gl.load(x + r[:, None] * COLUMNS + c[None, :]), columns_first)
    r, c = gl.arange(0, ROWS, gl.SliceLayout(1, columns_first)), gl.arange(0, COLUMNS, gl.SliceLayout(0, columns_first))
    gl.store(out + r[:, None] + c[None, :] * ROWS, value)
