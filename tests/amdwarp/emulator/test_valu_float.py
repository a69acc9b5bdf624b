"""Floating-point vector instructions: exact rounding, special values, conversions, division."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

F16, F32, F64, BF16 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16
EDGES32 = np.array(
    [0x0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
     0x7FC00000, 0x7FA00000, 0x4B7FFFFF, 0xCB800000, 0x477FF000, 0x33000000],
    np.uint32,
)  # fmt: skip
bits32 = st.one_of(st.sampled_from(EDGES32.tolist()), st.integers(0, 2**32 - 1), st.integers(0x3C000000, 0x44000000))
lanes32 = hnp.arrays(np.uint32, 64, elements=bits32)
EDGES16 = [0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7D00]
lanes16 = hnp.arrays(np.uint16, 64, elements=st.one_of(st.sampled_from(EDGES16), st.integers(0, 0xFFFF)))


def f32(bits: Any) -> Any:
    return bits.view(F32)


def same(got: Any, expected: Any) -> None:
    """Equal bit for bit, except that any NaN equals any NaN."""
    wide = f"u{expected.dtype.itemsize}"
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(wide)[~nan], expected.view(wide)[~nan])


def nearest(value: Fraction, dtype: Any) -> Any:
    """`value` rounded to nearest even in `dtype`."""
    with np.errstate(over="ignore"):
        try:
            first = dtype(float(value))
        except OverflowError:
            first = dtype(math.inf if value > 0 else -math.inf)
        if np.isinf(first):
            top = np.finfo(dtype).max
            unit = Fraction(float(top)) - Fraction(float(np.nextafter(top, dtype(0))))
            return first if abs(value) >= Fraction(float(top)) + unit / 2 else dtype(math.copysign(top, value))
        options = [first, np.nextafter(first, dtype(np.inf)), np.nextafter(first, dtype(-np.inf))]
    options = [x for x in options if np.isfinite(x)]
    return min(options, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(f"u{x.itemsize}")) & 1))


def exact_fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding, element by element."""
    dtype = a.dtype.type
    with np.errstate(all="ignore"):
        out = (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(dtype)
        for at in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
            value = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
            if value:
                out[at] = nearest(value, dtype)
            # An exact zero has the sign that IEEE gives the sum, which the f64 computation has.
    return out


TRICKY = f32(
    np.array([0x3F800001, 0x3F7FFFFF, 0x33800000, 0x00800000, 0x807FFFFF, 0x4B000001, 0x34000000] * 10, np.uint32)
)


@settings(deadline=None, max_examples=25)
@given(a=lanes32, b=lanes32, c=lanes32)
@example(a=TRICKY[:64].view("u4"), b=TRICKY[1:65].view("u4"), c=TRICKY[3:67].view("u4"))
def test_fma(execute: Any, a: Any, b: Any, c: Any) -> None:
    body = ["v_fma_f32 v10, v1, v2, v3", "v_fma_f32 v11, -v1, |v2|, v3", "v_mov_b32_e32 v12, v3"]
    body += ["v_fmac_f32_e32 v12, v1, v2", "v_fmaak_f32 v13, v1, v2, 0x3f8ccccd", "v_fmamk_f32 v14, v1, 0xc0490fdb, v2"]
    out = execute(body, {"v1": a, "v2": b, "v3": c}, [f"v{n}" for n in range(10, 15)])
    x, y, z = f32(a), f32(b), f32(c)
    same(f32(out["v10"]), exact_fma(x, y, z))
    same(f32(out["v11"]), exact_fma(-x, np.abs(y), z))
    same(f32(out["v12"]), exact_fma(x, y, z))
    same(f32(out["v13"]), exact_fma(x, y, np.full(64, 0x3F8CCCCD, np.uint32).view(F32)))
    same(f32(out["v14"]), exact_fma(x, np.full(64, 0xC0490FDB, np.uint32).view(F32), y))


@settings(deadline=None, max_examples=15)
@given(a=lanes32, b=lanes32)
def test_arithmetic(execute: Any, a: Any, b: Any) -> None:
    names = ["v_add_f32_e32", "v_sub_f32_e32", "v_subrev_f32_e32", "v_mul_f32_e32"]
    body = [f"{name} v{10 + at}, v1, v2" for at, name in enumerate(names)]
    body += ["v_mul_f32_e64 v14, -v1, |v2|", "v_add_f32_e64 v15, -|v1|, 1.0", "v_mul_f32_e64 v16, v1, 0.5 clamp"]
    out = execute(body, {"v1": a, "v2": b}, [f"v{n}" for n in range(10, 17)])
    x, y = f32(a), f32(b)
    with np.errstate(all="ignore"):
        expected = [
            x + y,
            x - y,
            y - x,
            x * y,
            -x * np.abs(y),
            1 - np.abs(x),
            np.clip(np.nan_to_num(x * F32(0.5), nan=0), 0, 1),
        ]
    for at, value in enumerate(expected):
        same(f32(out[f"v{10 + at}"]), value.astype(F32))


def ieee_max(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    if a == b == 0:
        return 0.0 if math.copysign(1, a) > 0 or math.copysign(1, b) > 0 else -0.0
    return max(a, b)


@settings(deadline=None, max_examples=15)
@given(a=lanes32, b=lanes32, c=lanes32)
def test_min_max(execute: Any, a: Any, b: Any, c: Any) -> None:
    b[::7], c[::7] = 0x80000000, 0
    body = [
        "v_max_f32_e32 v10, v1, v2",
        "v_min_f32_e32 v11, v1, v2",
        "v_max3_f32 v12, v1, v2, v3",
        "v_med3_f32 v13, v1, v2, v3",
    ]
    out = execute(body, {"v1": a, "v2": b, "v3": c}, ["v10", "v11", "v12", "v13"])
    with np.errstate(invalid="ignore"):
        x, y, z = (f32(v).astype(F64).tolist() for v in (a, b, c))

    def low(p: float, q: float) -> float:
        return -ieee_max(-p, -q)

    top = [ieee_max(p, q) for p, q in zip(x, y, strict=True)]
    same(f32(out["v10"]), np.array(top, F32))
    same(f32(out["v11"]), np.array([low(p, q) for p, q in zip(x, y, strict=True)], F32))
    same(f32(out["v12"]), np.array([ieee_max(p, q) for p, q in zip(top, z, strict=True)], F32))
    triples = zip(x, y, z, strict=True)
    middle = [low(low(*t[:2]), t[2]) if any(map(math.isnan, t)) else sorted(t)[1] for t in triples]
    np.testing.assert_array_equal(f32(out["v13"]), np.array(middle, F32))


@settings(deadline=None, max_examples=10)
@given(a=lanes32, b=lanes32)
def test_compares(execute: Any, a: Any, b: Any) -> None:
    b[::3] = a[::3]
    x, y = f32(a), f32(b)
    with np.errstate(all="ignore"):
        unordered = np.isnan(x) | np.isnan(y)
        expected: dict[str, Any] = {
            "lt": x < y,
            "eq": x == y,
            "le": x <= y,
            "gt": x > y,
            "lg": (x < y) | (x > y),
            "ge": x >= y,
            "o": ~unordered,
            "u": unordered,
            "nge": ~(x >= y),
            "nlg": (x == y) | unordered,
            "ngt": ~(x > y),
            "nle": ~(x <= y),
            "neq": x != y,
            "nlt": ~(x < y),
            "f": x != x,
            "tru": np.ones(64, bool),
        }
    expected["f"] = np.zeros(64, bool)
    for group in (list(expected)[:8], list(expected)[8:]):
        body, names = [], []
        for at, name in enumerate(group):
            pair = f"s[{20 + 2 * at}:{21 + 2 * at}]"
            body += [f"v_cmp_{name}_f32_e64 {pair}, v1, v2", f"v_cndmask_b32_e64 v{10 + at}, 0, 1, {pair}"]
            names.append(f"v{10 + at}")
        out = execute(body, {"v1": a, "v2": b}, names)
        for at, name in enumerate(group):
            np.testing.assert_array_equal(out[f"v{10 + at}"], expected[name].astype(np.uint32), err_msg=name)


def test_class(execute: Any) -> None:
    values = np.array(
        [0x7FA00000, 0x7FC00000, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000, 0, 1, 0x3F800000, 0x7F800000],
        np.uint32,
    )
    a = np.resize(values, 64)
    for at in range(10):
        body = [f"v_cmp_class_f32_e64 s[20:21], v1, {1 << at:#x}", "v_cndmask_b32_e64 v10, 0, 1, s[20:21]"]
        out = execute(body, {"v1": a}, ["v10"])
        np.testing.assert_array_equal(out["v10"], np.arange(64) % 10 == at)


ROUNDING: dict[str, Callable[[Any], Any]] = {
    "v_trunc_f32_e32": np.trunc,
    "v_ceil_f32_e32": np.ceil,
    "v_floor_f32_e32": np.floor,
    "v_rndne_f32_e32": np.rint,
}


@settings(deadline=None, max_examples=10)
@given(a=hnp.arrays(F32, 64, elements=st.floats(-1e9, 1e9, width=32)))
@example(a=np.resize(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e-40, -0.0, 3e9], F32), 64))
def test_rounding_and_integers(execute: Any, a: Any) -> None:
    body = [f"{name} v{10 + at}, v1" for at, name in enumerate(ROUNDING)]
    body += [
        "v_cvt_i32_f32_e32 v14, v1",
        "v_cvt_u32_f32_e32 v15, v1",
        "v_cvt_flr_i32_f32_e32 v16, v1",
        "v_fract_f32_e32 v17, v1",
    ]
    out = execute(body, {"v1": a}, [f"v{n}" for n in range(10, 18)])
    for at, function in enumerate(ROUNDING.values()):
        same(f32(out[f"v{10 + at}"]), function(a))
    wide = a.astype(F64)
    np.testing.assert_array_equal(out["v14"].view(np.int32), np.clip(np.trunc(wide), -(2**31), 2**31 - 1))
    np.testing.assert_array_equal(out["v15"], np.clip(np.trunc(wide), 0, 2**32 - 1))
    np.testing.assert_array_equal(out["v16"].view(np.int32), np.clip(np.floor(wide), -(2**31), 2**31 - 1))
    same(f32(out["v17"]), a - np.floor(a))


