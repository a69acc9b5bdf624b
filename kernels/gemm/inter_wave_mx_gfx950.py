"""The gfx950 GEMM of fp4 elements with E8M0 scales (OCP MX, 32 elements a scale), two wave groups one stage apart.

C = (scale_a * A) @ (scale_b * B), A and B packed two fp4 a byte along K, scales of both row-major with K contiguous.
The schedule is `matmul_quarters` of ``inter_wave_gfx950``: a K step is 256 elements, 128 bytes a row as there.

A K step has eight blocks of 32 elements. One MFMA of 32x32x64 takes two, block h for lanes 32 h to 32 h + 31, so that
in order a lane would need every second scale of its row. The sum does not mind in which order blocks come, as long as
A, B and scales agree: position 2 i + h of a K step holds block 4 h + i. A lane's four scales of a row are then four
neighbouring bytes, one register that the MFMAs take byte by byte.

Scales come shuffled (``scales.py``), 256 bytes for 32 rows and a K step, a word a lane in lane order. From rows as they
are, each load of a wave would touch 32 cache lines: modelled, 13780 clk for two K steps instead of 4200.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, buffer_load, get_mfma_scale_layout, mfma_scaled

from amdwarp.jit import jit
from amdwarp.stage import warp_pipeline_stage
from amdwarp.wall import scheduling_wall

from .inter_wave_gfx950 import (
    copy,
    lds_layout_a,
    lds_layout_b,
    load_layout_a,
    load_layout_b,
    mask_a,
    mask_b,
    mfma_layout,
    offsets_b,
    store_bands,
    tile_of_program,
)

SCALARS = ["m", "n_units", "k_units", "lda_units", "ldb_units", "ldc_units"]


@constexpr_function
def word_layout(operand, rows):
    """Layout of a tile's scales, (rows, 4 bytes of a word, 2): reshaped to (rows, 8) it is the one the MFMA takes."""
    taken = get_mfma_scale_layout(operand, [rows, 8])
    registers = [[0, 1, 0], [0, 2, 0], *[[row, 0, 0] for row, k in taken.reg_bases if not k]]
    lanes = [[row, 0, k] for row, k in taken.lane_bases]
    waves = [[row, 0, k] for row, k in taken.warp_bases]
    return gl.DistributedLinearLayout(registers, lanes, waves, [], [rows, 4, 2])


@gluon.jit
def in_order(bytes_of_k):
    """Where the bytes of a K step stand in memory, of positions 0 to 127 in LDS."""
    position = bytes_of_k // 16
    return (position % 2 * 4 + position // 2) * 16 + bytes_of_k % 16


@gluon.jit
def scales_at(rows, blocks_left, k_steps, WORDS: gl.constexpr):
    """Offsets of the words of a tile's scales, (rows, 2). Blocks of 32 rows past the end repeat the last one."""
    block = gl.minimum(rows // 32, blocks_left - 1)
    halves = gl.arange(0, 2, gl.SliceLayout(0, WORDS)) * 32
    return (block * k_steps * 64 + rows % 32)[:, None] + halves[None, :]


@gluon.jit
def unpack(words, SPLIT: gl.constexpr):
    """The scales in a tile's words, (rows, 8)."""
    shifts = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(2, SPLIT))) * 8
    scales = (gl.expand_dims(words, 1) >> shifts[None, :, None]).to(gl.uint8)
    return gl.reshape(scales, [words.shape[0], 8])


