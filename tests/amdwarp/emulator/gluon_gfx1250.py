"""Gluon kernels for gfx1250 that the emulator tests compile and run."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon

g = gl.amd.gfx1250


@gluon.jit
def gemm_async(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    wmma: gl.constexpr = gl.amd.AMDWMMALayout(3, True, [[0, 1], [1, 0]], [], [16, 16, 32])
    blocked_a: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    blocked_b: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    shared_a: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BK, 8]], [BM, BK], [1, 0])
    shared_b: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BN, 16]], [BK, BN], [1, 0])
    rm = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, blocked_a))
    ka = gl.arange(0, BK, gl.SliceLayout(0, blocked_a))
    kb = gl.arange(0, BK, gl.SliceLayout(1, blocked_b))
    rn = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, blocked_b))
    pa = a + rm[:, None] * K + ka[None, :]
    pb = b + kb[:, None] * N + rn[None, :]
    mask_a = rm[:, None] < M
    mask_b = rn[None, :] < N
    lds_a = gl.allocate_shared_memory(a.dtype.element_ty, [STAGES, BM, BK], shared_a)
    lds_b = gl.allocate_shared_memory(b.dtype.element_ty, [STAGES, BK, BN], shared_b)
    for s in gl.static_range(STAGES - 1):
        g.async_copy.global_to_shared(lds_a.index(s), pa + s * BK, mask_a)
        g.async_copy.global_to_shared(lds_b.index(s), pb + s * BK * N, mask_b)
        g.async_copy.commit_group()
    acc = gl.zeros((BM, BN), gl.float32, wmma)
    for k in range(gl.cdiv(K, BK)):
        ahead = k + STAGES - 1
        slot = ahead % STAGES
        # Behind the end of K both masks are off.
        more = ahead * BK < K
        g.async_copy.global_to_shared(lds_a.index(slot), pa + ahead * BK, mask_a & more)
        g.async_copy.global_to_shared(lds_b.index(slot), pb + ahead * BK * N, mask_b & more)
        g.async_copy.commit_group()
        g.async_copy.wait_group(STAGES - 1)
        x = lds_a.index(k % STAGES).load(gl.DotOperandLayout(0, wmma, 8))
        y = lds_b.index(k % STAGES).load(gl.DotOperandLayout(1, wmma, 8))
        acc = g.wmma(x, y, acc)
    out_m = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, wmma))
    out_n = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, wmma))
    where = (out_m[:, None] < M) & (out_n[None, :] < N)
    gl.store(c + out_m[:, None] * N + out_n[None, :], acc.to(c.dtype.element_ty), mask=where)


@gluon.jit
def gemm_tensor(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    wmma: gl.constexpr = gl.amd.AMDWMMALayout(3, True, [[0, 1], [1, 0]], [], [16, 16, 32])
    shared_a: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BK, 8]], [BM, BK], [1, 0])
    shared_b: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BN, 16]], [BK, BN], [1, 0])
    da = g.tdm.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK], shared_a)
    db = g.tdm.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN], shared_b)
    lds_a = gl.allocate_shared_memory(da.dtype, [STAGES, BM, BK], shared_a)
    lds_b = gl.allocate_shared_memory(db.dtype, [STAGES, BK, BN], shared_b)
    pm, pn = gl.program_id(0) * BM, gl.program_id(1) * BN
    for s in gl.static_range(STAGES - 1):
        g.tdm.async_load(da, [pm, s * BK], lds_a.index(s))
        g.tdm.async_load(db, [s * BK, pn], lds_b.index(s))
    acc = gl.zeros((BM, BN), gl.float32, wmma)
    for k in range(gl.cdiv(K, BK)):
        ahead = k + STAGES - 1
        g.tdm.async_load(da, [pm, ahead * BK], lds_a.index(ahead % STAGES))
        g.tdm.async_load(db, [ahead * BK, pn], lds_b.index(ahead % STAGES))
        g.tdm.async_wait(2 * (STAGES - 1))
        x = lds_a.index(k % STAGES).load(gl.DotOperandLayout(0, wmma, 8))
        y = lds_b.index(k % STAGES).load(gl.DotOperandLayout(1, wmma, 8))
        acc = g.wmma(x, y, acc)
    out_m = pm + gl.arange(0, BM, gl.SliceLayout(1, wmma))
    out_n = pn + gl.arange(0, BN, gl.SliceLayout(0, wmma))
    offsets = out_m[:, None] * N + out_n[None, :]
    where = (out_m[:, None] < M) & (out_n[None, :] < N)
    g.buffer_store(acc.to(c.dtype.element_ty), c, offsets, mask=where)


@gluon.jit
def tensor_copy_2d(x, out, M, N, at_m, at_n, BM: gl.constexpr, BN: gl.constexpr, PAD: gl.constexpr):
    shared: gl.constexpr = (
        gl.PaddedSharedLayout.with_identity_for([[BN, PAD]], [BM, BN], [1, 0])
        if PAD
        else gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    )
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    d = g.tdm.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN], shared)
    lds = gl.allocate_shared_memory(d.dtype, [BM, BN], shared)
    g.tdm.async_load(d, [at_m, at_n], lds)
    g.tdm.async_wait(0)
    value = lds.load(blocked)
    rows = gl.arange(0, BM, gl.SliceLayout(1, blocked))
    columns = gl.arange(0, BN, gl.SliceLayout(0, blocked))
    gl.store(out + rows[:, None] * BN + columns[None, :], value)


@gluon.jit
def tensor_copy_3d(x, out, A, B, C, at_a, at_b, at_c):
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    d = g.tdm.make_tensor_descriptor(x, [A, B, C], [B * C, C, 1], [4, 8, 32], shared)
    o = g.tdm.make_tensor_descriptor(out, [4, 6, 30], [180, 30, 1], [4, 8, 32], shared)
    lds = gl.allocate_shared_memory(d.dtype, [4, 8, 32], shared)
    g.tdm.async_load(d, [at_a, at_b, at_c], lds)
    g.tdm.async_wait(0)
    gl.barrier()
    g.tdm.async_store(o, [0, 0, 0], lds)
    g.tdm.async_wait(0)


@gluon.jit
def tensor_copy_5d(x, out, A, B, C, D, E, at_a, at_b, at_c, at_d, at_e):
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [4, 3, 2, 1, 0])
    strides = [B * C * D * E, C * D * E, D * E, E, 1]
    d = g.tdm.make_tensor_descriptor(x, [A, B, C, D, E], strides, [2, 2, 4, 4, 16], shared)
    o = g.tdm.make_tensor_descriptor(out, [2, 2, 4, 4, 16], [512, 256, 64, 16, 1], [2, 2, 4, 4, 16], shared)
    lds = gl.allocate_shared_memory(d.dtype, [2, 2, 4, 4, 16], shared)
    g.tdm.async_load(d, [at_a, at_b, at_c, at_d, at_e], lds)
    g.tdm.async_wait(0)
    gl.barrier()
    g.tdm.async_store(o, [0, 0, 0, 0, 0], lds)
    g.tdm.async_wait(0)


@gluon.jit
def copy_through_lds(x, out, n, BLOCK: gl.constexpr):
    blocked: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lds = gl.allocate_shared_memory(x.dtype.element_ty, [BLOCK], shared)
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, blocked)
    g.async_copy.global_to_shared(lds, x + at, at < n)
    g.async_copy.commit_group()
    g.async_copy.wait_group(0)
    gl.barrier()
    g.async_copy.shared_to_global(out + at, lds, at < n)
    g.async_copy.commit_group()
    g.async_copy.wait_group(0)


@gluon.jit
def scaled(
    a, b, c, sa, sb,
    FA: gl.constexpr, FB: gl.constexpr, PA: gl.constexpr, PB: gl.constexpr, WIDE: gl.constexpr, EACH: gl.constexpr,
):  # fmt: skip
    # One warp; 32 or 16 rows, 16 columns, K of 128 in one instruction; a scale for EACH elements.
    m: gl.constexpr = 32 if WIDE else 16
    acc_layout: gl.constexpr = gl.amd.AMDWMMALayout(3, not WIDE, [], [], [m, 16, 128])
    packed: gl.constexpr = gl.amd.AMDWMMALayout(3, not WIDE, [], [], [m, 16, 64])
    la: gl.constexpr = gl.DotOperandLayout(0, packed if PA == 2 else acc_layout, 16)
    lb: gl.constexpr = gl.DotOperandLayout(1, packed if PB == 2 else acc_layout, 16)
    am = gl.arange(0, m, gl.SliceLayout(1, la))
    ak = gl.arange(0, 128 // PA, gl.SliceLayout(0, la))
    bk = gl.arange(0, 128 // PB, gl.SliceLayout(1, lb))
    bn = gl.arange(0, 16, gl.SliceLayout(0, lb))
    x = gl.load(a + am[:, None] * (128 // PA) + ak[None, :])
    y = gl.load(b + bk[:, None] + bn[None, :] * (128 // PB))
    lsa: gl.constexpr = g.get_wmma_scale_layout(la, [m, 128 // EACH], EACH)
    lsb: gl.constexpr = g.get_wmma_scale_layout(lb, [16, 128 // EACH], EACH)
    sm = gl.arange(0, m, gl.SliceLayout(1, lsa))
    sk = gl.arange(0, 128 // EACH, gl.SliceLayout(0, lsa))
    tn = gl.arange(0, 16, gl.SliceLayout(1, lsb))
    tk = gl.arange(0, 128 // EACH, gl.SliceLayout(0, lsb))
    s = gl.load(sa + sm[:, None] * (128 // EACH) + sk[None, :])
    t = gl.load(sb + tn[:, None] * (128 // EACH) + tk[None, :])
    acc = g.wmma_scaled(x, s, FA, y, t, FB, gl.zeros((m, 16), gl.float32, acc_layout))
    cm = gl.arange(0, m, gl.SliceLayout(1, acc_layout))
    cn = gl.arange(0, 16, gl.SliceLayout(0, acc_layout))
    gl.store(c + cm[:, None] * 16 + cn[None, :], acc)


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


@gluon.jit
def copy_with_arrival(x, out, BLOCK: gl.constexpr):
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
def repacked(b, out):
    # One warp: 128 rows of k by 64 columns of 4 bits, packed along the columns; out is packed along k.
    layout: gl.constexpr = gl.DotOperandLayout(1, gl.amd.AMDWMMALayout(3, True, [], [], [16, 16, 64]), 16)
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [1, 1], [1, 0])
    rows = gl.arange(0, 128, gl.SliceLayout(1, blocked))
    columns = gl.arange(0, 32, gl.SliceLayout(0, blocked))
    value = gl.load(b + rows[:, None] * 32 + columns[None, :])
    lds = gl.allocate_shared_memory(gl.uint8, [128, 32], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), value)
    k = gl.arange(0, 64, gl.SliceLayout(1, layout))
    n = gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + k[:, None] * 64 + n[None, :], g.load_shared_fp4_repacked(lds, layout))


@gluon.jit
def by_rows(x, index, out, M, N, column, ROWS: gl.constexpr, COLUMNS: gl.constexpr, SCATTER: gl.constexpr):
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    listed: gl.constexpr = gl.SliceLayout(1, gl.BlockedLayout([ROWS, 1], [1, 32], [4, 1], [1, 0]))
    numbers = gl.load(index + gl.arange(0, ROWS, listed))
    lds = gl.allocate_shared_memory(x.dtype.element_ty, [ROWS, COLUMNS], shared)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, blocked))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, blocked))
    where = rows[:, None] * COLUMNS + columns[None, :]
    if SCATTER:
        d = g.tdm.make_tensor_descriptor(out, [M, N], [N, 1], [ROWS, COLUMNS], shared)
        lds.store(gl.load(x + where))
        gl.barrier()
        g.tdm.async_scatter(g.tdm.update_tensor_descriptor(d, add_offsets=[0, column]), numbers, lds)
        g.tdm.async_wait(0)
    else:
        d = g.tdm.make_tensor_descriptor(x, [M, N], [N, 1], [ROWS, COLUMNS], shared)
        g.tdm.async_gather(g.tdm.update_tensor_descriptor(d, add_offsets=[0, column]), numbers, lds)
        g.tdm.async_wait(0)
        gl.barrier()
        gl.store(out + where, lds.load(blocked))
