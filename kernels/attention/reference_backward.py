"""Gradients of attention in float64, written out and readable; the meaning of every option is stated in `options`.

With p = softmax(s) and dp = dout . v of one row and key:

    ds = p * (dp - delta),  delta = sum_key p * dp - dlse = dout . out - dlse     (dlse: gradient of lse, usually none)
    dsink = -sum_row p_sink * delta,  p_sink = exp(sink - lse)

and ds goes back through bias, ALiBi, softcap and scale to q and k. Rows that see nothing pass nothing on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .options import AttentionOptions
from .reference import FP32, ROUNDING, Array, logit_error, logits, probabilities
from .reference import tolerance as forward_tolerance


@dataclass(frozen=True)
class Gradients:
    """Gradients by what they belong to, each of its shape; None where there was no such input.

    Attributes:
        q, k, v, sinks, bias: float64 in the reference.
    """

    q: Any
    k: Any
    v: Any
    sinks: Any = None
    bias: Any = None


def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    options: AttentionOptions | None = None,
    *,
    sinks: Any = None,
    alibi: Any = None,
    bias: Any = None,
    dlse: Any = None,
) -> Gradients:
    """Gradients of `reference.attention`, whose output and lse are computed anew.

    Args:
        dout: (batch, query heads, rows, dim of v) gradient of the output.
        q, k, v, options, sinks, alibi, bias: as `reference.attention` takes them.
        dlse: (batch, query heads, rows) gradient of lse; None for none. In rows whose lse is -inf it must be 0.
    """
    options = options or AttentionOptions()
    dout, q, k, v = (np.asarray(one).astype(np.float64) for one in (dout, q, k, v))
    heads, group = k.shape[1], q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    p, lse = probabilities(logits(q, k, options, alibi=alibi, bias=bias), sinks)
    dp = dout @ values.swapaxes(2, 3)
    delta = (p * dp).sum(axis=3) - (0.0 if dlse is None else np.asarray(dlse).astype(np.float64))
    ds = p * (dp - delta[..., None])
    dvalues = p.swapaxes(2, 3) @ dout
    dsinks = None
    if sinks is not None:
        p_sink = _sink_probabilities(sinks, lse)
        dsinks = -(p_sink * delta).sum(axis=(0, 2))
    dbias = None if bias is None else _sum_to(ds, np.shape(bias))
    scale = options.scale_of(q.shape[3])
    if options.softcap is not None:
        ds = ds * (1.0 - np.tanh(scale * (q @ keys.swapaxes(2, 3)) / options.softcap) ** 2)
    dq = scale * (ds @ keys)
    dkeys = scale * (ds.swapaxes(2, 3) @ q)
    return Gradients(dq, _sum_groups(dkeys, heads), _sum_groups(dvalues, heads), dsinks, dbias)


def varlen_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    cu_rows: Any,
    cu_keys: Any,
    options: AttentionOptions | None = None,
    *,
    sinks: Any = None,
    alibi: Any = None,
    dlse: Any = None,
) -> Gradients:
    """Gradients of `reference.varlen_attention`; zeros in rows and keys that belong to no sequence.

    Args:
        dout: (rows of all, query heads, dim of v) gradient of the output.
        q, k, v, cu_rows, cu_keys, options, sinks, alibi: as `reference.varlen_attention` takes them.
        dlse: (query heads, rows of all) gradient of lse; None for none.
    """
    sequences = len(cu_rows) - 1
    dq, dk, dv = (np.zeros(one.shape) for one in (q, k, v))
    dsinks = None if sinks is None else np.zeros(q.shape[1])
    for one in range(sequences):
        rows, keys = slice(cu_rows[one], cu_rows[one + 1]), slice(cu_keys[one], cu_keys[one + 1])
        slopes = None if alibi is None else np.broadcast_to(alibi, (sequences, q.shape[1]))[one]
        of_out, query, key, value = (part.swapaxes(0, 1)[None] for part in (dout[rows], q[rows], k[keys], v[keys]))
        of_lse = None if dlse is None else np.asarray(dlse)[None, :, rows]
        part = attention_backward(of_out, query, key, value, options, sinks=sinks, alibi=slopes, dlse=of_lse)
        dq[rows], dk[keys], dv[keys] = (grad[0].swapaxes(0, 1) for grad in (part.q, part.k, part.v))
        if dsinks is not None:
            dsinks += part.sinks
    return Gradients(dq, dk, dv, dsinks)


def _sink_probabilities(sinks: Any, lse: Array) -> Array:
    """(batch, query heads, rows): the weight of each row's sink, all of it where the sink is infinite."""
    sink = np.asarray(sinks).astype(np.float64)[None, :, None]
    everything = np.isposinf(sink)
    return np.where(everything, 1.0, np.exp(np.where(everything, 0.0, sink) - np.where(everything, 0.0, lse)))


