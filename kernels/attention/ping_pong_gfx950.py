"""The gfx950 forward in two wave groups one stage apart: one group's softmax and MFMAs beside the other's memory work.

A workgroup of eight waves has 256 rows of one query head; each wave keeps its 32 rows of q in registers. For key block
`j`, of 64 keys, a loop iteration has four stages:

    "read v"   V(j-1) from LDS; starts the copy of K(j+R-1)
    "p v"      O += P(j-1) V(j-1); beside it the row maxima of S(j), its exponents, half of its exponentials
    "read k"   K(j+1) from LDS; starts the copy of V(j+R-2); rescales O where it must be
    "q k"      S(j+1) = q K(j+1); beside it the other half of the exponentials, row sums, and P(j)

so that a SIMD always has one wave in an MFMA stage and one in a memory stage. In the MFMA stages the softmax of one
block is woven between the MFMAs of the other product by intra-wave windows: an MFMA of 32 clk leaves 24 for vector
instructions, and each half of the softmax takes about 90 of the 96 slots of 4 clk that a stage of 16 MFMAs has. Packed
fp32 arithmetic cannot run beside an MFMA, and is turned off.

K and V go from global memory straight to LDS, into rings of R slots each; V is transposed by the LDS reads
(``ds_read_b64_tr_b16``). S has a row a lane, so a row's maximum needs one exchange between two lanes, and P needs none
to become an operand.

*Lazy rescaling* (as in FlashAttention-4 and AMD's Gluon attention): P = exp2(S - m) and O are kept relative to a
reference m that is no exact maximum. As long as no row of a wave grows beyond 2**8 times its reference, the wave goes
on; else it takes the maxima as its new reference and rescales O: a branch that each wave takes for itself.

What keeps the rings free of races, with the second group one stage behind the first: a slot is refilled two memory
stages of its operand after it was read, and what a memory stage reads was waited for at the end of the one before. Keys
past the end are masked in the copies, which write zeros for them. The last iteration computes an S that nobody uses.
"""


# The kernel language has no types of its own for tensors, no starred tuples, and no `and` of constant and tensor.
# mypy: disable-error-code="no-untyped-def, assignment, misc"
# ruff: noqa: RUF005, SIM117

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy

from amdwarp.stage import warp_pipeline_stage

from .device_gfx950 import (
    any_lane,
    copy,
    hide_keys,
    larger,
    multiply_k,
    multiply_v,
    read_k,
    read_v,
    row_maximum,
    row_sums,
    scaled,
    scaled_sums,
    stay,
    to_operand,
)


@gluon.jit
def walk(
    acc, total, ref, p, s, q, k, v, k_ring, v_ring, k_at, v_at, k_key, v_key, k_step, v_step,
    first, end, hi, last_key, scale, HIDDEN: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """Blocks `first` to `end`: their softmax, P V of the block before, and S of the next one. Rows are in one part.

    Without HIDDEN rows see all keys of these blocks.
    """
    R: gl.constexpr = S.ring
    N: gl.constexpr = S.block_n
    HALF: gl.constexpr = S.block_n // 2
    ACC: gl.constexpr = acc[0][0].type.layout
    acc, total, ref, p, last_key = acc[0], total[0], ref[0], p[0], last_key[0]
    s_low, s_high = s[0]
    for block in range(first, end):
        with warp_pipeline_stage("read v", priority=1):
            before = v_ring.index((block - 1) % R)
            operands = ()
            for piece in gl.static_range(S.dim // 32):
                operands = operands + (read_v(before, piece, ACC),)
            copy(k_ring.index((block + R - 1) % R), k, k_at, k_key, hi - (block + R - 1) * N, S.masked)
            k += k_step
            if HIDDEN:
                s_low = hide_keys(s_low, block * N, last_key)
                s_high = hide_keys(s_high, block * N + HALF, last_key)
        async_copy.wait_group(2 * (R - 2))
        with warp_pipeline_stage("p v", priority=0):
            with warp_pipeline_stage("maxima beside p v", scope="intra_wave", order=S.order("maxima")):
                top = row_maximum(s_low, s_high) * scale
                if S.lazy:
                    grows = any_lane(top, ref + S.threshold)
                    new_ref = gl.where(grows, larger(ref, top), ref)
                else:
                    grows = True
                    new_ref = larger(ref, top)
                base = new_ref
                if HIDDEN:
                    # a row that has seen nothing: exp2(-inf - 0) is 0, where -inf - -inf would be no number
                    base = gl.where(new_ref == float("-inf"), 0.0, new_ref)
                low = gl.exp2(s_low * scale - base[:, None])
                high = s_high * scale - base[:, None]
                acc = multiply_v(acc, p, operands)
            low = stay(low)
            high = stay(high)
        with warp_pipeline_stage("read k", priority=1):
            k_low = read_k(k_ring.index((block + 1) % R), 0, 1, ACC)
            k_high = read_k(k_ring.index((block + 1) % R), 1, 1, ACC)
            copy(v_ring.index((block + R - 2) % R), v, v_at, v_key, hi - (block + R - 2) * N, S.masked)
            v += v_step
            if grows:
                rescale = gl.exp2(ref - base)
                total = scaled_sums(total, rescale, low, S)
                acc = scaled(acc, rescale)
            ref = new_ref
        async_copy.wait_group(2 * (R - 2))
        with warp_pipeline_stage("q k", priority=0):
            with warp_pipeline_stage("sums beside q k", scope="intra_wave", order=S.order("sums")):
                high = gl.exp2(high)
                total += row_sums(low, S) + row_sums(high, S)
                p = (to_operand(low, k.dtype.element_ty), to_operand(high, k.dtype.element_ty))
                s_low = multiply_k(q[0], k_low, ACC)
                s_high = multiply_k(q[0], k_high, ACC)
    return (acc,), (total,), (ref,), (p,), ((s_low, s_high),), k, v
