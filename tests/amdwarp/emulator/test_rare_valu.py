"""The rarer vector instructions against Python integers and floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

F16, F32, F64 = np.float16, np.float32, np.float64
M32 = (1 << 32) - 1
bits32 = st.one_of(st.sampled_from([0, 1, M32, 0x80000000, 0x7FFFFFFF, 0x00FF00FF, 0x80808080]), st.integers(0, M32))
lanes32 = hnp.arrays(np.uint32, 64, elements=bits32)
EDGES16 = [0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00]
lanes16 = hnp.arrays(np.uint16, 64, elements=st.one_of(st.sampled_from(EDGES16), st.integers(0, 0xFFFF)))


def s(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def fields(value: int, width: int, count: int | None = None) -> list[int]:
    return [value >> at & ((1 << width) - 1) for at in range(0, width * (count or 32 // width), width)]


def sad(a: int, b: int, width: int, masked: bool = False) -> int:
    return sum(abs(x - y) for x, y in zip(fields(a, width), fields(b, width), strict=True) if y or not masked)


def dot(a: int, b: int, width: int, signed: bool = False) -> int:
    pairs = zip(fields(a, width), fields(b, width), strict=True)
    return sum(s(x, width) * s(y, width) if signed else x * y for x, y in pairs)


def lerp(a: int, b: int, c: int) -> int:
    rows = zip(fields(a, 8), fields(b, 8), fields(c, 8), strict=True)
    return sum((x + y + (z & 1) >> 1) << 8 * at for at, (x, y, z) in enumerate(rows))


def clip(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


#: instruction to its result of three dwords
THREE: dict[str, Callable[[int, int, int], int]] = {
    "v_sad_u8 {}": lambda a, b, c: sad(a, b, 8) + c,
    "v_sad_hi_u8 {}": lambda a, b, c: (sad(a, b, 8) << 16) + c,
    "v_sad_u16 {}": lambda a, b, c: sad(a, b, 16) + c,
    "v_sad_u32 {} clamp": lambda a, b, c: min(abs(a - b) + c, M32),
    "v_sad_u8 {} clamp": lambda a, b, c: min(sad(a, b, 8) + c, M32),
    "v_msad_u8 {}": lambda a, b, c: sad(a, b, 8, True) + c,
    "v_lerp_u8 {}": lerp,
    "v_mad_u32_u24 {} clamp": lambda a, b, c: min((a & 0xFFFFFF) * (b & 0xFFFFFF) + c, M32),
    "v_mad_i32_i24 {} clamp": lambda a, b, c: clip(s(a, 24) * s(b, 24) + s(c), -(2**31), 2**31 - 1),
    "v_mad_legacy_u16 {}": lambda a, b, c: a * b + c & 0xFFFF,
    "v_mad_legacy_i16 {} clamp": lambda a, b, c: clip(s(a, 16) * s(b, 16) + s(c, 16), -32768, 32767) & 0xFFFF,
    "v_mad_u16 {} clamp": lambda a, b, c: min((a & 0xFFFF) * (b & 0xFFFF) + (c & 0xFFFF), 0xFFFF),
    "v_ashr_pk_i8_i32 {}": lambda a, b, c: (
        clip(s(a) >> c % 32, -128, 127) & 0xFF | (clip(s(b) >> c % 32, -128, 127) & 0xFF) << 8
    ),
    "v_ashr_pk_u8_i32 {}": lambda a, b, c: clip(s(a) >> c % 32, 0, 255) | clip(s(b) >> c % 32, 0, 255) << 8,
    "v_dot2_i32_i16 {}": lambda a, b, c: dot(a, b, 16, True) + c,
    "v_dot2_u32_u16 {} clamp": lambda a, b, c: min(dot(a, b, 16) + c, M32),
    "v_dot4_u32_u8 {} clamp": lambda a, b, c: min(dot(a, b, 8) + c, M32),
    "v_dot8_i32_i4 {}": lambda a, b, c: dot(a, b, 4, True) + c,
    "v_dot8_i32_i4 {} clamp": lambda a, b, c: clip(dot(a, b, 4, True) + s(c), -(2**31), 2**31 - 1),
    "v_dot8_u32_u4 {}": lambda a, b, c: dot(a, b, 4) + c,
    "v_pk_mad_u16 {} clamp": lambda a, b, c: sum(
        min(x * y + z, 0xFFFF) << 16 * at
        for at, (x, y, z) in enumerate(zip(*(fields(v, 16) for v in (a, b, c)), strict=True))
    ),
}
#: Instructions that leave the upper half of their destination.
KEEPS = ("v_mad_u16", "v_ashr_pk", "v_add_i16", "v_sub_i16")
TWO: dict[str, Callable[[int, int], int]] = {
    "v_add_i16 {}": lambda a, b: a + b & 0xFFFF,
    "v_add_i16 {} clamp": lambda a, b: clip(s(a, 16) + s(b, 16), -32768, 32767) & 0xFFFF,
    "v_sub_i16 {} clamp": lambda a, b: clip(s(a, 16) - s(b, 16), -32768, 32767) & 0xFFFF,
    "v_add_u16_e64 {} clamp": lambda a, b: min((a & 0xFFFF) + (b & 0xFFFF), 0xFFFF),
    "v_sub_u16_e64 {} clamp": lambda a, b: max((a & 0xFFFF) - (b & 0xFFFF), 0),
    "v_mul_lo_i32 {}": lambda a, b: a * b,
}


@pytest.mark.parametrize("text", [*THREE])
@settings(deadline=None, max_examples=6)
@given(a=lanes32, b=lanes32, c=lanes32)
def test_three_dwords(execute: Any, text: str, a: Any, b: Any, c: Any) -> None:
    out = execute([text.format("v10, v1, v2, v3")], {"v1": a, "v2": b, "v3": c, "v10": 0x55550000}, ["v10"])
    rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    expected = np.array([THREE[text](*row) & M32 for row in rows], np.uint32)
    if text.startswith(KEEPS):
        expected |= np.uint32(0x55550000)
    np.testing.assert_array_equal(out["v10"], expected)


@pytest.mark.parametrize("text", [*TWO])
@settings(deadline=None, max_examples=6)
@given(a=lanes32, b=lanes32)
def test_two_dwords(execute: Any, text: str, a: Any, b: Any) -> None:
    out = execute([text.format("v10, v1, v2")], {"v1": a, "v2": b, "v10": 0x55550000}, ["v10"])
    expected = np.array([TWO[text](x, y) & M32 for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.uint32)
    if text.startswith(KEEPS):
        expected |= np.uint32(0x55550000)
    np.testing.assert_array_equal(out["v10"], expected)


@pytest.mark.parametrize(
    ("name", "kind", "width", "masked"),
    [("v_qsad_pk_u16_u8", 16, 2, False), ("v_mqsad_pk_u16_u8", 16, 2, True), ("v_mqsad_u32_u8", 32, 4, True)],
)
@pytest.mark.parametrize("clamp", ["", " clamp"])
def test_four_differences(
    execute: Any, random: Any, name: str, kind: int, width: int, masked: bool, clamp: str
) -> None:
    data = random.integers(0, 2**32, (8, 64), dtype=np.uint32)
    data[2][::3] &= 0xFF00FF
    data[4] |= np.uint32(0xFF000000)
    line = f"{name} v[10:{9 + width}], v[2:3], v4, v[6:{5 + width}]{clamp}"
    inputs = {f"v{at}": data[at - 2] for at in range(2, 10)}
    out = execute([line], inputs, [f"v{10 + at}" for at in range(width)])
    for lane in range(64):
        window = int(data[0][lane]) | int(data[1][lane]) << 32
        old = sum(int(data[4 + at][lane]) << 32 * at for at in range(width))
        got = sum(int(out[f"v{10 + at}"][lane]) << 32 * at for at in range(width))
        for at in range(4):
            total = sad(window >> 8 * at & M32, int(data[2][lane]), 8, masked) + (old >> kind * at & (1 << kind) - 1)
            top = (1 << kind) - 1
            assert got >> kind * at & top == (min(total, top) if clamp else total & top), (lane, at)


def test_random_numbers_step(execute: Any, random: Any) -> None:
    a = random.integers(0, 2**32, 64, dtype=np.uint32)
    out = execute(["v_prng_b32_e32 v10, v1"], {"v1": a}, ["v10"])
    np.testing.assert_array_equal(out["v10"], [(x << 1 & M32) ^ (0xC5 if x >> 31 else 0) for x in a.tolist()])


@settings(deadline=None, max_examples=10)
@given(a=lanes16, b=lanes16)
def test_half_precision(execute: Any, a: Any, b: Any) -> None:
    body = [
        "v_frexp_exp_i16_f16_e32 v10, v1",
        "v_frexp_mant_f16_e32 v11, v1",
        "v_cvt_norm_i16_f16_e32 v12, v1",
        "v_cvt_norm_u16_f16_e32 v13, v1",
        "v_cvt_pknorm_i16_f16 v14, v1, v2",
        "v_cvt_pknorm_u16_f16 v15, v2, v1",
        "v_mad_f16 v16, v1, v2, v1",
        "v_mad_legacy_f16 v17, v1, v2, v1",
        "v_mov_b32_e32 v18, v1",
        "v_mac_f16_e32 v18, v1, v2",
        "v_madak_f16 v19, v1, v2, 0x4248",
    ]
    values = {"v1": a.astype(np.uint32), "v2": b.astype(np.uint32), "v16": 0x77770000}
    out = execute(body, values, [f"v{n}" for n in range(10, 20)])
    x, y = a.view(F16), b.view(F16)
    for lane, number in enumerate(x.astype(F64).tolist()):
        finite = math.isfinite(number)
        mantissa, exponent = math.frexp(number) if finite else (number, 0)
        assert s(int(out["v10"][lane]), 16) == exponent
        got = out["v11"][lane : lane + 1].astype(np.uint16).view(F16)[0]
        assert got == F16(mantissa) or math.isnan(number)
        for name, low, scale in (("v12", -1.0, 32767.0), ("v13", 0.0, 65535.0)):
            clear = 0.0 if math.isnan(number) else clip(number, low, 1.0)  # type: ignore[arg-type]
            assert int(out[name][lane]) == round(clear * scale) & 0xFFFF
    np.testing.assert_array_equal(out["v14"] & 0xFFFF, out["v12"])
    np.testing.assert_array_equal(out["v15"] >> 16, out["v13"])
    with np.errstate(all="ignore"):
        twice = ((x * y).astype(F16) + x).astype(F16)
        constant = ((x * y).astype(F16) + F16(3.140625)).astype(F16)
    nan = np.isnan(twice)
    for name in ("v16", "v17", "v18"):
        np.testing.assert_array_equal((out[name] & 0xFFFF)[~nan], twice.view(np.uint16)[~nan])
    np.testing.assert_array_equal(out["v16"] >> 16, 0x7777)
    assert not (out["v17"] >> 16).any()
    np.testing.assert_array_equal(out["v19"].astype(np.uint16).view(F16), constant)


@settings(deadline=None, max_examples=8)
@given(a=hnp.arrays(np.uint32, 64), b=hnp.arrays(np.uint32, 64), c=hnp.arrays(np.uint32, 64))
def test_packed_accumulate(execute: Any, a: Any, b: Any, c: Any) -> None:
    def packed(value: Any) -> Any:
        return value.view(F16).reshape(64, 2).astype(F64)

    out = execute(["v_mov_b32_e32 v10, v3", "v_pk_fmac_f16_e32 v10, v1, v2"], {"v1": a, "v2": b, "v3": c}, ["v10"])
    with np.errstate(all="ignore"):
        exact = (packed(a) * packed(b)).astype(np.longdouble) + packed(c)
        expected = exact.astype(F16)
    nan = np.isnan(expected)
    got = out["v10"].view(F16).reshape(64, 2)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan], expected[~nan])


@settings(deadline=None, max_examples=8)
@given(value=hnp.arrays(F32, (3, 64), elements=st.floats(-100, 100, width=32)))
@example(value=np.array([[1, -1, 0, 2], [1, 1, -2, -2], [1, -1, 2, 2]], F32).repeat(16, axis=1))
def test_cube_coordinates(execute: Any, value: Any) -> None:
    names = ("id", "ma", "sc", "tc")
    body = [f"v_cube{name}_f32 v{10 + at}, v1, v2, v3" for at, name in enumerate(names)]
    out = execute(body, {f"v{1 + at}": value[at] for at in range(3)}, [f"v{10 + at}" for at in range(4)])
    got = np.stack([out[f"v{10 + at}"].view(F32) for at in range(4)])
    for lane in range(64):
        x, y, z = (float(value[at][lane]) for at in range(3))
        if abs(z) >= abs(x) and abs(z) >= abs(y):
            wanted = (5.0 if z < 0 else 4.0, 2 * z, -x if z < 0 else x, -y)
        elif abs(y) >= abs(x):
            wanted = (3.0 if y < 0 else 2.0, 2 * y, x, -z if y < 0 else z)
        else:
            wanted = (1.0 if x < 0 else 0.0, 2 * x, z if x < 0 else -z, -y)
        assert tuple(got[:, lane].tolist()) == wanted


def test_signed_nibbles_to_float(execute: Any) -> None:
    lane = np.arange(64, dtype=np.uint32)
    out = execute(["v_cvt_off_f32_i4_e32 v10, v1"], {"v1": lane | 0xFF00}, ["v10"])
    np.testing.assert_array_equal(out["v10"].view(F32), [s(n, 4) / 16 for n in range(64)])


def test_byte_of_the_destination(execute: Any, random: Any) -> None:
    value = (random.standard_normal(64) * 200).astype(F32)
    out = execute(
        ["v_cvt_pkaccum_u8_f32 v10, v1, v2"],
        {"v1": value, "v2": np.arange(64, dtype=np.uint32), "v10": 0x11223344},
        ["v10"],
    )
    for lane in range(64):
        at = lane % 4 * 8
        byte = clip(round(float(value[lane])), 0, 255)
        assert int(out["v10"][lane]) == 0x11223344 & ~(0xFF << at) | byte << at


def test_segments_of_two_over_pi(execute: Any) -> None:
    """Three segments for a small argument sum to 2 / pi; for a large one they start where its bits do."""
    from fractions import Fraction

    exact = Fraction("0.63661977236758134307553505349005744813783858296182579499066937623558719053690614036")
    for value, shift in ((1.0, 0), (2.0**60, 6)):
        high = int(np.array(value).view(np.uint64)) >> 32
        body = ["v_mov_b32_e32 v2, 0", f"v_mov_b32_e32 v3, {high:#x}"]
        body += [f"v_trig_preop_f64 v[{10 + 2 * n}:{11 + 2 * n}], v[2:3], {n}" for n in range(3)]
        out = execute(body, {}, [f"v{n}" for n in range(10, 16)])
        pairs = [int(out[f"v{10 + 2 * n}"][0]) | int(out[f"v{11 + 2 * n}"][0]) << 32 for n in range(3)]
        parts = [Fraction(float(np.array(pair, np.uint64).view(F64))) for pair in pairs]
        wanted = exact - Fraction(math.floor(exact * 2**shift), 2**shift)
        assert abs(sum(parts) - wanted) < Fraction(2) ** -(159 + shift - 1)
        assert abs(parts[0] - wanted) < Fraction(2) ** -(53 + shift)


@pytest.mark.parametrize("clamp", ["", " clamp"])
@settings(deadline=None, max_examples=6)
@given(a=lanes32, b=lanes32)
def test_mixed_multiply_add(execute: Any, clamp: str, a: Any, b: Any) -> None:
    """v1 is a pair of f16, v2 an f32."""
    body = [f"v_fma_mix_f32 v10, |v1|, -v2, v1 op_sel:[1,0,0] op_sel_hi:[1,0,1]{clamp}"]
    out = execute(body, {"v1": a, "v2": b}, ["v10"])
    halves, single = a.view(F16).reshape(64, 2).astype(F64), b.view(F32).astype(F64)
    with np.errstate(all="ignore"):
        expected = (np.abs(halves[:, 1]) * -single + halves[:, 0]).astype(F32)
        if clamp:
            expected = np.clip(np.nan_to_num(expected, nan=0.0), 0, 1)
    nan = np.isnan(expected)
    got = out["v10"].view(F32)
    np.testing.assert_array_equal(np.isnan(got), nan)
    # The reference rounds twice, in rare cases.
    np.testing.assert_allclose(got[~nan], expected[~nan], rtol=1.3e-7, atol=0)
