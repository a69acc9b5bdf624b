"""The GEMM of gfx942 and gfx950 as two tasks: one loads operands into a ring in LDS, the other multiplies them.

C = A @ B with fp16 or bf16 operands, fp32 accumulation and C in the operands' type. The default task has four waves,
one to a SIMD; it weaves the reads of a step's operands between the MFMAs of the step before. The loading task has
copies of one wave each that take the steps in turn, so that one starts loads while another waits: on gfx950 they copy
straight to LDS, on gfx942, whose copies of that kind move 4 bytes a lane, the data passes through their registers.

Two barriers a ring slot: ``full`` counts loading waves, ``empty`` the multiplying ones. The phase of step ``i`` in a
ring of ``R`` is ``i // R & 1``; a fresh slot is empty without an arrival. One copy fills a slot each time, since
another would not know which phase of it has passed: copies divide ``R``. Past the end of K all lanes are masked, so
that the loads that run ahead of the last step write zeros.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna3 import buffer_load
from triton.experimental.gluon.language.amd.cdna4 import async_copy, mfma

from amdwarp.jit import jit
from amdwarp.stage import warp_pipeline_stage
from amdwarp.task_barriers import alloc_barriers, barrier_arrive, barrier_wait
from amdwarp.tasks import async_task, async_task_replica_id, async_tasks

from .inter_wave_gfx950 import (
    SCALARS,
    lds_layout_a,
    lds_layout_b,
    mask_a,
    mask_b,
    mfma_layout,
    offsets_b,
    store_c,
    tile_of_program,
)


@constexpr_function
def shared_layout_a(S):
    """LDS layout of one A tile, (rows, k)."""
    return lds_layout_a(S) if S.direct else gl.SwizzledSharedLayout(8, 2, 4, [1, 0])


@constexpr_function
def shared_layout_b(S, k_contiguous):
    """LDS layout of one B tile, (k, columns)."""
    if S.direct:
        return lds_layout_b(S, k_contiguous)
    return gl.SwizzledSharedLayout(8, 2, 4, [0, 1]) if k_contiguous else gl.SwizzledSharedLayout(8, 1, 8, [1, 0])


@constexpr_function
def loading_layout_a(S):
    """Layout in which the loading task reads one A tile."""
    if not S.direct:
        return gl.BlockedLayout([1, 8], [16, 4], [S.loaders, 1], [1, 0])
    lds = S.a_layout()
    load = lds.load_layout(S.loaders)
    parts = [[list(basis) for basis in bases] for bases in (load.registers, load.lanes, load.waves)]
    return gl.DistributedLinearLayout(*parts, [], [lds.tile.outer, lds.tile.k])


@constexpr_function
def loading_layout_b(S, k_contiguous):
    """Layout in which the loading task reads one B tile."""
    if not S.direct:
        if k_contiguous:
            return gl.BlockedLayout([8, 1], [4, 16], [1, S.loaders], [0, 1])
        return gl.BlockedLayout([1, 8], [4, 16], [S.loaders, 1], [1, 0])
    lds = S.b_layout(k_contiguous)
    load = lds.load_layout(S.loaders)
    parts = [[[k, column] for column, k in bases] for bases in (load.registers, load.lanes, load.waves)]
    return gl.DistributedLinearLayout(*parts, [], [lds.tile.k, lds.tile.outer])


@gluon.jit
def load_direct(
    a, b, a_at, b_at, a_ks, b_ks, columns, a_step, b_step, n_left, k_left, steps, a_ring, b_ring, full, empty,
    S: gl.constexpr, KC: gl.constexpr,
):  # fmt: skip
    """Copy every `S.copies`-th step straight into the ring, `S.ahead` of them under way."""
    FIRST: gl.constexpr = async_task_replica_id()
    STEP: gl.constexpr = S.tile_k
    COPIES: gl.constexpr = S.copies
    AHEAD: gl.constexpr = S.ahead
    for turn in gl.static_range(AHEAD):
        SLOT: gl.constexpr = FIRST + turn * COPIES
        async_copy.buffer_load_to_shared(a_ring.index(SLOT), a, a_at, mask_a(a_ks, k_left))
        async_copy.buffer_load_to_shared(b_ring.index(SLOT), b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
        async_copy.commit_group()
        a += a_step
        b += b_step
        k_left -= STEP * COPIES
    for step in range(FIRST, steps, COPIES):
        ahead = step + AHEAD * COPIES
        slot = ahead % S.ring
        barrier_wait(empty.index(slot), ahead // S.ring & 1 ^ 1)
        async_copy.buffer_load_to_shared(a_ring.index(slot), a, a_at, mask_a(a_ks, k_left))
        async_copy.buffer_load_to_shared(b_ring.index(slot), b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
        async_copy.commit_group()
        async_copy.wait_group(AHEAD)
        barrier_arrive(full.index(step % S.ring), release="lds")
        a += a_step
        b += b_step
        k_left -= STEP * COPIES
    # What runs ahead of the last step must not land in LDS that the rest of the kernel takes for something else.
    async_copy.wait_group(0)


@gluon.jit
def load_through_registers(
    a, b, a_at, b_at, a_ks, b_ks, columns, a_step, b_step, n_left, k_left, steps, a_ring, b_ring, full, empty,
    S: gl.constexpr, KC: gl.constexpr,
):  # fmt: skip
    """Load every `S.copies`-th step into registers, and store it into the ring while the next one is under way."""
    FIRST: gl.constexpr = async_task_replica_id()
    STEP: gl.constexpr = S.tile_k
    COPIES: gl.constexpr = S.copies
    a_fetched = buffer_load(a, a_at, mask_a(a_ks, k_left))
    b_fetched = buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
    for step in range(FIRST, steps, COPIES):
        a += a_step
        b += b_step
        k_left -= STEP * COPIES
        a_next = buffer_load(a, a_at, mask_a(a_ks, k_left))
        b_next = buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
        slot = step % S.ring
        barrier_wait(empty.index(slot), step // S.ring & 1 ^ 1)
        a_ring.index(slot).store(a_fetched)
        b_ring.index(slot).store(b_fetched)
        barrier_arrive(full.index(slot), release="lds")
        a_fetched = a_next
        b_fetched = b_next


@jit(do_not_specialize=SCALARS)
def matmul_tasks(
    a_ptr, b_ptr, c_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units, S: gl.constexpr, ACCESS: gl.constexpr
):
    """One tile of C by a loading and a multiplying task."""
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    TILE_M: gl.constexpr = S.tile_m
    TILE_N: gl.constexpr = S.tile_n
    STEP: gl.constexpr = S.tile_k
    RING: gl.constexpr = S.ring
    KC: gl.constexpr = ACCESS.b_k_contiguous
    ACC: gl.constexpr = mfma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    n = gl.to_tensor(n_units) * ACCESS.n_unit
    k = gl.to_tensor(k_units) * ACCESS.k_unit
    lda = gl.to_tensor(lda_units) * ACCESS.a_unit
    ldb = gl.to_tensor(ldb_units) * ACCESS.b_unit
    ldc = gl.to_tensor(ldc_units) * ACCESS.c_unit
    tile_row, tile_column = tile_of_program(gl.cdiv(m, TILE_M), gl.cdiv(n, TILE_N), S)
    m_left = m - tile_row * TILE_M
    n_left = n - tile_column * TILE_N
    a_ring = gl.allocate_shared_memory(TYPE, [RING, TILE_M, STEP], shared_layout_a(S))
    b_ring = gl.allocate_shared_memory(TYPE, [RING, STEP, TILE_N], shared_layout_b(S, KC))
    full = alloc_barriers(RING, arrivals=S.loaders)
    empty = alloc_barriers(RING, arrivals=S.multipliers)
    # Two steps a turn, and one whose operands are read and not multiplied: those past the end of K are zeros.
    pairs = gl.cdiv(k, 2 * STEP)
    with async_tasks():
        with async_task("default"):
            acc = gl.zeros((TILE_M, TILE_N), gl.float32, ACC)
            barrier_wait(full.index(0), 0)
            a_operand = a_ring.index(0).load(A_OPERAND)
            b_operand = b_ring.index(0).load(B_OPERAND)
            barrier_arrive(empty.index(0), release="lds")
            for pair in range(pairs):
                for half in gl.static_range(2):  # operand sets alternate by name, so that none is copied
                    following = pair * 2 + half + 1
                    slot = following % RING
                    barrier_wait(full.index(slot), following // RING & 1)
                    with warp_pipeline_stage("load", scope="intra_wave", pair=0):
                        a_next = a_ring.index(slot).load(A_OPERAND)
                        b_next = b_ring.index(slot).load(B_OPERAND)
                    with warp_pipeline_stage("multiply", scope="intra_wave", pair=0):
                        acc = mfma(a_operand, b_operand, acc)
                    barrier_arrive(empty.index(slot), release="lds")
                    a_operand = a_next
                    b_operand = b_next
            c_rows = gl.arange(0, TILE_M, gl.SliceLayout(1, ACC))
            c_columns = gl.arange(0, TILE_N, gl.SliceLayout(0, ACC))
            c = c_ptr + (tile_row * TILE_M).to(gl.int64) * ldc + tile_column * TILE_N
            store_c(acc, c, c_rows, c_columns, ldc, m_left, n_left)
        with async_task(num_warps=S.loaders, replicate=S.copies):
            A_LOAD: gl.constexpr = loading_layout_a(S)
            B_LOAD: gl.constexpr = loading_layout_b(S, KC)
            FIRST: gl.constexpr = async_task_replica_id() * STEP
            b_unit = 1 if KC else ldb.to(gl.int64)
            a = a_ptr + (tile_row * TILE_M).to(gl.int64) * lda + FIRST
            b = b_ptr + (tile_column * TILE_N).to(gl.int64) * (ldb if KC else 1) + FIRST * b_unit
            a_step = STEP * S.copies
            b_step = STEP * S.copies * b_unit
            rows = gl.arange(0, TILE_M, gl.SliceLayout(1, A_LOAD))
            a_ks = gl.arange(0, STEP, gl.SliceLayout(0, A_LOAD))
            columns = gl.arange(0, TILE_N, gl.SliceLayout(0, B_LOAD))
            b_ks = gl.arange(0, STEP, gl.SliceLayout(1, B_LOAD))
            # Rows past M repeat the last one: their products are never stored, and no lane needs a mask for them.
            a_at = gl.minimum(rows, m_left - 1)[:, None] * lda + a_ks[None, :]
            b_at = offsets_b(b_ks, columns, ldb, n_left, KC)
            k_left = k - FIRST
            steps = pairs * 2 + 1
            if S.direct:
                load_direct(
                    a, b, a_at, b_at, a_ks, b_ks, columns, a_step, b_step, n_left, k_left, steps,
                    a_ring, b_ring, full, empty, S, KC,
                )  # fmt: skip
            else:
                load_through_registers(
                    a, b, a_at, b_at, a_ks, b_ks, columns, a_step, b_step, n_left, k_left, steps,
                    a_ring, b_ring, full, empty, S, KC,
                )  # fmt: skip
