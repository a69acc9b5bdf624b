"""What the plain GEMM does with the sums of a tile: the epilogue and the output, or a slot of the workspace."""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from .epilogue_device import finish


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
