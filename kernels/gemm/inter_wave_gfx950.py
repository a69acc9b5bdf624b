"""The gfx950 GEMM: two groups of four waves, one stage apart, so that one group's MFMAs hide the other's memory work.

C = A @ B with fp16 or bf16 operands, fp32 accumulation and C in the operands' type. `matmul_quarters` cuts the tile
into four quarters, of which the upper two and the lower two have a memory and an MFMA stage, and refills a double
buffer piece by piece; `matmul_whole` runs one pair of stages a K step over a ring of three or four slots.

What `matmul_quarters` rests on, in clk of the cycle model:
  * an MFMA of 32x32x16 keeps the matrix unit for 32 clk, as long as a barrier takes to release: an edge costs 8 clk
    instead of 24 with 16x16x32;
  * both memory stages read 12 operands of 16 bytes a lane and start four copies, 300 clk of the 512 that the MFMA stage
    beside them takes; the reads stand in front, since a full queue of copies holds up what stands behind it;
  * two K steps are written out, so that slots are constants and the two sets of left operands alternate by name.

What keeps the ring free of races, with the second group one stage behind the first:
  * every memory stage ends with a wait for the copies that the *next* memory stage reads, before a barrier that both
    groups pass before either reads;
  * a piece of LDS is refilled no sooner than the memory stage after the one that read it, and that one waited for its
    reads before the barrier in between.
Past the end of K all lanes are masked: their copies write zeros and move no bytes, so prologue, loop and tail are one.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, buffer_load, buffer_store, mfma, mfma_scaled

from amdwarp.jit import jit
from amdwarp.stage import warp_pipeline_stage
from amdwarp.wall import scheduling_wall

from .epilogue_device import gluon_finish

# An extent of 1 would otherwise become a constant of its own kernel, and so would every multiple of 16.
SCALARS = ["m", "n_units", "k_units", "lda_units", "ldb_units", "ldc_units"]


@constexpr_function
def lds_layout_a(S):
    """Gluon form of the LDS layout of one A tile, (rows, k)."""
    lds = S.a_layout()
    bases = [list(basis) for basis in lds.bases]
    return gl.PaddedSharedLayout([[lds.interval, lds.padding]], bases, [], [lds.tile.outer, lds.tile.k])


@constexpr_function
def lds_layout_b(S, k_contiguous):
    """Gluon form of the LDS layout of one B tile, (k, columns)."""
    lds = S.b_layout(k_contiguous)
    bases = [[k, column] for column, k in lds.bases]
    return gl.PaddedSharedLayout([[lds.interval, lds.padding]], bases, [], [lds.tile.k, lds.tile.outer])


@constexpr_function
def load_layout_a(S):
    """Gluon form of the global-load layout of one A tile, (rows, k)."""
    lds = S.a_layout()
    load = lds.load_layout(S.num_warps)
    parts = [[list(basis) for basis in bases] for bases in (load.registers, load.lanes, load.waves)]
    return gl.DistributedLinearLayout(*parts, [], [lds.tile.outer, lds.tile.k])


@constexpr_function
def load_layout_b(S, k_contiguous):
    """Gluon form of the global-load layout of one B tile, (k, columns)."""
    lds = S.b_layout(k_contiguous)
    load = lds.load_layout(S.num_warps)
    parts = [[[k, column] for column, k in bases] for bases in (load.registers, load.lanes, load.waves)]
    return gl.DistributedLinearLayout(*parts, [], [lds.tile.k, lds.tile.outer])


@constexpr_function
def mfma_layout(S):
    """Layout of the fp32 output tile: transposed, so that a lane holds four neighbouring columns."""
    return gl.amd.AMDMFMALayout(
        version=S.mfma_version, instr_shape=list(S.mfma), transposed=True, warps_per_cta=[S.waves_m, S.waves_n]
    )


@gluon.jit
def tile_of_program(tiles_m, tiles_n, S: gl.constexpr):
    """(tile row, tile column) of this workgroup.

    The hardware deals workgroups to the dies in turn. Renumbering gives each die a consecutive share, and within a
    share `group_m` rows of tiles are walked column by column, so that neighbours in time meet in one L2.
    """
    program = gl.program_id(0)
    share = tiles_m * tiles_n // S.xcds
    extra = tiles_m * tiles_n % S.xcds
    die = program % S.xcds
    program = die * share + gl.minimum(die, extra) + program // S.xcds
    in_group = S.group_m * tiles_n
    first = program // in_group * S.group_m
    rows = gl.minimum(tiles_m - first, S.group_m)
    program = program % in_group
    return first + program % rows, program // rows


@gluon.jit
def multiply(a, b, acc, S: gl.constexpr):
    """acc + A @ B with the schedule's MFMA: those of 8-bit floats that take scales are twice as fast as the others."""
    if S.operand == "fp8":
        A_FORMAT: gl.constexpr = "e5m2" if a.dtype == gl.float8e5 else "e4m3"
        B_FORMAT: gl.constexpr = "e5m2" if b.dtype == gl.float8e5 else "e4m3"
        acc = mfma_scaled(a, None, A_FORMAT, b, None, B_FORMAT, acc)
    else:
        acc = mfma(a, b, acc)
    return acc


