"""What the plain GEMM reads in a K step: operand tiles, E8M0 scales, scales of blocks."""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


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
def block_scale(base, lines, block, line_stride, lines_left, at_k, k_stride):
    """Blockwise scales of a step's lines."""
    at = (tl.minimum(lines, lines_left - 1) // block).to(tl.int64) * line_stride
    return tl.load(base + at + at_k.to(tl.int64) * k_stride)