def test_saturating_conversion_of_specials(execute: Any) -> None:
    a = np.resize(np.array([np.nan, np.inf, -np.inf, 3e10, -3e10, -1.5], F32), 64)
    out = execute(["v_cvt_i32_f32_e32 v10, v1", "v_cvt_u32_f32_e32 v11, v1"], {"v1": a}, ["v10", "v11"])
    top, low = 2**31 - 1, -(2**31)
    np.testing.assert_array_equal(out["v10"].view(np.int32)[:6], [0, top, low, top, low, -1])
    np.testing.assert_array_equal(out["v11"][:6], [0, 2**32 - 1, 0, 2**32 - 1, 0, 0])


@settings(deadline=None, max_examples=10)
@given(a=lanes32)
def test_integer_to_float(execute: Any, a: Any) -> None:
    body = ["v_cvt_f32_u32_e32 v10, v1", "v_cvt_f32_i32_e32 v11, v1", "v_cvt_f32_ubyte2_e32 v12, v1"]
    body += ["v_cvt_f64_u32_e32 v[14:15], v1", "v_cvt_f32_f64_e32 v16, v[14:15]"]
    out = execute(body, {"v1": a}, ["v10", "v11", "v12", "v16"])
    same(f32(out["v10"]), a.astype(F32))
    same(f32(out["v11"]), a.view(np.int32).astype(F32))
    same(f32(out["v12"]), (a >> 16 & 255).astype(F32))
    same(f32(out["v16"]), a.astype(F64).astype(F32))


