"""Stochastic rounding, and scaled conversions of one and of 32 values, against ml_dtypes and fractions."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

F16, F32, F64, BF16, U32 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.uint32
SMALL: dict[str, Any] = {
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
}
FNUZ = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}
WIDE: dict[str, Any] = {"f32": F32, "f16": F16, "bf16": BF16}
#: Bits of the fraction.
MANTISSA = {"fp8": 3, "bf8": 2, "fp6": 3, "bf6": 2, "fp4": 1, "f16": 10, "bf16": 7}
M32 = (1 << 32) - 1


def following(random: int) -> int:
    return (random << 1 & M32) ^ (0xC5 if random >> 31 else 0)


@cache
def magnitudes(dtype: Any) -> tuple[Fraction, ...]:
    """Every finite magnitude of a small format."""
    bits = ml_dtypes.finfo(dtype).bits
    values = np.arange(1 << (bits - 1), dtype=np.uint8).view(dtype).astype(F64)
    return tuple(sorted({Fraction(float(v)) for v in values if np.isfinite(v)}))


def rolled(value: float, random: int, name: str, dtype: Any) -> float:
    """`value` moved to a neighbour by the random number's topmost bits."""
    grid, exact = magnitudes(dtype), abs(Fraction(value))
    if exact >= grid[-1]:
        return float(np.copysign(float(grid[-1]), value))
    at = max(n for n, x in enumerate(grid) if x <= exact)
    low, high = grid[at], grid[at + 1]
    dropped = 23 - MANTISSA[name]
    part = Fraction(random >> 32 - dropped, 1 << dropped)
    chosen = high if (exact - low) / (high - low) + part >= 1 else low
    return float(np.copysign(float(chosen), value))


#: f32 within the range of every format.
numbers = st.floats(-5, 5, width=32)
lanes = hnp.arrays(F32, 64, elements=numbers)
randoms = hnp.arrays(U32, 64, elements=st.integers(0, M32))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
@settings(deadline=None, max_examples=8)
@given(value=lanes, random=randoms)
def test_bytes(execute: Any, arch: str, name: str, value: Any, random: Any) -> None:
    dtype = (FNUZ if arch == "gfx942" else SMALL)[name]
    select = ("", " op_sel:[0,0,1,0]", " op_sel:[0,0,0,1]", " op_sel:[0,0,1,1]")
    body = [f"v_cvt_sr_{name}_f32 v10, v1, v2{tail}" for tail in select[::2]]
    body += [f"v_cvt_sr_{name}_f32 v11, v1, v2{select[3]}"]
    out = execute(body, {"v1": value, "v2": random, "v10": 0x44332211, "v11": 0x44332211}, ["v10", "v11"], arch=arch)
    codes = np.array([rolled(float(v), int(r), name, dtype) for v, r in zip(value, random, strict=True)])
    # FNUZ has no -0.
    wanted = codes.astype(dtype).view(np.uint8).astype(U32)
    np.testing.assert_array_equal(out["v10"], 0x44002200 | wanted | wanted << 16)
    np.testing.assert_array_equal(out["v11"], 0x00332211 | wanted << 24)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@settings(deadline=None, max_examples=8)
@given(value=lanes, random=randoms)
def test_halves(execute: Any, name: str, value: Any, random: Any) -> None:
    """The sum of the magnitude's bits and the random number's, cut off: normal numbers only."""
    value = np.where(np.abs(value) < 2.0**-14, F32(1), value)
    body = [f"v_cvt_sr_{name}_f32 v10, v1, v2", f"v_cvt_sr_{name}_f32 v11, -v1, v2 op_sel:[0,0,1]"]
    out = execute(body, {"v1": value, "v2": random, "v10": 0x55550000, "v11": 0x5555}, ["v10", "v11"])
    dropped = 23 - MANTISSA[name]
    moved = (value.view(U32) & U32(0x7FFFFFFF)) + (random >> U32(32 - dropped)) & U32(M32 ^ ((1 << dropped) - 1))
    bits = (moved | (value.view(U32) & U32(1 << 31))).view(F32).astype(WIDE[name]).view(np.uint16).astype(U32)
    np.testing.assert_array_equal(out["v10"], 0x55550000 | bits)
    np.testing.assert_array_equal(out["v11"], (bits ^ 0x8000) << 16 | 0x5555)


