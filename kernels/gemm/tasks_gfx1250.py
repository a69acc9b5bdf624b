"""The GEMM of gfx1250 as two tasks: one wave drives the tensor data mover, four waves multiply.

C = A @ B with fp16 or bf16 operands, fp32 accumulation and C in the operands' type. The mover copies a tile a step of
each operand into a padded ring in LDS and fills what lies outside of the matrix with zeros, so that neither lanes nor
registers carry data. Barriers and phases as in ``tasks_cdna.py``.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton import constexpr_function
from triton.experimental.gluon import language as gl

from amdwarp.jit import jit
from amdwarp.task_barriers import alloc_barriers, barrier_arrive, barrier_wait
from amdwarp.tasks import async_task, async_tasks

from .inter_wave_gfx950 import SCALARS, tile_of_program


@constexpr_function
def wmma_layout(S):
    """Layout of the fp32 output tile: waves first along N, then along M."""
    along_n = [[0, 1 << bit] for bit in range(S.waves_n.bit_length() - 1)]
    along_m = [[1 << bit, 0] for bit in range(S.waves_m.bit_length() - 1)]
    return gl.amd.AMDWMMALayout(3, True, along_n + along_m, [], list(S.mfma))


@constexpr_function
def padded(rows, columns, pad):
    """Row-major LDS layout of a tile with `pad` elements behind each row."""
    return gl.PaddedSharedLayout.with_identity_for([[columns, pad]], [rows, columns], [1, 0])


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
    AHEAD: gl.constexpr = S.ahead
    KC: gl.constexpr = ACCESS.b_k_contiguous
    ACC: gl.constexpr = wmma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
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
    a_ring = gl.allocate_shared_memory(TYPE, [RING, TILE_M, STEP], A_LDS)
    b_ring = gl.allocate_shared_memory(TYPE, [RING, B_ROWS, B_COLUMNS], B_LDS)
    full = alloc_barriers(RING, arrivals=S.loaders)
    empty = alloc_barriers(RING, arrivals=S.multipliers)
    with async_tasks():
        with async_task("default"):
            acc = gl.zeros((TILE_M, TILE_N), gl.float32, ACC)
            for step in range(gl.cdiv(k, STEP)):
                slot = step % RING
                barrier_wait(full.index(slot), step // RING & 1)
                a_operand = a_ring.index(slot).load(A_OPERAND)
                if KC:
                    b_operand = b_ring.index(slot).permute([1, 0]).load(B_OPERAND)
                else:
                    b_operand = b_ring.index(slot).load(B_OPERAND)
                barrier_arrive(empty.index(slot), release="lds")
                acc = gl.amd.gfx1250.wmma(a_operand, b_operand, acc)
            c_rows = gl.arange(0, TILE_M, gl.SliceLayout(1, ACC))
            c_columns = gl.arange(0, TILE_N, gl.SliceLayout(0, ACC))
            c = c_ptr + (tile_row * TILE_M).to(gl.int64) * ldc + tile_column * TILE_N
            inside = (c_rows < m_left)[:, None] & (c_columns < n_left)[None, :]
            offsets = c_rows[:, None] * ldc + c_columns[None, :]
            gl.amd.gfx1250.buffer_store(acc.to(TYPE), c, offsets, inside)
        with async_task(num_warps=S.loaders):
            a = a_ptr + (tile_row * TILE_M).to(gl.int64) * lda
            b = b_ptr + (tile_column * TILE_N).to(gl.int64) * (ldb if KC else 1)
            a_tile = gl.amd.gfx1250.tdm.make_tensor_descriptor(a, [m_left, k], [lda, 1], [TILE_M, STEP], A_LDS)
            b_shape = [n_left, k] if KC else [k, n_left]
            b_tile = gl.amd.gfx1250.tdm.make_tensor_descriptor(b, b_shape, [ldb, 1], [B_ROWS, B_COLUMNS], B_LDS)
            # Copies past the end of K bring zeros into slots nobody reads, so that the loop needs no branch: with one,
            # Triton would count the copies under way as none.
            for first in gl.static_range(AHEAD):
                gl.amd.gfx1250.tdm.async_load(a_tile, [0, first * STEP], a_ring.index(first))
                b_first = [0, first * STEP] if KC else [first * STEP, 0]
                gl.amd.gfx1250.tdm.async_load(b_tile, b_first, b_ring.index(first))
            for step in range(gl.cdiv(k, STEP)):
                ahead = step + AHEAD
                slot = ahead % RING
                barrier_wait(empty.index(slot), ahead // RING & 1 ^ 1)
                gl.amd.gfx1250.tdm.async_load(a_tile, [0, ahead * STEP], a_ring.index(slot))
                b_at = [0, ahead * STEP] if KC else [ahead * STEP, 0]
                gl.amd.gfx1250.tdm.async_load(b_tile, b_at, b_ring.index(slot))
                gl.amd.gfx1250.tdm.async_wait(2 * AHEAD)
                barrier_arrive(full.index(step % RING), release="lds")
            gl.amd.gfx1250.tdm.async_wait(0)
