"""The intra-wave gfx950 GEMM: four waves, one to a SIMD, whose loads are woven between their own MFMAs.

C = A @ B with fp16 or bf16 operands, fp32 accumulation and C in the operands' type. A wave has all 512 registers of its
SIMD lanes: 256 of them accumulate a 128x128 part of the tile, and two sets of operands take 64 each, half a K step, so
that one is read while the other is multiplied. Sets alternate because a K step is written out as its two halves. Two K
steps are written out, so that slots are constants.

What keeps the two slots of LDS free of races is the one wait of a K step, with the barrier that stock barrier insertion
puts behind it:
  * before it, every wave has read the second half of this step's slot, so the slot may be refilled behind it;
  * the copies it waits for were started a K step ago, and hold the next step, whose first half is read behind it.
Past the end of K all lanes are masked: their copies write zeros and move no bytes.

It has no epilogue: 256 sums and two sets of operands leave none of the 512 registers to spare. Applied to slices of 16
elements a lane (`store_bands`), whether it fits is LLVM's luck: read from the text, bias, gelu and residual together
spilled nothing in 502 to 508 registers, bias, silu and residual 128.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, mfma

from amdwarp.jit import jit
from amdwarp.stage import warp_pipeline_stage

from .inter_wave_gfx950 import (
    SCALARS,
    lds_layout_a,
    lds_layout_b,
    load_layout_a,
    load_layout_b,
    mask_a,
    mask_b,
    mfma_layout,
    offsets_b,
    store_c,
    tile_of_program,
)


@jit(do_not_specialize=SCALARS)
def matmul_woven(
    a_ptr, b_ptr, c_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units, S: gl.constexpr, ACCESS: gl.constexpr
):
    """One tile of C by four waves; K steps double buffered in LDS, halves of one in registers. Operands go to LDS."""
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    TILE_M: gl.constexpr = S.tile_m
    TILE_N: gl.constexpr = S.tile_n
    STEP: gl.constexpr = S.tile_k
    HALF: gl.constexpr = S.tile_k // 2
    KC: gl.constexpr = ACCESS.b_k_contiguous
    ACC: gl.constexpr = mfma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    A_LOAD: gl.constexpr = load_layout_a(S)
    B_LOAD: gl.constexpr = load_layout_b(S, KC)
    n = gl.to_tensor(n_units) * ACCESS.n_unit
    k = gl.to_tensor(k_units) * ACCESS.k_unit
    lda = gl.to_tensor(lda_units) * ACCESS.a_unit
    ldb = gl.to_tensor(ldb_units) * ACCESS.b_unit
    ldc = gl.to_tensor(ldc_units) * ACCESS.c_unit

    tile_row, tile_column = tile_of_program(gl.cdiv(m, TILE_M), gl.cdiv(n, TILE_N), S)
    m_left = m - tile_row * TILE_M
    n_left = n - tile_column * TILE_N
    a = a_ptr + (tile_row * TILE_M).to(gl.int64) * lda
    b = b_ptr + (tile_column * TILE_N).to(gl.int64) * (ldb if KC else 1)
    b_step = STEP if KC else STEP * ldb.to(gl.int64)

    rows = gl.arange(0, TILE_M, gl.SliceLayout(1, A_LOAD))
    a_ks = gl.arange(0, STEP, gl.SliceLayout(0, A_LOAD))
    columns = gl.arange(0, TILE_N, gl.SliceLayout(0, B_LOAD))
    b_ks = gl.arange(0, STEP, gl.SliceLayout(1, B_LOAD))
    # Rows past M repeat the last one: their products are never stored, and no lane needs a mask for them.
    a_at = gl.minimum(rows, m_left - 1)[:, None] * lda + a_ks[None, :]
    b_at = offsets_b(b_ks, columns, ldb, n_left, KC)

    a_ring = gl.allocate_shared_memory(TYPE, [2, TILE_M, STEP], lds_layout_a(S))
    b_ring = gl.allocate_shared_memory(TYPE, [2, STEP, TILE_N], lds_layout_b(S, KC))
    k_left = k
    for slot in gl.static_range(2):
        async_copy.buffer_load_to_shared(a_ring.index(slot), a, a_at, mask_a(a_ks, k_left))
        async_copy.buffer_load_to_shared(b_ring.index(slot), b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
        async_copy.commit_group()
        a += STEP
        b += b_step
        k_left -= STEP

    acc = gl.zeros((TILE_M, TILE_N), gl.float32, ACC)
    async_copy.wait_group(1)
    a_first = async_copy.load_shared_relaxed(a_ring.index(0).slice(0, HALF, dim=1), A_OPERAND)
    b_first = async_copy.load_shared_relaxed(b_ring.index(0).slice(0, HALF, dim=0), B_OPERAND)
    for _ in range(gl.cdiv(k, 2 * STEP)):
        for here in gl.static_range(2):
            with warp_pipeline_stage("first half", scope="intra_wave"):
                a_second = async_copy.load_shared_relaxed(a_ring.index(here).slice(HALF, HALF, dim=1), A_OPERAND)
                b_second = async_copy.load_shared_relaxed(b_ring.index(here).slice(HALF, HALF, dim=0), B_OPERAND)
                acc = mfma(a_first, b_first, acc)
            async_copy.wait_group(0)
            with warp_pipeline_stage("load the next step", scope="intra_wave", pair=0):
                # Copy before read: behind a read of the same ring stock barrier insertion puts a barrier.
                async_copy.buffer_load_to_shared(a_ring.index(here), a, a_at, mask_a(a_ks, k_left))
                a_first = async_copy.load_shared_relaxed(a_ring.index(1 - here).slice(0, HALF, dim=1), A_OPERAND)
                in_b = mask_b(b_ks, columns, k_left, n_left, KC)
                async_copy.buffer_load_to_shared(b_ring.index(here), b, b_at, in_b)
                b_first = async_copy.load_shared_relaxed(b_ring.index(1 - here).slice(0, HALF, dim=0), B_OPERAND)
            with warp_pipeline_stage("second half", scope="intra_wave", pair=0):
                acc = mfma(a_second, b_second, acc)
            async_copy.commit_group()
            a += STEP
            b += b_step
            k_left -= STEP

    # Copies still under way write zeros; the end of the program waits for them (CDNA3 ISA, S_ENDPGM).

    c_rows = gl.arange(0, TILE_M, gl.SliceLayout(1, ACC))
    c_columns = gl.arange(0, TILE_N, gl.SliceLayout(0, ACC))
    c = c_ptr + (tile_row * TILE_M).to(gl.int64) * ldc + tile_column * TILE_N
    store_c(acc, c, c_rows, c_columns, ldc, m_left, n_left)
