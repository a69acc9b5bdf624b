"""The kernel that takes everything: any form, mask, extra and dtype, on every GPU; and the one that joins its splits.

A workgroup has a tile of rows of one sequence and one key head. It walks the keys that some row of the tile sees, tile
by tile, with a running maximum and sum of each row (Milakov and Gimelshein's online softmax, as in FlashAttention-2).
Where every row sees the whole key tile no mask is computed: the walk has a left edge, a middle and a right edge.

Logits are kept in base 2: scale and log2(e) are one factor, and exp2 is one instruction.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from amdwarp.jit import jit

from .rules import base2_of_bias, base2_of_sink, lse_with_sink, nan_beyond_reach, total_of_sink, visible

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# What changes from call to call and must not make a kernel of its own.
SCALARS = ["rows", "keys", "scale", "softcap", "left", "right"]


@triton.jit
def offsets_in_cache(key, key_stride, page_stride, table, inside, PAGE: tl.constexpr):
    """Element offset of each key from the start of the cache, 64 bits. The table is read for keys inside only."""
    page = tl.load(table + key // PAGE, mask=inside, other=0)
    return page.to(tl.int64) * page_stride + (key % PAGE) * key_stride


@triton.jit
def load_keys(base, start, lo, hi, stride, page_stride, table, DIM: tl.constexpr, F: tl.constexpr, EDGE: tl.constexpr):
    """The tile of keys (or values) that begins at key `start`; zeros outside of lo … hi, whatever stands there."""
    BLOCK: tl.constexpr = triton.next_power_of_2(DIM)
    key = tl.arange(0, F.block_n)
    element = tl.arange(0, BLOCK)
    inside = (start + key >= lo) & (start + key < hi)
    if F.page > 0:
        pointers = base + offsets_in_cache(start + key, stride, page_stride, table, inside, F.page)[:, None]
        pointers += element[None, :]
    else:
        pointers = base + tl.cast(start, tl.int64) * stride + (key[:, None] * stride + element[None, :])
    if EDGE or F.page > 0:
        if BLOCK == DIM:
            tile = tl.load(pointers, mask=inside[:, None], other=0.0)
        else:
            tile = tl.load(pointers, mask=inside[:, None] & (element < DIM)[None, :], other=0.0)
    elif BLOCK == DIM:
        tile = tl.load(pointers)
    else:
        tile = tl.load(pointers, mask=(element < DIM)[None, :], other=0.0)
    return tile


@triton.jit
def walk(
    acc,
    top,
    total,
    q,
    first,
    end,
    lo,
    hi,
    k,
    k_stride,
    v,
    v_stride,
    k_page,
    v_page,
    table,
    scale,
    softcap,
    position,
    left,
    right,
    slope,
    bias,
    bias_key,
    row_exists,
    OPT: tl.constexpr,
    F: tl.constexpr,
    EDGE: tl.constexpr,
):
    """Take the key tiles from `first` to `end` into (acc, top, total). With EDGE, rows see only a part of them."""
    LEFT: tl.constexpr = OPT.reach[0] is not None
    RIGHT: tl.constexpr = OPT.reach[1] is not None
    for start in tl.range(first, end, F.block_n):
        key = start + tl.arange(0, F.block_n)
        k_tile = load_keys(k, start, lo, hi, k_stride, k_page, table, F.dim, F, EDGE)
        s = tl.dot(q, tl.trans(k_tile))
        if OPT.softcap is not None:
            # cap * tanh(x), and tanh(x) = 1 - 2 / (exp(2x) + 1), which is right at both infinities; scale has the 2x
            s = softcap * (1.0 - 2.0 / (tl.exp2(s * scale) + 1.0))
        else:
            s = s * scale
        if OPT.alibi:
            s -= slope[:, None] * tl.abs(position[:, None] - key[None, :]).to(tl.float32)
        if OPT.bias:
            inside = row_exists[:, None] & (key < hi)[None, :]
            given = tl.load(bias + (key.to(tl.int64) * bias_key)[None, :], mask=inside, other=0.0)
            s += base2_of_bias(given.to(tl.float32))
        if EDGE:
            seen = visible(position[:, None], key[None, :], left, right, LEFT, RIGHT) & (key < hi)[None, :]
            s = tl.where(seen, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        if EDGE or OPT.bias:
            # a row that has seen nothing yet: exp2(-inf - 0) is 0, where -inf - -inf would be no number
            base = tl.where(new_top == float("-inf"), 0.0, new_top)
        else:
            base = new_top
        p = tl.exp2(s - (base - F.shift)[:, None])
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(p, 1)
        acc = acc * rescale[:, None]
        v_tile = load_keys(v, start, lo, hi, v_stride, v_page, table, F.dim_v, F, EDGE)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc)
        top = new_top
    return acc, top, total


@jit
@triton.jit(do_not_specialize=SCALARS)
def attend(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    sinks_ptr,
    alibi_ptr,
    bias_ptr,
    q_scale_ptr,
    k_scale_ptr,
    v_scale_ptr,
    cu_rows_ptr,
    cu_keys_ptr,
    lengths_ptr,
    table_ptr,
    rows,
    keys,
    scale,
    softcap,
    left,
    right,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    v_batch,
    v_head,
    v_row,
    out_split,
    out_batch,
    out_head,
    out_row,
    lse_split,
    lse_batch,
    lse_head,
    alibi_batch,
    bias_batch,
    bias_head,
    bias_row,
    bias_key,
    q_scale_batch,
    q_scale_head,
    k_scale_batch,
    k_scale_head,
    v_scale_batch,
    v_scale_head,
    table_batch,
    OPT: tl.constexpr,
    F: tl.constexpr,
):
    """One tile of rows. Grid: (row tiles, query heads / fold, batch * splits). Absent arrays are None."""
    split = tl.program_id(2) % F.splits
    batch = (tl.program_id(2) // F.splits).to(tl.int64)
    key_head = (tl.program_id(1) * F.fold // F.ratio).to(tl.int64)
    first_row = tl.cast(0, tl.int64)
    first_key = tl.cast(0, tl.int64)
    rows = tl.cast(rows, tl.int32)
    keys = tl.cast(keys, tl.int32)
    if cu_rows_ptr is not None:
        first_row += tl.load(cu_rows_ptr + batch)
        rows = (tl.load(cu_rows_ptr + batch + 1) - first_row).to(tl.int32)
    if cu_keys_ptr is not None:
        first_key += tl.load(cu_keys_ptr + batch)
        keys = (tl.load(cu_keys_ptr + batch + 1) - first_key).to(tl.int32)
    if lengths_ptr is not None:
        keys = tl.load(lengths_ptr + batch).to(tl.int32)
    tile_start = tl.program_id(0) * F.block_m
    if tile_start >= rows * F.fold:
        return

    index = tile_start + tl.arange(0, F.block_m)
    row = index // F.fold
    head = tl.program_id(1) * F.fold + index % F.fold
    exists = row < rows
    position = row + (keys - rows)
    wide_row, wide_head = row.to(tl.int64), head.to(tl.int64)

    # The keys that some row of the tile sees, lo … hi, and those that every row sees, whole_lo … whole_hi.
    first_position = tile_start // F.fold + keys - rows
    last_position = tl.minimum((tile_start + F.block_m - 1) // F.fold, rows - 1) + keys - rows
    lo = 0
    hi = keys
    whole_lo = 0
    whole_hi = keys
    if OPT.reach[0] is not None:
        lo = tl.minimum(tl.maximum(first_position - left, 0), keys)
        whole_lo = tl.maximum(last_position - left, 0)
    if OPT.reach[1] is not None:
        # in this order nothing leaves 32 bits
        hi = tl.maximum(last_position + 1 + tl.minimum(right, keys - last_position - 1), 0)
        whole_hi = tl.maximum(first_position + 1 + tl.minimum(right, keys - first_position - 1), 0)
    begin = lo // F.block_n * F.block_n
    end = hi
    if F.splits > 1:
        share = tl.cdiv(tl.cdiv(tl.maximum(hi - begin, 0), F.block_n), F.splits) * F.block_n
        begin += split * share
        end = tl.minimum(hi, begin + share)
    middle = tl.minimum(tl.maximum(tl.cdiv(whole_lo, F.block_n) * F.block_n, begin), tl.maximum(end, begin))
    right_edge = tl.maximum(tl.minimum(whole_hi, end) // F.block_n * F.block_n, middle)

    element = tl.arange(0, F.block_d)
    q_at = first_row * q_row + batch * q_batch + wide_row[:, None] * q_row + wide_head[:, None] * q_head
    q = tl.load(q_ptr + q_at + element[None, :], mask=exists[:, None] & (element < F.dim)[None, :], other=0.0)
    k = k_ptr + key_head * k_head
    v = v_ptr + key_head * v_head
    table = table_ptr
    if F.page > 0:
        table += batch * table_batch
    else:
        k += first_key * k_row + batch * k_batch
        v += first_key * v_row + batch * v_batch
    if q_scale_ptr is not None:
        scale *= tl.load(q_scale_ptr + batch * q_scale_batch + head * q_scale_head, mask=exists, other=1.0)[:, None]
    if k_scale_ptr is not None:
        scale *= tl.load(k_scale_ptr + batch * k_scale_batch + key_head * k_scale_head)
    slope = position
    if OPT.alibi:
        slope = tl.load(alibi_ptr + batch * alibi_batch + head, mask=exists, other=0.0) * LOG2_E
    bias = bias_ptr
    if OPT.bias:
        bias += batch * bias_batch + (wide_head[:, None] * bias_head + wide_row[:, None] * bias_row)

    top = tl.full([F.block_m], float("-inf"), tl.float32)
    total = tl.zeros([F.block_m], tl.float32)
    sink = top
    if OPT.sinks:
        raw_sink = tl.load(sinks_ptr + head, mask=exists & (split == 0), other=float("-inf"))
        sink = base2_of_sink(raw_sink)
        top = tl.maximum(top, sink)
        total = total_of_sink(sink) * (1 << F.shift)
    acc = tl.zeros([F.block_m, F.block_dv], tl.float32)
    if OPT.reach[0] is not None:
        acc, top, total = walk(
            acc, top, total, q, begin, middle, lo, hi, k, k_row, v, v_row, k_batch, v_batch, table, scale, softcap,
            position, left, right, slope, bias, bias_key, exists, OPT, F, True,
        )  # fmt: skip
    acc, top, total = walk(
        acc, top, total, q, middle, right_edge, lo, hi, k, k_row, v, v_row, k_batch, v_batch, table, scale, softcap,
        position, left, right, slope, bias, bias_key, exists, OPT, F, False,
    )  # fmt: skip
    acc, top, total = walk(
        acc, top, total, q, right_edge, end, lo, hi, k, k_row, v, v_row, k_batch, v_batch, table, scale, softcap,
        position, left, right, slope, bias, bias_key, exists, OPT, F, True,
    )  # fmt: skip

    if not (OPT.alibi or OPT.bias):  # sums, whose rounding `top` shares
        total = nan_beyond_reach(total, top, sink)
    factor = tl.where(total == 0.0, 0.0, 1.0 / total)
    if v_scale_ptr is not None:
        factor *= tl.load(v_scale_ptr + batch * v_scale_batch + key_head * v_scale_head)
    value = tl.arange(0, F.block_dv)
    out_at = split * tl.cast(out_split, tl.int64) + first_row * out_row + batch * out_batch
    out_at += wide_row[:, None] * out_row + wide_head[:, None] * out_head
    result = (acc * factor[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + out_at + value[None, :], result, mask=exists[:, None] & (value < F.dim_v)[None, :])
    if lse_ptr is not None:
        lse = tl.where(total == 0.0, float("-inf"), (top + tl.log2(total) - F.shift) * LN_2)
        if OPT.sinks:
            lse = lse_with_sink(lse, raw_sink)
        lse_at = split * tl.cast(lse_split, tl.int64) + first_row + batch * lse_batch + wide_row + wide_head * lse_head
        tl.store(lse_ptr + lse_at, lse, mask=exists)


@jit
@triton.jit
def join_splits(
    part_ptr,
    part_lse_ptr,
    out_ptr,
    lse_ptr,
    part_split,
    part_batch,
    part_head,
    part_row,
    part_lse_split,
    part_lse_batch,
    part_lse_head,
    out_batch,
    out_head,
    out_row,
    lse_batch,
    lse_head,
    F: tl.constexpr,
):
    """One row from its partial results, in one order whatever finished first. Grid: (rows, query heads, batch)."""
    row, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    SPLITS: tl.constexpr = triton.next_power_of_2(F.splits)
    split = tl.arange(0, SPLITS)
    value = tl.arange(0, F.block_dv)
    lse_at = split.to(tl.int64) * part_lse_split + batch * part_lse_batch + head * part_lse_head + row
    part_lse = tl.load(part_lse_ptr + lse_at, mask=split < F.splits, other=float("-inf"))
    parts = base2_of_sink(part_lse)  # that of the first may be its sink
    top = tl.max(parts, 0)
    base = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(parts - base)
    total = tl.sum(weights, 0)
    part_at = split.to(tl.int64) * part_split + batch * part_batch + head * part_head + row * part_row
    inside = (split < F.splits)[:, None] & (value < F.dim_v)[None, :]
    partial = tl.load(part_ptr + part_at[:, None] + value[None, :], mask=inside, other=0.0)
    result = tl.sum(partial * weights[:, None], 0) * tl.where(total == 0.0, 0.0, 1.0 / total)
    out_at = batch * out_batch + head * tl.cast(out_head, tl.int64) + row * tl.cast(out_row, tl.int64)
    tl.store(out_ptr + out_at + value, result.to(out_ptr.dtype.element_ty), mask=value < F.dim_v)
    if lse_ptr is not None:
        lse = tl.where(total == 0.0, float("-inf"), (base + tl.log2(total)) * LN_2)
        lse = lse_with_sink(lse, tl.max(part_lse, 0))
        tl.store(lse_ptr + batch * lse_batch + head * tl.cast(lse_head, tl.int64) + row, lse)
