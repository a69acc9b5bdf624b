"""Arithmetic that numpy does not have as one function: fused multiply-add, saturating conversion, division helpers.

Operands are numpy arrays [waves, lanes] or what broadcasts to them; no function changes its operands.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from amdwarp.emulator.memory import Array

F32, F64, U32, U64, I32, I64 = np.float32, np.float64, np.uint32, np.uint64, np.int32, np.int64


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y and its exact rounding error."""
    total = x + y
    rest = total - x
    return total, (x - (total - rest)) + (y - rest)


def _to_odd(total: Array, error: Array) -> Array:
    """Move an inexact f64 sum to the neighbour with odd last bit, so that a second rounding is right."""
    bits = np.ascontiguousarray(total).view(I64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    toward = np.where((error > 0) == (total > 0), I64(1), I64(-1))
    return np.where(inexact, bits + toward, bits).view(F64)


def fma32(a: Any, b: Any, c: Any) -> Array:
    """a * b + c of f32 with one rounding.

    The product is exact in f64; the sum is rounded to f64 and then to f32, which goes wrong only where the f64 value
    lies exactly between two f32 (or is tiny): those are redone with rounding to odd.
    """
    product = np.multiply(a, b, dtype=F64)
    total = np.atleast_1d(product + c)
    low = np.ascontiguousarray(total).view(U64) & U64(0x1FFFFFFF)
    doubtful = (low == 0x10000000) | (np.abs(total) < 2.0**-125)
    if doubtful.any():
        wide = np.broadcast_arrays(product, np.asarray(c, F64))
        exact, error = two_sum(np.atleast_1d(wide[0]), np.atleast_1d(wide[1]))
        total = np.where(doubtful, _to_odd(exact, error), total)
    return total.astype(F32)


def fma64(a: Any, b: Any, c: Any) -> Array:
    """a * b + c of f64 with one rounding.

    After Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd":
    Dekker's exact product, compensated sums, the last one rounded to odd. Operands so large or small that a part of
    it would leave the range of f64 are computed on fractions.
    """
    a, b, c = np.broadcast_arrays(np.asarray(a, F64), np.asarray(b, F64), np.asarray(c, F64))
    product = a * b
    naive = product + c
    split = 134217729.0
    a_high = a * split - (a * split - a)
    b_high = b * split - (b * split - b)
    a_low, b_low = a - a_high, b - b_high
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    inner, inner_error = two_sum(c, product_error)
    outer, outer_error = two_sum(product, inner)
    rest, rest_error = two_sum(inner_error, outer_error)
    exact = outer + _to_odd(np.atleast_1d(rest), np.atleast_1d(rest_error)).reshape(rest.shape)
    plain = ~np.isfinite(a + b + c) | (a == 0) | (b == 0)
    result = np.where(plain | (exact == 0), naive, exact)
    sizes = [np.abs(value) for value in (a, b, product, c)]
    near = np.logical_and.reduce([(size < 2.0**480) & (size > 2.0**-480) for size in sizes[:2]])
    near &= (sizes[2] > 2.0**-900) & (sizes[3] < 2.0**960) & ((sizes[3] > 2.0**-900) | (c == 0))
    far = ~(plain | near)
    for at in zip(*np.nonzero(far), strict=True):
        value = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
        result[at] = _nearest(value) if value else naive[at]
    return result


def _nearest(value: Fraction) -> float:
    """The f64 nearest to `value`."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def fma16(a: Any, b: Any, c: Any) -> Array:
    """a * b + c of f16 with one rounding: product and sum are exact in f64 but for absorbed tiny terms."""
    total, error = two_sum(np.multiply(a, b, dtype=F64), np.asarray(c, F64))
    return _to_odd(np.atleast_1d(total), np.atleast_1d(np.nan_to_num(error))).astype(np.float16)


def saturate(value: Array, low: float, high: float, dtype: Any) -> Array:
    """Round toward zero to an integer type, clamped to its range, NaN to 0."""
    wide = np.nan_to_num(np.trunc(value.astype(F64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(wide, low, high).astype(I64).astype(dtype)


def exponent32(value: Array) -> Array:
    """Biased exponent field of f32."""
    return (np.asarray(value, F32).view(U32) >> U32(23) & U32(0xFF)).astype(I32)


def exponent64(value: Array) -> Array:
    """Biased exponent field of f64."""
    return (np.asarray(value, F64).view(U64) >> U64(52) & U64(0x7FF)).astype(I32)


#: type: (exponent function, scaling power, exponent gap near overflow, tiny numerator, bias, maximum exponent)
_DIVISION: dict[str, tuple[Any, int, int, int, int, int]] = {
    "f32": (exponent32, 64, 96, 23, 127, 255),
    "f64": (exponent64, 128, 768, 53, 1023, 2047),
}


def div_scale(s0: Array, s1: Array, s2: Array, kind: str) -> tuple[Array, Array]:
    """First step of a division s2 / s1: scale s0, which is one of them, away from the denormals.

    Returns:
        The scaled operand, and the flags that `div_fmas` reads from vcc (bool).
    """
    exponent, power, gap, tiny, _, _ = _DIVISION[kind]
    s0, s1, s2 = np.broadcast_arrays(s0, s1, s2)
    dtype = s0.dtype
    up, down = np.ldexp(s0, power), np.ldexp(s0, -power)
    smallest = np.finfo(dtype).tiny
    inverse, quotient = 1.0 / s1.astype(F64), s2.astype(F64) / s1.astype(F64)
    if kind == "f64":
        inverse, quotient = np.abs(1.0 / s1), np.abs(s2 / s1)
    inverse_tiny = (np.abs(inverse) < smallest) & (inverse != 0)
    quotient_tiny = (np.abs(quotient) < smallest) & (quotient != 0)
    zero = (s1 == 0) | (s2 == 0)
    large = exponent(s2) - exponent(s1) >= gap
    denormal = (exponent(s1) == 0) & (s1 != 0)
    is_denominator, is_numerator = s0.view(f"u{s0.itemsize}") == s1.view(f"u{s0.itemsize}"), s0 == s2
    conditions = [
        zero,
        large,
        denormal,
        inverse_tiny & quotient_tiny,
        inverse_tiny,
        quotient_tiny,
        exponent(s2) <= tiny,
    ]
    nan = np.full_like(s0, np.nan)
    results = [
        nan,
        np.where(is_denominator, up, s0),
        up,
        # The manual says up, which would overflow: here 1 / s1 is tiny, so s1 is near the largest number.
        np.where(is_denominator, down, s0),
        down,
        np.where(is_numerator, up, s0),
        up,
    ]
    flags = [False, True, False, True, False, True, False]
    return np.select(conditions, results, s0), np.select(conditions, flags, False)


def div_fmas(s0: Array, s1: Array, s2: Array, flags: Array, kind: str) -> Array:
    """Last correction of a division: s0 * s1 + s2, scaled back where `div_scale` raised a flag."""
    exponent, power, _, _, bias, _ = _DIVISION[kind]
    total = fma32(s0, s1, s2) if kind == "f32" else fma64(s0, s1, s2)
    if not flags.any():
        return total
    direction = np.where(exponent(s2) > bias, power, -power)
    wide = np.multiply(s0, s1, dtype=F64) + s2 if kind == "f32" else total
    scaled: Array = np.where(flags, np.ldexp(wide, direction), total).astype(total.dtype)
    return scaled


def div_fixup(s0: Array, s1: Array, s2: Array, kind: str) -> Array:
    """Quotient `s0` of `s2` / `s1` with the special cases put right."""
    s0, s1, s2 = np.broadcast_arrays(s0, s1, s2)
    if kind == "f16":
        exponent_gap = np.zeros(s0.shape, bool)
    else:
        exponent = _DIVISION[kind][0]
        exponent_gap = exponent(s2) - exponent(s1) < (-150 if kind == "f32" else -1075)
    negative = np.signbit(s1) ^ np.signbit(s2)
    sign = np.where(negative, s0.dtype.type(-1), s0.dtype.type(1))
    infinity, zero = s0.dtype.type(np.inf), s0.dtype.type(0)
    conditions = [
        np.isnan(s2),
        np.isnan(s1),
        (s1 == 0) & (s2 == 0),
        np.isinf(s1) & np.isinf(s2),
        (s1 == 0) | np.isinf(s2),
        np.isinf(s1) | (s2 == 0),
        exponent_gap,
        # With neither operand NaN the steps before give NaN only where the quotient overflowed.
        np.isnan(s0),
    ]
    nan = np.full_like(s0, -np.nan)
    results = [s2, s1, nan, nan, sign * infinity, sign * zero, sign * zero, sign * infinity]
    out: Array = np.select(conditions, results, np.copysign(s0, sign))
    return out


def multiply_high(a: Array, b: Array, dtype: Any) -> Array:
    """Upper 32 bits of a 32 by 32 bit product; `dtype` is int64 or uint64 after the operands' sign."""
    return (np.multiply(a, b, dtype=dtype) >> dtype(32)).astype(U32)


def leading_zeros(value: Array) -> Array:
    """Position of the first set bit from the top of u32, -1 where there is none."""
    value = np.asarray(value, U32)
    _, exponent = np.frexp(value.astype(F64))
    return np.where(value == 0, U32(0xFFFFFFFF), (32 - exponent).astype(U32))


def trailing_zeros(value: Array) -> Array:
    """Position of the lowest set bit of u32, -1 where there is none."""
    value = np.asarray(value, U32)
    _, exponent = np.frexp((value & (~value + U32(1))).astype(F64))
    return np.where(value == 0, U32(0xFFFFFFFF), (exponent - 1).astype(U32))


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


def reverse_bits(value: Array) -> Array:
    """u32 with its bits in reverse order."""
    flipped = _REVERSED[np.ascontiguousarray(value, U32).view(np.uint8)]
    return flipped.view(U32).byteswap()


def population(value: Array) -> Array:
    """Number of set bits of u32."""
    return np.bitwise_count(np.asarray(value, U32)).astype(U32)
