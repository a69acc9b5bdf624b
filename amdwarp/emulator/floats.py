"""Small floating-point formats: bf16, fp8 (OCP and FNUZ), fp6, fp4 and the e8m0 scale.

Formats after the OCP "Microscaling Formats (MX)" specification 1.0 and, for the FNUZ forms of gfx942, the AMD CDNA3
instruction set manual.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from amdwarp.emulator.memory import Array


@dataclass(frozen=True)
class SmallFloat:
    """A format of at most 8 bits.

    Attributes:
        exponent, mantissa: field widths.
        bias: exponent bias.
        top: code of the largest finite value.
        overflow: code of a value beyond it, or None where it becomes `top` (fp6, fp4).
        nan: code of NaN, or None where the format has none.
        infinity: code of infinity, or None.
        unsigned_zero: there is no -0 (its code is the NaN).
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    top: int
    overflow: int | None
    nan: int | None
    infinity: int | None = None
    unsigned_zero: bool = False

    @property
    def bits(self) -> int:
        """Width of a code."""
        return 1 + self.exponent + self.mantissa


FP8 = SmallFloat("fp8", 4, 3, 7, 0x7E, 0x7F, 0x7F)
BF8 = SmallFloat("bf8", 5, 2, 15, 0x7B, 0x7C, 0x7F, 0x7C)
FP8_FNUZ = SmallFloat("fp8 FNUZ", 4, 3, 8, 0x7F, 0x80, 0x80, None, True)
BF8_FNUZ = SmallFloat("bf8 FNUZ", 5, 2, 16, 0x7F, 0x80, 0x80, None, True)
FP6 = SmallFloat("fp6", 2, 3, 1, 0x1F, None, None)
BF6 = SmallFloat("bf6", 3, 2, 3, 0x1F, None, None)
FP4 = SmallFloat("fp4", 2, 1, 1, 0x7, None, None)

#: (fp8, bf8) of each architecture.
FP8_OF_TARGET = {"gfx942": (FP8_FNUZ, BF8_FNUZ), "gfx950": (FP8, BF8), "gfx1250": (FP8, BF8)}


@cache
def decode_table(form: SmallFloat) -> Array:
    """f32 value of every code of `form`."""
    codes = np.arange(1 << form.bits)
    magnitude = codes & ((1 << (form.bits - 1)) - 1)
    exponent, mantissa = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    value = np.where(
        exponent == 0,
        np.ldexp(mantissa.astype(np.float64), 1 - form.bias - form.mantissa),
        np.ldexp((mantissa + (1 << form.mantissa)).astype(np.float64), exponent - form.bias - form.mantissa),
    )
    if form.unsigned_zero:
        value[magnitude > form.top] = np.nan
    elif form.nan is not None:
        value[magnitude > form.top] = np.nan
        if form.infinity is not None:
            value[magnitude == form.infinity] = np.inf
    value = np.where(codes >> (form.bits - 1), -value, value)
    if form.unsigned_zero:
        value[1 << (form.bits - 1)] = np.nan
    return value.astype(np.float32)


def decode(codes: Array, form: SmallFloat) -> Array:
    """f32 values of integer `codes`."""
    values: Array = decode_table(form).take(codes)
    return values


def encode(value: Array, form: SmallFloat) -> Array:
    """uint32 codes of f32 `value`, rounded to nearest even.

    A finite value that rounds beyond the largest becomes what the format's `overflow` says.
    """
    wide = np.abs(np.asarray(value, np.float64))
    _, exponent = np.frexp(wide)
    step = np.ldexp(1.0, np.maximum(exponent - 1, 1 - form.bias) - form.mantissa)
    rounded = np.rint(wide / step) * step
    positive = decode_table(form)[: form.top + 1].astype(np.float64)
    code = np.searchsorted(positive, rounded).astype(np.uint32)
    beyond = rounded > positive[-1]
    code = np.where(beyond, np.uint32(form.top if form.overflow is None else form.overflow), code)
    sign = np.signbit(value).astype(np.uint32) << np.uint32(form.bits - 1)
    if form.unsigned_zero:
        sign = np.where(code == 0, np.uint32(0), sign)
        code = np.where(code == form.nan, code, code | sign)
    else:
        code = code | sign
    if form.nan is not None:
        code = np.where(np.isnan(value), np.uint32(form.nan), code)
    return code.astype(np.uint32)


def bf16_bits(value: Array) -> Array:
    """uint32 bf16 codes of f32 `value`, rounded to nearest even; a NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), bits >> np.uint32(16) | np.uint32(0x40), rounded)


def bf16_value(codes: Array) -> Array:
    """f32 values of bf16 `codes` (any unsigned type)."""
    wide: Array = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def scale_value(codes: Array) -> Array:
    """f32 values 2^(code - 127) of e8m0 scales; code 255 is NaN."""
    value = np.ldexp(np.float64(1), codes.astype(np.int64) - 127).astype(np.float32)
    return np.where(codes == 255, np.float32(np.nan), value)


def f16_toward_zero(value: Array) -> Array:
    """f16 of f32 `value`, rounded toward zero; finite values stay finite."""
    near = np.asarray(value, np.float32).astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(value)
    bits = np.ascontiguousarray(near).view(np.uint16)
    return np.where(over, bits - np.uint16(1), bits).view(np.float16)
