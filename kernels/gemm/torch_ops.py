"""The GEMM as PyTorch operators: ``torch.ops.amdwarp.gemm_*`` with shapes for the compiler, and gradients.

Imported only when a torch tensor comes in. Every operator allocates its result, reads no value on the host, and
launches on the current stream of its operands' device, so that CUDA graphs can hold it (untested on hardware). Under
``torch.autocast`` the floating operators take their operands in the autocast dtype, as ``torch.matmul`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from amdwarp.errors import UsageError

from .dtypes import PRECISIONS
from .epilogue import Epilogue, activation_name
from .forms import Extras, check_word, output_columns

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def dtype_or(name: str | None, default: torch.dtype) -> torch.dtype:
    return default if name is None else getattr(torch, name)


def _product_shape(construct: str, a: torch.Tensor, b: torch.Tensor, activation: str | None) -> list[Any]:
    """Shape of a product by ``torch.matmul``'s rules, symbolic or not."""
    rows = list(a.shape[-2:-1]) if a.dim() > 1 else []
    columns = list(b.shape[-1:]) if b.dim() > 1 else []
    if columns and activation == "swiglu":
        columns = [columns[0] // 2]
    batch = list(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    return [*batch, *rows, *columns]


# ---- the floating product


@torch.library.custom_op("amdwarp::gemm_product", mutates_args=())
def gemm_product(
    construct: str,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    bias_axis: str,
    activation: str | None,
    scale: float,
    beta: float,
    out_dtype: str | None,
    precision: str,
) -> torch.Tensor:
    """``activation(scale * (a @ b) + bias) + beta * residual``; see `amdwarp.kernels.gemm.matmul`."""
    from .dense import product

    extras = Extras(scale, bias, bias_axis, activation, residual, beta, out_dtype)
    return product(construct, a, b, extras, precision=precision)


@gemm_product.register_fake
def _(
    construct: str,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    bias_axis: str,
    activation: str | None,
    scale: float,
    beta: float,
    out_dtype: str | None,
    precision: str,
) -> torch.Tensor:
    return a.new_empty(_product_shape(construct, a, b, activation), dtype=dtype_or(out_dtype, a.dtype))


def _setup_product(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    construct, a, b, bias, residual, bias_axis, activation, scale, beta, _, precision = inputs
    ctx.options = (construct, bias_axis, activation, scale, beta, precision)
    ctx.save_for_backward(a, b, bias, residual)


def _backward_product(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    construct, bias_axis, activation, scale, beta, precision = ctx.options
    a, b, bias, residual = ctx.saved_tensors
    need = dict(zip(("construct", "a", "b", "bias", "residual"), ctx.needs_input_grad[:5], strict=True))
    inner = grad
    if activation is not None:
        # The value before the activation is computed again: it was never in memory.
        before = _call(construct, a, b, bias, None, bias_axis, None, scale, 0.0, "float32", precision)
        inner = through(activation, before, grad)
    grad_bias = grad_residual = grad_a = grad_b = None
    if bias is not None and need["bias"]:
        grad_bias = _sum_bias(inner, bias, bias_axis)
    if residual is not None and need["residual"]:
        grad_residual = (grad.to(torch.float32) * beta).sum_to_size(residual.shape).to(residual.dtype)
    inner = inner.to(a.dtype)
    if need["a"] or need["b"]:
        a2, b2 = (a[None, :] if a.dim() == 1 else a), (b[:, None] if b.dim() == 1 else b)
        g = inner
        if b.dim() == 1:
            g = g[..., None]
        if a.dim() == 1:
            g = g[..., None, :]
        if need["a"]:
            grad_a = _reduced(g, b2.transpose(-1, -2), a2.shape, scale, precision).reshape(a.shape)
        if need["b"]:
            grad_b = _reduced(a2.transpose(-1, -2), g, b2.shape, scale, precision, folds=b2.dim() == 2)
            grad_b = grad_b.reshape(b.shape)
    return None, grad_a, grad_b, grad_bias, grad_residual, None, None, None, None, None, None


def _reduced(
    left: torch.Tensor,
    right: torch.Tensor,
    shape: torch.Size,
    scale: float,
    precision: str,
    folds: bool = False,
) -> torch.Tensor:
    """A gradient's product, summed over the batch dimensions that the operand was broadcast along."""
    if folds and left.dim() > 2:
        # A weight shared by a batch: one product over all of its rows.
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left = left.expand(*batch, *left.shape[-2:]).movedim(-2, 0).reshape(left.shape[-2], -1)
        right = right.expand(*batch, *right.shape[-2:]).reshape(-1, right.shape[-1])
    dtype = str(left.dtype).removeprefix("torch.")
    wide = len(torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])) > len(shape) - 2
    made = _call("matmul", left, right, None, None, "column", None, scale, 0.0, "float32" if wide else dtype, precision)
    return made.sum_to_size(shape).to(left.dtype)


def _sum_bias(grad: torch.Tensor, bias: torch.Tensor, bias_axis: str) -> torch.Tensor:
    wide = grad.to(torch.float32)
    if bias_axis == "row":
        wide = wide.transpose(-1, -2)
    return wide.reshape(-1, bias.shape[-1]).sum(0).to(bias.dtype)


def activate(x: torch.Tensor, activation: str) -> torch.Tensor:
    """An activation as PyTorch computes it, for its derivative."""
    functional = torch.nn.functional
    if activation == "relu":
        return functional.relu(x)
    if activation == "silu":
        return functional.silu(x)
    if activation == "swiglu":
        gate, value = x.chunk(2, -1)
        return functional.silu(gate) * value
    return functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def through(activation: str, before: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """The fp32 gradient of what went into an activation, from the gradient of what came out.

    Where a gradient of the gradient may follow (``create_graph=True``), it depends on `before`, too.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaf = before if again and before.requires_grad else before.detach().requires_grad_()
        return torch.autograd.grad(activate(leaf, activation), leaf, grad.to(torch.float32), create_graph=again)[0]


gemm_product.register_autograd(_backward_product, setup_context=_setup_product)


def _call(*arguments: Any) -> torch.Tensor:
    return torch.ops.amdwarp.gemm_product(*arguments)


# ---- quantised products


@torch.library.custom_op("amdwarp::gemm_quantised", mutates_args=())
def gemm_quantised(
    construct: str,
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    format_a: str | None,
    format_b: str | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    bias_axis: str,
    activation: str | None,
    scale: float,
    beta: float,
    out_dtype: str,
) -> torch.Tensor:
    """`amdwarp.kernels.gemm.scaled_matmul` or `int8_matmul`."""
    from .scaled import quantised

    extras = Extras(scale, bias, bias_axis, activation, residual, beta, out_dtype)
    return quantised(construct, a, b, scale_a, scale_b, (format_a, format_b), extras)


@gemm_quantised.register_fake
def _(
    construct: str,
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    format_a: str | None,
    format_b: str | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    bias_axis: str,
    activation: str | None,
    scale: float,
    beta: float,
    out_dtype: str,
) -> torch.Tensor:
    return a.new_empty(_product_shape(construct, a, b, activation), dtype=getattr(torch, out_dtype))


# ---- what the public functions call


def autocast(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Floating tensors in the autocast dtype of their device, where autocast is on."""
    device = next(one.device.type for one in tensors if one is not None)
    if not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [one.to(dtype) if one is not None and one.dtype in FLOATS else one for one in tensors]


def product(construct: str, a: Any, b: Any, extras: Extras, precision: str) -> torch.Tensor:
    """A product of tensors by the operator, which records gradients."""
    check(construct, extras, {"a": a, "b": b})
    a, b, bias, residual = autocast(a, b, extras.bias, extras.residual)
    check_word(construct, "precision", precision, PRECISIONS)
    check_word(construct, "bias_axis", extras.bias_axis, ("column", "row"))
    return torch.ops.amdwarp.gemm_product(
        construct,
        a,
        b,
        bias,
        residual,
        extras.bias_axis,
        activation_name(extras.activation, construct),
        float(extras.scale),
        float(extras.beta),
        dtype_name_of(extras.out_dtype, construct),
        precision,
    )


def refuse_gradients(construct: str, named: Mapping[str, Any]) -> None:
    for name, value in named.items():
        if value is not None and value.requires_grad and torch.is_grad_enabled():
            problem = f"{name} asks for a gradient, and quantised products have none"
            raise UsageError(problem, remedy=f"pass {name}.detach()", construct=construct)


def quantised(
    construct: str, a: Any, b: Any, scale_a: Any, scale_b: Any, formats: tuple[Any, Any], extras: Extras
) -> torch.Tensor:
    """A quantised product of tensors by the operator.

    Raises:
        UsageError: an argument that asks for a gradient.
    """
    named = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    check(construct, extras, named)
    refuse_gradients(construct, named | extras.arrays)
    return torch.ops.amdwarp.gemm_quantised(
        construct,
        a,
        b,
        scale_a,
        scale_b,
        *formats,
        extras.bias,
        extras.residual,
        extras.bias_axis,
        activation_name(extras.activation, construct),
        float(extras.scale),
        float(extras.beta),
        dtype_name_of(extras.out_dtype, construct) or "bfloat16",
    )


def check(construct: str, extras: Extras, named: Mapping[str, Any]) -> None:
    """What must be known before the operator's own checks, which come late under a compiler.

    Tensors of several devices have to be refused here: with one on ``meta`` among them the dispatcher takes the
    operator's fake kernel, whose result nobody has computed.
    """
    from .forms import scalar

    b = named["b"]
    for name, value in {**named, **extras.arrays}.items():
        if isinstance(value, torch.Tensor):
            _check_tensor(construct, name, value, b)
    scalar(construct, "scale", extras.scale)
    scalar(construct, "beta", extras.beta)
    for name, value in extras.arrays.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"{name} is a {type(value).__name__}", remedy="pass a tensor", construct=construct)
    if activation_name(extras.activation, construct) == "swiglu" and isinstance(b.shape[-1], int):
        output_columns(construct, Epilogue(activation="swiglu"), b.shape[-1])


def _check_tensor(construct: str, name: str, value: torch.Tensor, b: torch.Tensor) -> None:
    if value.is_nested:
        raise UsageError(f"{name} is a nested tensor", remedy=f"pass {name}.to_padded_tensor(0)", construct=construct)
    if value.device.type not in ("cpu", "cuda"):
        remedy = "move it to an AMD GPU, or to the CPU inside amdwarp.emulate"
        raise UsageError(f"{name} is on device {value.device}", remedy=remedy, construct=construct)
    if value.device != b.device:
        problem = f"b is a tensor on {b.device} and {name} is a tensor on {value.device}"
        raise UsageError(problem, remedy="convert or move one of them", construct=construct)


def dtype_name_of(dtype: Any, construct: str) -> str | None:
    from .dtypes import dtype_name

    return None if dtype is None else dtype_name(dtype, construct)
