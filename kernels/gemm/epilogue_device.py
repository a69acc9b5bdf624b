"""The epilogue on the device: one source, as a Triton function (``finish``) and as a Gluon one (``gluon_finish``)."""

# The kernel language has no types of its own for tensors.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon


def _finish(acc, gated, alpha, scale, gated_scale, bias, gated_bias, residual, beta, E: tl.constexpr):
    """What is stored of fp32 sums, in fp32, in the order that ``epilogue.py`` states.

    Args:
        acc: fp32 sums of any layout; with ``swiglu`` those of the gate.
        gated: with ``swiglu`` the sums that the gate multiplies; anything otherwise.
        alpha: scalar, read where ``E.scaled``.
        scale, gated_scale: operand scales that broadcast against the sums, or None.
        bias, gated_bias: fp32 values that broadcast against the sums, read where ``E.bias``.
        residual, beta: fp32 matrix of the output's shape and its scalar factor, read where ``E.residual``.
        E: an ``Epilogue``.
    """
    x = acc
    if scale is not None:
        x = x * scale
    if E.scaled:
        x = x * alpha
    if E.bias is not None:
        x = x + bias
    if E.activation == "relu":
        x = tl.where(x < 0, 0.0, x)  # NaN stays NaN
    elif E.activation == "silu" or E.activation == "swiglu":
        x = x / (1.0 + tl.exp2(x * -1.4426950408889634))
    elif E.activation == "gelu_tanh":
        # 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3)
        u = x * (0.7978845608028654 + 0.035677408136300125 * x * x)
        x = x / (1.0 + tl.exp2(u * -2.8853900817779268))
    elif E.activation == "gelu_erf":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if E.gated:
        y = gated
        if gated_scale is not None:
            y = y * gated_scale
        if E.scaled:
            y = y * alpha
        if E.bias is not None:
            y = y + gated_bias
        x = x * y
    if E.residual:
        x = x + beta * residual
    if E.saturate > 0:
        x = tl.where(x > E.saturate, E.saturate, x)
        x = tl.where(x < -E.saturate, -E.saturate, x)
    return x


finish = triton.jit(_finish)
gluon_finish = gluon.jit(_finish)
