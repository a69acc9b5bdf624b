"""Rarer vector ALU operations, in the form of `amdwarp.emulator.ops`.

Semantics after the AMD CDNA3 and CDNA4 instruction set manuals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from amdwarp.emulator import arith
from amdwarp.emulator.bind import Binder, handles
from amdwarp.emulator.differences import SUMS_OF_DIFFERENCES, average, low_dword
from amdwarp.emulator.memory import Array
from amdwarp.emulator.state import Batch, Closure

Function = Callable[..., Any]
Op = tuple[str, str, Function | None]
U16, U32, I16, I32, I64 = np.uint16, np.uint32, np.int16, np.int32, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64


def _normal16(low: float, scale: float, dtype: Any) -> Function:
    """f16 in [low, 1] to an integer in [low * scale, scale], to nearest even; NaN becomes 0."""

    def convert(value: Any) -> Array:
        wide = np.nan_to_num(np.asarray(value, F64), nan=0.0, posinf=1.0, neginf=low)
        return np.rint(np.clip(wide, low, 1.0) * scale).astype(I64).astype(dtype)

    return convert


_SIGNED16, _UNSIGNED16 = _normal16(-1.0, 32767.0, I16), _normal16(0.0, 65535.0, U16)


def _packed(convert: Function) -> Function:
    return lambda a, b: convert(a).view(U16).astype(U32) | convert(b).view(U16).astype(U32) << U32(16)


def _random(value: Any) -> Any:
    """One step of the pseudo-random sequence: a shift register with taps 0xc5."""
    value = np.asarray(value, U32)
    return value << U32(1) ^ (value >> U32(31)) * U32(0xC5)


def _exponent16(value: Any) -> Array:
    return np.where(np.isfinite(value), np.frexp(np.asarray(value).astype(F32))[1], 0).astype(I16)


def _mantissa16(value: Any) -> Array:
    return np.where(np.isfinite(value), np.frexp(np.asarray(value).astype(F32))[0], value).astype(F16)


def _cube(x_major: Function, y_major: Function, z_major: Function) -> Function:
    """A function of (x, y, z) chosen by the axis of largest magnitude; z wins over y over x."""

    def run(x: Any, y: Any, z: Any) -> Any:
        x, y, z = np.broadcast_arrays(x, y, z)
        by_z = (np.abs(z) >= np.abs(x)) & (np.abs(z) >= np.abs(y))
        by_y = ~by_z & (np.abs(y) >= np.abs(x))
        choices = [function(x, y, z) for function in (z_major, y_major, x_major)]
        return np.where(by_z, choices[0], np.where(by_y, choices[1], choices[2])).astype(F32)

    return run


RARE: dict[str, Op] = {
    "v_add_i16": ("i16", "i16 i16", np.add),
    "v_sub_i16": ("i16", "i16 i16", np.subtract),
    "v_mad_legacy_u16": ("u16", "u16 u16 u16", lambda a, b, c: a * b + c),
    "v_mad_legacy_i16": ("i16", "i16 i16 i16", lambda a, b, c: a * b + c),
    "v_fma_legacy_f16": ("f16", "f16 f16 f16", arith.fma16),
    "v_div_fixup_legacy_f16": ("f16", "f16 f16 f16", lambda a, b, c: arith.div_fixup(a, b, c, "f16")),
    "v_lerp_u8": ("u32", "u32 u32 u32", average),
    **{name: ("u32", "u32 u32 u32", low_dword(function)) for name, function in SUMS_OF_DIFFERENCES.items()},
    "v_frexp_exp_i16_f16": ("i16", "f16", _exponent16),
    "v_frexp_mant_f16": ("f16", "f16", _mantissa16),
    "v_cvt_norm_i16_f16": ("i16", "f16", _SIGNED16),
    "v_cvt_norm_u16_f16": ("u16", "f16", _UNSIGNED16),
    "v_cvt_pknorm_i16_f16": ("u32", "f16 f16", _packed(_SIGNED16)),
    "v_cvt_pknorm_u16_f16": ("u32", "f16 f16", _packed(_UNSIGNED16)),
    "v_cvt_off_f32_i4": (
        "f32",
        "u32",
        lambda a: ((np.asarray(a) << U32(28)).view(I32) >> I32(28)).astype(F32) / F32(16),
    ),
    "v_prng_b32": ("u32", "u32", _random),
    "v_cubeid_f32": (
        "f32",
        "f32 f32 f32",
        _cube(*(lambda *axes, at=at: F32(2 * at) + (axes[at] < 0) for at in range(3))),
    ),
    "v_cubema_f32": ("f32", "f32 f32 f32", _cube(*(lambda *axes, at=at: F32(2) * axes[at] for at in range(3)))),
    "v_cubesc_f32": (
        "f32",
        "f32 f32 f32",
        _cube(
            lambda x, y, z: np.where(x < 0, z, -z),
            lambda x, y, z: x,
            lambda x, y, z: np.where(z < 0, -x, x),
        ),
    ),
    "v_cubetc_f32": (
        "f32",
        "f32 f32 f32",
        _cube(lambda x, y, z: -y, lambda x, y, z: np.where(y < 0, -z, z), lambda x, y, z: -y),
    ),
}

#: 16-bit operations that leave the upper half of their destination; others clear it.
KEEPS_UPPER = frozenset(
    (
        *("v_fma_f16", "v_mad_f16", "v_mad_u16", "v_mad_i16", "v_div_fixup_f16", "v_add_i16", "v_sub_i16"),
        *(f"v_{name}_{kind}" for name in ("min3", "max3", "med3") for kind in ("f16", "i16", "u16")),
        "v_bitop3_b16",
    )
)


def prng(value: Any) -> Any:
    """The pseudo-random number that follows u32 `value`."""
    return _random(value)


@handles("v_ashr_pk_i8_i32", "v_ashr_pk_u8_i32")
def bind_shift_pack(binder: Binder) -> Closure:
    """Two dwords shifted right and saturated to bytes, in the half of the destination that op_sel names."""
    binder.need(4)
    low, high = (-128, 127) if "_i8_" in binder.inst.base else (0, 255)
    select = binder.take("op_sel", (0, 0, 0, 0))
    row = binder.vector(0, 1)
    x, y, amount = binder.source(1, "i32"), binder.source(2, "i32"), binder.source(3, "u32")
    shift, keep = U32(16 * select[-1]), U32(0xFFFF if select[-1] else 0xFFFF0000)
    put = binder.row_target(row, "u32")

    def run(b: Batch) -> None:
        by = (np.asarray(amount(b)) & U32(31)).astype(I32)
        first, second = (np.clip(v(b) >> by, low, high).astype(U32) & U32(0xFF) for v in (x, y))
        put(b, (first | second << U32(8)) << shift | (b.r[0][row] & keep), b.mask)

    return run


@handles("v_cvt_pkaccum_u8_f32")
def bind_accumulate_byte(binder: Binder) -> Closure:
    """f32 to the byte of the destination that the second source names; the others stay."""
    binder.need(3)
    row, value, which = binder.vector(0, 1), binder.source(1, "f32"), binder.source(2, "u32")
    put = binder.row_target(row, "u32")

    def run(b: Batch) -> None:
        shift = (np.asarray(which(b)) & U32(3)) * U32(8)
        byte = arith.saturate(np.rint(np.asarray(value(b))), 0.0, 255.0, U32)
        put(b, b.r[0][row] & ~(U32(0xFF) << shift) | byte << shift, b.mask)

    return run


@cache
def two_over_pi() -> int:
    """The first 1201 bits of 2 / pi behind the point, by Machin's formula on integers."""
    guard = 64
    one = 1 << (1201 + guard)

    def arctangent(inverse: int) -> int:
        term, total, step, sign = one // inverse, 0, 1, 1
        while term:
            total += sign * term // step
            term //= inverse * inverse
            step, sign = step + 2, -sign
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return (2 * one * one // pi) >> guard


def trig_preop(value: float, segment: int) -> float:
    """53 bits of 2 / pi for the reduction of an f64 argument of its size, scaled to their place."""
    exponent = int(np.array(value, F64).view(np.uint64)) >> 52 & 0x7FF
    shift = (segment & 31) * 53 + max(0, exponent - 1077)
    whole = (two_over_pi() << shift) >> 1201 - 53 & (1 << 53) - 1 if shift < 1201 else 0
    scale = -53 - shift + (128 if exponent >= 1968 else 0)
    return float(np.ldexp(float(whole), scale))


@handles("v_trig_preop_f64")
def bind_trig_preop(binder: Binder) -> Closure:
    """A segment of 2 / pi."""
    binder.need(3)
    value, segment, put = binder.source(1, "f64"), binder.source(2, "u32"), binder.target(0, "f64")
    every = np.vectorize(lambda x, n: trig_preop(float(x), int(n)), otypes=[F64])
    return lambda b: put(b, every(value(b), segment(b)), b.mask)