@gluon.jit
def copy(slot, base, offsets, mask):
    """Copy the tile at `base` straight into LDS; masked lanes write zeros."""
    async_copy.buffer_load_to_shared(slot, base, offsets, mask)
    async_copy.commit_group()


@gluon.jit
def mask_a(ks, k_left):
    """Mask of an A tile, (1, k): what lies before the end of K."""
    return (ks < k_left)[None, :]


@gluon.jit
def mask_b(ks, columns, k_left, n_left, K_CONTIGUOUS: gl.constexpr):
    """Mask of a B tile: the end of K, and the end of N where columns are the contiguous dimension."""
    if K_CONTIGUOUS:
        mask = (ks < k_left)[:, None]
    else:
        mask = (ks < k_left)[:, None] & (columns < n_left)[None, :]
    return mask


@gluon.jit
def offsets_b(ks, columns, ldb, n_left, K_CONTIGUOUS: gl.constexpr):
    """Element offsets of a B tile. Columns past N repeat the last one; where they are contiguous a mask cuts them."""
    if K_CONTIGUOUS:
        offsets = ks[:, None] + gl.minimum(columns, n_left - 1)[None, :] * ldb
    else:
        offsets = ks[:, None] * ldb + columns[None, :]
    return offsets


@gluon.jit
def store_c(acc, base, rows, columns, ldc, m_left, n_left, row=0, column=0, E: gl.constexpr = None, X=None):
    """Store one part of the output tile, what lies inside C of it, after the epilogue.

    Args:
        acc: sums.
        base: of C at the part's corner.
        rows, columns: of the part, from its corner on.
        ldc: row stride of C.
        m_left, n_left: rows and columns of C from the corner on.
        row, column: the corner in C.
        E: an ``Epilogue``, or None where sums are only converted.
        X: what it reads, see ``extras``; scales of operands and a bias are read at the last row or column past the end.
    """
    offsets = rows[:, None] * ldc + columns[None, :]
    mask = (rows < m_left)[:, None] & (columns < n_left)[None, :]
    value = acc
    if E is not None:
        alpha, beta, bias, bias_step, residual, r_m, r_n, scale_a, sa_m, scale_b, sb_n = X
        # 64-bit scalar bases and 32-bit offsets: 64-bit addresses of lanes would take two registers each
        row_at = gl.minimum(rows, m_left - 1)
        column_at = gl.minimum(columns, n_left - 1)
        scale = None
        if scale_a is not None:
            scale = buffer_load(scale_a + row.to(gl.int64) * sa_m, row_at * sa_m)[:, None]
        if scale_b is not None:
            right = buffer_load(scale_b + column.to(gl.int64) * sb_n, column_at * sb_n)[None, :]
            if scale is None:
                scale = right
            else:
                scale = scale * right
        added = None
        if E.bias == "column":
            added = buffer_load(bias + column.to(gl.int64) * bias_step, column_at * bias_step).to(gl.float32)[None, :]
        elif E.bias == "row":
            added = buffer_load(bias + row.to(gl.int64) * bias_step, row_at * bias_step).to(gl.float32)[:, None]
        old = None
        if E.residual:
            corner = residual + row.to(gl.int64) * r_m + column.to(gl.int64) * r_n
            old = buffer_load(corner, row_at[:, None] * r_m + column_at[None, :] * r_n).to(gl.float32)
        value = gluon_finish(acc.to(gl.float32), None, alpha, scale, None, added, None, old, beta, E)
    buffer_store(value.to(base.dtype.element_ty), base, offsets, mask)


