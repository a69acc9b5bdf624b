"""The gfx1250 forward as tasks: K and V are loaded, multiplied and made probabilities of on waves of their own.

A workgroup has 128 rows of one query head and walks over blocks of 64 keys. What passes between the tasks lies in rings
in LDS, each slot with a full and an empty barrier:

    load, 1 wave each for K and for V       K, V  -> k_ring, v_ring     by the tensor data mover; zeros past the end
    MFMA, 4 waves, the default task         S(j+2) = q K(j+2) -> s_ring, fp32
                                            O = O factor(j) + P(j) V(j)
    softmax, 4 waves                        S(j) -> P(j) -> p_ring, factor(j) -> factor_ring; maxima and sums stay

FlashAttention-4 splits attention like this where accumulators lie in memory of their own. On AMD they lie in the
registers of the waves that multiply: S must go through LDS to reach others, and only the MFMA task can rescale O. What
the split buys: S has no layout of the matrix unit where its softmax is computed. A lane of the softmax task has a whole
row, and no maximum or sum crosses lanes. The MFMA task is two blocks ahead with S, and multiplies while the other one
takes exponentials.

*Correction*: P and O are kept relative to a reference that is no exact maximum. While a row stays below 2**8 times its
reference, its factor is 1; else the softmax task takes the maximum as the new reference, and the factor is what O must
be multiplied by. An MFMA wave compares the factors of its rows with 1, one instruction, and mostly leaves O alone.
Behind the last block comes one more factor, 1 / sum.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from amdwarp.jit import jit
from amdwarp.task_barriers import alloc_barriers, barrier_arrive, barrier_wait
from amdwarp.tasks import async_task, async_task_replica_id, async_tasks

from ..gemm.tasks_gfx1250 import wmma_layout
from .rules import base2_of_sink, keys_of_rows, lse_with_sink, tanh, total_of_sink, visible

# Keys that one multiplication takes; operands of more would not fit into registers beside q and O.
PIECE = gl.constexpr(32)
LN_2 = gl.constexpr(0.6931471805599453)
SCALARS = ["rows", "keys", "tiles", "scale", "softcap", "left", "right"]


@constexpr_function
def padded(rows, columns, pad_bytes, element_bytes):
    """LDS layout of a row-major tile with so many bytes behind each row."""
    pad = pad_bytes // element_bytes
    return gl.PaddedSharedLayout.with_identity_for([[columns, pad]], [rows, columns], [1, 0])


@constexpr_function
def smallest_of(outputs, inputs):
    """Instructions that leave in the first output the lanes in which some input is not 1; the second one is scratch."""
    mask, least = outputs[0][0], outputs[1][0]
    values = [value for group in inputs for value in group]
    lines = [f"v_mov_b32 {least}, {values[0]}"]
    lines += [f"v_min_num_f32 {least}, {least}, {value}" for value in values[1:]]
    return "\n".join([*lines, f"v_cmp_neq_f32_e64 {mask}, 1.0, {least}"])


@gluon.jit
def any_rescaled(factor):
    """Whether one of this wave's factors, which are at most 1, is less: one comparison, whose lane mask is a scalar."""
    mask, _ = gl.inline_asm(smallest_of, ("=s", "=&v", "v"), [factor], (gl.int32, gl.float32), is_pure=True)
    return mask != 0