def test_special_values(execute: Any) -> None:
    value = np.array([np.nan, np.inf, -np.inf, 1e6, -1e6, 0.0, -0.0, 448.0] * 8, F32)
    body = [
        "v_mov_b32_e32 v10, 0",
        "v_mov_b32_e32 v11, 0",
        "v_cvt_sr_fp8_f32 v10, v1, v2",
        "v_cvt_sr_bf8_f32 v11, v1, v2",
    ]
    body += ["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "v_mov_b32_e32 v12, 0", "v_cvt_sr_fp8_f32 v12, v1, v2"]
    out = execute(body, {"v1": value, "v2": 0}, ["v10", "v11", "v12"])
    assert [int(x) & 0x7F for x in out["v10"][:8]] == [0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0, 0, 0x7E]
    assert [int(x) for x in out["v11"][:6]] == [0x7F, 0x7C, 0xFC, 0x7C, 0xFC, 0]
    assert [int(x) for x in out["v12"][1:8]] == [0x7E, 0xFE, 0x7E, 0xFE, 0, 0x80, 0x7E]


def scale_bits(exponent: int) -> int:
    """A scale of 2^exponent with a fraction and a sign that do not count."""
    return (exponent + 127) << 23 | 0x80123456


def wide_registers(value: Any, kind: str) -> dict[int, Any]:
    """[64, n] values as registers from 0 on."""
    data = np.ascontiguousarray(value.astype(WIDE[kind]))
    words = data.view(U32).reshape(64, -1)
    return {at: words[:, at].copy() for at in range(words.shape[1])}


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_one_code_with_a_scale(execute: Any, random: Any, name: str, kind: str) -> None:
    codes = random.integers(0, 256, (64, 4), dtype=np.uint8)
    codes[codes & 0x7F >= 0x7C] = 0x30
    packed = codes.view(U32)[:, 0]
    select = {1: "op_sel:[1,0,0]", 2: "op_sel:[0,1,0]", 3: "op_sel:[1,1,0]"}
    body = [f"v_cvt_scalef32_{kind}_{name} v{9 + at}, v1, v2 {tail}" for at, tail in select.items()]
    body += [f"v_cvt_scalef32_{kind}_{name} v13, v1, v2"]
    if kind == "f16":
        body += [f"v_cvt_scalef32_f16_{name} v14, v1, v2 op_sel:[0,1,1]"]
    old = {f"v{n}": 0x77770000 for n in range(10, 15)} | {"v14": 0x7777}
    out = execute(body, {"v1": packed, "v2": scale_bits(-2), **old}, [f"v{n}" for n in range(10, 15)])
    values = codes.view(SMALL[name]).astype(F64) / 4
    for at, column in ((10, 1), (11, 2), (12, 3), (13, 0)):
        got = out[f"v{at}"].view(F32) if kind == "f32" else out[f"v{at}"].astype(np.uint16).view(F16)
        np.testing.assert_array_equal(got.astype(F64), values[:, column])
    if kind == "f16":
        np.testing.assert_array_equal((out["v14"] >> 16).astype(np.uint16).view(F16).astype(F64), values[:, 2])
        np.testing.assert_array_equal(out["v14"] & 0xFFFF, 0x7777)
        np.testing.assert_array_equal(out["v10"] >> 16, 0x7777)


@pytest.mark.parametrize("kind", [*WIDE])
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
def test_scaled_stochastic_bytes(execute: Any, random: Any, name: str, kind: str) -> None:
    value = (random.standard_normal((64, 2)) * 6).astype(WIDE[kind])
    seeds = random.integers(0, 2**32, 64, dtype=U32)
    pair = name == "fp4"
    inputs = wide_registers(value, kind)
    source = "v[2:3]" if pair and kind == "f32" else "v2"
    mnemonic = f"v_cvt_scalef32_sr_{'pk_' if pair else ''}{name}_{kind}"
    body = [f"{mnemonic} v10, {source}, v6, v7 op_sel:[0,0,1,0]"]
    registers = {f"v{2 + at}": column for at, column in inputs.items()}
    out = execute(body, {**registers, "v6": seeds, "v7": scale_bits(2), "v10": 0x11111111}, ["v10"])
    for lane in range(64):
        codes, seed = 0, int(seeds[lane])
        for at in range(2 if pair else 1):
            number = rolled(float(value[lane, at]) / 4, seed, name, SMALL[name])
            codes |= int(np.array(number).astype(SMALL[name]).view(np.uint8)) << 4 * at
            seed = following(seed)
        assert int(out["v10"][lane]) == 0x11110011 | codes << 8, lane


def six_bit_words(codes: Any) -> Any:
    """[64, 32] codes as [64, 6] dwords."""
    bits = codes[..., None] >> np.arange(6) & 1
    return np.packbits(bits.reshape(64, -1).astype(np.uint8), axis=-1, bitorder="little").view(U32)


@pytest.mark.parametrize("kind", [*WIDE])
@pytest.mark.parametrize("name", ["fp6", "bf6"])
def test_unpacking_32_codes(execute: Any, random: Any, name: str, kind: str) -> None:
    codes = random.integers(0, 64, (64, 32), dtype=np.uint8)
    words = six_bit_words(codes)
    count = 32 if kind == "f32" else 16
    line = f"v_cvt_scalef32_pk32_{kind}_{name} v[40:{39 + count}], v[2:7], v8"
    inputs = {f"v{2 + at}": words[:, at].copy() for at in range(6)} | {"v8": scale_bits(3)}
    out = execute([line], inputs, [f"v{40 + at}" for at in range(count)])
    got = np.ascontiguousarray(np.stack([*out.values()], axis=1)).view(WIDE[kind])
    np.testing.assert_array_equal(got.astype(F64), codes.view(SMALL[name]).astype(F64) * 8)


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("kind", [*WIDE])
@pytest.mark.parametrize("name", ["fp6", "bf6"])
def test_packing_32_values(execute: Any, random: Any, name: str, kind: str, rolls: bool) -> None:
    if kind == "f32" and not rolls:
        pytest.skip("there is no such instruction")
    value = (random.standard_normal((64, 32)) * 20).astype(WIDE[kind])
    inputs = {f"v{50 + at}": column for at, column in wide_registers(value, kind).items()}
    seeds = random.integers(0, 2**32, 64, dtype=U32)
    source = f"v[50:{49 + len(inputs)}]"
    middle = "v6, " if rolls else ""
    line = f"v_cvt_scalef32_{'sr_' if rolls else ''}pk32_{name}_{kind} v[10:15], {source}, {middle}v7"
    out = execute([line], {**inputs, "v6": seeds, "v7": scale_bits(2)}, [f"v{10 + at}" for at in range(6)])
    scaled = value.astype(F64) / 4
    top = float(ml_dtypes.finfo(SMALL[name]).max)
    if rolls:
        for lane in range(64):
            seed = int(seeds[lane])
            for at in range(32):
                scaled[lane, at] = rolled(float(scaled[lane, at]), seed, name, SMALL[name])
                seed = following(seed)
    codes = np.clip(scaled, -top, top).astype(SMALL[name]).view(np.uint8)
    np.testing.assert_array_equal(np.stack([*out.values()], axis=1), six_bit_words(codes))


@pytest.mark.parametrize("name", ["fp6", "bf6"])
def test_packing_two_tuples(execute: Any, random: Any, name: str) -> None:
    left, right = (random.standard_normal((2, 64, 16)) * 20).astype(F32)
    inputs = {f"v{20 + at}": left[:, at].copy() for at in range(16)} | {
        f"v{40 + at}": right[:, at].copy() for at in range(16)
    }
    line = f"v_cvt_scalef32_2xpk16_{name}_f32 v[10:15], v[20:35], v[40:55], v7"
    out = execute([line], {**inputs, "v7": scale_bits(1)}, [f"v{10 + at}" for at in range(6)])
    both = np.stack([left, right], axis=2).reshape(64, 32).astype(F64) / 2
    top = float(ml_dtypes.finfo(SMALL[name]).max)
    codes = np.clip(both, -top, top).astype(SMALL[name]).view(np.uint8)
    np.testing.assert_array_equal(np.stack([*out.values()], axis=1), six_bit_words(codes))
