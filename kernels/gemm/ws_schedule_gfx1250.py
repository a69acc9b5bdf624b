"""The straight-line GEMM of gfx1250, for a typed schedule to specialise: the tensor data mover copies, WMMAs multiply.

C = A @ B with fp16 or bf16 operands, fp32 accumulation and C in the operands' type. The mover fills what lies outside
of the matrix with zeros, so that no lane carries data or a mask, and the loading role can be a single wave. See
``ws_schedule_cdna.py``.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental.gluon import language as gl

from amdwarp.jit import jit
from amdwarp.schedule import annotate_ws_schedule, ws_op

from .inter_wave_gfx950 import SCALARS, tile_of_program
from .tasks_gfx1250 import padded, wmma_layout


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
    ACC: gl.constexpr = wmma_layout(S)
    # B as it lies in memory: its rows are columns of the product where K is contiguous.
    B_ROWS: gl.constexpr = TILE_N if KC else STEP
    B_COLUMNS: gl.constexpr = STEP if KC else TILE_N
    A_LDS: gl.constexpr = padded(TILE_M, STEP, S.pad)
    B_LDS: gl.constexpr = padded(B_ROWS, B_COLUMNS, S.pad)
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
    a_matrix = gl.amd.gfx1250.tdm.make_tensor_descriptor(a, [m_left, k], [lda, 1], [TILE_M, STEP], A_LDS)
    b_shape = [n_left, k] if KC else [k, n_left]
    b_matrix = gl.amd.gfx1250.tdm.make_tensor_descriptor(b, b_shape, [ldb, 1], [B_ROWS, B_COLUMNS], B_LDS)
    a_tile = gl.allocate_shared_memory(TYPE, [TILE_M, STEP], A_LDS)
    b_tile = gl.allocate_shared_memory(TYPE, [B_ROWS, B_COLUMNS], B_LDS)
    acc = gl.zeros((TILE_M, TILE_N), gl.float32, ACC)
    with ws_op("k_steps"):
        for step in range(gl.cdiv(k, STEP)):
            with ws_op("load_a"):
                gl.amd.gfx1250.tdm.async_load(a_matrix, [0, step * STEP], a_tile)
            with ws_op("load_b"):
                b_at = [0, step * STEP] if KC else [step * STEP, 0]
                gl.amd.gfx1250.tdm.async_load(b_matrix, b_at, b_tile)
            gl.amd.gfx1250.tdm.async_wait(0)
            gl.barrier()
            with ws_op("read"):
                a_operand = a_tile.load(gl.DotOperandLayout(0, ACC, 8))
                if KC:
                    b_operand = b_tile.permute([1, 0]).load(gl.DotOperandLayout(1, ACC, 8))
                else:
                    b_operand = b_tile.load(gl.DotOperandLayout(1, ACC, 8))
            with ws_op("multiply_add"):
                acc = gl.amd.gfx1250.wmma(a_operand, b_operand, acc)
            gl.barrier()
    with ws_op("store"):
        c_rows = gl.arange(0, TILE_M, gl.SliceLayout(1, ACC))
        c_columns = gl.arange(0, TILE_N, gl.SliceLayout(0, ACC))
        c = c_ptr + (tile_row * TILE_M).to(gl.int64) * ldc + tile_column * TILE_N
        inside = (c_rows < m_left)[:, None] & (c_columns < n_left)[None, :]
        offsets = c_rows[:, None] * ldc + c_columns[None, :]
        gl.amd.gfx1250.buffer_store(acc.to(TYPE), c, offsets, inside)
