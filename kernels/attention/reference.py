"""What attention must compute, in float64 and readable; the meaning of every option is stated in `options`.

Arrays are numpy arrays of any float dtype (bf16 and fp8 of ``ml_dtypes``); results are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .options import AttentionOptions

Array = np.ndarray[Any, Any]


def visible(options: AttentionOptions, rows: int, keys: int) -> Array:
    """(rows, keys) bool: which key each row sees by causal mask and window, both aligned bottom-right."""
    left, right = options.reach
    position = np.arange(rows)[:, None] + (keys - rows)
    key = np.arange(keys)[None, :]
    seen = np.ones((rows, keys), bool)
    if left is not None:
        seen &= key >= position - left
    if right is not None:
        seen &= key <= position + right
    return seen


def logits(q: Array, k: Array, options: AttentionOptions, *, alibi: Any = None, bias: Any = None) -> Array:
    """(batch, query heads, rows, keys): what the softmax is taken of, -inf where a key is not visible.

    Args:
        q: (batch, query heads, rows, dim).
        k: (batch, key heads, keys, dim).
        options: what to compute.
        alibi: slopes, (query heads,) or (batch, query heads).
        bias: broadcasts to the result.
    """
    q, k = np.asarray(q).astype(np.float64), np.asarray(k).astype(np.float64)
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    rows, keys = q.shape[2], k.shape[2]
    s = options.scale_of(q.shape[3]) * (q @ k.swapaxes(2, 3))
    if options.softcap is not None:
        s = options.softcap * np.tanh(s / options.softcap)
    if alibi is not None:
        slopes = np.broadcast_to(np.asarray(alibi).astype(np.float64), s.shape[:2])
        position = np.arange(rows)[:, None] + (keys - rows)
        s = s - slopes[:, :, None, None] * np.abs(position - np.arange(keys)[None, :])
    if bias is not None:
        s = s + np.asarray(bias).astype(np.float64)
    return np.where(visible(options, rows, keys), s, -np.inf)


def probabilities(s: Array, sinks: Any = None) -> tuple[Array, Array]:
    """Softmax of the last axis and its natural log-sum-exp; both as `options` says for rows that see nothing.

    Args:
        s: (batch, query heads, rows, keys) logits.
        sinks: (query heads,) one more logit of each head.

    Returns:
        (batch, query heads, rows, keys) probabilities, and (batch, query heads, rows) lse.
    """
    with_sink, takes_all = s, np.zeros((1, 1, 1, 1), bool)
    if sinks is not None:
        sink = np.asarray(sinks).astype(np.float64)[None, :, None, None]
        takes_all = np.isposinf(sink)
        column = np.broadcast_to(np.where(takes_all, 0.0, sink), (*s.shape[:3], 1))
        with_sink = np.concatenate([s, column], axis=3)
    top = np.max(with_sink, axis=3, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0.0, top)
    total = np.exp(with_sink - top).sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    p = np.exp(s - top) / np.where(total == 0, 1.0, total)
    return np.where(takes_all, 0.0, p), np.where(takes_all[..., 0], np.inf, lse)


def attention(
    q: Array,
    k: Array,
    v: Array,
    options: AttentionOptions | None = None,
    *,
    sinks: Any = None,
    alibi: Any = None,
    bias: Any = None,
) -> tuple[Array, Array]:
    """Attention of a batch of equally long sequences.

    Args:
        q: (batch, query heads, rows, dim).
        k: (batch, key heads, keys, dim).
        v: (batch, key heads, keys, dim of v).
        options: what to compute; plain softmax attention by default.
        sinks, alibi, bias: as in `options`.

    Returns:
        out (batch, query heads, rows, dim of v) and lse (batch, query heads, rows), float64.
    """
    s = logits(q, k, options or AttentionOptions(), alibi=alibi, bias=bias)
    p, lse = probabilities(s, sinks)
    v = np.repeat(np.asarray(v).astype(np.float64), q.shape[1] // v.shape[1], axis=1)
    return p @ v, lse


def varlen_attention(
    q: Array,
    k: Array,
    v: Array,
    cu_rows: Any,
    cu_keys: Any,
    options: AttentionOptions | None = None,
    *,
    sinks: Any = None,
    alibi: Any = None,
) -> tuple[Array, Array]:
    """Attention of sequences that stand one behind the other.

    Args:
        q: (rows of all, query heads, dim).
        k: (keys of all, key heads, dim).
        v: (keys of all, key heads, dim of v).
        cu_rows, cu_keys: (sequences + 1,) integers: where each sequence starts, and where the last one ends.
        options: what to compute, in each sequence for itself.
        sinks: as in `options`.
        alibi: (query heads,) or (sequences, query heads).

    Returns:
        out (rows of all, query heads, dim of v) and lse (query heads, rows of all), float64; zeros and -inf in rows
        that belong to no sequence.
    """
    out = np.zeros((*q.shape[:2], v.shape[2]))
    lse = np.full((q.shape[1], q.shape[0]), -np.inf)
    for one in range(len(cu_rows) - 1):
        rows, keys = slice(cu_rows[one], cu_rows[one + 1]), slice(cu_keys[one], cu_keys[one + 1])
        slopes = None if alibi is None else np.broadcast_to(alibi, (len(cu_rows) - 1, q.shape[1]))[one]
        one_q, one_k, one_v = (part.swapaxes(0, 1)[None] for part in (q[rows], k[keys], v[keys]))
        o, some = attention(one_q, one_k, one_v, options, sinks=sinks, alibi=slopes)
        out[rows], lse[:, rows] = o[0].swapaxes(0, 1), some[0]
    return out, lse


def gather_pages(cache: Array, table: Array, length: int) -> Array:
    """The first `length` rows of one sequence in a paged cache.

    Args:
        cache: (pages, page size, heads, dim).
        table: (pages of the sequence,) which pages, in order.
        length: rows of the sequence.

    Returns:
        (length, heads, dim).
    """
    size = cache.shape[1]
    return np.concatenate([cache[:0, 0], *(cache[page] for page in table[: -(-length // size)])])[:length]


def paged_attention(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    block_table: Array,
    lengths: Any,
    options: AttentionOptions | None = None,
    *,
    sinks: Any = None,
    alibi: Any = None,
) -> tuple[Array, Array]:
    """Attention of the newest tokens of each sequence to its keys in a paged cache, their own among them.

    Args:
        q: (batch, rows, query heads, dim).
        k_cache: (pages, page size, key heads, dim).
        v_cache: (pages, page size, key heads, dim of v).
        block_table: (batch, most pages of a sequence) integers: page of the cache.
        lengths: (batch,) keys of each sequence; what lies beyond in its last page has no meaning.
        options: what to compute.
        sinks: as in `options`.
        alibi: (query heads,) or (batch, query heads).

    Returns:
        out (batch, rows, query heads, dim of v) and lse (batch, query heads, rows), float64.
    """
    out = np.zeros((*q.shape[:3], v_cache.shape[3]))
    lse = np.zeros((q.shape[0], q.shape[2], q.shape[1]))
    for one, length in enumerate(lengths):
        keys, values = (gather_pages(cache, block_table[one], length) for cache in (k_cache, v_cache))
        slopes = None if alibi is None else np.broadcast_to(alibi, (q.shape[0], q.shape[2]))[one]
        one_q, one_k, one_v = (part.swapaxes(0, 1)[None] for part in (q[one], keys, values))
        o, some = attention(one_q, one_k, one_v, options, sinks=sinks, alibi=slopes)
        out[one], lse[one] = o[0].swapaxes(0, 1), some[0]
    return out, lse


#: Element type -> largest relative and absolute error of rounding a number of at most 1 to it; fp8 as the kernels keep
#: probabilities, times 2**7.
ROUNDING = {
    "float16": (2.0**-11, 2.0**-25),
    "bfloat16": (2.0**-8, 2.0**-134),
    "float8_e4m3fn": (2.0**-4, 2.0**-17),
    "float8_e4m3fnuz": (2.0**-4, 2.0**-18),
    "float8_e5m2": (2.0**-3, 2.0**-24),
    "float8_e5m2fnuz": (2.0**-3, 2.0**-25),
}
FP32 = 2.0**-24


def logit_error(q: Array, k: Array, s: Array, options: AttentionOptions) -> Array:
    """How far fp32 may move each logit: sums of dim products and the few operations that follow; 0 if not visible.

    Args:
        q, k, options: as `logits` takes them.
        s: what it returned.
    """
    q, k = (np.abs(np.asarray(x).astype(np.float64)) for x in (q, k))
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    magnitude = options.scale_of(q.shape[3]) * (q @ k.swapaxes(2, 3))
    seen = np.isfinite(s)
    size = np.where(seen, np.abs(np.where(seen, s, 0.0)), 0.0)
    moved = ((q.shape[3] + 8) * magnitude + 8 * size + 8 * (options.softcap or 0.0) + 8) * FP32
    return np.where(seen, moved, 0.0)


def tolerance(
    q: Array,
    k: Array,
    v: Array,
    options: AttentionOptions | None = None,
    *,
    out_dtype: str,
    sinks: Any = None,
    alibi: Any = None,
    bias: Any = None,
) -> tuple[Array, Array]:
    """How far a correct kernel's out and lse may be from `attention`, element by element.

    A kernel errs where it rounds: sums of dim products in fp32 and the handful of fp32 operations that follow move a
    logit by `moved`, and a probability by that fraction of itself, twice, as the row's sum moves with it; probabilities
    are rounded to the type of v before they meet it; sums over keys and the running rescaling are fp32; the result is
    rounded once. Softcap's tanh is computed from one exponential, whose error the cap multiplies.

    Args:
        q, k, v, options, sinks, alibi, bias: as of `attention`.
        out_dtype: numpy name of the output's type.

    Returns:
        bounds of the absolute error, of the shapes of out and lse.
    """
    options = options or AttentionOptions()
    kind = str(v.dtype)
    s = logits(q, k, options, alibi=alibi, bias=bias)
    p, lse = probabilities(s, sinks)
    v = np.repeat(np.abs(np.asarray(v).astype(np.float64)), q.shape[1] // k.shape[1], axis=1)
    top = np.max(logit_error(q, k, s, options), axis=3, keepdims=True, initial=0.0)
    relative, absolute = ROUNDING[kind]
    keys = s.shape[3]
    weight = p @ v
    error = (relative + 2 * top + (keys + 16) * 2 * FP32) * weight + absolute * v.sum(axis=2, keepdims=True)
    out_relative, out_absolute = ROUNDING.get(out_dtype, (FP32, 2.0**-149))
    error = error * (1 + out_relative) + out_relative * np.abs(weight) + out_absolute
    lse_size = np.where(np.isfinite(lse), np.abs(np.where(np.isfinite(lse), lse, 0.0)), 0.0)
    return error, 2 * top[..., 0] + (keys + 16 + 8 * lse_size) * FP32
