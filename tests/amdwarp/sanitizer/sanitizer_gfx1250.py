"""Gluon kernels for gfx1250 that the sanitizer must find nothing wrong with."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

g = gl.amd.gfx1250


@gluon.jit
def store_tile(c, acc, N, WMMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, WMMA))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, WMMA))
    g.buffer_store(acc.to(c.dtype.element_ty), c, rows[:, None] * N + columns[None, :])


@gluon.jit
def async_ring(a, b, c, N, K, WMMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """Copies to LDS one step ahead of a ring of three slots."""
    load_a: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    shared_a: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BK, 8]], [BM, BK], [1, 0])
    shared_b: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BN, 16]], [BK, BN], [1, 0])
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, load_a))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, load_b))
    pa = a + rows[:, None] * K + gl.arange(0, BK, gl.SliceLayout(0, load_a))[None, :]
    pb = b + gl.arange(0, BK, gl.SliceLayout(1, load_b))[:, None] * N + columns[None, :]
    lds_a = gl.allocate_shared_memory(a.dtype.element_ty, [3, BM, BK], shared_a)
    lds_b = gl.allocate_shared_memory(b.dtype.element_ty, [3, BK, BN], shared_b)
    g.async_copy.global_to_shared(lds_a.index(0), pa)
    g.async_copy.global_to_shared(lds_b.index(0), pb)
    g.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, WMMA)
    steps = K // BK
    for k in range(steps - 1):
        pa += BK
        pb += BK * N
        g.async_copy.global_to_shared(lds_a.index((k + 1) % 3), pa)
        g.async_copy.global_to_shared(lds_b.index((k + 1) % 3), pb)
        g.async_copy.commit_group()
        g.async_copy.wait_group(1)
        x = lds_a.index(k % 3).load(gl.DotOperandLayout(0, WMMA, 8))
        y = lds_b.index(k % 3).load(gl.DotOperandLayout(1, WMMA, 8))
        acc = g.wmma(x, y, acc)
    g.async_copy.wait_group(0)
    x = lds_a.index((steps - 1) % 3).load(gl.DotOperandLayout(0, WMMA, 8))
    y = lds_b.index((steps - 1) % 3).load(gl.DotOperandLayout(1, WMMA, 8))
    store_tile(c, g.wmma(x, y, acc), N, WMMA, BM, BN)


@gluon.jit
def tensor_ring(a, b, c, M, N, K, WMMA: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """Tensor copies to LDS one step ahead of a ring of three slots."""
    shared_a: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BK, 8]], [BM, BK], [1, 0])
    shared_b: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BN, 16]], [BK, BN], [1, 0])
    da = g.tdm.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK], shared_a)
    db = g.tdm.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN], shared_b)
    lds_a = gl.allocate_shared_memory(da.dtype, [3, BM, BK], shared_a)
    lds_b = gl.allocate_shared_memory(db.dtype, [3, BK, BN], shared_b)
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    g.tdm.async_load(da, [row, 0], lds_a.index(0))
    g.tdm.async_load(db, [0, column], lds_b.index(0))
    acc = gl.zeros((BM, BN), gl.float32, WMMA)
    steps = K // BK
    for k in range(steps - 1):
        g.tdm.async_load(da, [row, (k + 1) * BK], lds_a.index((k + 1) % 3))
        g.tdm.async_load(db, [(k + 1) * BK, column], lds_b.index((k + 1) % 3))
        g.tdm.async_wait(2)
        x = lds_a.index(k % 3).load(gl.DotOperandLayout(0, WMMA, 8))
        y = lds_b.index(k % 3).load(gl.DotOperandLayout(1, WMMA, 8))
        acc = g.wmma(x, y, acc)
    g.tdm.async_wait(0)
    x = lds_a.index((steps - 1) % 3).load(gl.DotOperandLayout(0, WMMA, 8))
    y = lds_b.index((steps - 1) % 3).load(gl.DotOperandLayout(1, WMMA, 8))
    store_tile(c, g.wmma(x, y, acc), N, WMMA, BM, BN)


@gluon.jit
def copy_through_lds(x, out, n, BLOCK: gl.constexpr):
    blocked: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    lds = gl.allocate_shared_memory(x.dtype.element_ty, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, blocked)
    g.async_copy.global_to_shared(lds, x + at, at < n)
    g.async_copy.commit_group()
    g.async_copy.wait_group(0)
    gl.barrier()
    g.async_copy.shared_to_global(out + at, lds, at < n)
    g.async_copy.commit_group()
    g.async_copy.wait_group(0)


@gluon.jit
def copy_with_arrival(x, out, BLOCK: gl.constexpr):
    """Copies arrive on a barrier object, and so does every thread."""
    blocked: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    lds = gl.allocate_shared_memory(x.dtype.element_ty, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    done = gl.allocate_shared_memory(gl.int64, [1], g.mbarrier.MBarrierLayout())
    g.mbarrier.init(done, count=256)
    gl.barrier()
    at = gl.arange(0, BLOCK, blocked)
    g.async_copy.global_to_shared(lds, x + at)
    g.async_copy.mbarrier_arrive(done)
    before = g.mbarrier.arrive(done)
    g.mbarrier.wait(done, before)
    gl.store(out + at, lds.load(blocked))


@gluon.jit
def _producer(d, lds, ready, free, blocks, BM: gl.constexpr):
    for i in range(blocks):
        g.mbarrier.wait(free, (i & 1) ^ 1)
        g.tdm.async_load(d, [i * BM, 0], lds, mbarrier=ready)


@gluon.jit
def _consumer(out, lds, ready, free, blocks, BM: gl.constexpr, BN: gl.constexpr, layout: gl.constexpr):
    rows = gl.arange(0, BM, gl.SliceLayout(1, layout))
    columns = gl.arange(0, BN, gl.SliceLayout(0, layout))
    for i in range(blocks):
        g.mbarrier.wait(ready, i & 1)
        value = lds.load(layout)
        g.mbarrier.arrive(free)
        gl.store(out + (i * BM + rows[:, None]) * BN + columns[None, :], value * 2)


@gluon.jit
def specialised(x, out, blocks, BM: gl.constexpr, BN: gl.constexpr):
    """A producer and a consumer that hand one slot back and forth through two barrier objects."""
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    d = g.tdm.make_tensor_descriptor(x, [blocks * BM, BN], [BN, 1], [BM, BN], shared)
    lds = gl.allocate_shared_memory(d.dtype, [BM, BN], shared)
    ready = gl.allocate_shared_memory(gl.int64, [1], g.mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [1], g.mbarrier.MBarrierLayout())
    g.mbarrier.init(ready, count=4)
    g.mbarrier.init(free, count=128)
    gl.barrier()
    gl.warp_specialize(
        [
            (_consumer, (out, lds, ready, free, blocks, BM, BN, layout)),
            (_producer, (d, lds, ready, free, blocks, BM)),
        ],
        [4],
    )