@settings(deadline=None, max_examples=15)
@given(a=lanes32, b=lanes32)
def test_narrow_conversions(execute: Any, a: Any, b: Any) -> None:
    body = ["v_cvt_f16_f32_e32 v150, v1", "v_cvt_pk_f16_f32 v11, v1, v2", "v_cvt_pk_bf16_f32 v12, v1, v2"]
    body += ["v_cvt_f32_f16_e32 v13, v150", "v_cvt_pkrtz_f16_f32 v14, v1, v2", "v_cvt_f32_f16_e64 v15, -v11"]
    out = execute(body, {"v1": a, "v2": b, "v150": b}, ["v150", "v11", "v12", "v13", "v14", "v15"])
    x, y = f32(a), f32(b)
    with np.errstate(all="ignore"):
        low, high = x.astype(F16), y.astype(F16)
        same(out["v150"].astype(np.uint16).view(F16), low)
        assert not (out["v150"] >> 16).any()
        for register, pair in (("v11", (low, high)), ("v12", (x.astype(BF16), y.astype(BF16)))):
            halves = out[register].view(np.uint16).reshape(64, 2)
            for at in (0, 1):
                nan = np.isnan(pair[at].astype(F32))
                np.testing.assert_array_equal(halves[~nan, at], pair[at].view(np.uint16)[~nan])
                got = halves[nan, at].astype(np.uint16).view(pair[at].dtype).astype(F32)
                assert np.isnan(got).all()
        same(f32(out["v13"]), low.astype(F32))
        same(f32(out["v15"]), -low.astype(F32))
        near = out["v14"].view(F16).reshape(64, 2).astype(F32)
        for at, value in enumerate((x, y)):
            ok = np.isfinite(value)
            assert (np.abs(near[ok, at]) <= np.abs(value[ok])).all()
            limit = np.minimum(np.abs(value[ok]).astype(F64), 65504)
            step = np.maximum(2.0**-24, np.exp2(np.floor(np.log2(np.maximum(limit, 2.0**-30))) - 10))
            assert (limit - np.abs(near[ok, at]) < step).all()