@jit(do_not_specialize=SCALARS)
def matmul_quarters(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units,
    S: gl.constexpr, ACCESS: gl.constexpr, E: gl.constexpr = None, alpha=None, beta=None, bias_ptr=None, bias_step=None,
    residual_ptr=None, r_m=None, r_n=None,
):  # fmt: skip
    """One tile of C in an upper and a lower half, K steps double buffered; scales come into registers a step ahead."""
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    PART_M: gl.constexpr = S.part_m
    PART_N: gl.constexpr = S.part_n
    STEP: gl.constexpr = S.row_elements
    ACC: gl.constexpr = mfma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, S.vector)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, S.vector)
    A_LOAD: gl.constexpr = load_layout_a(S)
    B_LOAD: gl.constexpr = load_layout_b(S, True)
    A_SPLIT: gl.constexpr = word_layout(A_OPERAND, PART_M)
    B_SPLIT: gl.constexpr = word_layout(B_OPERAND, PART_N)
    A_WORDS: gl.constexpr = gl.SliceLayout(1, A_SPLIT)
    B_WORDS: gl.constexpr = gl.SliceLayout(1, B_SPLIT)
    n = gl.to_tensor(n_units) * ACCESS.n_unit
    k = gl.to_tensor(k_units) * ACCESS.k_unit
    lda = gl.to_tensor(lda_units) * ACCESS.a_unit
    ldb = gl.to_tensor(ldb_units) * ACCESS.b_unit
    ldc = gl.to_tensor(ldc_units) * ACCESS.c_unit

    tile_row, tile_column = tile_of_program(gl.cdiv(m, S.tile_m), gl.cdiv(n, S.tile_n), S)
    m_left = m - tile_row * S.tile_m
    n_left = n - tile_column * S.tile_n
    a = a_ptr + (tile_row * S.tile_m).to(gl.int64) * lda
    b = b_ptr + (tile_column * S.tile_n).to(gl.int64) * ldb
    k_steps = gl.cdiv(k, STEP)
    first_a = tile_row.to(gl.int64) * (S.tile_m // 32) * k_steps * 64
    first_b = tile_column.to(gl.int64) * (S.tile_n // 32) * k_steps * 64
    scale_a = scale_a_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + first_a
    scale_b = scale_b_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + first_b

    rows = gl.arange(0, PART_M, gl.SliceLayout(1, A_LOAD))
    a_ks = in_order(gl.arange(0, STEP, gl.SliceLayout(0, A_LOAD)))
    columns = gl.arange(0, PART_N, gl.SliceLayout(0, B_LOAD))
    b_ks = in_order(gl.arange(0, STEP, gl.SliceLayout(1, B_LOAD)))
    # Rows past M repeat the last one: their products are never stored, and no lane needs a mask for them.
    upper_at = gl.minimum(rows, m_left - 1)[:, None] * lda + a_ks[None, :]
    lower_at = gl.minimum(rows + PART_M, m_left - 1)[:, None] * lda + a_ks[None, :]
    left_at = offsets_b(b_ks, columns, ldb, n_left, True)
    right_at = offsets_b(b_ks, columns + PART_N, ldb, n_left, True)
    a_rows = gl.arange(0, PART_M, gl.SliceLayout(1, A_WORDS))
    b_rows = gl.arange(0, PART_N, gl.SliceLayout(1, B_WORDS))
    upper_scales_at = scales_at(a_rows, gl.cdiv(m_left, 32), k_steps, A_WORDS)
    lower_scales_at = scales_at(a_rows + PART_M, gl.cdiv(m_left, 32), k_steps, A_WORDS)
    left_scales_at = scales_at(b_rows, gl.cdiv(n_left, 32), k_steps, B_WORDS)
    right_scales_at = scales_at(b_rows + PART_N, gl.cdiv(n_left, 32), k_steps, B_WORDS)

    upper_ring = gl.allocate_shared_memory(TYPE, [2, PART_M, STEP], lds_layout_a(S))
    lower_ring = gl.allocate_shared_memory(TYPE, [2, PART_M, STEP], lds_layout_a(S))
    left_ring = gl.allocate_shared_memory(TYPE, [2, STEP, PART_N], lds_layout_b(S, True))
    right_ring = gl.allocate_shared_memory(TYPE, [2, STEP, PART_N], lds_layout_b(S, True))

    # Step 0 whole, and of step 1 what the first memory stage does not copy itself.
    upper_words = buffer_load(scale_a, upper_scales_at)
    lower_words = buffer_load(scale_a, lower_scales_at)
    left_words = buffer_load(scale_b, left_scales_at)
    right_words = buffer_load(scale_b, right_scales_at)
    copy(left_ring.index(0), b, left_at, mask_b(b_ks, columns, k, n_left, True))
    async_copy.buffer_load_to_shared(right_ring.index(0), b, right_at, mask_b(b_ks, columns, k, n_left, True))
    copy(upper_ring.index(0), a, upper_at, mask_a(a_ks, k))
    async_copy.buffer_load_to_shared(lower_ring.index(0), a, lower_at, mask_a(a_ks, k))
    a += STEP
    b += STEP
    k_left = k - STEP
    copy(left_ring.index(1), b, left_at, mask_b(b_ks, columns, k_left, n_left, True))
    async_copy.buffer_load_to_shared(right_ring.index(1), b, right_at, mask_b(b_ks, columns, k_left, n_left, True))
    copy(upper_ring.index(1), a, upper_at, mask_a(a_ks, k_left))

    upper_left = gl.zeros((PART_M, PART_N), gl.float32, ACC)
    upper_right = gl.zeros((PART_M, PART_N), gl.float32, ACC)
    lower_left = gl.zeros((PART_M, PART_N), gl.float32, ACC)
    lower_right = gl.zeros((PART_M, PART_N), gl.float32, ACC)
    async_copy.wait_group(2)
    left_operand = left_ring.index(0).load(B_OPERAND)
    for _ in range(gl.cdiv(k, 2 * STEP)):
        for here in gl.static_range(2):
            with warp_pipeline_stage("load upper", priority=1):
                right_operand = async_copy.load_shared_relaxed(right_ring.index(here), B_OPERAND)
                a_operand = async_copy.load_shared_relaxed(upper_ring.index(here), A_OPERAND)
                a_scale = unpack(upper_words, A_SPLIT)
                left_scale = unpack(left_words, B_SPLIT)
                right_scale = unpack(right_words, B_SPLIT)
                scheduling_wall()
                more = gl.minimum(gl.maximum(k_left, 0), 1) * 64  # past the end of K the last scales again
                scale_a += more
                scale_b += more
                upper_words = buffer_load(scale_a, upper_scales_at)
                next_words = buffer_load(scale_a, lower_scales_at)
                left_words = buffer_load(scale_b, left_scales_at)
                right_words = buffer_load(scale_b, right_scales_at)
                async_copy.buffer_load_to_shared(lower_ring.index(1 - here), a, lower_at, mask_a(a_ks, k_left))
                a += STEP
                b += STEP
                k_left -= STEP
                copy(left_ring.index(here), b, left_at, mask_b(b_ks, columns, k_left, n_left, True))
            async_copy.wait_group(2)
            with warp_pipeline_stage("multiply upper", priority=0):
                upper_left = mfma_scaled(a_operand, a_scale, "e2m1", left_operand, left_scale, "e2m1", upper_left)
                upper_right = mfma_scaled(a_operand, a_scale, "e2m1", right_operand, right_scale, "e2m1", upper_right)
            with warp_pipeline_stage("load lower", priority=1):
                next_left = async_copy.load_shared_relaxed(left_ring.index(1 - here), B_OPERAND)
                a_operand = async_copy.load_shared_relaxed(lower_ring.index(here), A_OPERAND)
                a_scale = unpack(lower_words, A_SPLIT)
                scheduling_wall()
                in_right = mask_b(b_ks, columns, k_left, n_left, True)
                async_copy.buffer_load_to_shared(right_ring.index(here), b, right_at, in_right)
                copy(upper_ring.index(here), a, upper_at, mask_a(a_ks, k_left))
            async_copy.wait_group(2)
            with warp_pipeline_stage("multiply lower", priority=0):
                lower_left = mfma_scaled(a_operand, a_scale, "e2m1", left_operand, left_scale, "e2m1", lower_left)
                lower_right = mfma_scaled(a_operand, a_scale, "e2m1", right_operand, right_scale, "e2m1", lower_right)
            left_operand = next_left
            lower_words = next_words
    # Copies still under way write zeros; the end of the program waits for them (CDNA3 ISA, S_ENDPGM).

    row = tile_row * S.tile_m
    column = tile_column * S.tile_n
    c = c_ptr + row.to(gl.int64) * ldc + column
    X = (alpha, beta, bias_ptr, bias_step, residual_ptr, r_m, r_n, None, None, None, None)
    store_bands(upper_left, c, ldc, m_left, n_left, row, column, S, E, X)
    store_bands(upper_right, c + PART_N, ldc, m_left, n_left - PART_N, row, column + PART_N, S, E, X)
    c += PART_M * ldc.to(gl.int64)
    row += PART_M
    m_left -= PART_M
    store_bands(lower_left, c, ldc, m_left, n_left, row, column, S, E, X)
    store_bands(lower_right, c + PART_N, ldc, m_left, n_left - PART_N, row, column + PART_N, S, E, X)
