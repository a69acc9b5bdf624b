"""The gfx950 forward in four waves, one to a SIMD: softmax and the reads of K and V between a wave's own MFMAs.

A workgroup of four waves has 256 rows of one query head, 64 a wave, so that each element of K and V that comes from LDS
meets twice as many rows as with eight waves of 32. The wave has all 512 registers of its SIMD lanes. Its rows are in
two parts of 32, and a block of 64 keys in a lower and an upper half: S has four quarters of 16 registers.

For key block `j` an iteration first adds P(j-1) V(j-1) to O, 32 elements of a head at a time, and then computes
S(j+1) = q K(j+1), a quarter at a time. These steps are windows (heads of 64 have the first four in two):

    window                   MFMA            LDS             softmax of block j
    maxima                   O, piece 0      K, 1st quarter  row maxima, the references of rows
    lower keys, first rows   O, piece 1      K, 2nd          exponents and exponentials
    lower keys, other rows   O, piece 2      K, 3rd          the same
    exponents                O, piece 3      K, 4th          exponents of the upper keys, a part of the sums
    upper keys, first rows   S, quarter 0    V, piece 0      exponentials
    upper keys, other rows   S, quarter 1    V, piece 1      exponentials
    sums                     S, 2 quarters   V, 2 pieces     sums, P

What is read in one half of an iteration is multiplied in the other. An MFMA of 32 clk leaves six slots of 4 clk for
vector instructions, and no window of eight has more than 48. Windows this small keep their order; with two of 32 MFMAs
LLVM lost it (modelled 3219 clk an iteration). What is left over are the other instructions: a lone wave issues one in
4 clk, whatever it is.

Rescaling is lazy, as in `ping_pong_gfx950`, and decided between the two halves. The two lanes of a row sum up for
themselves.

What keeps the rings free of races is the one wait of an iteration, with the barrier that stock barrier insertion puts
behind it:
  * before it every wave has multiplied, and so has waited for, V(j-1) and K(j+1); their slots, and those of all blocks
    before, may be refilled behind it;
  * the copies that it waits for hold K(j+2) and V(j+1), which the next iteration reads.
"""

# The kernel language has no types of its own for tensors, no starred tuples, and no `and` of constant and tensor.
# mypy: disable-error-code="no-untyped-def, assignment, misc"
# ruff: noqa: RUF005

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy

from amdwarp.stage import warp_pipeline_stage

from .device_gfx950 import (
    any_lane_of_two,
    copy,
    hide_keys,
    larger,
    multiply_k,
    multiply_piece,
    read_k_part,
    read_v,
    row_maximum,
    row_sums,
    scaled,
    scaled_sums,
    stay,
    to_operand,
)


@gluon.jit
def new_references(s, ref, scale, HIDDEN: gl.constexpr, S: gl.constexpr):
    """Whether rows of this wave grow beyond their references, and the references to go on with."""
    tops = (row_maximum(s[0][0], s[0][1]) * scale, row_maximum(s[1][0], s[1][1]) * scale)
    grows = True
    if S.lazy:
        grows = any_lane_of_two(tops[0], ref[0] + S.threshold, tops[1], ref[1] + S.threshold)
        new = (gl.where(grows, larger(ref[0], tops[0]), ref[0]), gl.where(grows, larger(ref[1], tops[1]), ref[1]))
    else:
        new = (larger(ref[0], tops[0]), larger(ref[1], tops[1]))
    base = new
    if HIDDEN:
        # a row that has seen nothing: exp2(-inf - 0) is 0, where -inf - -inf would be no number
        base = (seen_or_zero(new[0]), seen_or_zero(new[1]))
    return grows, new, base


@gluon.jit
def seen_or_zero(ref):
    """References, 0 for a row that has seen nothing."""
    return gl.where(ref == float("-inf"), 0.0, ref)