@gluon.jit
def store_bands(acc, base, ldc, m_left, n_left, row, column, S: gl.constexpr, E: gl.constexpr, X):
    """`store_c` in pieces of at most 16 elements a lane: an epilogue on a whole part spilled 45 registers."""
    ACC: gl.constexpr = mfma_layout(S)
    BAND: gl.constexpr = S.mfma[0] * S.waves_m
    ROWS: gl.constexpr = acc.shape[0]
    COLUMNS: gl.constexpr = min(acc.shape[1], 32 * S.waves_n)
    rows = gl.arange(0, BAND, gl.SliceLayout(1, ACC))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, ACC))
    for band in gl.static_range(ROWS // BAND):
        left = m_left - band * BAND
        for at in gl.static_range(0, acc.shape[1], COLUMNS):
            part = gl.amd.slice(acc, [BAND, COLUMNS], [band * BAND, at])
            store_c(part, base + at, rows, columns, ldc, left, n_left - at, row + band * BAND, column + at, E, X)
            scheduling_wall()
        base += BAND * ldc.to(gl.int64)


@jit(do_not_specialize=SCALARS)
def matmul_quarters(
    a_ptr, b_ptr, c_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units, S: gl.constexpr, ACCESS: gl.constexpr,
    E: gl.constexpr = None, alpha=None, beta=None, bias_ptr=None, bias_step=None, residual_ptr=None, r_m=None, r_n=None,
    scale_a_ptr=None, sa_m=None, scale_b_ptr=None, sb_n=None,
):  # fmt: skip
    """One tile of C in an upper and a lower half, K steps double buffered. Both operands go straight to LDS."""
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    PART_M: gl.constexpr = S.part_m
    PART_N: gl.constexpr = S.part_n
    STEP: gl.constexpr = S.tile_k
    SUM: gl.constexpr = gl.int32 if S.operand == "i8" else gl.float32
    KC: gl.constexpr = ACCESS.b_k_contiguous
    ACC: gl.constexpr = mfma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, S.vector)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, S.vector)
    A_LOAD: gl.constexpr = load_layout_a(S)
    B_LOAD: gl.constexpr = load_layout_b(S, KC)
    n = gl.to_tensor(n_units) * ACCESS.n_unit
    k = gl.to_tensor(k_units) * ACCESS.k_unit
    lda = gl.to_tensor(lda_units) * ACCESS.a_unit
    ldb = gl.to_tensor(ldb_units) * ACCESS.b_unit
    ldc = gl.to_tensor(ldc_units) * ACCESS.c_unit

    tile_row, tile_column = tile_of_program(gl.cdiv(m, S.tile_m), gl.cdiv(n, S.tile_n), S)
    m_left = m - tile_row * S.tile_m
    n_left = n - tile_column * S.tile_n
    a = a_ptr + (tile_row * S.tile_m).to(gl.int64) * lda
    b = b_ptr + (tile_column * S.tile_n).to(gl.int64) * (ldb if KC else 1)
    b_step = STEP if KC else STEP * ldb.to(gl.int64)

    rows = gl.arange(0, PART_M, gl.SliceLayout(1, A_LOAD))
    a_ks = gl.arange(0, STEP, gl.SliceLayout(0, A_LOAD))
    columns = gl.arange(0, PART_N, gl.SliceLayout(0, B_LOAD))
    b_ks = gl.arange(0, STEP, gl.SliceLayout(1, B_LOAD))
    # Rows past M repeat the last one: their products are never stored, and no lane needs a mask for them.
    upper_at = gl.minimum(rows, m_left - 1)[:, None] * lda + a_ks[None, :]
    lower_at = gl.minimum(rows + PART_M, m_left - 1)[:, None] * lda + a_ks[None, :]
    left_at = offsets_b(b_ks, columns, ldb, n_left, KC)
    right_at = offsets_b(b_ks, columns + PART_N, ldb, n_left, KC)

    upper_ring = gl.allocate_shared_memory(TYPE, [2, PART_M, STEP], lds_layout_a(S))
    lower_ring = gl.allocate_shared_memory(TYPE, [2, PART_M, STEP], lds_layout_a(S))
    left_ring = gl.allocate_shared_memory(TYPE, [2, STEP, PART_N], lds_layout_b(S, KC))
    right_ring = gl.allocate_shared_memory(TYPE, [2, STEP, PART_N], lds_layout_b(S, KC))

    # Step 0 whole, and of step 1 what the first memory stage does not copy itself.
    copy(left_ring.index(0), b, left_at, mask_b(b_ks, columns, k, n_left, KC))
    in_right = mask_b(b_ks, columns + PART_N, k, n_left, KC)
    async_copy.buffer_load_to_shared(right_ring.index(0), b, right_at, in_right)
    copy(upper_ring.index(0), a, upper_at, mask_a(a_ks, k))
    async_copy.buffer_load_to_shared(lower_ring.index(0), a, lower_at, mask_a(a_ks, k))
    a += STEP
    b += b_step
    k_left = k - STEP
    copy(left_ring.index(1), b, left_at, mask_b(b_ks, columns, k_left, n_left, KC))
    in_right = mask_b(b_ks, columns + PART_N, k_left, n_left, KC)
    async_copy.buffer_load_to_shared(right_ring.index(1), b, right_at, in_right)
    copy(upper_ring.index(1), a, upper_at, mask_a(a_ks, k_left))

    upper_left = gl.zeros((PART_M, PART_N), SUM, ACC)
    upper_right = gl.zeros((PART_M, PART_N), SUM, ACC)
    lower_left = gl.zeros((PART_M, PART_N), SUM, ACC)
    lower_right = gl.zeros((PART_M, PART_N), SUM, ACC)
    # Each memory stage starts one group of copies and waits for all but the last two: what the next memory stage reads
    # was started a K step before it.
    async_copy.wait_group(2)
    left_operand = left_ring.index(0).load(B_OPERAND)
    for _ in range(gl.cdiv(k, 2 * STEP)):
        for here in gl.static_range(2):
            with warp_pipeline_stage("load upper", priority=1):
                right_operand = async_copy.load_shared_relaxed(right_ring.index(here), B_OPERAND)
                a_operand = async_copy.load_shared_relaxed(upper_ring.index(here), A_OPERAND)
                scheduling_wall()
                async_copy.buffer_load_to_shared(lower_ring.index(1 - here), a, lower_at, mask_a(a_ks, k_left))
                a += STEP
                b += b_step
                k_left -= STEP
                copy(left_ring.index(here), b, left_at, mask_b(b_ks, columns, k_left, n_left, KC))
            async_copy.wait_group(2)
            with warp_pipeline_stage("multiply upper", priority=0):
                upper_left = multiply(a_operand, left_operand, upper_left, S)
                upper_right = multiply(a_operand, right_operand, upper_right, S)
            with warp_pipeline_stage("load lower", priority=1):
                next_left = async_copy.load_shared_relaxed(left_ring.index(1 - here), B_OPERAND)
                a_operand = async_copy.load_shared_relaxed(lower_ring.index(here), A_OPERAND)
                scheduling_wall()
                in_right = mask_b(b_ks, columns + PART_N, k_left, n_left, KC)
                async_copy.buffer_load_to_shared(right_ring.index(here), b, right_at, in_right)
                copy(upper_ring.index(here), a, upper_at, mask_a(a_ks, k_left))
            async_copy.wait_group(2)
            with warp_pipeline_stage("multiply lower", priority=0):
                lower_left = multiply(a_operand, left_operand, lower_left, S)
                lower_right = multiply(a_operand, right_operand, lower_right, S)
            left_operand = next_left
    # Copies still under way write zeros; the end of the program waits for them (CDNA3 ISA, S_ENDPGM).

    row = tile_row * S.tile_m
    column = tile_column * S.tile_n
    c = c_ptr + row.to(gl.int64) * ldc + column
    X = (alpha, beta, bias_ptr, bias_step, residual_ptr, r_m, r_n, scale_a_ptr, sa_m, scale_b_ptr, sb_n)
    store_bands(upper_left, c, ldc, m_left, n_left, row, column, S, E, X)
    store_bands(upper_right, c + PART_N, ldc, m_left, n_left - PART_N, row, column + PART_N, S, E, X)
    c += PART_M * ldc.to(gl.int64)
    row += PART_M
    m_left -= PART_M
    store_bands(lower_left, c, ldc, m_left, n_left, row, column, S, E, X)
    store_bands(lower_right, c + PART_N, ldc, m_left, n_left - PART_N, row, column + PART_N, S, E, X)


