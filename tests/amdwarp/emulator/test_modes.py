"""Rounding directions, denormal flushing, clamp and output modifiers, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

F16, F32, F64 = np.float16, np.float32, np.float64
EDGES32 = [0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800001, 0x7F7FFFFF, 0xFF7FFFFF]
EDGES32 += [0x7F800000, 0xFF800000, 0x7FC00000, 0x33800000, 0x4B800001]
bits32 = st.one_of(st.sampled_from(EDGES32), st.integers(0, 2**32 - 1), st.integers(0x3F000000, 0x40800000))
lanes32 = hnp.arrays(np.uint32, 64, elements=bits32)
EDGES16 = [0, 0x8000, 1, 0x83FF, 0x400, 0x3C00, 0xBC01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
lanes16 = hnp.arrays(np.uint16, 64, elements=st.one_of(st.sampled_from(EDGES16), st.integers(0, 0xFFFF)))
EDGES64 = [
    0,
    1 << 63,
    1,
    0x3FF0000000000000,
    0xBFF0000000000001,
    0x7FEFFFFFFFFFFFFF,
    0x10000000000000,
    0x7FF0000000000000,
]
bits64 = st.one_of(st.sampled_from(EDGES64), st.integers(0, 2**64 - 1), st.integers(0x3FE0 << 48, 0x4010 << 48))
lanes64 = hnp.arrays(np.uint64, 64, elements=bits64)

#: MODE's code of a direction.
DIRECTIONS = {"up": 1, "down": 2, "zero": 3}


def directed(value: Fraction, dtype: Any, direction: str) -> Any:
    """`value` rounded in a direction, found by stepping through neighbours of an approximation."""
    low, high = dtype(-math.inf), dtype(math.inf)
    with np.errstate(over="ignore"):
        try:
            guess = dtype(float(value))
        except OverflowError:
            guess = high if value > 0 else low
    if np.isinf(guess):
        guess = dtype(math.copysign(float(np.finfo(dtype).max), guess))
    while np.isfinite(guess) and Fraction(float(guess)) > value:
        guess = np.nextafter(guess, low)
    while np.isfinite(np.nextafter(guess, high)) and Fraction(float(np.nextafter(guess, high))) <= value:
        guess = np.nextafter(guess, high)
    # guess is the largest number that is not above, or -infinity.
    if np.isfinite(guess) and Fraction(float(guess)) == value:
        return guess
    above = np.nextafter(guess, high)
    if direction == "up" or (direction == "zero" and value < 0):
        return above
    return guess


def signed_zero(terms: list[float], direction: str) -> float:
    """The sum of terms that cancel: -0 where all are -0, or where rounding down and not all are +0."""
    negative = [math.copysign(1, term) < 0 for term in terms]
    return -0.0 if all(negative) or (direction == "down" and any(negative)) else 0.0


def expected(operation: str, dtype: Any, direction: str, *sources: Any) -> Any:
    """Element by element; what is not finite stands as numpy has it."""
    with np.errstate(all="ignore"):
        wide = [source.astype(F64) if dtype is not F64 else source for source in sources]
        plain = {
            "add": lambda: wide[0] + wide[1],
            "mul": lambda: wide[0] * wide[1],
            "fma": lambda: wide[0] * wide[1] + wide[2],
            "cvt": lambda: wide[0],
        }[operation]().astype(dtype)
    finite = np.logical_and.reduce([np.isfinite(source) for source in sources])
    with np.errstate(over="ignore"):
        _exactly(plain, np.flatnonzero(finite), operation, dtype, direction, sources)
    return plain


def _exactly(plain: Any, places: Any, operation: str, dtype: Any, direction: str, sources: Any) -> None:
    for at in places:
        values = [Fraction(float(source[at])) for source in sources]
        exact = {"add": sum(values), "cvt": values[0]}.get(operation)
        if exact is None:
            exact = values[0] * values[1] + (values[2] if operation == "fma" else 0)
        numbers = [float(source[at]) for source in sources]
        if exact:
            plain[at] = directed(Fraction(exact), dtype, direction)
        elif operation == "add":
            plain[at] = signed_zero(numbers, direction)
        elif operation == "fma":
            sign = math.copysign(1, numbers[0]) * math.copysign(1, numbers[1])
            product = math.copysign(float(values[0] * values[1] != 0), sign)
            plain[at] = signed_zero([product, numbers[2]], direction)


def same(got: Any, wanted: Any) -> None:
    wide = f"u{wanted.dtype.itemsize}"
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(wide)[~nan], wanted.view(wide)[~nan])


def setreg(offset: int, size: int, value: int) -> str:
    return f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {offset}, {size}), {value}"


@pytest.mark.parametrize("direction", list(DIRECTIONS))
@settings(deadline=None, max_examples=8)
@given(a=lanes32, b=lanes32, c=lanes32)
def test_single_precision_rounding(execute: Any, direction: str, a: Any, b: Any, c: Any) -> None:
    body = [setreg(0, 2, DIRECTIONS[direction]), "v_add_f32_e32 v10, v1, v2", "v_mul_f32_e32 v11, v1, v2"]
    body += ["v_fma_f32 v12, v1, v2, v3", "v_sub_f32_e32 v13, v1, v2", "v_mov_b32_e32 v14, v3"]
    body += ["v_fmac_f32_e32 v14, v1, v2", "v_mov_b32_e32 v4, v3", "v_mov_b32_e32 v5, v1"]
    body += ["v_pk_mul_f32 v[16:17], v[4:5], v[4:5]", "v_fmamk_f32 v18, v1, 0x40490fdb, v2"]
    out = execute(body, {"v1": a, "v2": b, "v3": c}, [f"v{n}" for n in (*range(10, 15), 16, 17, 18)])
    x, y, z = a.view(F32), b.view(F32), c.view(F32)
    pi = np.full(64, 0x40490FDB, np.uint32).view(F32)
    wanted = {
        "v10": expected("add", F32, direction, x, y),
        "v11": expected("mul", F32, direction, x, y),
        "v12": expected("fma", F32, direction, x, y, z),
        "v13": expected("add", F32, direction, x, -y),
        "v14": expected("fma", F32, direction, x, y, z),
        "v16": expected("mul", F32, direction, z, z),
        "v17": expected("mul", F32, direction, x, x),
        "v18": expected("fma", F32, direction, x, pi, y),
    }
    for name, value in wanted.items():
        same(out[name].view(F32), value)


@pytest.mark.parametrize("direction", list(DIRECTIONS))
@settings(deadline=None, max_examples=6)
@given(a=lanes16, b=lanes16, c=lanes32)
def test_half_precision_rounding(execute: Any, direction: str, a: Any, b: Any, c: Any) -> None:
    body = [setreg(2, 2, DIRECTIONS[direction]), "v_add_f16_e32 v10, v1, v2", "v_mul_f16_e32 v11, v1, v2"]
    body += ["v_fma_f16 v12, v1, v2, v1", "v_cvt_f16_f32_e32 v13, v3", "v_cvt_pk_f16_f32 v14, v3, v3"]
    body += ["v_pk_add_f16 v15, v1, v2", "v_add_f32_e32 v16, v3, v3"]
    wide = [value.astype(np.uint32) | value.astype(np.uint32) << 16 for value in (a, b)]
    out = execute(body, {"v1": wide[0], "v2": wide[1], "v3": c}, [f"v{n}" for n in range(10, 17)])
    x, y, z = a.view(F16), b.view(F16), c.view(F32)

    def half(name: str, shift: int = 0) -> Any:
        return (out[name] >> np.uint32(shift)).astype(np.uint16).view(F16)

    same(half("v10"), expected("add", F16, direction, x, y))
    same(half("v11"), expected("mul", F16, direction, x, y))
    same(half("v12"), expected("fma", F16, direction, x, y, x))
    same(half("v13"), expected("cvt", F16, direction, z))
    same(half("v14", 16), expected("cvt", F16, direction, z))
    same(half("v15", 16), expected("add", F16, direction, x, y))
    # The other field of MODE is not touched.
    with np.errstate(all="ignore"):
        same(out["v16"].view(F32), z + z)


@pytest.mark.parametrize("direction", list(DIRECTIONS))
@settings(deadline=None, max_examples=4)
@given(a=lanes64, b=lanes64, c=lanes64)
def test_double_precision_rounding(execute: Any, direction: str, a: Any, b: Any, c: Any) -> None:
    halves = [np.ascontiguousarray(value).view(np.uint32).reshape(64, 2) for value in (a, b, c)]
    inputs = {f"v{2 + 2 * at + part}": pair[:, part].copy() for at, pair in enumerate(halves) for part in (0, 1)}
    body = [setreg(2, 2, DIRECTIONS[direction]), "v_add_f64 v[10:11], v[2:3], v[4:5]"]
    body += ["v_mul_f64 v[12:13], v[2:3], v[4:5]", "v_fma_f64 v[14:15], v[2:3], v[4:5], v[6:7]"]
    body += [setreg(0, 2, DIRECTIONS[direction]), "v_cvt_f32_f64_e32 v16, v[2:3]"]
    out = execute(body, inputs, [f"v{n}" for n in range(10, 17)])

    def double(first: int) -> Any:
        return np.ascontiguousarray(np.stack([out[f"v{first}"], out[f"v{first + 1}"]], axis=1)).view(F64)[:, 0]

    x, y, z = (value.view(F64) for value in (a, b, c))
    same(double(10), expected("add", F64, direction, x, y))
    same(double(12), expected("mul", F64, direction, x, y))
    same(double(14), expected("fma", F64, direction, x, y, z))
    same(out["v16"].view(F32), expected("cvt", F32, direction, x))


@settings(deadline=None, max_examples=8)
@given(a=lanes64, b=lanes64, c=lanes64)
def test_double_fma_to_nearest(execute: Any, a: Any, b: Any, c: Any) -> None:
    halves = [np.ascontiguousarray(value).view(np.uint32).reshape(64, 2) for value in (a, b, c)]
    inputs = {f"v{2 + 2 * at + part}": pair[:, part].copy() for at, pair in enumerate(halves) for part in (0, 1)}
    out = execute(["v_fma_f64 v[10:11], v[2:3], v[4:5], v[6:7]"], inputs, ["v10", "v11"])
    got = np.ascontiguousarray(np.stack([out["v10"], out["v11"]], axis=1)).view(F64)[:, 0]
    x, y, z = (value.view(F64) for value in (a, b, c))
    with np.errstate(all="ignore"):
        wanted = x * y + z
    for at in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & np.isfinite(z)):
        exact = Fraction(float(x[at])) * Fraction(float(y[at])) + Fraction(float(z[at]))
        if exact:
            try:
                wanted[at] = float(exact)
            except OverflowError:
                wanted[at] = math.inf if exact > 0 else -math.inf
    same(got, wanted)


def flushed(value: Any, on: bool) -> Any:
    tiny = (np.abs(value) < np.finfo(value.dtype).tiny) & (value != 0)
    return np.where(tiny & on, np.copysign(value.dtype.type(0), value), value)


@pytest.mark.parametrize("allow", [0, 1, 2, 3])
@settings(deadline=None, max_examples=8)
@given(a=lanes32, b=lanes32)
def test_denormals_of_single_precision(execute: Any, allow: int, a: Any, b: Any) -> None:
    """The lower bit allows denormal sources, the upper one denormal results."""
    body = [setreg(4, 2, allow), "v_add_f32_e32 v10, v1, v2", "v_mul_f32_e32 v11, v1, v2", "v_mov_b32_e32 v12, v1"]
    body += ["v_cmp_lt_f32_e32 vcc, v1, v2", "v_cndmask_b32_e64 v13, 0, 1, vcc", "v_max_f32_e32 v14, v1, v1"]
    out = execute(body, {"v1": a, "v2": b}, [f"v{n}" for n in range(10, 15)])
    x, y = (flushed(value.view(F32), not allow & 1) for value in (a, b))
    with np.errstate(all="ignore"):
        same(out["v10"].view(F32), flushed(x + y, not allow & 2))
        same(out["v11"].view(F32), flushed(x * y, not allow & 2))
        same(out["v14"].view(F32), flushed(x, not allow & 2))
        np.testing.assert_array_equal(out["v13"], (x < y).astype(np.uint32))
    np.testing.assert_array_equal(out["v12"], a)


@settings(deadline=None, max_examples=6)
@given(a=lanes16, b=lanes16)
def test_denormals_of_half_precision(execute: Any, a: Any, b: Any) -> None:
    body = [setreg(6, 2, 0), "v_add_f16_e32 v10, v1, v2", "v_add_f32_e32 v11, v3, v3"]
    tiny = np.full(64, 0x200000, np.uint32)
    out = execute(body, {"v1": a.astype(np.uint32), "v2": b.astype(np.uint32), "v3": tiny}, ["v10", "v11"])
    with np.errstate(all="ignore"):
        total = flushed(a.view(F16), True) + flushed(b.view(F16), True)
    same(out["v10"].astype(np.uint16).view(F16), flushed(total, True))
    np.testing.assert_array_equal(out["v11"], 0x400000)


def test_mode_of_the_descriptor(program_text: Any) -> None:
    from amdwarp.emulator import launch

    body = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "v_lshlrev_b32_e32 v1, 2, v0", "s_waitcnt lgkmcnt(0)"]
    body += ["global_load_dword v2, v1, s[4:5]", "s_waitcnt vmcnt(0)", "v_add_f32_e32 v2, 1.0, v2"]
    body += ["global_store_dword v1, v2, s[6:7]"]
    text = program_text(body).replace(
        "\t.end_amdhsa_kernel", "\t\t.amdhsa_float_round_mode_32 1\n\t.end_amdhsa_kernel", 1
    )
    source, out = np.full(64, 2.0**-30, F32), np.zeros(64, F32)
    launch(text, [source, out], (1,))
    np.testing.assert_array_equal(out, np.nextafter(F32(1), F32(2)))


OMOD = [("mul:2", 2.0), ("mul:4", 4.0), ("div:2", 0.5)]


@pytest.mark.parametrize(("text", "factor"), OMOD)
@settings(deadline=None, max_examples=6)
@given(a=lanes32, b=lanes32)
def test_output_modifier(execute: Any, text: str, factor: float, a: Any, b: Any) -> None:
    """It acts with denormal results and IEEE mode off, and is ignored else."""
    body = [f"v_add_f32_e64 v10, v1, v2 {text}", setreg(4, 2, 0), f"v_add_f32_e64 v11, v1, v2 {text}"]
    body += [setreg(9, 1, 0), f"v_add_f32_e64 v12, v1, v2 {text}", f"v_add_f32_e64 v13, v1, v2 clamp {text}"]
    body += ["v_mov_b32_sdwa v14, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD"]
    out = execute(body, {"v1": a, "v2": b}, [f"v{n}" for n in range(10, 15)])
    x, y = a.view(F32), b.view(F32)
    with np.errstate(all="ignore"):
        same(out["v10"].view(F32), x + y)
        flat = flushed(flushed(x, True) + flushed(y, True), True)
        same(out["v11"].view(F32), flat)
        scaled = flushed(flat * F32(factor), True)
        scaled = np.where(scaled == 0, F32(0), scaled)
        same(out["v12"].view(F32), scaled)
        same(out["v13"].view(F32), np.clip(np.where(np.isnan(scaled), F32(0), scaled), F32(0), F32(1)))
    np.testing.assert_array_equal(out["v14"], a)


def test_clamp_keeps_nan_without_dx10_clamp(execute: Any) -> None:
    nan = np.full(64, np.nan, F32)
    body = ["v_add_f32_e64 v10, v1, v1 clamp", setreg(8, 1, 0), "v_add_f32_e64 v11, v1, v1 clamp"]
    body += ["v_add_f32_e64 v12, 2.0, 2.0 clamp"]
    out = execute(body, {"v1": nan}, ["v10", "v11", "v12"])
    np.testing.assert_array_equal(out["v10"], 0)
    assert np.isnan(out["v11"].view(F32)).all()
    np.testing.assert_array_equal(out["v12"].view(F32), 1)


def test_mode_is_read_back(execute: Any) -> None:
    body = [setreg(0, 2, 3), "s_getreg_b32 s20, hwreg(HW_REG_MODE, 0, 8)", setreg(0, 2, 0)]
    body += [
        "s_getreg_b32 s21, hwreg(HW_REG_MODE)",
        "s_mov_b32 s22, 0x55",
        "s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), s22",
    ]
    body += ["s_getreg_b32 s23, hwreg(HW_REG_MODE, 23, 1)"]
    out = execute(body, {}, ["s20", "s21", "s23"])
    assert out["s20"][0] == 0xF3 and out["s21"][0] & 0x3FF == 0x3F0 and out["s23"][0] == 1


def test_matrix_flushes_denormal_sources(execute: Any) -> None:
    tiny, big = np.full(64, 0x00400000, np.uint32), np.full(64, 2.0**100, F32)
    line = "v_mfma_f32_16x16x4_f32 v[{}], v8, v9, 0"
    body = [line.format("20:23"), setreg(4, 2, 2), line.format("24:27")]
    out = execute(body, {"v8": tiny, "v9": big}, ["v20", "v24"])
    np.testing.assert_array_equal(out["v20"].view(F32), F32(4 * 2.0**-127 * 2.0**100))
    np.testing.assert_array_equal(out["v24"], 0)


def test_matrix_overflow_clamps(execute: Any) -> None:
    big = np.full(64, 2.0**100, F32)
    line = "v_mfma_f32_16x16x4_f32 v[{}], v8, v9, 0"
    body = [line.format("20:23"), setreg(23, 1, 1), line.format("24:27")]
    out = execute(body, {"v8": big, "v9": -big}, ["v20", "v24"])
    np.testing.assert_array_equal(out["v20"].view(F32), -np.inf)
    np.testing.assert_array_equal(out["v24"].view(F32), -np.finfo(F32).max)
