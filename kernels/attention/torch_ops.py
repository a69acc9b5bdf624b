"""Attention as PyTorch operators: with gradients, under ``torch.compile``, under autocast.

>>> from amdwarp.kernels.attention.torch_ops import attention
>>> out = attention(q, k, v, causal=True)        # records a gradient
>>> out.sum().backward()

The operators ``torch.ops.amdwarp.attention`` and ``torch.ops.amdwarp.varlen_attention``, and their backward, allocate
their results, look at no value on the GPU and launch on the current stream of the device that q is on. They can
therefore be recorded in a CUDA graph after one call has compiled their kernels (not tried: no machine here has a GPU).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from . import backward, forward
from .operands import Checker
from .problem import check_layout

Window = tuple[int | None, int | None]

_OPTIONS = "bool causal, float? scale, int? left, int? right, float? softcap"
_BOTH = f"Tensor? sinks, Tensor? alibi, {_OPTIONS}"
_LENGTHS = "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k"


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: Window | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    alibi: Tensor | None = None,
    return_lse: bool = False,
    layout: str = "bhsd",
) -> Any:
    """`amdwarp.kernels.attention.attention` on tensors, with gradients of q, k, v, sinks, bias and lse.

    Args:
        q, k, v, causal, scale, window, sinks, softcap, bias, alibi, return_lse, layout: as there; fp16 or bf16. Under
            autocast q, k and v are converted to its dtype. ALiBi slopes get no gradient.

    Returns:
        out, or (out, lse).

    Raises:
        UsageError: as there.
    """
    checker = Checker("attention")
    q, k, v = _autocast(checker, q, k, v)
    _check_tangents(checker, q, k, v, sinks, bias)
    left, right = _sides(checker, window)
    out, lse = torch.ops.amdwarp.attention(q, k, v, bias, sinks, alibi, causal, scale, left, right, softcap, layout)
    return (out, lse) if return_lse else out


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: Window | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    alibi: Tensor | None = None,
    return_lse: bool = False,
) -> Any:
    """`amdwarp.kernels.attention.varlen_attention` on tensors, with gradients of q, k, v, sinks and lse.

    Args:
        q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, window, sinks, softcap, alibi, return_lse: as there; fp16 or
            bf16, converted under autocast as `attention` does.
        max_seqlen_q, max_seqlen_k: rows and keys of the longest sequence, or more. They are asked for because reading
            them from cu_seqlens would wait for the GPU.

    Returns:
        out, or (out, lse).

    Raises:
        UsageError: as there.
    """
    checker = Checker("varlen_attention")
    q, k, v = _autocast(checker, q, k, v)
    _check_tangents(checker, q, k, v, sinks)
    left, right = _sides(checker, window)
    out, lse = torch.ops.amdwarp.varlen_attention(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        sinks,
        alibi,
        causal,
        scale,
        left,
        right,
        softcap,
    )
    return (out, lse) if return_lse else out


def _autocast(checker: Checker, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the dtype of autocast, where it is on; what is no float, or fp64, stays as torch leaves it."""
    for name, one in zip("qkv", tensors, strict=True):
        if not isinstance(one, Tensor):
            raise checker.error(f"{name} is a {type(one).__name__}", "pass a torch tensor")
    device = tensors[0].device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):  # it raises for "meta"
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(one.to(dtype) if one.is_floating_point() and one.dtype != torch.float64 else one for one in tensors)


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether forward-mode derivatives are asked for: an operator would drop them, and give zeros without a word."""
    if torch.compiler.is_compiling():
        return False
    return any(one is not None and unpack_dual(one).tangent is not None for one in tensors)


def _check_tangents(checker: Checker, *tensors: Tensor | None) -> None:
    if has_tangent(*(one for one in tensors if isinstance(one, Tensor))):
        raise checker.error("an argument has a tangent, and there are no forward-mode derivatives", "use backward()")


def _sides(checker: Checker, window: Any) -> Window:
    """What an operator takes of a window: its two sides."""
    if window is None:
        return None, None
    if not isinstance(window, tuple) or len(window) != 2:
        raise checker.error(f"window is {window!r}", "give (left, right), or None for no window")
    return window


def _check_inputs(checker: Checker, rank: int, *tensors: Tensor) -> None:
    """Refuse what a fake cannot make results of, and what has no backward; the kernels' checks follow."""
    for name, one in zip("qkv", tensors, strict=True):
        if one.dim() != rank:
            raise checker.error(f"{name} has {one.dim()} dimensions, not {rank}", "reshape it")
        if one.dtype not in (torch.float16, torch.bfloat16):
            raise checker.error(
                f"{name} is {str(one.dtype).removeprefix('torch.')}, which the operators do not take",
                "convert to fp16 or bf16",
            )


