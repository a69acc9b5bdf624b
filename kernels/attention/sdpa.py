"""A drop-in for ``torch.nn.functional.scaled_dot_product_attention``.

>>> from amdwarp.kernels.attention.sdpa import scaled_dot_product_attention
>>> out = scaled_dot_product_attention(q, k, v, is_causal=True)

It means what torch's means. In particular ``is_causal`` counts from the top left: row i sees keys 0 … i, however many
keys there are, where `amdwarp.kernels.attention.attention` lets rows and keys end together. What the kernels do not do
goes to torch's own function, and the logger ``amdwarp.attention`` says why: as a warning the first time, at debug level
after.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import Any

import torch
from torch import Tensor

from amdwarp.runtime import current_emulation
from amdwarp.target import TARGETS

from .options import HEAD_DIM_MAX, HEAD_DIM_MIN, HEAD_DIM_STEP, SCALE_MAX
from .torch_ops import attention, has_tangent

logger = logging.getLogger("amdwarp.attention")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Softmax attention by torch's rules, by this package's kernels where they can.

    Args:
        query: (…, query heads, rows, dim).
        key: (…, key heads, keys, dim); as many heads as query, or with ``enable_gqa`` a divisor of them.
        value: (…, key heads, keys, dim of v).
        attn_mask: broadcasts to (…, query heads, rows, keys): bool, True where a row sees a key, or floats that are
            added to the logits and get a gradient.
        dropout_p: probability of dropping; anything but 0 goes to torch.
        is_causal: row i sees keys 0 … i.
        scale: factor of q . k; 1/sqrt(dim) by default.
        enable_gqa: key heads are shared by groups of query heads.

    Returns:
        (…, query heads, rows, dim of v), of query's dtype (autocast's, where that is on). Rows that see no key are
        zeros.
    """
    reason = _reason(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if reason:
        _log(reason)
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    rows, keys = query.shape[-2], key.shape[-2]
    window = None
    if is_causal and keys > rows:
        # no row sees a key behind the last row, and without those both alignments are one
        key, value, keys = key[..., :rows, :], value[..., :rows, :], rows
    causal = is_causal and rows == keys
    if is_causal and rows > keys:
        # row i stands at position i + keys - rows, so that key i lies rows - keys to the right of it
        window = (None, rows - keys)
    bias = attn_mask
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        bias = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -math.inf)
    leading = query.shape[:-3]
    q, k, v = (_four(one) for one in (query, key, value))
    out = attention(
        q, k, v, causal=causal, scale=scale, window=window, bias=None if bias is None else _mask(bias, leading)
    )
    return out.reshape(*query.shape[:-1], value.shape[-1])


def _four(one: Tensor) -> Tensor:
    """(batch, heads, sequence, dim) with elements of a head contiguous."""
    if one.dim() == 3:
        one = one[None]
    elif one.dim() > 4:
        one = one.reshape(-1, *one.shape[-3:])
    return one if one.stride(-1) == 1 or one.shape[-1] == 1 else one.contiguous()


def _mask(bias: Tensor, leading: Any) -> Tensor:
    """A mask of at most four dimensions, of which the first is the batch as `_four` makes it."""
    if bias.dim() <= 3 or len(leading) <= 1:
        return bias
    return bias.expand(*leading, *bias.shape[-3:]).reshape(-1, *bias.shape[-3:])


