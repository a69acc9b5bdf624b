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

from .plain_load import block_scale, fetch, fetch_columns, mx_scales
from .plain_store import add_part, store_part, write


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
def batch_scales(
    scale_a, scale_b, outer, inside, sa_outer, sa_inner, sb_outer, sb_inner, D: tl.constexpr
):  # fmt: skip
    """Scales of one matrix of the batch."""
    if D.scale_a != "none":
        scale_a += outer * sa_outer + inside * sa_inner
    if D.scale_b != "none":
        scale_b += outer * sb_outer + inside * sb_inner
    return scale_a, scale_b


@triton.jit
def compute(
    tile, first, last, slot, whole, a, b, c, work, scale_a, scale_b, bias, residual, offsets, m, n, k, inner, groups,
    a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n, c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n,
    sa_m, sa_k, sb_k, sb_n, sa_outer, sa_inner, sb_outer, sb_inner, bias_step, bias_group, alpha, beta,
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
    if D.batched_scales:
        scale_a, scale_b = batch_scales(
            scale_a, scale_b, outer, inside, sa_outer, sa_inner, sb_outer, sb_inner, D
        )  # fmt: skip
    if D.groups == "rows":
        group, row, end = group_of_row_tile(tile_row, offsets, groups, m, S)
        keep = group < groups
        last = tl.where(keep & (row < end), last, first)
        group = tl.minimum(group, groups - 1)
        b += group.to(tl.int64) * b_inner
        if D.group_scales:
            scale_b += group.to(tl.int64) * sb_inner
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


@jit
@triton.jit
def plain(
    a, b, c, work, scale_a, scale_b, bias, residual, offsets, m, n, k, tiles, inner, groups,
    a_outer, a_inner, a_m, a_k, b_outer, b_inner, b_k, b_n, c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n,
    sa_m, sa_k, sb_k, sb_n, sa_outer, sa_inner, sb_outer, sb_inner, bias_step, bias_group, alpha, beta,
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
                sa_outer, sa_inner, sb_outer, sb_inner, bias_step, bias_group, alpha, beta, D, A, B, E, S,
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
                sa_outer, sa_inner, sb_outer, sb_inner, bias_step, bias_group, alpha, beta, D, A, B, E, S,
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
            sa_outer, sa_inner, sb_outer, sb_inner, bias_step, bias_group, alpha, beta, D, A, B, E, S,
        )  # fmt: skip


@jit
@triton.jit
def combine(
    c, work, scale_a, scale_b, bias, residual, m, n, k, tiles, inner, programs,
    c_outer, c_inner, c_m, c_n, r_outer, r_inner, r_m, r_n, sa_m, sb_n, sa_outer, sa_inner, sb_outer, sb_inner,
    bias_step, alpha, beta, D: tl.constexpr, E: tl.constexpr, S: tl.constexpr,
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
        if D.batched_scales:
            scale_a, scale_b = batch_scales(
                scale_a, scale_b, outer, inside, sa_outer, sa_inner, sb_outer, sb_inner, D
            )  # fmt: skip
        write(
            acc, gated, c, bias, residual, scale_a, scale_b, tile_row * S.tile_m, tile_column * S.tile_n, m, n, True,
            c_m, c_n, r_m, r_n, bias_step, sa_m, sb_n, alpha, beta, D, E, S,
        )  # fmt: skip