def _window(left: int | None, right: int | None) -> Window | None:
    return None if left is None and right is None else (left, right)


def _numbers(causal: bool, scale: Any, left: Any, right: Any, softcap: Any) -> dict[str, Any]:
    return {"causal": causal, "scale": scale, "window": _window(left, right), "softcap": softcap}


# ---- equally long sequences


@torch.library.custom_op(
    "amdwarp::attention",
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, Tensor? bias, {_BOTH}, str layout) -> (Tensor, Tensor)",
)
def _attention(q, k, v, bias, sinks, alibi, causal, scale, left, right, softcap, layout):  # type: ignore[no-untyped-def]
    _check_inputs(Checker("attention"), 4, q, k, v)
    return forward.attention(
        q, k, v, bias=bias, sinks=sinks, alibi=alibi, layout=layout, return_lse=True,
        **_numbers(causal, scale, left, right, softcap),
    )  # fmt: skip


@_attention.register_fake
def _(q, k, v, bias, sinks, alibi, causal, scale, left, right, softcap, layout):  # type: ignore[no-untyped-def]
    checker = Checker("attention")
    axes = check_layout(checker, layout)
    _check_inputs(checker, 4, q, k, v)
    batch, heads, rows = (q.shape[axis] for axis in axes)
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty((batch, heads, rows), dtype=torch.float32)


@torch.library.custom_op(
    "amdwarp::attention_backward",
    mutates_args=(),
    schema="(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? bias, "
    f"bool bias_gradient, {_BOTH}, str layout) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _attention_backward(  # type: ignore[no-untyped-def]
    dout, dlse, q, k, v, out, lse, bias, bias_gradient, sinks, alibi, causal, scale, left, right, softcap, layout
):
    """dq, dk, dv, dsinks, dbias; the last two are empty where there is none, since an operator returns no None."""
    grads = backward.attention_backward(
        _rows(dout), q, k, v, out, lse, dlse=_whole(dlse), bias=bias, bias_gradient=bias_gradient, sinks=sinks,
        alibi=alibi, layout=layout, **_numbers(causal, scale, left, right, softcap),
    )  # fmt: skip
    dsinks = _empty(q) if grads.sinks is None else grads.sinks
    dbias = _empty(q) if grads.bias is None else grads.bias
    return grads.q, grads.k, grads.v, dsinks, dbias


@_attention_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    dout, dlse, q, k, v, out, lse, bias, bias_gradient, sinks, alibi, causal, scale, left, right, softcap, layout
):
    dsinks = _empty(q) if sinks is None else sinks.new_empty(sinks.shape)
    dbias = _empty(q) if bias is None or not bias_gradient else bias.new_empty(bias.shape, dtype=torch.float32)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), dsinks, dbias


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, bias, sinks, alibi, *numbers = inputs
    ctx.save_for_backward(q, k, v, *output, bias, sinks, alibi)
    ctx.numbers = numbers
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, bias, sinks, alibi = ctx.saved_tensors
    nothing = (None,) * len(ctx.numbers)
    if dout is None and dlse is None:
        return (None,) * 6 + nothing
    dout = torch.zeros_like(out) if dout is None else dout
    bias_gradient = bias is not None and ctx.needs_input_grad[3]
    dq, dk, dv, dsinks, dbias = torch.ops.amdwarp.attention_backward(
        dout, dlse, q, k, v, out, lse, bias, bias_gradient, sinks, alibi, *ctx.numbers
    )
    of_bias = dbias.to(bias.dtype) if bias_gradient else None
    return (dq, dk, dv, of_bias, None if sinks is None else dsinks, None, *nothing)


