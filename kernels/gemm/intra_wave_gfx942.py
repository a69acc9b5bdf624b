"""The intra-wave gfx942 GEMM: four waves, one to a SIMD, whose loads and stores are woven between their own MFMAs.

C = A @ B with operands of 16 or 8 bits and fp32 or int32 accumulation. A wave has all 512 registers of its
SIMD lanes: up to 256 of them accumulate its quarter of the tile, beside two sets of operands and the tile on its way
from memory to LDS. LDS has 64 KB, two slots of both operands without padding, and no wide copies of its own, so loads
pass through registers. The loop is written out twice, so that operand sets and slots alternate by name.

In each window a wave reads the operands of the next step, stores the step after that, which it loaded a window ago, and
loads the one after that. A window of the smaller tile is shorter than a round trip to memory (1024 clk), so that its
loads are stored two windows later: modelled, 85 % of the clk are MFMA instead of 69 %. The barrier behind a window
orders both: all reads of the slot that the next window stores to, and all stores to the slot that it reads.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna3 import buffer_load, mfma

from amdwarp.jit import jit
from amdwarp.stage import warp_pipeline_stage

from .inter_wave_gfx950 import SCALARS, mask_a, mask_b, mfma_layout, offsets_b, store_bands, tile_of_program


@jit(do_not_specialize=SCALARS)
def matmul_woven(
    a_ptr, b_ptr, c_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units, S: gl.constexpr, ACCESS: gl.constexpr,
    E: gl.constexpr = None, alpha=None, beta=None, bias_ptr=None, bias_step=None, residual_ptr=None, r_m=None, r_n=None,
    scale_a_ptr=None, sa_m=None, scale_b_ptr=None, sb_n=None,
):  # fmt: skip
    """One tile of C by four waves; two slots of LDS, the next operands and the next tile in registers."""
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    TILE_M: gl.constexpr = S.tile_m
    TILE_N: gl.constexpr = S.tile_n
    STEP: gl.constexpr = S.tile_k
    KC: gl.constexpr = ACCESS.b_k_contiguous
    DEEP: gl.constexpr = S.accumulator_registers <= 128
    ACC: gl.constexpr = mfma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, S.vector)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, S.vector)
    # 64-byte rows: two of them fill the 32 banks once, and four such pairs take turns.
    A_LOAD: gl.constexpr = gl.BlockedLayout([1, S.vector], [16, 4], [4, 1], [1, 0])
    B_LOAD: gl.constexpr = gl.BlockedLayout([S.vector, 1], [4, 16], [1, 4], [0, 1])
    A_LDS: gl.constexpr = gl.SwizzledSharedLayout(S.vector, 2, 4, [1, 0])
    B_LDS: gl.constexpr = gl.SwizzledSharedLayout(S.vector, 2, 4, [0, 1])
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
    # One allocation a slot: stock barrier insertion cannot tell two slots of one ring apart.
    a_slots = (
        gl.allocate_shared_memory(TYPE, [TILE_M, STEP], A_LDS),
        gl.allocate_shared_memory(TYPE, [TILE_M, STEP], A_LDS),
    )
    b_slots = (
        gl.allocate_shared_memory(TYPE, [STEP, TILE_N], B_LDS),
        gl.allocate_shared_memory(TYPE, [STEP, TILE_N], B_LDS),
    )
    # Masked lanes read zeros without being told to: their offsets lie behind the descriptor. Telling would put a
    # select, and a wait, right behind each load.
    k_left = k
    for slot in gl.static_range(2):
        a_slots[slot].store(buffer_load(a, a_at, mask_a(a_ks, k_left)))
        b_slots[slot].store(buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC)))
        a += STEP
        b += b_step
        k_left -= STEP
    a_fetched = buffer_load(a, a_at, mask_a(a_ks, k_left))
    b_fetched = buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
    a += STEP
    b += b_step
    k_left -= STEP
    if DEEP:
        a_further = buffer_load(a, a_at, mask_a(a_ks, k_left))
        b_further = buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
        a += STEP
        b += b_step
        k_left -= STEP
    acc = gl.zeros((TILE_M, TILE_N), gl.int32 if S.operand == "i8" else gl.float32, ACC)
    gl.barrier()
    a_operand = a_slots[0].load(A_OPERAND)
    b_operand = b_slots[0].load(B_OPERAND)
    gl.barrier()
    for _ in range(gl.cdiv(k, 2 * STEP)):
        for here in gl.static_range(2):
            with warp_pipeline_stage("load", scope="intra_wave", pair=0):
                a_next = a_slots[1 - here].load(A_OPERAND)
                b_next = b_slots[1 - here].load(B_OPERAND)
                a_slots[here].store(a_fetched)
                b_slots[here].store(b_fetched)
                a_loaded = buffer_load(a, a_at, mask_a(a_ks, k_left))
                b_loaded = buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
            with warp_pipeline_stage("multiply", scope="intra_wave", pair=0):
                acc = mfma(a_operand, b_operand, acc)
            gl.barrier()
            a_operand = a_next
            b_operand = b_next
            if DEEP:
                a_fetched = a_further
                b_fetched = b_further
                a_further = a_loaded
                b_further = b_loaded
            else:
                a_fetched = a_loaded
                b_fetched = b_loaded
            a += STEP
            b += b_step
            k_left -= STEP
    row = tile_row * TILE_M
    column = tile_column * TILE_N
    c = c_ptr + row.to(gl.int64) * ldc + column
    X = (alpha, beta, bias_ptr, bias_step, residual_ptr, r_m, r_n, scale_a_ptr, sa_m, scale_b_ptr, sb_n)
    # rounding all of a large tile at once to bf16, several instructions here, spilled 425 registers
    store_bands(acc, c, ldc, m_left, n_left, row, column, S, E, X)