def _reason(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> str:
    """Why the kernels cannot compute it; empty if they can. What torch refuses, it gets to refuse itself."""
    tensors = [query, key, value] + ([] if attn_mask is None else [attn_mask])
    if any(not isinstance(one, Tensor) for one in tensors):
        return "query, key, value or attn_mask is no tensor"
    if has_tangent(*tensors):
        return "an argument has a tangent: forward-mode derivatives"
    return (
        _reason_of_place(tensors)
        or _reason_of_shape(query, key, value, enable_gqa)
        or _reason_of_dtype(query, key, value, attn_mask)
        or _reason_of_options(query, key, attn_mask, dropout_p, is_causal, scale)
    )


def _reason_of_place(tensors: list[Tensor]) -> str:
    for one in tensors:
        if one.is_nested or one.layout != torch.strided:
            return "a tensor is nested or not strided"
        if one.device != tensors[0].device:
            return "tensors are on different devices"
    device = tensors[0].device
    if device.type == "cpu":
        return "" if _emulated() else "tensors are in CPU memory, outside of amdwarp.emulate"
    if device.type != "cuda" or torch.version.hip is None:
        return f"device {device} is no AMD GPU"
    arch = _arch(device.index)
    return "" if arch in TARGETS else f"{arch} is none of {', '.join(TARGETS)}"


def _reason_of_shape(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> str:
    if not query.dim() == key.dim() == value.dim() >= 3:
        return "query, key and value have fewer than three dimensions, or not the same number"
    if not query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        return "batch dimensions differ"
    if key.shape[-3:-1] != value.shape[-3:-1] or query.shape[-1] != key.shape[-1]:
        return "key and value, or query and key, do not fit"
    heads, key_heads = query.shape[-3], key.shape[-3]
    if heads != key_heads and not (enable_gqa and key_heads and heads % key_heads == 0):
        return "query and key have different heads, and enable_gqa is False, or they do not divide"
    for dim in (query.shape[-1], value.shape[-1]):
        if not HEAD_DIM_MIN <= dim <= HEAD_DIM_MAX or dim % HEAD_DIM_STEP:
            return f"heads have {dim} elements, not a multiple of {HEAD_DIM_STEP} from {HEAD_DIM_MIN} to {HEAD_DIM_MAX}"
    if 0 in query.shape or 0 in key.shape:
        return "a tensor is empty"
    return ""


def _reason_of_dtype(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> str:
    halves = (torch.float16, torch.bfloat16)
    if torch.is_autocast_enabled(query.device.type):
        dtypes = {torch.get_autocast_dtype(query.device.type)}
        if any(one.dtype not in (*halves, torch.float32) for one in (query, key, value)):
            return "autocast leaves these dtypes as they are"
    else:
        dtypes = {query.dtype, key.dtype, value.dtype}
    if len(dtypes) > 1:
        return "query, key and value have different dtypes"
    dtype = dtypes.pop()
    if dtype not in halves:
        return f"dtype {dtype} is neither fp16 nor bf16"
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, dtype):
        return f"attn_mask has dtype {attn_mask.dtype}"
    return ""


def _reason_of_options(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float | None
) -> str:
    if dropout_p != 0.0:
        return "dropout_p is not 0"
    if attn_mask is not None and is_causal:
        return "attn_mask and is_causal are both given"
    if scale is not None and not 0.0 < scale <= SCALE_MAX:
        return "scale is not a positive number up to 2**127"
    if attn_mask is not None:
        full = (*query.shape[:-1], key.shape[-2])
        wanted = full[max(len(full) - attn_mask.dim(), 0) :]
        if attn_mask.dim() > len(full) or any(
            have not in (1, want) for have, want in zip(attn_mask.shape, wanted, strict=True)
        ):
            return "attn_mask does not broadcast"
    return ""


@torch.compiler.assume_constant_result
def _emulated() -> bool:
    return current_emulation() is not None


@torch.compiler.assume_constant_result
def _arch(index: int | None) -> str:  # needs a GPU; tests replace it
    properties = torch.cuda.get_device_properties(index)
    return str(getattr(properties, "gcnArchName", properties.name)).split(":")[0]


@torch.compiler.assume_constant_result
def _log(reason: str) -> bool:
    """Log a reason; under torch.compile this happens once, while it traces."""
    _warn_once(reason)
    logger.debug("scaled_dot_product_attention goes to torch: %s", reason)
    return True


@functools.cache
def _warn_once(reason: str) -> None:
    logger.warning("scaled_dot_product_attention goes to torch: %s", reason)


__all__ = ["scaled_dot_product_attention"]
