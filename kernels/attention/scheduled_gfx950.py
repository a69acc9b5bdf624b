"""The kernel around the scheduled loops of gfx950: its tile of rows, the rings of K and V in LDS, both ends of a loop.

A schedule's loop over key blocks is in the file of its name: `ping_pong_gfx950`, `intra_wave_gfx950`. Before it, copies
of as many blocks are started as the rings hold, S(0) becomes P(0), and S(1) is computed; it leaves P of the last block,
whose product with V comes after it. Where keys are hidden from rows of a tile there are two such loops: one over the
blocks that all rows see, which has no masks, and one over the last ones.
"""

# The kernel language has no types of its own for tensors, no starred tuples, and no `and` of constant and tensor.
# mypy: disable-error-code="no-untyped-def, assignment, misc"
# ruff: noqa: RUF005

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, buffer_load, buffer_store

from amdwarp.jit import jit

from .device_gfx950 import (
    LN_2,
    copy,
    copy_layout,
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
    shared_layout,
    stay,
    to_operand,
)
from .intra_wave_gfx950 import walk as intra_wave
from .ping_pong_gfx950 import walk as ping_pong
from .rules import base2_of_sink, lse_with_sink, nan_beyond_reach, total_of_sink

SCALARS = ["rows", "keys", "heads", "tiles", "scale"]


@gluon.jit
def tile_of_program(tiles, heads, S: gl.constexpr):
    """(row tile, head) of this workgroup: each die has consecutive heads, which share keys, and their tiles in turn."""
    program = gl.program_id(0)
    count = tiles * heads
    share = count // S.xcds
    extra = count % S.xcds
    die = program % S.xcds
    program = die * share + gl.minimum(die, extra) + program // S.xcds
    # the last tiles of a causal head see the most keys, and go first
    return tiles - 1 - program % tiles, program // tiles


