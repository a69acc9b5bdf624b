"""Grouped products as PyTorch operators; see `torch_ops`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .dtypes import PRECISIONS
from .epilogue import activation_name
from .forms import Extras, check_word
from .torch_ops import FLOATS, autocast, check, dtype_name_of, dtype_or, refuse_gradients, through


@torch.library.custom_op("amdwarp::gemm_grouped", mutates_args=())
def gemm_grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    out_dtype: str | None,
    precision: str,
) -> torch.Tensor:
    """A product for each group of rows, or of K; see `amdwarp.kernels.gemm.grouped_matmul`."""
    from .grouped import grouped

    extras = Extras(scale, bias, "column", activation, None, 1.0, out_dtype)
    return grouped(a, b, offsets, extras, {}, precision=precision)


def _columns(b: torch.Tensor, activation: str | None) -> int:
    return b.shape[-1] // 2 if activation == "swiglu" else b.shape[-1]


@gemm_grouped.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    out_dtype: str | None,
    precision: str,
) -> torch.Tensor:
    columns = _columns(b, activation)
    shape = [a.shape[0], columns] if b.dim() == 3 else [offsets.shape[0], a.shape[0], columns]
    return a.new_empty(shape, dtype=dtype_or(out_dtype, a.dtype))


def _setup_grouped(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, offsets, bias, activation, scale, _, precision = inputs
    ctx.options = (activation, scale, precision)
    ctx.save_for_backward(a, b, offsets, bias)


def _backward_grouped(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    activation, scale, precision = ctx.options
    a, b, offsets, bias = ctx.saved_tensors
    need_a, need_b, _, need_bias = ctx.needs_input_grad[:4]
    call = torch.ops.amdwarp.gemm_grouped
    inner = grad
    if activation is not None:
        before = call(a, b, offsets, bias, None, scale, "float32", precision)
        inner = through(activation, before, grad)
    grad_a = grad_b = grad_bias = None
    if bias is not None and need_bias:
        rows = torch.arange(a.shape[0], device=a.device)
        group = torch.searchsorted(offsets, rows.to(offsets.dtype), right=True)
        wide = torch.zeros(bias.shape[0] + 1, bias.shape[1], dtype=torch.float32, device=a.device)
        grad_bias = wide.index_add(0, group, inner.to(torch.float32))[:-1].to(bias.dtype)
    inner = inner.to(a.dtype)
    if b.dim() == 3:
        if need_a:
            grad_a = call(inner, b.transpose(1, 2), offsets, None, None, scale, None, precision)
        if need_b:
            grad_b = call(a.t(), inner, offsets, None, None, scale, None, precision)
    else:
        # out[g] = a[:, g] @ b[g]: each group's columns of a, and rows of b, see the gradient of their own matrix
        if need_a:
            grad_a = call(b, inner.transpose(1, 2), offsets, None, None, scale, None, precision).t()
        if need_b:
            grad_b = call(a.t(), inner, offsets, None, None, scale, None, precision)
    return grad_a, grad_b, None, grad_bias, None, None, None, None


gemm_grouped.register_autograd(_backward_grouped, setup_context=_setup_grouped)


@torch.library.custom_op("amdwarp::gemm_grouped_scaled", mutates_args=())
def gemm_grouped_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    out_dtype: str,
    precision: str,
) -> torch.Tensor:
    """A product for each group of rows of fp8 operands; see `amdwarp.kernels.gemm.grouped_matmul`. No gradient."""
    from .grouped import grouped

    extras = Extras(scale, bias, "column", activation, None, 1.0, out_dtype)
    scales = {name: one for name, one in (("scale_a", scale_a), ("scale_b", scale_b)) if one is not None}
    return grouped(a, b, offsets, extras, scales, precision=precision)


@gemm_grouped_scaled.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    out_dtype: str,
    precision: str,
) -> torch.Tensor:
    return a.new_empty([a.shape[0], _columns(b, activation)], dtype=getattr(torch, out_dtype))


def grouped(a: Any, b: Any, offsets: Any, scales: Mapping[str, Any], extras: Extras, precision: str) -> torch.Tensor:
    """A grouped product of tensors by the operator, which records gradients of what is no fp8."""
    construct = "grouped_matmul"
    check(construct, extras, {"a": a, "b": b, "offsets": offsets, **scales})
    check_word(construct, "precision", precision, PRECISIONS)
    activation = activation_name(extras.activation, construct)
    name = dtype_name_of(extras.out_dtype, construct)
    if scales or a.dtype not in FLOATS:
        refuse_gradients(construct, {"a": a, "b": b, **scales, **extras.arrays})
        factors = (scales.get("scale_a"), scales.get("scale_b"))
        options = (activation, float(extras.scale), name or "bfloat16", precision)
        return torch.ops.amdwarp.gemm_grouped_scaled(a, b, offsets, *factors, extras.bias, *options)
    a, b, bias = autocast(a, b, extras.bias)
    return torch.ops.amdwarp.gemm_grouped(a, b, offsets, bias, activation, float(extras.scale), name, precision)