_attention.register_autograd(_backward, setup_context=_save)


# ---- sequences one behind the other


@torch.library.custom_op(
    "amdwarp::varlen_attention",
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {_LENGTHS}, {_BOTH}) -> (Tensor, Tensor)",
)
def _varlen(  # type: ignore[no-untyped-def]
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, sinks, alibi, causal, scale, left, right, softcap
):
    checker = Checker("varlen_attention")  # the forward itself needs no max_seqlen_k, but the backward will
    _check_inputs(checker, 3, q, k, v)
    starts = checker.operand("cu_seqlens_k", cu_seqlens_k, 1, forward.INTEGERS, unit=True)
    forward.longest(checker, "max_seqlen_k", max_seqlen_k, starts, max_seqlen_k)
    return forward.varlen_attention(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=max_seqlen_q, sinks=sinks, alibi=alibi, return_lse=True,
        **_numbers(causal, scale, left, right, softcap),
    )  # fmt: skip


@_varlen.register_fake
def _(  # type: ignore[no-untyped-def]
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, sinks, alibi, causal, scale, left, right, softcap
):
    _check_inputs(Checker("varlen_attention"), 3, q, k, v)
    total, heads, _ = q.shape
    return q.new_empty((total, heads, v.shape[2])), q.new_empty((heads, total), dtype=torch.float32)


@torch.library.custom_op(
    "amdwarp::varlen_attention_backward",
    mutates_args=(),
    schema="(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_LENGTHS}, {_BOTH}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _varlen_backward(  # type: ignore[no-untyped-def]
    dout, dlse, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    sinks, alibi, causal, scale, left, right, softcap,
):  # fmt: skip
    """dq, dk, dv, dsinks; the last is empty where there are no sinks."""
    grads = backward.varlen_attention_backward(
        _rows(dout), q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k, dlse=_whole(dlse), sinks=sinks, alibi=alibi,
        **_numbers(causal, scale, left, right, softcap),
    )  # fmt: skip
    return grads.q, grads.k, grads.v, _empty(q) if grads.sinks is None else grads.sinks


@_varlen_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    dout, dlse, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    sinks, alibi, causal, scale, left, right, softcap,
):  # fmt: skip
    dsinks = _empty(q) if sinks is None else sinks.new_empty(sinks.shape)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), dsinks


def _save_varlen(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts_q, starts_k, longest_q, longest_k, sinks, alibi, *numbers = inputs
    ctx.save_for_backward(q, k, v, *output, starts_q, starts_k, sinks, alibi)
    ctx.longest, ctx.numbers = (longest_q, longest_k), numbers
    ctx.set_materialize_grads(False)


def _backward_varlen(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, starts_q, starts_k, sinks, alibi = ctx.saved_tensors
    nothing = (None,) * len(ctx.numbers)
    if dout is None and dlse is None:
        return (None,) * 9 + nothing
    dout = torch.zeros_like(out) if dout is None else dout
    dq, dk, dv, dsinks = torch.ops.amdwarp.varlen_attention_backward(
        dout, dlse, q, k, v, out, lse, starts_q, starts_k, *ctx.longest, sinks, alibi, *ctx.numbers
    )
    return (dq, dk, dv, None, None, None, None, None if sinks is None else dsinks, None, *nothing)


_varlen.register_autograd(_backward_varlen, setup_context=_save_varlen)


def _rows(gradient: Tensor) -> Tensor:
    """A gradient with elements of a head next to each other; one of a sum comes expanded."""
    return gradient if gradient.stride(-1) == 1 else gradient.contiguous()


def _whole(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.contiguous()


def _empty(like: Tensor) -> Tensor:
    return like.new_empty((0,), dtype=torch.float32)


__all__ = ["attention", "varlen_attention"]