@settings(deadline=None, max_examples=15)
@given(a=lanes16, b=lanes16, c=lanes16)
def test_half_arithmetic(execute: Any, a: Any, b: Any, c: Any) -> None:
    inputs = {"v1": a.astype(np.uint32), "v2": b.astype(np.uint32), "v3": c.astype(np.uint32)}
    body = [
        "v_add_f16_e32 v10, v1, v2",
        "v_mul_f16_e32 v11, v1, v2",
        "v_fma_f16 v12, v1, v2, v3",
        "v_max_f16_e32 v13, v1, v2",
    ]
    body += ["v_pack_b32_f16 v14, v1, v2", "v_pk_fma_f16 v15, v14, v14, v14 op_sel:[0,1,0] op_sel_hi:[1,0,1]"]
    body += ["v_pk_add_f16 v16, v14, v3 op_sel_hi:[1,0] neg_lo:[1,0]", "v_fma_f16 v14, v1, v2, v3 op_sel:[0,0,0,1]"]
    out = execute(body, inputs, [f"v{n}" for n in range(10, 17)])
    x, y, z = a.view(F16), b.view(F16), c.view(F16)
    with np.errstate(all="ignore"):
        same(out["v10"].astype(np.uint16).view(F16), x + y)
        same(out["v11"].astype(np.uint16).view(F16), x * y)
        fma = exact_fma(x, y, z)
        same(out["v12"].astype(np.uint16).view(F16), fma)
        high = (out["v14"] >> 16).astype(np.uint16).view(F16)
        same(high, fma)
        np.testing.assert_array_equal(out["v14"] & 0xFFFF, a)
        pairs = out["v15"].view(F16).reshape(64, 2)
        same(pairs[:, 0].copy(), exact_fma(x, y, x))
        same(pairs[:, 1].copy(), exact_fma(y, x, y))
        sums = out["v16"].view(F16).reshape(64, 2)
        same(sums[:, 0].copy(), -x + z)
        same(sums[:, 1].copy(), y + z)