@gluon.jit
def fill(ring, full, empty, base, keys, row_step, blocks, S: gl.constexpr):
    """The load task: tiles of `ring`'s shape from consecutive rows of `base`, `S.ahead` of them under way at once.

    Copies past the last block bring tiles into slots that nobody reads: with a branch around them, Triton would count
    the copies under way as none.
    """
    N: gl.constexpr = ring.shape[1]
    D: gl.constexpr = ring.shape[2]
    AHEAD: gl.constexpr = S.ahead
    tiles = gl.amd.gfx1250.tdm.make_tensor_descriptor(base, [keys, D], [row_step, 1], [N, D], ring.layout)
    for first in gl.static_range(AHEAD):
        gl.amd.gfx1250.tdm.async_load(tiles, [first * N, 0], ring.index(first))
    for block in range(blocks):
        ahead = block + AHEAD
        slot = ahead % S.ring
        barrier_wait(empty.index(slot), ahead // S.ring & 1 ^ 1)
        gl.amd.gfx1250.tdm.async_load(tiles, [ahead * N, 0], ring.index(slot))
        gl.amd.gfx1250.tdm.async_wait(AHEAD)
        barrier_arrive(full.index(block % S.ring), release="lds")
    gl.amd.gfx1250.tdm.async_wait(0)


@gluon.jit
def logits(
    q, block, k_ring, k_full, k_empty, s_ring, s_full, s_empty, FRESH: gl.constexpr, S: gl.constexpr, ACC: gl.constexpr
):
    """S(block) = q K(block), for the softmax task; a fresh slot is empty."""
    slot = block % S.ring
    to = block % S.lead
    barrier_wait(k_full.index(slot), block // S.ring & 1)
    if not FRESH:
        barrier_wait(s_empty.index(to), block // S.lead & 1 ^ 1)
    for piece in gl.static_range(S.block_n // PIECE):
        k = k_ring.index(slot).slice(piece * PIECE, PIECE, dim=0).permute([1, 0]).load(gl.DotOperandLayout(1, ACC, 8))
        s = gl.amd.gfx1250.wmma(q, k, gl.zeros((S.block_m, PIECE), gl.float32, ACC))
        s_ring.index(to).slice(piece * PIECE, PIECE, dim=1).store(s)
    barrier_arrive(k_empty.index(slot), release="lds")
    barrier_arrive(s_full.index(to), release="lds")


@jit(do_not_specialize=SCALARS)
def attend(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, rows, keys, tiles, scale, softcap, left, right,
    q_batch, q_head, q_row_units, k_batch, k_head, k_row_units, v_batch, v_head, v_row_units,
    out_batch, out_head, out_row_units, lse_batch, lse_head, OPT: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """`S.block_m` rows of one query head. Grid: (row tiles, heads, batch)."""
    TYPE: gl.constexpr = q_ptr.dtype.element_ty
    M: gl.constexpr = S.block_m
    N: gl.constexpr = S.block_n
    D: gl.constexpr = S.dim
    DV: gl.constexpr = S.dim_v
    LEAD: gl.constexpr = S.lead
    LEFT: gl.constexpr = OPT.reach[0] is not None
    RIGHT: gl.constexpr = OPT.reach[1] is not None
    q_row = gl.to_tensor(q_row_units) * 8
    k_row = gl.to_tensor(k_row_units) * 8
    v_row = gl.to_tensor(v_row_units) * 8
    out_row = gl.to_tensor(out_row_units) * 8

    # the last tiles of a causal head see the most keys, and go first
    tile = tiles - 1 - gl.program_id(0)
    head = gl.program_id(1)
    wide_head = head.to(gl.int64)
    key_head = (head // S.ratio).to(gl.int64)
    batch = gl.program_id(2).to(gl.int64)
    first_row = tile * M
    shift = keys - rows
    begin, end, whole_begin, whole_end = keys_of_rows(
        first_row, gl.minimum(rows - first_row, M), shift, keys, left, right, LEFT, RIGHT
    )
    first_key = begin // N * N
    blocks = gl.where(end > begin, gl.cdiv(end - first_key, N), 0)
    k = k_ptr + (batch * k_batch + key_head * k_head + first_key.to(gl.int64) * k_row)
    v = v_ptr + (batch * v_batch + key_head * v_head + first_key.to(gl.int64) * v_row)
    keys_left = keys - first_key

    k_ring = gl.allocate_shared_memory(TYPE, [S.ring, N, D], padded(N, D, S.pad, 2))
    v_ring = gl.allocate_shared_memory(TYPE, [S.ring, N, DV], padded(N, DV, S.pad, 2))
    s_ring = gl.allocate_shared_memory(gl.float32, [S.lead, M, N], padded(M, N, S.pad, 4))
    p_ring = gl.allocate_shared_memory(TYPE, [S.probabilities, M, N], padded(M, N, S.pad, 2))
    factor_ring = gl.allocate_shared_memory(gl.float32, [S.probabilities, M], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    k_full = alloc_barriers(S.ring, arrivals=1)
    k_empty = alloc_barriers(S.ring, arrivals=S.multipliers)
    v_full = alloc_barriers(S.ring, arrivals=1)
    v_empty = alloc_barriers(S.ring, arrivals=S.multipliers)
    s_full = alloc_barriers(S.lead, arrivals=S.multipliers)
    s_empty = alloc_barriers(S.lead, arrivals=S.softmax_waves)
    p_full = alloc_barriers(S.probabilities, arrivals=S.softmax_waves)
    p_empty = alloc_barriers(S.probabilities, arrivals=S.multipliers)

    with async_tasks():
        with async_task("default"):
            ACC: gl.constexpr = wmma_layout(S)
            Q_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
            V_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
            q_rows = gl.arange(0, M, gl.SliceLayout(1, Q_OPERAND))
            q_elements = gl.arange(0, D, gl.SliceLayout(0, Q_OPERAND))
            q_base = q_ptr + (batch * q_batch + wide_head * q_head + first_row.to(gl.int64) * q_row)
            q_at = gl.minimum(q_rows, rows - first_row - 1)[:, None] * q_row + q_elements[None, :]
            q = gl.amd.gfx1250.buffer_load(q_base, q_at)
            acc = gl.zeros((M, DV), gl.float32, ACC)
            for block in range(gl.minimum(blocks, LEAD)):
                logits(q, block, k_ring, k_full, k_empty, s_ring, s_full, s_empty, True, S, ACC)
            for block in range(blocks):
                if block + LEAD < blocks:
                    logits(q, block + LEAD, k_ring, k_full, k_empty, s_ring, s_full, s_empty, False, S, ACC)
                p_slot = block % S.probabilities
                barrier_wait(p_full.index(p_slot), block // S.probabilities & 1)
                factor = factor_ring.index(p_slot).load(gl.SliceLayout(1, ACC))
                if S.lazy:
                    if any_rescaled(factor):
                        acc = acc * factor[:, None]
                else:
                    acc = acc * factor[:, None]
                v_slot = block % S.ring
                barrier_wait(v_full.index(v_slot), block // S.ring & 1)
                for piece in gl.static_range(N // PIECE):
                    p = p_ring.index(p_slot).slice(piece * PIECE, PIECE, dim=1).load(gl.DotOperandLayout(0, ACC, 8))
                    v_tile = v_ring.index(v_slot).slice(piece * PIECE, PIECE, dim=0).load(V_OPERAND)
                    acc = gl.amd.gfx1250.wmma(p, v_tile, acc)
                barrier_arrive(p_empty.index(p_slot), release="lds")
                barrier_arrive(v_empty.index(v_slot), release="lds")
            barrier_wait(p_full.index(blocks % S.probabilities), blocks // S.probabilities & 1)
            acc = acc * factor_ring.index(blocks % S.probabilities).load(gl.SliceLayout(1, ACC))[:, None]
            out_base = out_ptr + (batch * out_batch + wide_head * out_head + first_row.to(gl.int64) * out_row)
            out_rows = gl.arange(0, M, gl.SliceLayout(1, ACC))
            out_at = out_rows[:, None] * out_row + gl.arange(0, DV, gl.SliceLayout(0, ACC))[None, :]
            gl.amd.gfx1250.buffer_store(acc.to(TYPE), out_base, out_at, (out_rows < rows - first_row)[:, None])

        with async_task(num_warps=S.softmax_waves):
            # a lane has a row
            TILE: gl.constexpr = gl.BlockedLayout([1, N], [32, 1], [S.softmax_waves, 1], [1, 0])
            ROW: gl.constexpr = gl.SliceLayout(1, TILE)
            row = gl.arange(0, M, ROW)
            position = first_row + row + shift
            ref = gl.full((M,), float("-inf"), gl.float32, ROW)
            total = gl.zeros((M,), gl.float32, ROW)
            if OPT.sinks:
                raw_sink = gl.load(sinks_ptr + head)
                sink = base2_of_sink(raw_sink)
                ref = gl.maximum(ref, sink)
                total += total_of_sink(sink)
            for block in range(blocks):
                s_slot = block % S.lead
                barrier_wait(s_full.index(s_slot), block // S.lead & 1)
                s = s_ring.index(s_slot).load(TILE)
                barrier_arrive(s_empty.index(s_slot), release="lds")
                if OPT.softcap is not None:
                    # softcap comes with log2(e) in it, and scale without
                    s = tanh(s * scale) * softcap
                else:
                    s = s * scale
                start = first_key + block * N
                if (start < whole_begin) | (start + N > whole_end):
                    key = start + gl.arange(0, N, gl.SliceLayout(0, TILE))
                    seen = visible(position[:, None], key[None, :], left, right, LEFT, RIGHT) & (key < keys)[None, :]
                    s = gl.where(seen, s, float("-inf"))
                top = gl.max(s, 1)
                if S.lazy:
                    new_ref = gl.where(top > ref + S.threshold, top, ref)
                else:
                    new_ref = gl.maximum(ref, top)
                # a row that has seen nothing: exp2(-inf - 0) is 0, where -inf - -inf would be no number
                at = gl.where(new_ref == float("-inf"), 0.0, new_ref)
                p = gl.exp2(s - at[:, None])
                # without a reference O and the sum are 0, and need no factor
                factor = gl.where(ref == float("-inf"), 1.0, gl.exp2(ref - at))
                total = total * factor + gl.sum(p, 1)
                ref = new_ref
                p_slot = block % S.probabilities
                barrier_wait(p_empty.index(p_slot), block // S.probabilities & 1 ^ 1)
                p_ring.index(p_slot).store(p.to(TYPE))
                factor_ring.index(p_slot).store(factor)
                barrier_arrive(p_full.index(p_slot), release="lds")
            last = blocks % S.probabilities
            barrier_wait(p_empty.index(last), blocks // S.probabilities & 1 ^ 1)
            factor_ring.index(last).store(gl.where(total == 0.0, 0.0, 1.0 / total))
            barrier_arrive(p_full.index(last), release="lds")
            if lse_ptr is not None:
                lse = gl.where(total == 0.0, float("-inf"), (ref + gl.log2(total)) * LN_2)
                if OPT.sinks:
                    lse = lse_with_sink(lse, raw_sink)
                lse_base = lse_ptr + (batch * lse_batch + wide_head * lse_head + first_row.to(gl.int64))
                gl.store(lse_base + row, lse, row < rows - first_row)

        with async_task(num_warps=1, replicate=2):
            if async_task_replica_id() == 0:
                fill(k_ring, k_full, k_empty, k, keys_left, k_row, blocks, S)
            else:
                fill(v_ring, v_full, v_empty, v, keys_left, v_row, blocks, S)
