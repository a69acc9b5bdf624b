"""What each vector ALU operation computes: mnemonic to (result type, source types, function on arrays).

The functions take numpy arrays (or scalars that broadcast) of the source types and return one of the result type; an
entry None moves its operand. Semantics after the AMD CDNA3 and CDNA4 instruction set manuals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdwarp.emulator import arith, floats
from amdwarp.emulator.memory import Array
from amdwarp.emulator.ops_cdna import RARE

Function = Callable[..., Any]
Op = tuple[str, str, Function | None]

U16, U32, U64 = np.uint16, np.uint32, np.uint64
I16, I32, I64 = np.int16, np.int32, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64


def fmax(a: Any, b: Any) -> Array:
    """Maximum that prefers a number to a NaN and +0 to -0."""
    wide = f"u{np.result_type(a).itemsize}"
    out: Array = np.fmax(a, b)
    zeros = out == 0
    if np.any(zeros):
        both = (np.asarray(a).view(wide) & np.asarray(b).view(wide)).view(out.dtype)
        out = np.where(zeros & (a == b), both, out)
    return out


def fmin(a: Any, b: Any) -> Array:
    """Minimum that prefers a number to a NaN and -0 to +0."""
    wide = f"u{np.result_type(a).itemsize}"
    out: Array = np.fmin(a, b)
    zeros = out == 0
    if np.any(zeros):
        both = (np.asarray(a).view(wide) | np.asarray(b).view(wide)).view(out.dtype)
        out = np.where(zeros & (a == b), both, out)
    return out


def _median(a: Any, b: Any, c: Any, low: Function, high: Function) -> Any:
    return high(low(a, b), low(high(a, b), c))


def _fmed3(a: Any, b: Any, c: Any) -> Any:
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, fmin(fmin(a, b), c), _median(a, b, c, fmin, fmax))


def _low24(a: Any) -> Any:
    return a & U32(0xFFFFFF)


def _signed24(a: Any) -> Any:
    return np.asarray(a) << I32(8) >> I32(8)


def _bfe_u32(a: Any, offset: Any, width: Any) -> Any:
    return (a >> (offset & U32(31))) & ((U32(1) << (width & U32(31))) - U32(1))


def _bfe_i32(a: Any, offset: Any, width: Any) -> Any:
    offset, width = offset & U32(31), width & U32(31)
    got = _bfe_u32(a, offset, width)
    size = np.minimum(width, U32(32) - offset)
    spare = (U32(32) - size) & U32(31)
    spread = (np.asarray(got) << spare).view(I32) >> np.asarray(spare).astype(I32)
    return np.where(size == 0, I32(0), spread).astype(I32)


def _perm(a: Any, b: Any, select: Any) -> Any:
    wide = np.asarray(a).astype(U64) << U64(32) | np.asarray(b).astype(U64)
    out: Any = U32(0)
    for at in (0, 8, 16, 24):
        which = np.asarray(select) >> U32(at) & U32(0xFF)
        byte = (wide >> (np.minimum(which, U32(7)) * U32(8)).astype(U64)).astype(U32) & U32(0xFF)
        if np.any(which > 7):
            sign_at = np.minimum((which - U32(8)) * U32(16) + U32(15), U32(63)).astype(U64)
            sign = (wide >> sign_at & U64(1)).astype(U32) * U32(0xFF)
            byte = np.where(which > 12, U32(0xFF), np.where(which == 12, U32(0), np.where(which > 7, sign, byte)))
        out = out | byte << U32(at)
    return out


def _align(a: Any, b: Any, amount: Any) -> Any:
    wide = np.asarray(a).astype(U64) << U64(32) | np.asarray(b).astype(U64)
    return (wide >> np.asarray(amount).astype(U64)).astype(U32)


def _cvt_rtz_pack(a: Any, b: Any) -> Any:
    low, high = floats.f16_toward_zero(np.atleast_1d(a)), floats.f16_toward_zero(np.atleast_1d(b))
    return low.view(U16).astype(U32) | high.view(U16).astype(U32) << U32(16)


def _class(value: Any, wanted: Any) -> Any:
    value = np.asarray(value)
    size, fraction = value.itemsize * 8, {2: 10, 4: 23, 8: 52}[value.itemsize]
    bits = value.view(f"u{value.itemsize}")
    kind = bits.dtype.type
    negative = np.signbit(value)
    exponent = bits >> kind(fraction) & kind((1 << (size - 1 - fraction)) - 1)
    quiet = bits >> kind(fraction - 1) & kind(1) == 1
    nan, infinite, zero = np.isnan(value), np.isinf(value), value == 0
    denormal = (exponent == 0) & ~zero
    normal = ~(nan | infinite | zero | denormal)
    tests = (
        *(nan & ~quiet, nan & quiet, infinite & negative, normal & negative, denormal & negative, zero & negative),
        *(zero & ~negative, denormal & ~negative, normal & ~negative, infinite & ~negative),
    )
    index: Any = np.select(tests, range(10))
    return np.asarray(wanted).astype(U32) >> index.astype(U32) & U32(1) == 1


def _ldexp(a: Any, power: Any) -> Any:
    return np.ldexp(a, np.asarray(power).astype(I32))


def _frexp_exponent(a: Any) -> Any:
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(I32)


def _frexp_mantissa(a: Any) -> Any:
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


def _ubyte(at: int) -> Function:
    return lambda a: (a >> U32(8 * at) & U32(0xFF)).astype(F32)


def _pack16(convert: Function) -> Function:
    """Two results of 16 bits in one register."""
    return lambda a, b: convert(a).astype(U32) & U32(0xFFFF) | (convert(b).astype(U32) & U32(0xFFFF)) << U32(16)


def _norm16(low: float, high: float, scale: float) -> Function:
    return lambda a: arith.saturate(np.rint(np.clip(np.nan_to_num(a), low, high) * scale), low * scale, scale, I32)


def _insert_byte(value: Any, which: Any, old: Any) -> Any:
    shift = (which & U32(3)) * U32(8)
    return old & ~(U32(0xFF) << shift) | arith.saturate(np.rint(value), 0.0, 255.0, U32) << shift


def _sine(function: Function) -> Function:
    return lambda a: function(2 * np.pi * np.asarray(a, F64)).astype(a.dtype)


def _mad_wide(kind: Any) -> Function:
    return lambda a, b, c: np.multiply(a, b, dtype=kind) + c


_ONE_SOURCE: dict[str, Op] = {
    "v_mov_b32": ("u32", "u32", None),
    "v_mov_b64": ("u64", "u64", None),
    "v_accvgpr_mov_b32": ("u32", "u32", None),
    "v_accvgpr_read_b32": ("u32", "u32", None),
    "v_accvgpr_write_b32": ("u32", "u32", None),
    "v_not_b32": ("u32", "u32", np.invert),
    "v_bfrev_b32": ("u32", "u32", arith.reverse_bits),
    "v_ffbh_u32": ("u32", "u32", arith.leading_zeros),
    "v_ffbl_b32": ("u32", "u32", arith.trailing_zeros),
    "v_ffbh_i32": ("u32", "i32", lambda a: arith.leading_zeros(np.where(a < 0, ~a, a).view(U32))),
    "v_cvt_f32_i32": ("f32", "i32", lambda a: a.astype(F32)),
    "v_cvt_f32_u32": ("f32", "u32", lambda a: a.astype(F32)),
    "v_cvt_i32_f32": ("i32", "f32", lambda a: arith.saturate(a, -(2.0**31), 2.0**31 - 1, I32)),
    "v_cvt_u32_f32": ("u32", "f32", lambda a: arith.saturate(a, 0.0, 2.0**32 - 1, U32)),
    "v_cvt_rpi_i32_f32": (
        "i32",
        "f32",
        lambda a: arith.saturate(np.floor(a + F64(0.5)), -(2.0**31), 2.0**31 - 1, I32),
    ),
    "v_cvt_flr_i32_f32": ("i32", "f32", lambda a: arith.saturate(np.floor(a), -(2.0**31), 2.0**31 - 1, I32)),
    "v_cvt_f16_f32": ("f16", "f32", lambda a: a.astype(F16)),
    "v_cvt_f32_f16": ("f32", "f16", lambda a: a.astype(F32)),
    "v_cvt_f32_bf16": ("f32", "u16", floats.bf16_value),
    "v_cvt_f64_f32": ("f64", "f32", lambda a: a.astype(F64)),
    "v_cvt_f32_f64": ("f32", "f64", lambda a: a.astype(F32)),
    "v_cvt_f64_i32": ("f64", "i32", lambda a: a.astype(F64)),
    "v_cvt_f64_u32": ("f64", "u32", lambda a: a.astype(F64)),
    "v_cvt_i32_f64": ("i32", "f64", lambda a: arith.saturate(a, -(2.0**31), 2.0**31 - 1, I32)),
    "v_cvt_u32_f64": ("u32", "f64", lambda a: arith.saturate(a, 0.0, 2.0**32 - 1, U32)),
    "v_cvt_f16_u16": ("f16", "u16", lambda a: a.astype(F16)),
    "v_cvt_f16_i16": ("f16", "i16", lambda a: a.astype(F16)),
    "v_cvt_u16_f16": ("u16", "f16", lambda a: arith.saturate(a, 0.0, 65535.0, U16)),
    "v_cvt_i16_f16": ("i16", "f16", lambda a: arith.saturate(a, -32768.0, 32767.0, I16)),
    "v_exp_f32": ("f32", "f32", np.exp2),
    "v_exp_legacy_f32": ("f32", "f32", np.exp2),
    "v_exp_f16": ("f16", "f16", np.exp2),
    "v_log_f32": ("f32", "f32", np.log2),
    "v_log_legacy_f32": ("f32", "f32", np.log2),
    "v_log_f16": ("f16", "f16", np.log2),
    "v_rcp_iflag_f32": ("f32", "f32", lambda a: F32(1) / a),
    "v_frexp_exp_i32_f32": ("i32", "f32", _frexp_exponent),
    "v_frexp_exp_i32_f64": ("i32", "f64", _frexp_exponent),
    "v_frexp_mant_f32": ("f32", "f32", _frexp_mantissa),
    "v_frexp_mant_f64": ("f64", "f64", _frexp_mantissa),
    "v_sat_pk_u8_i16": (
        "u32",
        "u32",
        lambda a: (
            np.clip((np.asarray(a) << U32(16)).view(I32) >> I32(16), 0, 255).astype(U32)
            | np.clip(np.asarray(a).view(I32) >> I32(16), 0, 255).astype(U32) << U32(8)
        ),
    ),
}
for _at in range(4):
    _ONE_SOURCE[f"v_cvt_f32_ubyte{_at}"] = ("f32", "u32", _ubyte(_at))
for _t, _kind in (("f16", F16), ("f32", F32), ("f64", F64)):
    _one = _kind(1)
    _functions: dict[str, Function] = {
        "rcp": lambda a, one=_one: one / a,
        "rsq": lambda a, one=_one: one / np.sqrt(a),
        "sqrt": np.sqrt,
        "fract": lambda a: np.where(np.isfinite(a), a - np.floor(a), np.nan).astype(a.dtype),
        "trunc": np.trunc,
        "ceil": np.ceil,
        "rndne": np.rint,
        "floor": np.floor,
    }
    if _t != "f64":
        _functions |= {"sin": _sine(np.sin), "cos": _sine(np.cos)}
    for _name, _function in _functions.items():
        _ONE_SOURCE[f"v_{_name}_{_t}"] = (_t, _t, _function)

_SHIFTS: dict[str, Op] = {
    "v_lshlrev_b32": ("u32", "u32 u32", lambda n, a: a << (n & U32(31))),
    "v_lshrrev_b32": ("u32", "u32 u32", lambda n, a: a >> (n & U32(31))),
    "v_ashrrev_i32": ("i32", "i32 i32", lambda n, a: a >> (n & I32(31))),
    "v_lshlrev_b16": ("u16", "u16 u16", lambda n, a: a << (n & U16(15))),
    "v_lshrrev_b16": ("u16", "u16 u16", lambda n, a: a >> (n & U16(15))),
    "v_ashrrev_i16": ("i16", "i16 i16", lambda n, a: a >> (n & I16(15))),
    "v_lshlrev_b64": ("u64", "u32 u64", lambda n, a: a << (n & U32(63)).astype(U64)),
    "v_lshrrev_b64": ("u64", "u32 u64", lambda n, a: a >> (n & U32(63)).astype(U64)),
    "v_ashrrev_i64": ("i64", "u32 i64", lambda n, a: a >> (n & U32(63)).astype(I64)),
    "v_lshl_add_u64": ("u64", "u64 u32 u64", lambda a, n, c: (a << (n & U32(7)).astype(U64)) + c),
    "v_lshl_add_u32": ("u32", "u32 u32 u32", lambda a, n, c: (a << (n & U32(31))) + c),
    "v_add_lshl_u32": ("u32", "u32 u32 u32", lambda a, c, n: (a + c) << (n & U32(31))),
    "v_lshl_or_b32": ("u32", "u32 u32 u32", lambda a, n, c: (a << (n & U32(31))) | c),
    "v_alignbit_b32": ("u32", "u32 u32 u32", lambda a, b, n: _align(a, b, n & U32(31))),
    "v_alignbyte_b32": ("u32", "u32 u32 u32", lambda a, b, n: _align(a, b, (n & U32(3)) * U32(8))),
}

_INTEGER: dict[str, Op] = {
    "v_add_u32": ("u32", "u32 u32", np.add),
    "v_sub_u32": ("u32", "u32 u32", np.subtract),
    "v_subrev_u32": ("u32", "u32 u32", lambda a, b: b - a),
    "v_add_i32": ("i32", "i32 i32", np.add),
    "v_sub_i32": ("i32", "i32 i32", np.subtract),
    "v_add_u16": ("u16", "u16 u16", np.add),
    "v_sub_u16": ("u16", "u16 u16", np.subtract),
    "v_subrev_u16": ("u16", "u16 u16", lambda a, b: b - a),
    "v_mul_lo_u16": ("u16", "u16 u16", np.multiply),
    "v_mad_u16": ("u16", "u16 u16 u16", lambda a, b, c: a * b + c),
    "v_mad_i16": ("i16", "i16 i16 i16", lambda a, b, c: a * b + c),
    "v_mad_u32_u16": ("u32", "u16 u16 u32", lambda a, b, c: np.multiply(a, b, dtype=U32) + c),
    "v_mad_i32_i16": ("i32", "i16 i16 i32", lambda a, b, c: np.multiply(a, b, dtype=I32) + c),
    "v_and_b32": ("u32", "u32 u32", np.bitwise_and),
    "v_or_b32": ("u32", "u32 u32", np.bitwise_or),
    "v_xor_b32": ("u32", "u32 u32", np.bitwise_xor),
    "v_xnor_b32": ("u32", "u32 u32", lambda a, b: ~(a ^ b)),
    "v_mul_lo_u32": ("u32", "u32 u32", np.multiply),
    "v_mul_hi_u32": ("u32", "u32 u32", lambda a, b: arith.multiply_high(a, b, U64)),
    "v_mul_hi_i32": ("u32", "i32 i32", lambda a, b: arith.multiply_high(a, b, I64)),
    "v_mul_i32_i24": ("i32", "i32 i32", lambda a, b: _signed24(a) * _signed24(b)),
    "v_mul_u32_u24": ("u32", "u32 u32", lambda a, b: _low24(a) * _low24(b)),
    "v_mul_hi_u32_u24": ("u32", "u32 u32", lambda a, b: arith.multiply_high(_low24(a), _low24(b), U64)),
    "v_mul_hi_i32_i24": ("u32", "i32 i32", lambda a, b: arith.multiply_high(_signed24(a), _signed24(b), I64)),
    "v_mad_u32_u24": ("u32", "u32 u32 u32", lambda a, b, c: _low24(a) * _low24(b) + c),
    "v_mad_i32_i24": ("i32", "i32 i32 i32", lambda a, b, c: _signed24(a) * _signed24(b) + c),
    "v_add3_u32": ("u32", "u32 u32 u32", lambda a, b, c: a + b + c),
    "v_and_or_b32": ("u32", "u32 u32 u32", lambda a, b, c: (a & b) | c),
    "v_or3_b32": ("u32", "u32 u32 u32", lambda a, b, c: a | b | c),
    "v_xad_u32": ("u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    "v_bfe_u32": ("u32", "u32 u32 u32", _bfe_u32),
    "v_bfe_i32": ("i32", "u32 u32 u32", _bfe_i32),
    "v_bfi_b32": ("u32", "u32 u32 u32", lambda m, a, b: (m & a) | (~m & b)),
    "v_bfm_b32": ("u32", "u32 u32", lambda n, at: ((U32(1) << (n & U32(31))) - U32(1)) << (at & U32(31))),
    "v_bcnt_u32_b32": ("u32", "u32 u32", lambda a, c: arith.population(a) + c),
    "v_perm_b32": ("u32", "u32 u32 u32", _perm),
    "v_pack_b32_f16": ("u32", "u16 u16", lambda a, b: a.astype(U32) | b.astype(U32) << U32(16)),
}
for _t in ("u16", "i16", "i32", "u32"):
    _INTEGER[f"v_min_{_t}"] = (_t, f"{_t} {_t}", np.minimum)
    _INTEGER[f"v_max_{_t}"] = (_t, f"{_t} {_t}", np.maximum)
for _t in ("i16", "u16", "i32", "u32"):
    _INTEGER[f"v_min3_{_t}"] = (_t, f"{_t} {_t} {_t}", lambda a, b, c: np.minimum(np.minimum(a, b), c))
    _INTEGER[f"v_max3_{_t}"] = (_t, f"{_t} {_t} {_t}", lambda a, b, c: np.maximum(np.maximum(a, b), c))
    _INTEGER[f"v_med3_{_t}"] = (_t, f"{_t} {_t} {_t}", lambda a, b, c: _median(a, b, c, np.minimum, np.maximum))

_FLOAT: dict[str, Op] = {
    "v_mul_legacy_f32": ("f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b)),
    "v_mad_legacy_f32": (
        "f32",
        "f32 f32 f32",
        lambda a, b, c: np.where((a == 0) | (b == 0), F32(0), a * b) + c,
    ),
    "v_fma_f32": ("f32", "f32 f32 f32", arith.fma32),
    "v_fma_f16": ("f16", "f16 f16 f16", arith.fma16),
    "v_fma_f64": ("f64", "f64 f64 f64", arith.fma64),
    "v_ldexp_f32": ("f32", "f32 i32", _ldexp),
    "v_ldexp_f64": ("f64", "f64 i32", _ldexp),
    "v_ldexp_f16": ("f16", "f16 i16", _ldexp),
    "v_div_fixup_f32": ("f32", "f32 f32 f32", lambda a, b, c: arith.div_fixup(a, b, c, "f32")),
    "v_div_fixup_f64": ("f64", "f64 f64 f64", lambda a, b, c: arith.div_fixup(a, b, c, "f64")),
    "v_div_fixup_f16": ("f16", "f16 f16 f16", lambda a, b, c: arith.div_fixup(a, b, c, "f16")),
    "v_minimum3_f32": ("f32", "f32 f32 f32", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_maximum3_f32": ("f32", "f32 f32 f32", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_cvt_pkrtz_f16_f32": ("u32", "f32 f32", _cvt_rtz_pack),
    "v_cvt_pk_bf16_f32": (
        "u32",
        "f32 f32",
        lambda a, b: floats.bf16_bits(a) | floats.bf16_bits(b) << U32(16),
    ),
    "v_cvt_pknorm_i16_f32": ("u32", "f32 f32", _pack16(_norm16(-1.0, 1.0, 32767.0))),
    "v_cvt_pknorm_u16_f32": ("u32", "f32 f32", _pack16(_norm16(0.0, 1.0, 65535.0))),
    "v_cvt_pk_u8_f32": ("u32", "f32 u32 u32", _insert_byte),
    "v_cvt_pk_u16_u32": ("u32", "u32 u32", _pack16(lambda a: np.minimum(a, U32(0xFFFF)))),
    "v_cvt_pk_i16_i32": ("u32", "i32 i32", _pack16(lambda a: np.clip(a, -32768, 32767))),
}
for _t in ("f16", "f32", "f64"):
    _FLOAT[f"v_add_{_t}"] = (_t, f"{_t} {_t}", np.add)
    _FLOAT[f"v_mul_{_t}"] = (_t, f"{_t} {_t}", np.multiply)
    _FLOAT[f"v_min_{_t}"] = (_t, f"{_t} {_t}", fmin)
    _FLOAT[f"v_max_{_t}"] = (_t, f"{_t} {_t}", fmax)
for _t in ("f16", "f32"):
    _FLOAT[f"v_sub_{_t}"] = (_t, f"{_t} {_t}", np.subtract)
    _FLOAT[f"v_subrev_{_t}"] = (_t, f"{_t} {_t}", lambda a, b: b - a)
    _FLOAT[f"v_min3_{_t}"] = (_t, f"{_t} {_t} {_t}", lambda a, b, c: fmin(fmin(a, b), c))
    _FLOAT[f"v_max3_{_t}"] = (_t, f"{_t} {_t} {_t}", lambda a, b, c: fmax(fmax(a, b), c))
    _FLOAT[f"v_med3_{_t}"] = (_t, f"{_t} {_t} {_t}", _fmed3)

#: Every operation of this form; `valu.bind_op` binds them.
OPS: dict[str, Op] = {**_ONE_SOURCE, **_SHIFTS, **_INTEGER, **_FLOAT, **RARE}

#: Operations whose third operand is the destination: mnemonic to (type, source type).
ACCUMULATE: dict[str, tuple[str, str, Function]] = {
    "v_fmac_f32": ("f32", "f32", arith.fma32),
    "v_fmac_f16": ("f16", "f16", arith.fma16),
    "v_fmac_f64": ("f64", "f64", arith.fma64),
    "v_mac_f32": ("f32", "f32", lambda a, b, c: a * b + c),
}

#: 64-bit multiply-add with a carry out.
WIDE_MADS: dict[str, tuple[str, Any]] = {"v_mad_u64_u32": ("u32", U64), "v_mad_i64_i32": ("i32", I64)}

_ORDERED: dict[str, Function] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _never(a: Any, b: Any) -> Any:
    return np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), bool)


def _always(a: Any, b: Any) -> Any:
    return ~_never(a, b)


#: v_cmp condition for integers and floats: (function of two operands).
INT_CONDITIONS: dict[str, Function] = {**_ORDERED, "ne": np.not_equal, "f": _never, "t": _always}
FLOAT_CONDITIONS: dict[str, Function] = {
    **_ORDERED,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: (a == a) & (b == b),
    "u": lambda a, b: (a != a) | (b != b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "f": _never,
    "tru": _always,
}

#: v_cmp mnemonic tail (``lt_f32``) to (type of the first operand, of the second, function).
COMPARES: dict[str, tuple[str, str, Function]] = {}
for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _function in INT_CONDITIONS.items():
        COMPARES[f"{_name}_{_t}"] = (_t, _t, _function)
for _t in ("f16", "f32", "f64"):
    for _name, _function in FLOAT_CONDITIONS.items():
        COMPARES[f"{_name}_{_t}"] = (_t, _t, _function)
    COMPARES[f"class_{_t}"] = (_t, "u16" if _t == "f16" else "u32", _class)
