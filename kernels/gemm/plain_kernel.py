"""The plain GEMM in the Triton language: every dtype, layout and form, on every target, without a wave-level schedule.

``plain`` computes output tiles. With ``split_k`` and ``stream_k`` it stores fp32 (or int32) parts of tiles into a
workspace, whole tiles of ``tile_m * tile_n`` elements a slot, and ``combine`` adds them in the order of K and runs the
epilogue. Offsets inside a tile are 32-bit unless the plan says that they do not fit; everything else is 64-bit.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from amdwarp.jit import jit

from .epilogue_device import finish


@triton.jit
def tile_of(tile, tiles_m, tiles_n, S: tl.constexpr, D: tl.constexpr):
    """(tile row, tile column) of a number: each die gets a consecutive share, walked in bands of ``group_m`` rows."""
    total = tiles_m * tiles_n
    share = total // D.xcds
    extra = total % D.xcds
    die = tile % D.xcds
    at = die * share + tl.minimum(die, extra) + tile // D.xcds
    in_group = S.group_m * tiles_n
    first = at // in_group * S.group_m
    rows = tl.minimum(tiles_m - first, S.group_m)
    at = at % in_group
    return first + at % rows, at // rows


@triton.jit
def fetch(base, outer, outer_stride, inner, inner_stride, outer_left, k_left, X: tl.constexpr, EVEN: tl.constexpr):
    """One operand tile; `outer` and `inner` are element numbers of rows (columns) and of K, broadcastable.

    Lines past the end repeat the last one, or are masked where they are the contiguous dimension; K is masked.
    """
    if X.wide:
        outer = outer.to(tl.int64)
        inner = inner.to(tl.int64)
    if X.format == "e2m1":
        k_left = tl.cdiv(k_left, 2)
    if X.mask_outer:
        lines = outer
    else:
        lines = tl.minimum(outer, outer_left - 1)
    if X.vector:
        # preshuffled: 16 lines, each with `vector` consecutive k, stand together
        at = lines // 16 * outer_stride + inner // X.vector * (16 * X.vector) + lines % 16 * X.vector + inner % X.vector
    elif X.format == "e2m3" or X.format == "e3m2":
        at = lines * outer_stride + inner * 6 // 8 * inner_stride
    else:
        at = lines * outer_stride + inner * inner_stride
    mask = None
    if X.mask_outer:
        mask = outer < outer_left
        if not EVEN:
            mask = mask & (inner < k_left)
    elif not EVEN:
        mask = (inner < k_left) & (outer >= 0)
    if mask is None:
        x = tl.load(base + at)
    else:
        x = tl.load(base + at, mask=mask, other=0.0)
    if X.format == "e2m3" or X.format == "e3m2":
        x = widen(x, base, at, inner, inner_stride, mask, X)
    return x


@triton.jit
def fetch_columns(base, columns, column_stride, ks, k_stride, n_left, k_left, X: tl.constexpr, EVEN: tl.constexpr):
    """A tile of B, (K, columns)."""
    if X.format == "e2m3" or X.format == "e3m2":
        # Triton sees no order in six-bit addresses, and would give neighbouring lanes the second dimension: that is K
        rows = fetch(base, columns[:, None], column_stride, ks[None, :], k_stride, n_left, k_left, X, EVEN)
        tile = tl.trans(rows)
    else:
        tile = fetch(base, columns[None, :], column_stride, ks[:, None], k_stride, n_left, k_left, X, EVEN)
    return tile


@triton.jit
def widen(low, base, at, inner, inner_stride, mask, X: tl.constexpr):
    """Six-bit floats, four in three bytes, as e4m3, which holds every value of both six-bit formats."""
    shift = inner * 6 % 8
    # an element that ends in its first byte reads that one twice: a mask for it would take two scalars a load
    at += tl.where(shift > 2, inner_stride, 0)
    if mask is None:
        high = tl.load(base + at)
    else:
        high = tl.load(base + at, mask=mask, other=0)
    bits = (low.to(tl.int32) | (high.to(tl.int32) << 8)) >> shift
    sign = (bits & 32) << 10
    # As the low exponent and high fraction bits of an fp16 the value is too small by the difference of the biases.
    if X.format == "e2m3":
        value = (sign | (bits & 31) << 7).to(tl.int16).to(tl.float16, bitcast=True) * 16384.0
    else:
        value = (sign | (bits & 31) << 8).to(tl.int16).to(tl.float16, bitcast=True) * 4096.0
    return value.to(tl.float8e4nv)


@triton.jit
def mx_scales(base, lines, line_stride, k0, k_stride, lines_left, k, TILE_K: tl.constexpr, EVEN: tl.constexpr):
    """E8M0 scales of one operand tile, (lines, TILE_K / 32); 1 past the end of K."""
    groups = k0 // 32 + tl.arange(0, TILE_K // 32)
    at = tl.minimum(lines, lines_left - 1)[:, None].to(tl.int64) * line_stride + groups[None, :].to(tl.int64) * k_stride
    if EVEN:
        scales = tl.load(base + at)
    else:
        inside = (groups * 32 < k)[None, :] & (lines >= 0)[:, None]
        scales = tl.load(base + at, mask=inside, other=127)
    return scales


@triton.jit
def multiply(x, y, x_scale, y_scale, acc, D: tl.constexpr):
    """acc + x @ y of one K step."""
    if D.mx:
        acc = tl.dot_scaled(x, x_scale, D.a_mx, y, y_scale, D.b_mx, acc)
    elif D.accumulator == "int32":
        acc = tl.dot(x, y, acc, out_dtype=tl.int32)
    else:
        acc = tl.dot(x, y, acc, input_precision=D.precision)
    return acc


@triton.jit
def block_scale(base, lines, block, line_stride, lines_left, at_k, k_stride):
    """Blockwise scales of a step's lines."""
    at = (tl.minimum(lines, lines_left - 1) // block).to(tl.int64) * line_stride
    return tl.load(base + at + at_k.to(tl.int64) * k_stride)


@triton.jit
def accumulate(
    a, b, b_gated, scale_a, scale_b, row, column, m, n, k, first, last, a_m, a_k, b_k, b_n, sa_m, sa_k, sb_k, sb_n,
    D: tl.constexpr, A: tl.constexpr, B: tl.constexpr, S: tl.constexpr, ACC: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Sums of K steps `first` to `last` of the tile at (row, column); with GATED a second one `n` columns on."""
    # bases are those of the tile: rows and columns count from its corner
    rows = tl.arange(0, S.tile_m)
    columns = tl.arange(0, S.tile_n)
    a_ks = tl.arange(0, S.tile_k // A.packed)[None, :]
    b_ks = tl.arange(0, S.tile_k // B.packed)
    acc = tl.zeros((S.tile_m, S.tile_n), ACC)
    gated = acc
    for step in range(first, last):
        k0 = step * S.tile_k
        k_left = k - k0
        a_at = a + k0.to(tl.int64) * A.numerator // A.denominator * a_k
        b_skip = k0.to(tl.int64) * B.numerator // B.denominator * b_k
        x = fetch(a_at, rows[:, None], a_m, a_ks, a_k, m - row, k_left, A, D.even_k)
        y = fetch_columns(b + b_skip, columns, b_n, b_ks, b_k, n - column, k_left, B, D.even_k)
        x_scale = None
        y_scale = None
        if D.mx:
            x_scale = mx_scales(scale_a, row + rows, sa_m, k0, sa_k, m, k, S.tile_k, D.even_k)
            y_scale = mx_scales(scale_b, column + columns, sb_n, k0, sb_k, n, k, S.tile_k, D.even_k)
        if D.blockwise:
            part = tl.dot(x, y, input_precision=D.precision)
            if D.scale_a == "block":
                s = block_scale(scale_a, row + rows, D.block_m, sa_m, m, k0 // 128, sa_k)
                part = part * s[:, None]
            if D.scale_b == "block":
                s = block_scale(scale_b, column + columns, D.block_n, sb_n, n, k0 // 128, sb_k)
                part = part * s[None, :]
            acc = acc + part
        else:
            acc = multiply(x, y, x_scale, y_scale, acc, D)
        if GATED:
            z = fetch_columns(b_gated + b_skip, columns, b_n, b_ks, b_k, n - column, k_left, B, D.even_k)
            if D.mx:
                y_scale = mx_scales(scale_b, n + column + columns, sb_n, k0, sb_k, 2 * n, k, S.tile_k, D.even_k)
            if D.blockwise:
                part = tl.dot(x, z, input_precision=D.precision)
                if D.scale_a == "block":
                    s = block_scale(scale_a, row + rows, D.block_m, sa_m, m, k0 // 128, sa_k)
                    part = part * s[:, None]
                if D.scale_b == "block":
                    s = block_scale(scale_b, n + column + columns, D.block_n, sb_n, 2 * n, k0 // 128, sb_k)
                    part = part * s[None, :]
                gated = gated + part
            else:
                gated = multiply(x, z, x_scale, y_scale, gated, D)
    return acc, gated


@triton.jit
def operand_scale(scale_a, scale_b, rows, columns, sa_m, sb_n, D: tl.constexpr):
    """Product of the scales that do not change along K, broadcastable against the tile; None where there are none."""
    left = None
    right = None
    both = None
    if D.scale_a == "tensor":
        left = tl.load(scale_a)
    elif D.scale_a == "line":
        left = tl.load(scale_a + rows.to(tl.int64) * sa_m)[:, None]
    if D.scale_b == "tensor":
        right = tl.load(scale_b)
    elif D.scale_b == "line":
        right = tl.load(scale_b + columns.to(tl.int64) * sb_n)[None, :]
    if left is None:
        both = right
    elif right is None:
        both = left
    else:
        both = left * right
    return both


@triton.jit
def write(
    acc, gated, c, bias, residual, scale_a, scale_b, row, column, m, n, keep, c_m, c_n, r_m, r_n, bias_step, sa_m, sb_n,
    alpha, beta, D: tl.constexpr, E: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Run the epilogue on a tile's sums and store it; pointers are those of the matrix, not of the tile."""
    rows = row + tl.arange(0, S.tile_m)
    columns = column + tl.arange(0, S.tile_n)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    if D.raw:
        value = acc
    else:
        safe_rows = tl.minimum(rows, m - 1)
        safe_columns = tl.minimum(columns, n - 1)
        scale = operand_scale(scale_a, scale_b, safe_rows, safe_columns, sa_m, sb_n, D)
        gated_scale = None
        added = None
        gated_added = None
        old = None
        if E.gated:
            gated_scale = operand_scale(scale_a, scale_b, safe_rows, safe_columns + n, sa_m, sb_n, D)
        if E.bias == "column":
            added = tl.load(bias + safe_columns.to(tl.int64) * bias_step).to(tl.float32)[None, :]
            if E.gated:
                gated_added = tl.load(bias + (safe_columns + n).to(tl.int64) * bias_step).to(tl.float32)[None, :]
        elif E.bias == "row":
            added = tl.load(bias + safe_rows.to(tl.int64) * bias_step).to(tl.float32)[:, None]
            gated_added = added
        if E.residual:
            at = safe_rows[:, None].to(tl.int64) * r_m + safe_columns[None, :].to(tl.int64) * r_n
            old = tl.load(residual + at).to(tl.float32)
        value = finish(
            acc.to(tl.float32), gated.to(tl.float32), alpha, scale, gated_scale, added, gated_added, old, beta, E
        )
        if D.groups == "rows":
            value = tl.where(keep, value, 0.0)
    if D.wide_c:
        at = rows[:, None].to(tl.int64) * c_m + columns[None, :].to(tl.int64) * c_n
        tl.store(c + at, value.to(c.dtype.element_ty), mask=inside)
    else:
        corner = c + row.to(tl.int64) * c_m + column.to(tl.int64) * c_n
        at = tl.arange(0, S.tile_m)[:, None] * c_m + tl.arange(0, S.tile_n)[None, :] * c_n
        tl.store(corner + at, value.to(c.dtype.element_ty), mask=inside)


@triton.jit
def group_of_row_tile(tile_row, offsets, groups, m, S: tl.constexpr):
    """(group, first row, end of the group's rows) of a tile row; group `groups` is what lies behind the last offset.

    Offsets are taken as ends, clamped to 0 … m and to be ascending, so that no value in memory leads out of bounds.
    """
    previous = 0
    before = 0
    group = groups
    row = m
    end = m
    for at in range(groups + 1):
        stop = tl.load(offsets + at, mask=at < groups, other=m).to(tl.int32)
        stop = tl.minimum(tl.maximum(stop, previous), m)
        tiles = tl.cdiv(stop - previous, S.tile_m)
        here = (tile_row >= before) & (tile_row < before + tiles)
        group = tl.where(here, at, group)
        row = tl.where(here, previous + (tile_row - before) * S.tile_m, row)
        end = tl.where(here, stop, end)
        before += tiles
        previous = stop
    return group, row, end


@triton.jit
def compute(
    tile, first, last, slot, whole, a, b, c, work, scale_a, scale_b, bias, residual, offsets, m, n, k, inner, groups,
    a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n, c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n,
    sa_m, sa_k, sb_k, sb_n, bias_step, bias_group, alpha, beta,
    D: tl.constexpr, A: tl.constexpr, B: tl.constexpr, E: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """K steps `first` to `last` of one tile of one matrix of the batch: to the output if `whole`, else to a slot."""
    ACC: tl.constexpr = tl.int32 if D.accumulator == "int32" else tl.float32
    tiles_n = tl.cdiv(n, S.tile_n)
    if D.groups == "rows":
        tiles_m = m // S.tile_m + groups + 1
    else:
        tiles_m = tl.cdiv(m, S.tile_m)
    batch = tile // (tiles_m * tiles_n)
    tile_row, tile_column = tile_of(tile % (tiles_m * tiles_n), tiles_m, tiles_n, S, D)
    column = tile_column * S.tile_n
    row = tile_row * S.tile_m
    keep = True
    end = m
    outer = (batch // inner).to(tl.int64)
    inside = (batch % inner).to(tl.int64)
    a += outer * a_outer + inside * a_inner
    b += outer * b_outer + inside * b_inner
    c += outer * c_outer + inside * c_inner
    if E.residual:
        residual += outer * r_outer + inside * r_inner
    if D.groups == "rows":
        group, row, end = group_of_row_tile(tile_row, offsets, groups, m, S)
        keep = group < groups
        last = tl.where(keep & (row < end), last, first)
        group = tl.minimum(group, groups - 1)
        b += group.to(tl.int64) * b_inner
        if E.bias is not None:
            bias += group.to(tl.int64) * bias_group
    elif D.groups == "k":
        start = tl.to_tensor(0)
        for at in range(batch + 1):
            stop = tl.minimum(tl.maximum(tl.load(offsets + at - 1, mask=at > 0, other=0).to(tl.int32), start), k)
            start = stop
        stop = tl.minimum(tl.maximum(tl.load(offsets + batch).to(tl.int32), start), k)
        a += start.to(tl.int64) * a_k
        b += start.to(tl.int64) * b_k
        k = stop - start
        last = tl.cdiv(k, S.tile_k)
    a += row.to(tl.int64) * a_m
    if B.vector:
        b += (column // 16).to(tl.int64) * b_n
        b_gated = b + (n // 16).to(tl.int64) * b_n
    else:
        b += column.to(tl.int64) * b_n
        b_gated = b + n.to(tl.int64) * b_n
    acc, gated = accumulate(
        a, b, b_gated, scale_a, scale_b, row, column, end, n, k, first, last,
        a_m, a_k, b_k, b_n, sa_m, sa_k, sb_k, sb_n, D, A, B, S, ACC, E.gated,
    )  # fmt: skip
    if S.schedule == "split_k":
        store_part(acc, gated, work, slot, E, S)
    elif S.schedule == "stream_k":
        if whole:
            write(
                acc, gated, c, bias, residual, scale_a, scale_b, row, column, end, n, keep,
                c_m, c_n, r_m, r_n, bias_step, sa_m, sb_n, alpha, beta, D, E, S,
            )  # fmt: skip
        else:
            store_part(acc, gated, work, slot, E, S)
    else:
        write(
            acc, gated, c, bias, residual, scale_a, scale_b, row, column, end, n, keep,
            c_m, c_n, r_m, r_n, bias_step, sa_m, sb_n, alpha, beta, D, E, S,
        )  # fmt: skip


@triton.jit
def store_part(acc, gated, work, slot, E: tl.constexpr, S: tl.constexpr):
    """Store the sums of some K steps of a tile, or add them to those that are there."""
    SIZE: tl.constexpr = S.tile_m * S.tile_n
    at = tl.arange(0, S.tile_m)[:, None] * S.tile_n + tl.arange(0, S.tile_n)[None, :]
    work += slot.to(tl.int64) * (SIZE * (2 if E.gated else 1))
    if S.atomic:
        tl.atomic_add(work + at, acc, sem="relaxed")
        if E.gated:
            tl.atomic_add(work + SIZE + at, gated, sem="relaxed")
    else:
        tl.store(work + at, acc)
        if E.gated:
            tl.store(work + SIZE + at, gated)


@triton.jit
def add_part(acc, gated, work, slot, E: tl.constexpr, S: tl.constexpr):
    """Add a slot of the workspace."""
    SIZE: tl.constexpr = S.tile_m * S.tile_n
    at = tl.arange(0, S.tile_m)[:, None] * S.tile_n + tl.arange(0, S.tile_n)[None, :]
    work += slot.to(tl.int64) * (SIZE * (2 if E.gated else 1))
    acc += tl.load(work + at)
    if E.gated:
        gated += tl.load(work + SIZE + at)
    return acc, gated


@jit
@triton.jit
def plain(
    a, b, c, work, scale_a, scale_b, bias, residual, offsets, m, n, k, tiles, inner, groups,
    a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n, c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n,
    sa_m, sa_k, sb_k, sb_n, bias_step, bias_group, alpha, beta,
    D: tl.constexpr, A: tl.constexpr, B: tl.constexpr, E: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """`tiles` output tiles, over all matrices of the batch."""
    m = tl.to_tensor(m)
    n = tl.to_tensor(n)
    k = tl.to_tensor(k)
    inner = tl.to_tensor(inner)
    program = tl.program_id(0)
    steps = tl.cdiv(k, S.tile_k)
    if S.schedule == "persistent":
        for tile in range(program, tiles, tl.num_programs(0)):
            compute(
                tile, 0, steps, tile, True, a, b, c, work, scale_a, scale_b, bias, residual, offsets,
                m, n, k, inner, groups, a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n,
                c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n, sa_m, sa_k, sb_k, sb_n,
                bias_step, bias_group, alpha, beta, D, A, B, E, S,
            )  # fmt: skip
    elif S.schedule == "stream_k":
        share = tl.cdiv(tiles * steps, tl.num_programs(0))
        begin = program * share
        at = begin
        stop = tl.minimum(begin + share, tiles * steps)
        while at < stop:
            tile = at // steps
            first = at - tile * steps
            last = tl.minimum(steps, first + stop - at)
            slot = tl.where(at == begin, 2 * program, 2 * program + 1)
            whole = (first == 0) & (last == steps)
            compute(
                tile, first, last, slot, whole, a, b, c, work, scale_a, scale_b, bias, residual, offsets,
                m, n, k, inner, groups, a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n,
                c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n, sa_m, sa_k, sb_k, sb_n,
                bias_step, bias_group, alpha, beta, D, A, B, E, S,
            )  # fmt: skip
            at += last - first
    else:
        part = program % S.splits
        tile = program // S.splits
        share = tl.cdiv(steps, S.splits)
        first = tl.minimum(part * share, steps)
        last = tl.minimum(first + share, steps)
        slot = tile if S.atomic else program
        compute(
            tile, first, last, slot, True, a, b, c, work, scale_a, scale_b, bias, residual, offsets,
            m, n, k, inner, groups, a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n,
            c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n, sa_m, sa_k, sb_k, sb_n,
            bias_step, bias_group, alpha, beta, D, A, B, E, S,
        )  # fmt: skip


@jit
@triton.jit
def combine(
    c, work, scale_a, scale_b, bias, residual, m, n, k, tiles, inner, programs,
    c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n, sa_m, sb_n, bias_step, alpha, beta,
    D: tl.constexpr, E: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Add a tile's slots in the order of K, run the epilogue and store it: one workgroup a tile."""
    ACC: tl.constexpr = tl.int32 if D.accumulator == "int32" else tl.float32
    m = tl.to_tensor(m)
    n = tl.to_tensor(n)
    inner = tl.to_tensor(inner)
    tile = tl.program_id(0)
    acc = tl.zeros((S.tile_m, S.tile_n), ACC)
    gated = acc
    parts = True
    if S.schedule == "stream_k":
        steps = tl.cdiv(tl.to_tensor(k), S.tile_k)
        share = tl.cdiv(tiles * steps, programs)
        low = tile * steps // share
        high = (tile * steps + steps - 1) // share
        parts = low != high
        if parts:
            for one in range(low, high + 1):
                slot = tl.where(tile * steps <= one * share, 2 * one, 2 * one + 1)
                acc, gated = add_part(acc, gated, work, slot, E, S)
    else:
        SLOTS: tl.constexpr = 1 if S.atomic else S.splits
        for part in range(SLOTS):
            acc, gated = add_part(acc, gated, work, tile * SLOTS + part, E, S)
    if parts:
        tiles_m, tiles_n = tl.cdiv(m, S.tile_m), tl.cdiv(n, S.tile_n)
        batch = tile // (tiles_m * tiles_n)
        tile_row, tile_column = tile_of(tile % (tiles_m * tiles_n), tiles_m, tiles_n, S, D)
        outer = (batch // inner).to(tl.int64)
        inside = (batch % inner).to(tl.int64)
        c += outer * c_outer + inside * c_inner
        if E.residual:
            residual += outer * r_outer + inside * r_inner
        write(
            acc, gated, c, bias, residual, scale_a, scale_b, tile_row * S.tile_m, tile_column * S.tile_n, m, n, True,
            c_m, c_n, r_m, r_n, bias_step, sa_m, sb_n, alpha, beta, D, E, S,
        )  # fmt: skip
