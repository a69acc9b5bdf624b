"""The straight-line GEMM of gfx942 and gfx950, for a typed schedule to specialise.

C = A @ B with fp16 or bf16 operands, fp32 accumulation and C in the operands' type. One loop, one buffer an operand,
and a wait behind each copy: on a bare Triton it runs as it reads. Which waves load and which multiply, how many
versions the buffers have and how far the copies run ahead is in ``ws_schedule.py``.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna3 import buffer_load
from triton.experimental.gluon.language.amd.cdna4 import async_copy, mfma

from amdwarp.jit import jit
from amdwarp.schedule import annotate_ws_schedule, ws_op

from .inter_wave_gfx950 import SCALARS, mask_a, mask_b, mfma_layout, offsets_b, store_c, tile_of_program
from .tasks_cdna import loading_layout_a, loading_layout_b, shared_layout_a, shared_layout_b


@jit(do_not_specialize=SCALARS)
def matmul_straight(
    a_ptr, b_ptr, c_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units, S: gl.constexpr, ACCESS: gl.constexpr
):
    """One tile of C."""
    annotate_ws_schedule(S.typed, S.realise)
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    TILE_M: gl.constexpr = S.tile_m
    TILE_N: gl.constexpr = S.tile_n
    STEP: gl.constexpr = S.tile_k
    KC: gl.constexpr = ACCESS.b_k_contiguous
    ACC: gl.constexpr = mfma_layout(S)
    A_LOAD: gl.constexpr = loading_layout_a(S.straight)
    B_LOAD: gl.constexpr = loading_layout_b(S.straight, KC)
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
    a_tile = gl.allocate_shared_memory(TYPE, [TILE_M, STEP], shared_layout_a(S))
    b_tile = gl.allocate_shared_memory(TYPE, [STEP, TILE_N], shared_layout_b(S, KC))
    acc = gl.zeros((TILE_M, TILE_N), gl.float32, ACC)
    with ws_op("k_steps"):
        for step in range(gl.cdiv(k, STEP)):
            k_left = k - step * STEP
            if S.direct:
                with ws_op("load_a"):
                    async_copy.buffer_load_to_shared(a_tile, a, a_at, mask_a(a_ks, k_left))
                with ws_op("load_b"):
                    async_copy.buffer_load_to_shared(b_tile, b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
                async_copy.commit_group()
                async_copy.wait_group(0)
            else:
                with ws_op("fetch_a"):
                    a_fetched = buffer_load(a, a_at, mask_a(a_ks, k_left))
                with ws_op("fetch_b"):
                    b_fetched = buffer_load(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
                with ws_op("load_a"):
                    a_tile.store(a_fetched)
                with ws_op("load_b"):
                    b_tile.store(b_fetched)
            with ws_op("read"):
                a_operand = a_tile.load(gl.DotOperandLayout(0, ACC, 8))
                b_operand = b_tile.load(gl.DotOperandLayout(1, ACC, 8))
            with ws_op("multiply_add"):
                acc = mfma(a_operand, b_operand, acc)
            a += STEP
            b += b_step
    with ws_op("store"):
        c_rows = gl.arange(0, TILE_M, gl.SliceLayout(1, ACC))
        c_columns = gl.arange(0, TILE_N, gl.SliceLayout(0, ACC))
        c = c_ptr + (tile_row * TILE_M).to(gl.int64) * ldc + tile_column * TILE_N
        store_c(acc, c, c_rows, c_columns, ldc, m_left, n_left)
