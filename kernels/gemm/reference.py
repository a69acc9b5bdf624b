"""What the GEMM must compute, and how far a correct result may be from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .dtypes import DTYPES, FP8
from .epilogue import SYNONYMS


def matmul(a: Any, b: Any) -> np.ndarray:
    """A @ B with fp32 products and sums, rounded to A's dtype.

    Args:
        a: (M, K) array, fp16 or bf16 (``ml_dtypes.bfloat16``).
        b: (K, N) array of the same dtype.

    Returns:
        (M, N) array of that dtype.
    """
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(over="ignore", invalid="ignore"):
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


def tolerance(a: Any, b: Any) -> np.ndarray:
    """Largest error of an element that the order of fp32 sums and one rounding can explain, (M, N) fp32.

    Products of two 16-bit floats are exact in fp32, so K sums err by at most K roundings of the sum of magnitudes; each
    of two results is then rounded by half a unit in the last place of the output type.
    """
    a, b = np.asarray(a), np.asarray(b)
    magnitude = np.abs(a.astype(np.float32)) @ np.abs(b.astype(np.float32))
    value = np.abs(a.astype(np.float32) @ b.astype(np.float32))
    fraction = 10 if a.dtype == np.float16 else 7
    smallest = 2.0**-24 if a.dtype == np.float16 else 2.0**-133
    summing = 2 * a.shape[1] * 2.0**-24 * magnitude
    return (summing + (value + summing) * 2.0**-fraction + smallest).astype(np.float32)


# ---- every form, in float64


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, elementwise."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def activate(x: np.ndarray, activation: str | None) -> np.ndarray:
    """An activation of float64 values; ``swiglu`` halves the last dimension."""
    with np.errstate(over="ignore"):
        if activation == "relu":
            return np.where(x < 0, 0.0, x)
        if activation == "silu":
            return x / (1 + np.exp(-x))
        if activation == "gelu_erf":
            return 0.5 * x * (1 + erf(x / math.sqrt(2)))
        if activation == "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        if activation == "swiglu":
            gate, value = np.split(x, 2, axis=-1)
            return gate / (1 + np.exp(-gate)) * value
    return x


#: The largest slope of an activation: an error of its argument grows by at most that.
SLOPES = {None: 1.0, "relu": 1.0, "silu": 1.1, "gelu_erf": 1.13, "gelu_tanh": 1.13}


@dataclass(frozen=True)
class Expected:
    """A result in float64 and how far a correct one may be from it.

    Attributes:
        value: before it is rounded to the output dtype, but clamped where that saturates.
        bound: largest error of an element.
    """

    value: np.ndarray
    bound: np.ndarray


def expect(
    a: np.ndarray,
    b: np.ndarray,
    out_dtype: str,
    *,
    scale: float | np.ndarray = 1.0,
    bias: np.ndarray | None = None,
    activation: str | None = None,
    residual: np.ndarray | None = None,
    beta: float = 1.0,
    fraction: int = 23,
    roundings: float | None = None,
) -> Expected:
    """An epilogue of a product in float64, with a bound on the error of a correct kernel.

    Let ``u = 2**-24``, half a unit in the last place of fp32. Products of 8- and 16-bit floats and of their MX-scaled
    kin are exact in fp32; those of fp32 operands are rounded, and xf32 keeps ``fraction`` = 10 bits of each operand.
    A sum of K terms in any order errs by at most ``K u`` of the sum of magnitudes (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., (4.4)); matrix instructions that truncate where they align terms err by twice that.
    Scales, bias, activation and residual take a few roundings more; fast exponentials and divisions are given 16 u.
    The result is rounded once to the output dtype.

    Args:
        a, b: (…, M, K) and (…, K, N) float64, exact values of the operands, E8M0 or block scales included.
        out_dtype: of the result.
        scale: factor of the product; broadcasts.
        bias: broadcasts against the product.
        activation, residual, beta: as `Epilogue` states them.
        fraction: bits of fraction that the multiplier keeps of each operand.
        roundings: of the sum, in units of u; 2 K + 16 unless given; 0 for exact integer sums.
    """
    activation = SYNONYMS.get(activation, activation) if activation is not None else None
    product, magnitude = a @ b, np.abs(a) @ np.abs(b)
    rounds = 2.0 * a.shape[-1] + 16 if roundings is None else roundings
    error = magnitude * (rounds * _U + (2.0**-fraction * 2 if fraction < 23 else 0)) * np.abs(scale)
    x = product * scale
    error = error + 4 * _U * np.abs(x)
    if bias is not None:
        x = x + bias
        error = error + _U * (np.abs(x) + np.abs(bias))
    y = activate(x, activation)
    if activation == "swiglu":
        gate, value = np.split(x, 2, axis=-1)
        gate_error, value_error = np.split(np.broadcast_to(error, x.shape), 2, axis=-1)
        sigmoid = activate(gate, "silu")
        error = 1.1 * gate_error * (np.abs(value) + value_error) + np.abs(sigmoid) * value_error + 16 * _U * np.abs(y)
    else:
        # 1 + erf and 1 + tanh cancel far below 0: they err by units of x there, not of the result
        cancelled = np.abs(x) if activation in ("gelu_erf", "gelu_tanh") else np.abs(y)
        error = SLOPES[activation] * error + (16 * _U * cancelled if activation not in (None, "relu") else 0)
    if residual is not None:
        y = y + beta * residual
        error = error + 4 * _U * (np.abs(y) + np.abs(beta * residual))
    kind = DTYPES[out_dtype]
    if out_dtype in FP8:
        y = np.clip(y, -kind.largest, kind.largest)
    if kind.is_float:
        error = error + (np.abs(y) + error) * 2.0 ** -(kind.fraction + 1) + kind.smallest
    return Expected(y, error)


_U = 2.0**-24


def unpack(data: np.ndarray, format: str, axis: int) -> np.ndarray:
    """Elements of a packed MX operand as float64, lowest bits first along an axis.

    Args:
        data: bytes, or fp8 elements.
        format: ``e2m1``, ``e2m3``, ``e3m2``, ``e4m3`` or ``e5m2``.
        axis: along K.
    """
    if data.dtype != np.uint8:
        return data.astype(np.float64)
    width = 4 if format == "e2m1" else 6
    bits = np.unpackbits(np.moveaxis(data, axis, -1)[..., None], axis=-1, bitorder="little")
    bits = bits.reshape(*bits.shape[:-2], -1, width)
    codes = (bits.astype(np.int64) << np.arange(width)).sum(-1)
    kind = {"e2m1": ml_dtypes.float4_e2m1fn, "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn}[format]
    table = np.arange(1 << width, dtype=np.uint8).view(kind).astype(np.float64)
    return np.moveaxis(table[codes], -1, axis)


def e8m0(scale: np.ndarray) -> np.ndarray:
    """Values of E8M0 bytes; NaN for 255."""
    return np.where(scale == 255, np.nan, 2.0 ** (scale.astype(np.float64) - 127))