@gluon.jit
def fetch(base, offsets, mask, DIRECT: gl.constexpr):
    """Start the loads of a tile that passes through registers; 0 for one that goes straight to LDS."""
    if DIRECT:
        fetched = 0
    else:
        # Masked lanes read beyond the descriptor, which gives 0; an `other` would be a select that waits for the load.
        fetched = buffer_load(base, offsets, mask)
    return fetched


@gluon.jit
def fill(slot, fetched, base, offsets, mask, DIRECT: gl.constexpr):
    """Fill a slot with the tile at `base`, which `fetch` may have brought."""
    if DIRECT:
        async_copy.buffer_load_to_shared(slot, base, offsets, mask)
        async_copy.commit_group()
    else:
        slot.store(fetched)  # and no group: Triton 3.8 waits for nothing where the newest of the groups is empty


@jit(do_not_specialize=SCALARS)
def matmul_whole(
    a_ptr, b_ptr, c_ptr, m, n_units, k_units, lda_units, ldb_units, ldc_units, S: gl.constexpr, ACCESS: gl.constexpr,
    E: gl.constexpr = None, alpha=None, beta=None, bias_ptr=None, bias_step=None, residual_ptr=None, r_m=None, r_n=None,
    scale_a_ptr=None, sa_m=None, scale_b_ptr=None, sb_n=None,
):  # fmt: skip
    """One tile of C, its operands in a ring of K steps. Unaligned operands pass through registers and a third stage."""
    TYPE: gl.constexpr = a_ptr.dtype.element_ty
    TILE_M: gl.constexpr = S.tile_m
    TILE_N: gl.constexpr = S.tile_n
    STEP: gl.constexpr = S.tile_k
    RING: gl.constexpr = S.ring
    KC: gl.constexpr = ACCESS.b_k_contiguous
    A_DIRECT: gl.constexpr = ACCESS.a_direct
    B_DIRECT: gl.constexpr = ACCESS.b_direct
    DIRECT: gl.constexpr = ACCESS.a_direct and ACCESS.b_direct
    GROUPS: gl.constexpr = ACCESS.groups
    ACC: gl.constexpr = mfma_layout(S)
    A_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, S.vector)
    B_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, S.vector)
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

    a_ring = gl.allocate_shared_memory(TYPE, [RING, TILE_M, STEP], lds_layout_a(S))
    b_ring = gl.allocate_shared_memory(TYPE, [RING, STEP, TILE_N], lds_layout_b(S, KC))
    k_left = k
    for slot in gl.static_range(RING - 1):
        in_a = mask_a(a_ks, k_left)
        in_b = mask_b(b_ks, columns, k_left, n_left, KC)
        fill(a_ring.index(slot), fetch(a, a_at, in_a, A_DIRECT), a, a_at, in_a, A_DIRECT)
        fill(b_ring.index(slot), fetch(b, b_at, in_b, B_DIRECT), b, b_at, in_b, B_DIRECT)
        a += STEP
        b += b_step
        k_left -= STEP

    acc = gl.zeros((TILE_M, TILE_N), gl.float32, ACC)
    async_copy.wait_group(GROUPS * (RING - 2))
    for step in range(gl.cdiv(k, STEP)):
        with warp_pipeline_stage("load", priority=1):
            here = step % RING
            ahead = (step + RING - 1) % RING
            a_operand = async_copy.load_shared_relaxed(a_ring.index(here), A_OPERAND)
            b_operand = async_copy.load_shared_relaxed(b_ring.index(here), B_OPERAND)
            if DIRECT:
                copy(a_ring.index(ahead), a, a_at, mask_a(a_ks, k_left))
                copy(b_ring.index(ahead), b, b_at, mask_b(b_ks, columns, k_left, n_left, KC))
                a += STEP
                b += b_step
                k_left -= STEP
            else:
                a_fetched = fetch(a, a_at, mask_a(a_ks, k_left), A_DIRECT)
                b_fetched = fetch(b, b_at, mask_b(b_ks, columns, k_left, n_left, KC), B_DIRECT)
        # Both groups have passed the barrier after this wait when the first of them comes to read the next slot.
        async_copy.wait_group(GROUPS * (RING - 2 if DIRECT else RING - 3))
        with warp_pipeline_stage("multiply", priority=0):
            acc = mfma(a_operand, b_operand, acc)
        if not DIRECT:
            with warp_pipeline_stage("store", priority=1):
                fill(a_ring.index(ahead), a_fetched, a, a_at, mask_a(a_ks, k_left), A_DIRECT)
                fill(b_ring.index(ahead), b_fetched, b, b_at, mask_b(b_ks, columns, k_left, n_left, KC), B_DIRECT)
                a += STEP
                b += b_step
                k_left -= STEP
    # Copies still under way write zeros; the end of the program waits for them (CDNA3 ISA, S_ENDPGM).

    c_rows = gl.arange(0, TILE_M, gl.SliceLayout(1, ACC))
    c_columns = gl.arange(0, TILE_N, gl.SliceLayout(0, ACC))
    c = c_ptr + (tile_row * TILE_M).to(gl.int64) * ldc + tile_column * TILE_N
    X = (alpha, beta, bias_ptr, bias_step, residual_ptr, r_m, r_n, scale_a_ptr, sa_m, scale_b_ptr, sb_n)
    store_c(acc, c, c_rows, c_columns, ldc, m_left, n_left, tile_row * TILE_M, tile_column * TILE_N, E, X)
