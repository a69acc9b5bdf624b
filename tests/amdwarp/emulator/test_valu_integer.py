"""Integer vector instructions against closed forms on Python integers, lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES = [
    0,
    1,
    2,
    5,
    31,
    32,
    33,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    M32,
    M32 - 1,
]
lanes = hnp.arrays(np.uint32, 64, elements=st.one_of(st.sampled_from(EDGES), st.integers(0, M32)))


def s(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def median(a: int, b: int, c: int) -> int:
    return sorted((a, b, c))[1]


def perm(a: int, b: int, select: int) -> int:
    data = (a << 32 | b).to_bytes(8, "little")
    out = 0
    for at in range(4):
        which = select >> 8 * at & 0xFF
        if which < 8:
            byte = data[which]
        elif which < 12:
            byte = 0xFF * (data[2 * (which - 8) + 1] >> 7)
        else:
            byte = 0 if which == 12 else 0xFF
        out |= byte << 8 * at
    return out


#: Upper half of a register that nothing has written yet, which some 16-bit operations leave alone.
UPPER = 0xFFFF0000


def bfe_i32(a: int, at: int, width: int) -> int:
    at, width = at % 32, width % 32
    width = min(width, 32 - at)
    return s(a >> at, width) & M32 if width else 0


THREE: dict[str, Callable[[int, int, int], int]] = {
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << b % 32) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b & M32) << c % 32,
    "v_lshl_or_b32": lambda a, b, c: a << b % 32 | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfe_u32": lambda a, b, c: (a >> b % 32) & ((1 << c % 32) - 1),
    "v_bfe_i32": bfe_i32,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> c % 32,
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c % 4),
    "v_perm_b32": perm,
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24": lambda a, b, c: s(a, 24) * s(b, 24) + s(c),
    "v_mad_u32_u16": lambda a, b, c: (a & 0xFFFF) * (b & 0xFFFF) + c,
    "v_mad_u16": lambda a, b, c: (a * b + c & 0xFFFF) | UPPER,
    "v_min3_i32": lambda a, b, c: min(s(a), s(b), s(c)),
    "v_max3_u32": max,
    "v_med3_i32": lambda a, b, c: median(s(a), s(b), s(c)),
    "v_med3_u32": median,
    "v_max3_i16": lambda a, b, c: (max(s(a, 16), s(b, 16), s(c, 16)) & 0xFFFF) | UPPER,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_sad_u8": lambda a, b, c: sum(abs((a >> k & 255) - (b >> k & 255)) for k in (0, 8, 16, 24)) + c,
}

TWO: dict[str, Callable[[int, int], int]] = {
    "v_add_u32_e32": lambda a, b: a + b,
    "v_sub_u32_e32": lambda a, b: a - b,
    "v_subrev_u32_e32": lambda a, b: b - a,
    "v_and_b32_e32": lambda a, b: a & b,
    "v_or_b32_e32": lambda a, b: a | b,
    "v_xor_b32_e32": lambda a, b: a ^ b,
    "v_xnor_b32_e32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32_e32": lambda a, b: b << a % 32,
    "v_lshrrev_b32_e32": lambda a, b: b >> a % 32,
    "v_ashrrev_i32_e32": lambda a, b: s(b) >> a % 32,
    "v_lshlrev_b16_e32": lambda a, b: b << a % 16 & 0xFFFF,
    "v_lshrrev_b16_e32": lambda a, b: (b & 0xFFFF) >> a % 16,
    "v_add_u16_e32": lambda a, b: a + b & 0xFFFF,
    "v_sub_u16_e32": lambda a, b: a - b & 0xFFFF,
    "v_mul_lo_u16_e32": lambda a, b: a * b & 0xFFFF,
    "v_max_u16_e32": lambda a, b: max(a & 0xFFFF, b & 0xFFFF),
    "v_min_i16_e32": lambda a, b: min(s(a, 16), s(b, 16)) & 0xFFFF,
    "v_min_i32_e32": lambda a, b: min(s(a), s(b)),
    "v_max_i32_e32": lambda a, b: max(s(a), s(b)),
    "v_min_u32_e32": min,
    "v_max_u32_e32": max,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s(a) * s(b) >> 32,
    "v_mul_u32_u24_e32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_i32_i24_e32": lambda a, b: s(a, 24) * s(b, 24),
    "v_bfm_b32": lambda a, b: ((1 << a % 32) - 1) << b % 32,
    "v_bcnt_u32_b32": lambda a, b: f"{a:b}".count("1") + b,
}

ONE: dict[str, Callable[[int], int]] = {
    "v_mov_b32_e32": lambda a: a,
    "v_not_b32_e32": lambda a: ~a,
    "v_bfrev_b32_e32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32_e32": lambda a: f"{a:032b}".find("1"),
    "v_ffbl_b32_e32": lambda a: f"{a:032b}"[::-1].find("1"),
    "v_ffbh_i32_e32": lambda a: f"{a:032b}".find("10"[a >> 31]),
}


def check(got: Any, function: Callable[..., int], *sources: Any) -> None:
    expected = np.array([function(*(int(x) for x in row)) & M32 for row in zip(*sources, strict=True)], np.uint32)
    np.testing.assert_array_equal(got, expected)


@settings(deadline=None, max_examples=6)
@given(a=lanes, b=lanes, c=lanes)
@pytest.mark.parametrize("name", [*THREE])
def test_three_sources(execute: Any, name: str, a: Any, b: Any, c: Any) -> None:
    if name == "v_perm_b32":
        c = c & np.uint32(0x0F0F0F0F)
    out = execute([f"{name} v10, v1, v2, v3"], {"v1": a, "v2": b, "v3": c}, ["v10"])
    check(out["v10"], THREE[name], a, b, c)


@settings(deadline=None, max_examples=6)
@given(a=lanes, b=lanes)
@pytest.mark.parametrize("name", [*TWO])
def test_two_sources(execute: Any, name: str, a: Any, b: Any) -> None:
    out = execute([f"{name} v10, v1, v2", f"{name} v2, v1, v2"], {"v1": a, "v2": b}, ["v10", "v2"])
    check(out["v10"], TWO[name], a, b)
    check(out["v2"], TWO[name], a, b)


@settings(deadline=None, max_examples=6)
@given(a=lanes)
@pytest.mark.parametrize("name", [*ONE])
def test_one_source(execute: Any, name: str, a: Any) -> None:
    check(execute([f"{name} v10, v1"], {"v1": a}, ["v10"])["v10"], ONE[name], a)


@settings(deadline=None, max_examples=4)
@given(a=lanes, scalar=st.integers(0, M32))
@pytest.mark.parametrize(
    "name", ["v_add_u32_e32", "v_lshrrev_b32_e32", "v_max_i32_e32", "v_mul_lo_u32", "v_sub_u16_e32"]
)
def test_scalar_and_constant_operands(execute: Any, name: str, a: Any, scalar: int) -> None:
    body = [f"{name} v10, s10, v1", f"{name} v11, 13, v1", f"{name} v12, {scalar:#x}, v1"]
    out = execute(body, {"v1": a, "s10": scalar}, ["v10", "v11", "v12"])
    for register, value in (("v10", scalar), ("v11", 13), ("v12", scalar)):
        check(out[register], TWO[name], np.full(64, value, np.uint32), a)


@settings(deadline=None, max_examples=8)
@given(a=lanes, b=lanes, table=st.integers(0, 255))
def test_bitop3(execute: Any, a: Any, b: Any, table: int) -> None:
    c = a[::-1].copy()
    out = execute([f"v_bitop3_b32 v10, v1, v2, v3 bitop3:{table:#x}"], {"v1": a, "v2": b, "v3": c}, ["v10"])

    def reference(x: int, y: int, z: int) -> int:
        return sum((table >> ((x >> k & 1) * 4 + (y >> k & 1) * 2 + (z >> k & 1)) & 1) << k for k in range(32))

    check(out["v10"], reference, a, b, c)


@settings(deadline=None, max_examples=8)
@given(a=lanes, b=lanes, c=lanes, d=lanes)
def test_wide(execute: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    body = [
        "v_mad_u64_u32 v[10:11], s[20:21], v1, v2, v[4:5]",
        "v_mad_i64_i32 v[12:13], s[22:23], v1, v2, v[4:5]",
        "v_lshlrev_b64 v[14:15], v1, v[4:5]",
        "v_lshrrev_b64 v[16:17], 7, v[4:5]",
        "v_ashrrev_i64 v[18:19], v2, v[4:5]",
        "v_lshl_add_u64 v[20:21], v[4:5], 3, v[6:7]",
        "v_mov_b64_e32 v[22:23], v[4:5]",
        "v_cndmask_b32_e64 v24, 0, 1, s[20:21]",
    ]
    inputs = {"v1": a, "v2": b, "v4": c, "v5": d, "v6": d, "v7": a}
    out = execute(body, inputs, [f"v{n}" for n in range(10, 25)])
    for lane in range(64):
        x, y, z = int(a[lane]), int(b[lane]), int(d[lane]) << 32 | int(c[lane])
        w = int(a[lane]) << 32 | int(d[lane])
        expected = [x * y + z, s(x) * s(y) + z, z << x % 64, z >> 7, s(z, 64) >> y % 64, (z << 3) + w, z]
        got = [int(out[f"v{n}"][lane]) | int(out[f"v{n + 1}"][lane]) << 32 for n in range(10, 24, 2)]
        assert got == [value & M64 for value in expected]
        assert int(out["v24"][lane]) == int(x * y + z > M64)


@settings(deadline=None, max_examples=8)
@given(a=lanes, b=lanes)
def test_carries(execute: Any, a: Any, b: Any) -> None:
    body = [
        "v_add_co_u32_e32 v10, vcc, v1, v2",
        "v_addc_co_u32_e32 v11, vcc, v2, v2, vcc",
        "v_cndmask_b32_e64 v12, 0, 1, vcc",
        "v_sub_co_u32_e64 v13, s[20:21], v1, v2",
        "v_subb_co_u32_e64 v14, s[22:23], v1, v2, s[20:21]",
    ]
    out = execute(body, {"v1": a, "v2": b}, [f"v{n}" for n in range(10, 15)])
    for lane in range(64):
        x, y = int(a[lane]), int(b[lane])
        carry = x + y >> 32
        borrow = int(x < y)
        expected = [x + y, 2 * y + carry, 2 * y + carry >> 32, x - y, x - y - borrow]
        assert [int(out[f"v{n}"][lane]) for n in range(10, 15)] == [value & M32 for value in expected]


CONDITIONS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">="}


@settings(deadline=None, max_examples=5)
@given(a=lanes, b=lanes)
@pytest.mark.parametrize("kind", ["i32", "u32", "i16", "u16"])
def test_compares(execute: Any, kind: str, a: Any, b: Any) -> None:
    b[::5] = a[::5]
    body, names = [], []
    for at, name in enumerate(CONDITIONS):
        body += [f"v_cmp_{name}_{kind}_e64 s[{20 + 2 * at}:{21 + 2 * at}], v1, v2"]
        body += [f"v_cndmask_b32_e64 v{10 + at}, 0, 1, s[{20 + 2 * at}:{21 + 2 * at}]"]
        names.append(f"v{10 + at}")
    out = execute(body, {"v1": a, "v2": b}, names)
    bits = int(kind[1:])
    dtype = {"i32": np.int32, "u32": np.uint32, "i16": np.int16, "u16": np.uint16}[kind]
    x, y = (v.astype(f"u{bits // 8}").view(dtype) for v in (a, b))
    for at, symbol in enumerate(CONDITIONS.values()):
        np.testing.assert_array_equal(out[f"v{10 + at}"], eval(f"x {symbol} y", {"x": x, "y": y}).astype(np.uint32))


def test_exec_masks_writes_and_compares(execute: Any) -> None:
    lane = np.arange(64, dtype=np.uint32)
    body = [
        "v_mov_b32_e32 v10, 7",
        "v_mov_b32_e32 v12, 7",
        "v_cmp_gt_u32_e32 vcc, 40, v1",
        "s_and_saveexec_b64 s[20:21], vcc",
        "v_mov_b32_e32 v10, v1",
        "v_add_u32_e32 v12, v1, v1",
        "v_cmp_lt_u32_e64 s[22:23], 30, v1",
        "v_cmpx_gt_u32_e64 s[24:25], 10, v1",
        "v_mov_b32_e32 v11, 1",
        "s_mov_b64 exec, s[20:21]",
        "v_cndmask_b32_e64 v13, 0, 1, s[22:23]",
    ]
    out = execute(body, {"v1": lane, "v11": np.zeros(64, np.uint32)}, ["v10", "v11", "v12", "v13"])
    np.testing.assert_array_equal(out["v10"], np.where(lane < 40, lane, 7))
    np.testing.assert_array_equal(out["v12"], np.where(lane < 40, 2 * lane, 7))
    np.testing.assert_array_equal(out["v11"], lane < 10)
    np.testing.assert_array_equal(out["v13"], (lane > 30) & (lane < 40))


def test_clamp(execute: Any) -> None:
    a = np.array([1, 0xFFFFFFF0, 0x7FFFFFF0, 0x80000001] * 16, np.uint32)
    body = ["v_add_u32_e64 v10, v1, 32 clamp", "v_sub_u32_e64 v11, v1, 32 clamp", "v_add_i32 v12, v1, 32 clamp"]
    out = execute(body, {"v1": a}, ["v10", "v11", "v12"])
    check(out["v10"], lambda x: min(x + 32, M32), a)
    check(out["v11"], lambda x: max(x - 32, 0), a)
    check(out["v12"], lambda x: min(s(x) + 32, (1 << 31) - 1), a)


def test_mbcnt(execute: Any) -> None:
    body = ["v_mbcnt_lo_u32_b32 v10, s10, 5", "v_mbcnt_hi_u32_b32 v10, s11, v10"]
    out = execute(body, {"s10": 0xF0F0F0F0, "s11": 0x80000001}, ["v10"])
    mask = 0x80000001F0F0F0F0
    expected = [5 + f"{mask & ((1 << lane) - 1):b}".count("1") for lane in range(64)]
    np.testing.assert_array_equal(out["v10"], expected)