@gluon.jit
def walk(
    acc, total, ref, p, s, q, k, v, k_ring, v_ring, k_at, v_at, k_key, v_key, k_step, v_step,
    first, end, hi, last_key, scale, HIDDEN: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """Blocks `first` to `end`: their softmax, P V of the block before, and S of the next one. Rows are in two parts.

    Without HIDDEN rows see all keys of these blocks.
    """
    R: gl.constexpr = S.ring
    N: gl.constexpr = S.block_n
    HALF: gl.constexpr = S.block_n // 2
    WIDE: gl.constexpr = S.dim == 128
    TYPE: gl.constexpr = k.dtype.element_ty
    ACC: gl.constexpr = acc[0][0].type.layout
    async_copy.wait_group(2 * (R - 3))
    operands = ()
    for piece in gl.static_range(S.dim // 32):
        operands = operands + (read_v(v_ring.index((first - 1) % R), piece, ACC),)
    s00, s01, s10, s11 = s[0][0], s[0][1], s[1][0], s[1][1]
    acc0, acc1 = acc
    p0, p1 = p
    ref0, ref1 = ref
    total0, total1 = total
    for block in range(first, end):
        copy(k_ring.index((block + R - 1) % R), k, k_at, k_key, hi - (block + R - 1) * N, S.masked)
        k += k_step
        if HIDDEN:
            s00 = hide_keys(s00, block * N, last_key[0])
            s01 = hide_keys(s01, block * N + HALF, last_key[0])
            s10 = hide_keys(s10, block * N, last_key[1])
            s11 = hide_keys(s11, block * N + HALF, last_key[1])
        after = k_ring.index((block + 1) % R)
        with warp_pipeline_stage("maxima", scope="intra_wave", order=S.order("maxima")):
            k00 = read_k_part(after, 0, 0, ACC)
            if not WIDE:
                k01 = read_k_part(after, 0, 1, ACC)
            grows, new, base = new_references(((s00, s01), (s10, s11)), (ref0, ref1), scale, HIDDEN, S)
            base0, base1 = base
            if not WIDE:
                low0 = gl.exp2(s00 * scale - base0[:, None])
            a00, a10 = multiply_piece(acc0[0], p0, operands[0]), multiply_piece(acc1[0], p1, operands[0])
        if WIDE:
            with warp_pipeline_stage("lower keys, first rows", scope="intra_wave", order=S.order("lower")):
                k01 = read_k_part(after, 0, 1, ACC)
                low0 = gl.exp2(s00 * scale - base0[:, None])
                a01, a11 = multiply_piece(acc0[1], p0, operands[1]), multiply_piece(acc1[1], p1, operands[1])
            with warp_pipeline_stage("lower keys, other rows", scope="intra_wave", order=S.order("lower")):
                k10 = read_k_part(after, 1, 0, ACC)
                low1 = gl.exp2(s10 * scale - base1[:, None])
                a02, a12 = multiply_piece(acc0[2], p0, operands[2]), multiply_piece(acc1[2], p1, operands[2])
        with warp_pipeline_stage("exponents", scope="intra_wave", order=S.order("exponents")):
            if not WIDE:
                k10 = read_k_part(after, 1, 0, ACC)
            k11 = read_k_part(after, 1, 1, ACC)
            if not WIDE:
                low1 = gl.exp2(s10 * scale - base1[:, None])
            high0 = s01 * scale - base0[:, None]
            high1 = s11 * scale - base1[:, None]
            sum0 = row_sums(low0, S)
            if WIDE:
                a03, a13 = multiply_piece(acc0[3], p0, operands[3]), multiply_piece(acc1[3], p1, operands[3])
            else:
                a01, a11 = multiply_piece(acc0[1], p0, operands[1]), multiply_piece(acc1[1], p1, operands[1])
        if WIDE:
            acc0, acc1 = (a00, a01, a02, a03), (a10, a11, a12, a13)
        else:
            acc0, acc1 = (a00, a01), (a10, a11)
        low0, low1, high0, high1, sum0 = stay(low0), stay(low1), stay(high0), stay(high1), stay(sum0)
        if grows:
            rescale0, rescale1 = gl.exp2(ref0 - base0), gl.exp2(ref1 - base1)
            total0, total1 = scaled_sums(total0, rescale0, low0, S), scaled_sums(total1, rescale1, low1, S)
            acc0, acc1 = scaled(acc0, rescale0), scaled(acc1, rescale1)
        ref0, ref1 = new
        copy(v_ring.index((block + R - 2) % R), v, v_at, v_key, hi - (block + R - 2) * N, S.masked)
        v += v_step
        here = v_ring.index(block % R)
        with warp_pipeline_stage("upper keys, first rows", scope="intra_wave", order=S.order("upper")):
            if WIDE:
                v0 = read_v(here, 0, ACC)
            high0 = gl.exp2(high0)
            p00 = to_operand(low0, TYPE)
            s00 = multiply_k(q[0], (k00, k01), ACC)
        with warp_pipeline_stage("upper keys, other rows", scope="intra_wave", order=S.order("upper and sums")):
            if WIDE:
                v1 = read_v(here, 1, ACC)
            high1 = gl.exp2(high1)
            sum1 = row_sums(low1, S)
            s10 = multiply_k(q[1], (k00, k01), ACC)
        with warp_pipeline_stage("sums", scope="intra_wave", order=S.order("sums")):
            v2 = read_v(here, 2 if WIDE else 0, ACC)
            p10 = to_operand(low1, TYPE)
            total0 += sum0 + row_sums(high0, S)
            p0 = (p00, to_operand(high0, TYPE))
            s01 = multiply_k(q[0], (k10, k11), ACC)
            v3 = read_v(here, 3 if WIDE else 1, ACC)
            total1 += sum1 + row_sums(high1, S)
            p1 = (p10, to_operand(high1, TYPE))
            s11 = multiply_k(q[1], (k10, k11), ACC)
        if WIDE:
            operands = (v0, v1, v2, v3)
        else:
            operands = (v2, v3)
        async_copy.wait_group(2 * (R - 3))
    return (acc0, acc1), (total0, total1), (ref0, ref1), (p0, p1), ((s00, s01), (s10, s11)), k, v
