"""Backward of attention in plain Triton for every GPU: three kernels that use no atomics, so their sums have one order.

``backward_rows_sum`` makes delta = dout . out a row; ``backward_keys`` makes dk and dv of a block of keys, over all
rows and all query heads that read it; ``backward_rows`` makes dq of a block of rows (and dbias), over all its keys. The
last two compute the logits anew from q and k, and the probabilities from the forward's lse.

Tensors are (batch, heads, sequence, dim) by their strides, which come divided by ``KIND.unit``; the last stride is 1. A
batch of sequences of different lengths is one batch entry, and ``cu_rows`` and ``cu_keys`` say where each one starts.
"""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from amdwarp.jit import jit

from .rules import LOG2E, REACH, keys_of_rows, tanh, visible

SCALARS = [
    f"{name}_{stride}"
    for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
    for stride in ("batch", "head", "row")
] + [f"lse_{stride}" for stride in ("batch", "head")]
SCALARS += [f"bias_{stride}" for stride in ("batch", "head", "row", "key")] + ["alibi_batch", "alibi_head"]
SCALARS += ["dbias_batch", "dbias_head", "dbias_row", "rows", "keys", "group", "left", "right", "parts", "blocks"]


@triton.jit
def tile_at(base, first, end, stride, ROWS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Rows first … first + ROWS - 1 of a (sequence, dim) matrix of `end` rows, not 0; zeros behind DIM.

    Behind the end the last row stands again, and whoever takes the tile must not let it count: a mask would put a
    select, and with it a wait, right behind each load.
    """
    first = min(first, end - 1)
    row = tl.minimum(tl.arange(0, ROWS), end - 1 - first)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = base + tl.cast(first, tl.int64) * stride + (row * stride + column)
    if DIM < BLOCK:
        tile = tl.load(at, mask=column < DIM, other=0.0)
    else:
        tile = tl.load(at)
    return tile


@triton.jit
def store_tile(base, first, end, stride, values, ROWS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """The reverse of `tile_at`, rounded to the type of the matrix."""
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = base + tl.cast(first, tl.int64) * stride + row * stride + column
    inside = row < end - first
    if DIM < BLOCK:
        inside = inside & (column < DIM)
    tl.store(at, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def probability(
    raw, lse, position, key, keys, scale, softcap, left, right, slope, bias, KIND: tl.constexpr, MASKED: tl.constexpr
):
    """exp(logit - lse) of q . k, and what the gradient of the logit is multiplied by on its way through the softcap.

    `lse` is in base 2 and infinite for rows that are to give zero. MASKED: some of these keys may be out of sight.
    """
    slack = 1.0
    if KIND.plain:
        logit = raw * (scale * LOG2E)
    else:
        logit = raw * scale
        if KIND.softcap:
            capped = tanh(logit * (1.0 / softcap))
            logit = capped * softcap
            slack = 1.0 - capped * capped
        if KIND.alibi:
            logit -= slope * tl.abs(position - key).to(tl.float32)
        if KIND.bias:
            logit += bias
        logit *= LOG2E
    p = tl.exp2(logit - lse)
    if MASKED:
        p = tl.where(visible(position, key, left, right, KIND.left, KIND.right) & (key < keys), p, 0.0)
    return p, slack


@triton.jit
def base2_of(lse):
    """The forward's lse in base 2; +inf, which makes a row zero, where it sees nothing (-inf), or only what a bias
    hides: of a sum so far below `-REACH` fp32 has lost how many keys share it.
    """
    return tl.where(lse * LOG2E <= -REACH, float("inf"), lse * LOG2E)


@triton.jit
def sequence(cu_rows_ptr, cu_keys_ptr, rows, keys, index, KIND: tl.constexpr):
    """Batch entry, first row, first key, rows and keys of a sequence."""
    batch = index
    first_row = 0
    first_key = 0
    if KIND.varlen:
        batch = 0
        first_row = tl.load(cu_rows_ptr + index).to(tl.int32)
        first_key = tl.load(cu_keys_ptr + index).to(tl.int32)
        rows = tl.load(cu_rows_ptr + index + 1).to(tl.int32) - first_row
        keys = tl.load(cu_keys_ptr + index + 1).to(tl.int32) - first_key
    return tl.cast(batch, tl.int64), first_row, first_key, rows, keys


@jit
@triton.jit(do_not_specialize=SCALARS)
def backward_rows_sum(
    out_ptr, dout_ptr, lse_ptr, dlse_ptr, sinks_ptr, delta_ptr, dsinks_ptr,
    out_batch, out_head, out_row, dout_batch, dout_head, dout_row, lse_batch, lse_head, rows, parts,
    KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """delta = dout . out - dlse of a block of rows; with sinks, this block's part of their gradient too.

    lse, dlse and delta have the same strides. dsinks: (heads, parts) fp32, a part for each block of rows and each
    batch.
    """
    ROWS: tl.constexpr = TILE.sum_rows
    UNIT: tl.constexpr = KIND.unit
    block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    wide_head, wide_batch = tl.cast(head, tl.int64), tl.cast(batch, tl.int64)
    out = out_ptr + (wide_batch * out_batch + wide_head * out_head) * UNIT
    dout = dout_ptr + (wide_batch * dout_batch + wide_head * dout_head) * UNIT
    first = block * ROWS
    row = first + tl.arange(0, ROWS)
    inside = row < rows
    at = wide_batch * lse_batch + wide_head * lse_head + row
    o = tile_at(out, first, rows, out_row * UNIT, ROWS, TILE.dim_v, TILE.block_v).to(tl.float32)
    do = tile_at(dout, first, rows, dout_row * UNIT, ROWS, TILE.dim_v, TILE.block_v).to(tl.float32)
    delta = tl.sum(o * do, 1)
    if dlse_ptr is not None:
        delta -= tl.load(dlse_ptr + at, mask=inside, other=0.0)
    tl.store(delta_ptr + at, delta, mask=inside)
    if sinks_ptr is not None:
        lse = tl.load(lse_ptr + at, mask=inside, other=float("-inf"))
        sink = tl.load(sinks_ptr + head).to(tl.float32)
        # a sink beyond base 2 is the lse of its rows
        p_sink = tl.exp2(sink * LOG2E - base2_of(lse))
        p_sink = tl.where(sink * LOG2E == float("inf"), (lse == sink).to(tl.float32), p_sink)
        part = -tl.sum(p_sink * delta, 0)
        tl.store(dsinks_ptr + head * parts + batch * tl.num_programs(0) + block, part)


@jit
@triton.jit(do_not_specialize=SCALARS)
def backward_sinks(parts_ptr, dsinks_ptr, parts, BLOCK: tl.constexpr):
    """The sum of one head's parts of the sink gradient, in a fixed order."""
    head = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, parts, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(parts_ptr + head * parts + at, mask=at < parts, other=0.0)
    tl.store(dsinks_ptr + head, tl.sum(total, 0))


@triton.jit
def load_rows(q_base, dout_base, lse_base, delta_base, first, rows, q_row, dout_row, TILE: tl.constexpr):
    """What is loaded of one block of rows: q, dout, lse and delta, each with its last row again behind the last one."""
    row = tl.minimum(first + tl.arange(0, TILE.rows), rows - 1)
    q = tile_at(q_base, first, rows, q_row, TILE.rows, TILE.dim, TILE.block)
    do = tile_at(dout_base, first, rows, dout_row, TILE.rows, TILE.dim_v, TILE.block_v)
    lse = tl.load(lse_base + row)
    delta = tl.load(delta_base + row)
    return q, do, lse, delta


@triton.jit
def rows_to_keys(
    dk, dv, q, do, lse, delta, k, v, q_base, dout_base, lse_base, delta_base, bias_base, first, first_key, rows, keys,
    shift, q_row, dout_row, bias_row, bias_key, scale, softcap, left, right, slope,
    KIND: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What one block of rows adds to dk and dv of one block of keys; all of it transposed, keys by rows.

    The next block of rows is loaded first, so that its way from memory is covered by this one's work: stock software
    pipelining leaves out lse and delta, whose loads no matrix product takes, and waits for them in each turn.
    """
    ROWS: tl.constexpr = TILE.rows
    next_q, next_do, next_lse, next_delta = load_rows(
        q_base, dout_base, lse_base, delta_base, first + ROWS, rows, q_row, dout_row, TILE
    )
    row = first + tl.arange(0, ROWS)
    key = (first_key + tl.arange(0, TILE.keys))[:, None]
    bias = 0.0
    if KIND.bias:
        at = bias_base + tl.cast(first, tl.int64) * bias_row + tl.cast(first_key, tl.int64) * bias_key
        at += tl.arange(0, ROWS)[None, :] * bias_row + tl.arange(0, TILE.keys)[:, None] * bias_key
        bias = tl.load(at, mask=(row < rows)[None, :] & (key < keys), other=0.0).to(tl.float32)
    lse = tl.where(row < rows, base2_of(lse), float("inf"))
    raw = tl.dot(k, tl.trans(q))
    p, slack = probability(
        raw, lse[None, :], row[None, :] + shift, key, keys, scale, softcap, left, right, slope, bias, KIND,
        MASKED,
    )  # fmt: skip
    dv = tl.dot(p.to(do.dtype), do, dv)
    dp = tl.dot(v, tl.trans(do))
    ds = p * (dp - delta[None, :]) * slack
    dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv, next_q, next_do, next_lse, next_delta


@jit
@triton.jit(do_not_specialize=SCALARS)
def backward_keys(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, alibi_ptr, bias_ptr, cu_rows_ptr, cu_keys_ptr, dk_ptr, dv_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, dout_batch, dout_head, dout_row,
    dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row, lse_batch, lse_head, alibi_batch, alibi_head,
    bias_batch, bias_head, bias_row, bias_key, rows, keys, group, left, right, scale, softcap,
    KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """dk and dv of one block of keys of one key head."""
    UNIT: tl.constexpr = KIND.unit
    ROWS: tl.constexpr = TILE.rows
    MASKS: tl.constexpr = KIND.left or KIND.right
    block, head, index = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, row0, key0, rows, keys = sequence(cu_rows_ptr, cu_keys_ptr, rows, keys, index, KIND)
    first_key = block * TILE.keys
    if first_key >= keys:
        return
    shift = keys - rows
    wide = tl.cast(head, tl.int64)
    k_base = k_ptr + (batch * k_batch + wide * k_head + tl.cast(key0, tl.int64) * k_row) * UNIT
    v_base = v_ptr + (batch * v_batch + wide * v_head + tl.cast(key0, tl.int64) * v_row) * UNIT
    dk_base = dk_ptr + (batch * dk_batch + wide * dk_head + tl.cast(key0, tl.int64) * dk_row) * UNIT
    dv_base = dv_ptr + (batch * dv_batch + wide * dv_head + tl.cast(key0, tl.int64) * dv_row) * UNIT
    dk = tl.zeros((TILE.keys, TILE.block), tl.float32)
    dv = tl.zeros((TILE.keys, TILE.block_v), tl.float32)
    if rows <= 0:
        store_tile(dk_base, first_key, keys, dk_row * UNIT, dk, TILE.keys, TILE.dim, TILE.block)
        store_tile(dv_base, first_key, keys, dv_row * UNIT, dv, TILE.keys, TILE.dim_v, TILE.block_v)
        return
    k = tile_at(k_base, first_key, keys, k_row * UNIT, TILE.keys, TILE.dim, TILE.block)
    v = tile_at(v_base, first_key, keys, v_row * UNIT, TILE.keys, TILE.dim_v, TILE.block_v)
    # The rows that see a key are those that the same rule gives with rows and keys, left and right exchanged. Keys
    # behind the last one give rows of dk and dv that are not stored, so they need no mask.
    begin, end, begin_all, end_all = keys_of_rows(
        first_key, TILE.keys, -shift, rows, right, left, KIND.right, KIND.left
    )
    begin = begin // ROWS
    begin_all = tl.cdiv(begin_all, ROWS)
    end = tl.cdiv(end, ROWS)
    # a ragged block of rows is no matter either, and may count as seen by all
    end_all = end if end_all == rows else end_all // ROWS
    end_all = max(end_all, begin_all)
    begin_all = min(begin_all, end)
    end_all = min(end_all, end)
    for query_head in range(head * group, head * group + group):
        wide_query = tl.cast(query_head, tl.int64)
        q_base = q_ptr + (batch * q_batch + wide_query * q_head + tl.cast(row0, tl.int64) * q_row) * UNIT
        dout_base = dout_ptr + (batch * dout_batch + wide_query * dout_head + tl.cast(row0, tl.int64) * dout_row) * UNIT
        lse_base = lse_ptr + batch * lse_batch + wide_query * lse_head + row0
        delta_base = delta_ptr + batch * lse_batch + wide_query * lse_head + row0
        slope = 0.0
        if KIND.alibi:
            slope = tl.load(alibi_ptr + index * alibi_batch + query_head * alibi_head).to(tl.float32)
        bias_base = bias_ptr
        if KIND.bias:
            bias_base = bias_ptr + batch * bias_batch + wide_query * bias_head
        q, do, lse, delta = load_rows(
            q_base, dout_base, lse_base, delta_base, begin * ROWS, rows, q_row * UNIT, dout_row * UNIT, TILE
        )
        if MASKS:
            for at in range(begin, begin_all):
                dk, dv, q, do, lse, delta = rows_to_keys(
                    dk, dv, q, do, lse, delta, k, v, q_base, dout_base, lse_base, delta_base, bias_base, at * ROWS,
                    first_key, rows, keys, shift, q_row * UNIT, dout_row * UNIT, bias_row, bias_key, scale, softcap,
                    left, right, slope, KIND, TILE, True,
                )  # fmt: skip
        for at in range(begin_all, end_all):
            dk, dv, q, do, lse, delta = rows_to_keys(
                dk, dv, q, do, lse, delta, k, v, q_base, dout_base, lse_base, delta_base, bias_base, at * ROWS,
                first_key, rows, keys, shift, q_row * UNIT, dout_row * UNIT, bias_row, bias_key, scale, softcap,
                left, right, slope, KIND, TILE, False,
            )  # fmt: skip
        if KIND.left:
            for at in range(end_all, end):
                dk, dv, q, do, lse, delta = rows_to_keys(
                    dk, dv, q, do, lse, delta, k, v, q_base, dout_base, lse_base, delta_base, bias_base, at * ROWS,
                    first_key, rows, keys, shift, q_row * UNIT, dout_row * UNIT, bias_row, bias_key, scale, softcap,
                    left, right, slope, KIND, TILE, True,
                )  # fmt: skip
    store_tile(dk_base, first_key, keys, dk_row * UNIT, dk * scale, TILE.keys, TILE.dim, TILE.block)
    store_tile(dv_base, first_key, keys, dv_row * UNIT, dv, TILE.keys, TILE.dim_v, TILE.block_v)


@triton.jit
def keys_to_rows(
    dq, q, do, lse, delta, k_base, v_base, bias_base, dbias_base, first, first_row, rows, keys, shift,
    k_row, v_row, bias_row, bias_key, dbias_row, scale, softcap, left, right, slope,
    KIND: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What one block of keys adds to dq of one block of rows; its part of dbias is stored."""
    KEYS: tl.constexpr = TILE.keys
    row = (first_row + tl.arange(0, TILE.rows))[:, None]
    key = (first + tl.arange(0, KEYS))[None, :]
    k = tile_at(k_base, first, keys, k_row, KEYS, TILE.dim, TILE.block)
    v = tile_at(v_base, first, keys, v_row, KEYS, TILE.dim_v, TILE.block_v)
    bias = 0.0
    if KIND.bias:
        at = bias_base + tl.cast(first_row, tl.int64) * bias_row + tl.cast(first, tl.int64) * bias_key
        at += tl.arange(0, TILE.rows)[:, None] * bias_row + tl.arange(0, KEYS)[None, :] * bias_key
        bias = tl.load(at, mask=(row < rows) & (key < keys), other=0.0).to(tl.float32)
    raw = tl.dot(q, tl.trans(k))
    p, slack = probability(
        raw, lse[:, None], row + shift, key, keys, scale, softcap, left, right, slope, bias, KIND, MASKED
    )
    dp = tl.dot(do, tl.trans(v))
    ds = p * (dp - delta[:, None])
    if KIND.dbias:
        at = dbias_base + tl.cast(first_row, tl.int64) * dbias_row + tl.arange(0, TILE.rows)[:, None] * dbias_row
        tl.store(at + key, ds, mask=(row < rows) & (key < keys))
    return tl.dot((ds * slack).to(k.dtype), k, dq)


@jit
@triton.jit(do_not_specialize=SCALARS)
def backward_rows(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, alibi_ptr, bias_ptr, cu_rows_ptr, cu_keys_ptr, dq_ptr, dbias_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, dout_batch, dout_head, dout_row,
    dq_batch, dq_head, dq_row, lse_batch, lse_head, alibi_batch, alibi_head,
    bias_batch, bias_head, bias_row, bias_key, dbias_batch, dbias_head, dbias_row,
    rows, keys, group, left, right, scale, softcap,
    KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """dq of one block of rows of one query head."""
    UNIT: tl.constexpr = KIND.unit
    KEYS: tl.constexpr = TILE.keys
    block, head, index = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if KIND.right:
        block = tl.num_programs(0) - 1 - block  # the last rows see the most keys: they start first
    batch, row0, key0, rows, keys = sequence(cu_rows_ptr, cu_keys_ptr, rows, keys, index, KIND)
    first_row = block * TILE.rows
    if first_row >= rows:
        return
    shift = keys - rows
    wide, key_head = tl.cast(head, tl.int64), tl.cast(head // group, tl.int64)
    q_base = q_ptr + (batch * q_batch + wide * q_head + tl.cast(row0, tl.int64) * q_row) * UNIT
    dout_base = dout_ptr + (batch * dout_batch + wide * dout_head + tl.cast(row0, tl.int64) * dout_row) * UNIT
    k_base = k_ptr + (batch * k_batch + key_head * k_head + tl.cast(key0, tl.int64) * k_row) * UNIT
    v_base = v_ptr + (batch * v_batch + key_head * v_head + tl.cast(key0, tl.int64) * v_row) * UNIT
    row = first_row + tl.arange(0, TILE.rows)
    at_lse = batch * lse_batch + wide * lse_head + row0
    q = tile_at(q_base, first_row, rows, q_row * UNIT, TILE.rows, TILE.dim, TILE.block)
    do = tile_at(dout_base, first_row, rows, dout_row * UNIT, TILE.rows, TILE.dim_v, TILE.block_v)
    lse = base2_of(tl.load(lse_ptr + at_lse + row, mask=row < rows, other=float("-inf")))
    delta = tl.load(delta_ptr + at_lse + row, mask=row < rows, other=0.0)
    slope = 0.0
    if KIND.alibi:
        slope = tl.load(alibi_ptr + index * alibi_batch + head * alibi_head).to(tl.float32)
    bias_base = bias_ptr
    dbias_base = dbias_ptr
    if KIND.bias:
        bias_base = bias_ptr + batch * bias_batch + wide * bias_head
    if KIND.dbias:
        dbias_base = dbias_ptr + batch * dbias_batch + wide * dbias_head
    begin, end, begin_all, end_all = keys_of_rows(first_row, TILE.rows, shift, keys, left, right, KIND.left, KIND.right)
    begin = begin // KEYS
    begin_all = tl.cdiv(begin_all, KEYS)
    end = tl.cdiv(end, KEYS)
    end_all = max(end_all // KEYS, begin_all)  # a ragged block of keys has to be masked
    begin_all = min(begin_all, end)
    end_all = min(end_all, end)
    dq = tl.zeros((TILE.rows, TILE.block), tl.float32)
    if KIND.left:
        for at in range(begin, begin_all):
            dq = keys_to_rows(
                dq, q, do, lse, delta, k_base, v_base, bias_base, dbias_base, at * KEYS, first_row, rows, keys, shift,
                k_row * UNIT, v_row * UNIT, bias_row, bias_key, dbias_row, scale, softcap, left, right, slope,
                KIND, TILE, True,
            )  # fmt: skip
    for at in range(begin_all, end_all):
        dq = keys_to_rows(
            dq, q, do, lse, delta, k_base, v_base, bias_base, dbias_base, at * KEYS, first_row, rows, keys, shift,
            k_row * UNIT, v_row * UNIT, bias_row, bias_key, dbias_row, scale, softcap, left, right, slope,
            KIND, TILE, False,
        )  # fmt: skip
    for at in range(end_all, end):
        dq = keys_to_rows(
            dq, q, do, lse, delta, k_base, v_base, bias_base, dbias_base, at * KEYS, first_row, rows, keys, shift,
            k_row * UNIT, v_row * UNIT, bias_row, bias_key, dbias_row, scale, softcap, left, right, slope,
            KIND, TILE, True,
        )  # fmt: skip
    dq_base = dq_ptr + (batch * dq_batch + wide * dq_head + tl.cast(row0, tl.int64) * dq_row) * UNIT
    store_tile(dq_base, first_row, rows, dq_row * UNIT, dq * scale, TILE.rows, TILE.dim, TILE.block)