@settings(deadline=None, max_examples=10)
@given(a=lanes32, b=lanes32, c=lanes32, d=lanes32)
def test_packed_pairs(execute: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    body = [
        "v_pk_add_f32 v[10:11], v[2:3], v[4:5]",
        "v_pk_mul_f32 v[12:13], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]",
        "v_pk_fma_f32 v[14:15], v[2:3], v[4:5], v[2:3] op_sel_hi:[1,0,1] neg_hi:[1,0,0]",
        "v_pk_mov_b32 v[16:17], v[2:3], v[4:5] op_sel:[1,0]",
        "v_pk_mul_f32 v[18:19], v[2:3], s[20:21] op_sel_hi:[1,0]",
        "v_pk_mov_b32 v[2:3], v[2:3], v[2:3] op_sel:[1,0]",
    ]
    inputs = {"v2": a, "v3": b, "v4": c, "v5": d, "s20": 0x40000000, "s21": 0x40400000}
    out = execute(body, inputs, [f"v{n}" for n in (*range(10, 20), 2, 3)])
    x, y, z, w = f32(a), f32(b), f32(c), f32(d)
    with np.errstate(all="ignore"):
        two = F32(2)
        expected = [x + z, y + w, y * -z, x * w, exact_fma(x, z, x), exact_fma(-y, z, y), y, z, x * two, y * two, y, x]
    for name, value in zip(out, expected, strict=True):
        same(f32(out[name]), value)


@settings(deadline=None, max_examples=25)
@given(n=lanes32, d=lanes32)
@example(n=np.resize(EDGES32, 64), d=np.resize(EDGES32[::-1], 64))
def test_division_sequence(execute: Any, n: Any, d: Any) -> None:
    """The code that LLVM emits for an IEEE division is correctly rounded, denormals and specials included."""
    body = [
        "v_div_scale_f32 v10, s[20:21], v2, v2, v1",
        "v_rcp_f32_e32 v11, v10",
        "v_div_scale_f32 v12, vcc, v1, v2, v1",
        "v_fma_f32 v13, -v10, v11, 1.0",
        "v_fmac_f32_e32 v11, v13, v11",
        "v_mul_f32_e32 v13, v12, v11",
        "v_fma_f32 v14, -v10, v13, v12",
        "v_fmac_f32_e32 v13, v14, v11",
        "v_fma_f32 v10, -v10, v13, v12",
        "v_div_fmas_f32 v10, v10, v11, v13",
        "v_div_fixup_f32 v10, v10, v2, v1",
    ]
    out = execute(body, {"v1": n, "v2": d}, ["v10"])
    with np.errstate(all="ignore"):
        same(f32(out["v10"]), f32(n) / f32(d))


TRANSCENDENTAL: dict[str, Callable[[Any], Any]] = {
    "v_exp_f32_e32": np.exp2,
    "v_log_f32_e32": lambda a: np.log2(np.abs(a)),
    "v_rcp_f32_e32": lambda a: 1 / a,
    "v_rsq_f32_e32": lambda a: 1 / np.sqrt(np.abs(a)),
    "v_sqrt_f32_e32": lambda a: np.sqrt(np.abs(a)),
}


@settings(deadline=None, max_examples=8)
@given(a=hnp.arrays(F32, 64, elements=st.floats(-100, 100, width=32).filter(lambda v: abs(v) > 1e-3)))
def test_transcendental(execute: Any, a: Any) -> None:
    body = [
        f"{name.replace('e32', 'e64')} v{10 + at}, {'v1' if 'exp' in name or 'rcp' in name else '|v1|'}"
        for at, name in enumerate(TRANSCENDENTAL)
    ]
    out = execute(body, {"v1": a}, [f"v{10 + at}" for at in range(5)])
    for at, function in enumerate(TRANSCENDENTAL.values()):
        np.testing.assert_allclose(f32(out[f"v{10 + at}"]), function(a.astype(F64)), rtol=5e-7, atol=1e-7)


@settings(deadline=None, max_examples=8)
@given(a=lanes32, b=hnp.arrays(np.int32, 64, elements=st.integers(-300, 300)))
def test_scaling(execute: Any, a: Any, b: Any) -> None:
    body = ["v_ldexp_f32 v10, v1, v2", "v_frexp_exp_i32_f32_e32 v11, v1", "v_frexp_mant_f32_e32 v12, v1"]
    out = execute(body, {"v1": a, "v2": b}, ["v10", "v11", "v12"])
    x = f32(a)
    with np.errstate(all="ignore"):
        same(f32(out["v10"]), np.ldexp(x.astype(F64), b).astype(F32))
    ok = np.isfinite(x)
    again = np.ldexp(f32(out["v12"])[ok].astype(F64), out["v11"].view(np.int32)[ok])
    np.testing.assert_array_equal(again, x[ok].astype(F64))


def test_double(execute: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 64)) * 1e100
    parts = {"v2": x.view(np.uint32)[0::2].copy(), "v3": x.view(np.uint32)[1::2].copy()}
    parts |= {"v4": y.view(np.uint32)[0::2].copy(), "v5": y.view(np.uint32)[1::2].copy()}
    body = [
        "v_add_f64 v[10:11], v[2:3], v[4:5]",
        "v_mul_f64 v[12:13], v[2:3], -v[4:5]",
        "v_fma_f64 v[14:15], v[2:3], 0.5, v[4:5]",
    ]
    out = execute(body, parts, [f"v{n}" for n in range(10, 16)])
    for at, expected in ((10, x + y), (12, x * -y), (14, x * 0.5 + y)):
        got = np.stack((out[f"v{at}"], out[f"v{at + 1}"]), axis=-1).reshape(-1).view(F64)
        np.testing.assert_array_equal(got, expected)


def test_negation_in_select(execute: Any) -> None:
    a = np.arange(64, dtype=F32)
    out = execute(["v_cmp_gt_f32_e32 vcc, 1.0, v1",
                   "v_cndmask_b32_e64 v10, -v1, |v2|, vcc"], {"v1": a, "v2": -a - 5}, ["v10"])  # fmt: skip
    np.testing.assert_array_equal(f32(out["v10"]), np.where(a < 1, a + 5, -a))


@pytest.mark.parametrize("bits", [16, 32])
def test_inline_constants(execute: Any, bits: int) -> None:
    name = "v_add_f16_e32" if bits == 16 else "v_add_f32_e32"
    out = execute(
        [f"{name} v10, 1.0, v1", f"{name} v11, -4.0, v1", f"{name} v12, 0.15915494, v1"],
        {"v1": 0},
        ["v10", "v11", "v12"],
    )
    dtype = F16 if bits == 16 else F32
    for register, value in (("v10", 1.0), ("v11", -4.0), ("v12", 0.15915494)):
        assert out[register].astype(f"u{bits // 8}").view(dtype)[0] == dtype(value)