@gluon.jit
def load_q(base, first_row, rows, row_stride, ACC: gl.constexpr, S: gl.constexpr):
    """A part of the tile's rows as operands, their elements in parts; rows past the end repeat the last one.

    A wave loads whole lines, and lanes get what they multiply through LDS: as operands straight from memory, an
    instruction would touch 32 lines for 32 bytes of each.
    """
    Q_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
    ROWS: gl.constexpr = S.block_m // S.row_parts
    WIDTH: gl.constexpr = S.dim // S.dim_parts
    PARTS: gl.constexpr = S.dim_parts
    LINES: gl.constexpr = gl.BlockedLayout([1, 8], [512 // WIDTH, WIDTH // 8], [S.num_warps, 1], [1, 0])
    row = gl.minimum(first_row + gl.arange(0, ROWS, gl.SliceLayout(1, LINES)), rows - 1)
    element = gl.arange(0, WIDTH, gl.SliceLayout(0, LINES))
    result = ()
    for part in gl.static_range(PARTS):
        at = row[:, None] * row_stride + (element + part * WIDTH)[None, :]
        result = result + (gl.convert_layout(buffer_load(base, at), Q_OPERAND),)
    return result


@gluon.jit
def multiply_block(q, slot, ACC: gl.constexpr, S: gl.constexpr):
    """S of the tile's rows and a block of keys: of each part of the rows the lower and the upper keys."""
    k_low, k_high = read_k(slot, 0, S.dim_parts, ACC), read_k(slot, 1, S.dim_parts, ACC)
    PARTS: gl.constexpr = S.row_parts
    result = ()
    for part in gl.static_range(PARTS):
        result = result + ((multiply_k(q[part], k_low, ACC), multiply_k(q[part], k_high, ACC)),)
    return result


@gluon.jit
def first_block(s, total, ref, last_key, scale, TYPE: gl.constexpr, S: gl.constexpr):
    """P of the first block of keys for a part of the rows, the sums and the reference of its rows."""
    low, high = s
    if S.masked:
        low = hide_keys(low, 0, last_key)
        high = hide_keys(high, S.block_n // 2, last_key)
    new_ref = larger(ref, row_maximum(low, high) * scale)
    base = gl.where(new_ref == float("-inf"), 0.0, new_ref)
    low = gl.exp2(low * scale - base[:, None])
    high = gl.exp2(high * scale - base[:, None])
    total = scaled_sums(total, gl.exp2(ref - base), low, S) + row_sums(low + high, S)
    return total, new_ref, (to_operand(low, TYPE), to_operand(high, TYPE))


@gluon.jit
def no_output(rows: gl.constexpr, ACC: gl.constexpr, S: gl.constexpr):
    """O of a part of the rows before any key: pieces of 32 elements."""
    result = ()
    for _ in gl.static_range(S.dim // 32):
        result = result + (gl.zeros((rows, 32), gl.float32, ACC),)
    return result


@jit(do_not_specialize=SCALARS)
def attend(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, rows, keys, heads, tiles, scale,
    q_batch, q_head, q_row_units, k_batch, k_head, k_row_units, v_batch, v_head, v_row_units,
    out_batch, out_head, out_row_units, lse_batch, lse_head, OPT: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """256 rows of one query head. Grid: (row tiles * heads, batch)."""
    TYPE: gl.constexpr = q_ptr.dtype.element_ty
    D: gl.constexpr = S.dim
    N: gl.constexpr = S.block_n
    R: gl.constexpr = S.ring
    ACC: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[32, 32, 16], transposed=True, warps_per_cta=[S.num_warps, 1]
    )
    PARTS: gl.constexpr = S.row_parts
    ROWS: gl.constexpr = S.block_m // S.row_parts
    K_LDS: gl.constexpr = S.k_layout()
    V_LDS: gl.constexpr = S.v_layout()
    K_COPY: gl.constexpr = copy_layout(K_LDS, S.num_warps)
    V_COPY: gl.constexpr = copy_layout(V_LDS, S.num_warps)
    q_row = gl.to_tensor(q_row_units) * 8
    k_row = gl.to_tensor(k_row_units) * 8
    v_row = gl.to_tensor(v_row_units) * 8
    out_row = gl.to_tensor(out_row_units) * 8

    tile, head = tile_of_program(tiles, heads, S)
    batch = gl.program_id(1).to(gl.int64)
    wide_head = head.to(gl.int64)
    key_head = (head // S.ratio).to(gl.int64)
    first_row = tile * S.block_m
    k = k_ptr + (batch * k_batch + key_head * k_head)
    v = v_ptr + (batch * v_batch + key_head * v_head)

    k_key = gl.arange(0, N, gl.SliceLayout(1, K_COPY))
    v_key = gl.arange(0, N, gl.SliceLayout(1, V_COPY))
    k_at = k_key[:, None] * k_row + gl.arange(0, D, gl.SliceLayout(0, K_COPY))[None, :]
    v_at = v_key[:, None] * v_row + gl.arange(0, D, gl.SliceLayout(0, V_COPY))[None, :]
    k_step = N * k_row.to(gl.int64)
    v_step = N * v_row.to(gl.int64)

    # Before there are rings, whose LDS it goes through.
    q_base = q_ptr + (batch * q_batch + wide_head * q_head + first_row.to(gl.int64) * q_row)
    q = ()
    for part in gl.static_range(PARTS):
        q = q + (load_q(q_base, part * ROWS, rows - first_row, q_row, ACC, S),)
    k_ring = gl.allocate_shared_memory(TYPE, [R, N, D], shared_layout(K_LDS))
    v_ring = gl.allocate_shared_memory(TYPE, [R, N, D], shared_layout(V_LDS))

    # Keys that a row of this tile sees; others are not copied either.
    hi = keys
    whole = keys // N
    if OPT.causal:
        last = gl.minimum(first_row + S.block_m, rows) - 1 + keys - rows
        hi = gl.maximum(gl.minimum(keys, last + 1), 0)
        whole = gl.maximum(first_row + keys - rows + 1, 0) // N
    blocks = gl.cdiv(hi, N)

    # Copies in the order in which they will be waited for: K(0), then K(i) and V(i - 1).
    copy(k_ring.index(0), k, k_at, k_key, hi, S.masked)
    for ahead in gl.static_range(1, R):
        k += k_step
        copy(k_ring.index(ahead), k, k_at, k_key, hi - ahead * N, S.masked)
        copy(v_ring.index(ahead - 1), v, v_at, v_key, hi - (ahead - 1) * N, S.masked)
        v += v_step
    k += k_step

    row = gl.arange(0, ROWS, gl.SliceLayout(1, ACC))

    one_ref = gl.full((ROWS,), float("-inf"), gl.float32, gl.SliceLayout(1, ACC))
    sums = row_sums(gl.zeros((ROWS, N // 2), gl.float32, ACC), S)
    if OPT.sinks:
        sink = base2_of_sink(gl.load(sinks_ptr + head))
        one_ref = gl.maximum(one_ref, sink)
        sums += total_of_sink(sink) * (0.5 if S.sum_lanes else 1.0)
    acc, last_key = (), ()
    for part in gl.static_range(PARTS):
        if OPT.causal or not S.masked:  # without masks nobody asks
            last_key = last_key + (first_row + part * ROWS + row + (keys - rows),)
        else:
            # each part has one of its own: 64 lane masks that two share would have to be kept in scalar registers
            last_key = last_key + (stay(gl.full((ROWS,), hi - 1, gl.int32, gl.SliceLayout(1, ACC))),)
        acc = acc + (no_output(ROWS, ACC, S),)

    async_copy.wait_group(2 * (R - 1))
    s = multiply_block(q, k_ring.index(0), ACC, S)
    total, ref, p = (), (), ()
    for part in gl.static_range(PARTS):
        of_part = first_block(s[part], sums, one_ref, last_key[part], scale, TYPE, S)
        total, ref, p = total + (of_part[0],), ref + (of_part[1],), p + (of_part[2],)
    async_copy.wait_group(2 * (R - 2))
    s = multiply_block(q, k_ring.index(1), ACC, S)

    walk: gl.constexpr = ping_pong if S.groups == 2 else intra_wave
    if S.masked:
        # most blocks of a long sequence are seen by all rows
        acc, total, ref, p, s, k, v = walk(
            acc, total, ref, p, s, q, k, v, k_ring, v_ring, k_at, v_at, k_key, v_key, k_step, v_step,
            1, whole, hi, last_key, scale, False, S,
        )  # fmt: skip
    rest = gl.maximum(whole, 1) if S.masked else 1
    acc, total, ref, p, s, k, v = walk(
        acc, total, ref, p, s, q, k, v, k_ring, v_ring, k_at, v_at, k_key, v_key, k_step, v_step,
        rest, blocks, hi, last_key, scale, S.masked, S,
    )  # fmt: skip

    async_copy.wait_group(0)
    final = v_ring.index((gl.maximum(blocks, 1) - 1) % R)
    operands = ()
    for piece in gl.static_range(D // 32):
        operands = operands + (read_v(final, piece, ACC),)
    out_base = out_ptr + (batch * out_batch + wide_head * out_head + first_row.to(gl.int64) * out_row)
    for part in gl.static_range(PARTS):
        out = multiply_v(acc[part], p[part], operands)
        of_rows = total[part]
        if S.sum_lanes:
            of_rows = gl.convert_layout(gl.sum(of_rows, 1), gl.SliceLayout(1, ACC))
        limit = float("-inf")
        if OPT.sinks:
            # loaded again: in a scalar register all along it would be in the way
            raw_sink = gl.load(sinks_ptr + head)
            limit = base2_of_sink(raw_sink)
        of_rows = nan_beyond_reach(of_rows, ref[part], limit)
        out = scaled(out, gl.where(of_rows == 0.0, 0.0, 1.0 / of_rows))
        at = part * ROWS + row
        inside = at < rows - first_row
        out_at = at[:, None] * out_row + gl.arange(0, 32, gl.SliceLayout(0, ACC))[None, :]
        for piece in gl.static_range(D // 32):
            buffer_store(out[piece].to(out_ptr.dtype.element_ty), out_base, out_at + piece * 32, inside[:, None])
        if lse_ptr is not None:
            lse = gl.where(of_rows == 0.0, float("-inf"), (ref[part] + gl.log2(of_rows)) * LN_2)
            if OPT.sinks:
                lse = lse_with_sink(lse, raw_sink)
            lse_base = lse_ptr + (batch * lse_batch + wide_head * lse_head + first_row.to(gl.int64))
            buffer_store(lse, lse_base, at, inside)