def _sum_groups(gradient: Array, heads: int) -> Array:
    """(batch, query heads, …) summed over the query heads that read one key head."""
    batch, query_heads, *rest = gradient.shape
    return gradient.reshape(batch, heads, query_heads // heads, *rest).sum(axis=2)


def _sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Summed over the axes along which `shape` was broadcast."""
    extra = gradient.ndim - len(shape)
    gradient = gradient.sum(axis=tuple(range(extra)))
    wide = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return gradient.sum(axis=wide, keepdims=True)


def tolerance(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    options: AttentionOptions | None = None,
    *,
    sinks: Any = None,
    alibi: Any = None,
    bias: Any = None,
    dlse: Any = None,
) -> Gradients:
    """How far correct kernels' gradients may be from `attention_backward`, element by element.

    They start from an out and lse within `reference.tolerance`. A probability errs by the fraction by which its logit
    and lse may be moved; dp and delta by fp32 sums, and delta by what out errs; probabilities and ds are rounded to the
    type of q before they meet dout, q and k; sums are fp32; the results are rounded once, those of sinks and bias not
    at all. Every bound is a sum of magnitudes, so errors that cancel stay far inside of it.

    Args:
        dout, q, k, v, options, sinks, alibi, bias, dlse: as `attention_backward` takes them.

    Returns:
        bounds of the absolute error, float64.
    """
    options = options or AttentionOptions()
    relative, absolute = ROUNDING[str(q.dtype)]
    extras = {"sinks": sinks, "alibi": alibi, "bias": bias}
    out_error, lse_error = forward_tolerance(q, k, v, options, out_dtype=str(q.dtype), **extras)
    s = logits(q, k, options, alibi=alibi, bias=bias)
    p, lse = probabilities(s, sinks)
    moved = logit_error(q, k, s, options)
    heads, group = k.shape[1], q.shape[1] // k.shape[1]
    dout, q, k, v = (np.asarray(one).astype(np.float64) for one in (dout, q, k, v))
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    rows_summed, keys_summed = q.shape[2] * group + 16, keys.shape[2] + 16
    of_lse = np.zeros(lse.shape) if dlse is None else np.abs(np.asarray(dlse).astype(np.float64))

    p_error = p * (moved + lse_error[..., None] + 8 * FP32)
    dp = dout @ values.swapaxes(2, 3)
    dp_error = (v.shape[3] + 8) * FP32 * (np.abs(dout) @ np.abs(values).swapaxes(2, 3))
    delta = (p * dp).sum(axis=3) - (0.0 if dlse is None else np.asarray(dlse).astype(np.float64))
    delta_error = (np.abs(dout) * (out_error + (v.shape[3] + 8) * FP32 * np.abs(p @ values))).sum(axis=3)
    delta_error += 4 * FP32 * (np.abs(delta) + of_lse)
    ds = np.abs(p * (dp - delta[..., None]))
    ds_error = p_error * np.abs(dp - delta[..., None]) + p * (dp_error + delta_error[..., None]) + 4 * FP32 * ds
    bias_error = None if bias is None else _sum_to(ds_error + keys_summed * FP32 * ds, np.shape(bias))
    if options.softcap is not None:
        tanh = np.tanh(options.scale_of(q.shape[3]) * (q @ keys.swapaxes(2, 3)) / options.softcap)
        slack, slack_error = 1.0 - tanh**2, 2 * moved / options.softcap + 16 * FP32
        ds, ds_error = ds * slack, ds_error * slack + ds * slack_error
    ds_error = ds_error + relative * (ds + ds_error) + np.where(p > 0, absolute, 0.0)
    p_error = p_error + relative * (p + p_error) + np.where(p > 0, absolute, 0.0)

    scale = options.scale_of(q.shape[3])
    q_error = scale * ((ds_error + keys_summed * FP32 * ds) @ np.abs(keys))
    k_error = scale * ((ds_error + rows_summed * FP32 * ds).swapaxes(2, 3) @ np.abs(q))
    v_error = (p_error + rows_summed * FP32 * p).swapaxes(2, 3) @ np.abs(dout)
    q_size, k_size, v_size = scale * (ds @ np.abs(keys)), scale * (ds.swapaxes(2, 3) @ np.abs(q)), p.swapaxes(2, 3)
    v_size = v_size @ np.abs(dout)
    bounds = []
    for error, size in ((q_error, q_size), (k_error, k_size), (v_error, v_size)):
        bounds.append(error + relative * (size + error) + absolute)
    sink_error = None
    if sinks is not None:
        sink = np.asarray(sinks).astype(np.float64)[None, :, None]
        p_sink = _sink_probabilities(sinks, lse)
        size = np.where(np.isfinite(lse) & np.isfinite(sink), np.abs(sink) + np.abs(lse), 0.0)
        moved_sink = lse_error + 8 * FP32 * (size + 1)
        of_rows = p_sink * (delta_error + np.abs(delta) * (moved_sink + (lse.shape[0] * lse.shape[2] + 16) * FP32))
        sink_error = of_rows.sum(axis=(0, 2)) + absolute
    return Gradients(bounds[0], _sum_groups(bounds[1], heads), _sum_groups(bounds[2], heads), sink_error, bias_error)
