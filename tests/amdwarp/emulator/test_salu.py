"""Scalar instructions against closed forms on Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES = (0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0x80000001, M32, 0x00050003, 0x00200000)
words = st.one_of(st.sampled_from(EDGES), st.integers(0, M32))


def s32(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def s64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def run2(execute: Any, name: str, a: int, b: int, scc: int = 0) -> tuple[int, int]:
    """Result and SCC of ``name s20, s10, s11``."""
    body = [f"s_cmp_eq_u32 {scc}, 1", f"{name} s20, s10, s11"]
    out = execute(body, {"s10": a, "s11": b}, ["scc", "s20"])
    return int(out["s20"][0]), int(out["scc"][0])


def bfe(a: int, b: int) -> int:
    return (a >> (b & 31)) & ((1 << min(b >> 16 & 0x7F, 32)) - 1)


def bfe_signed(a: int, b: int) -> int:
    offset, width = b & 31, b >> 16 & 0x7F
    width = min(width, 32 - offset)
    got = (a >> offset) & ((1 << width) - 1)
    return (got - (1 << width) if width and got >> (width - 1) else got) & M32


def nonzero(function: Callable[[int, int], int]) -> Callable[[int, int], tuple[int, int]]:
    return lambda a, b: (function(a, b), int(function(a, b) != 0))


def fits(value: int) -> int:
    return int(not -(1 << 31) <= value < 1 << 31)


TWO_SOURCES: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "s_add_u32": lambda a, b: ((a + b) & M32, int(a + b > M32)),
    "s_sub_u32": lambda a, b: ((a - b) & M32, int(a < b)),
    "s_add_i32": lambda a, b: ((a + b) & M32, fits(s32(a) + s32(b))),
    "s_sub_i32": lambda a, b: ((a - b) & M32, fits(s32(a) - s32(b))),
    "s_min_i32": lambda a, b: (min(s32(a), s32(b)) & M32, int(s32(a) < s32(b))),
    "s_max_i32": lambda a, b: (max(s32(a), s32(b)) & M32, int(s32(a) > s32(b))),
    "s_min_u32": lambda a, b: (min(a, b), int(a < b)),
    "s_max_u32": lambda a, b: (max(a, b), int(a > b)),
    "s_and_b32": nonzero(lambda a, b: a & b),
    "s_or_b32": nonzero(lambda a, b: a | b),
    "s_xor_b32": nonzero(lambda a, b: a ^ b),
    "s_andn2_b32": nonzero(lambda a, b: a & (b ^ M32)),
    "s_orn2_b32": nonzero(lambda a, b: a | (b ^ M32)),
    "s_nand_b32": nonzero(lambda a, b: (a & b) ^ M32),
    "s_nor_b32": nonzero(lambda a, b: (a | b) ^ M32),
    "s_xnor_b32": nonzero(lambda a, b: a ^ b ^ M32),
    "s_lshl_b32": nonzero(lambda a, b: a << b % 32 & M32),
    "s_lshr_b32": nonzero(lambda a, b: a >> b % 32),
    "s_ashr_i32": nonzero(lambda a, b: s32(a) >> b % 32 & M32),
    "s_bfe_u32": nonzero(bfe),
    "s_bfe_i32": nonzero(bfe_signed),
    "s_absdiff_i32": nonzero(lambda a, b: abs(s32(a) - s32(b)) & M32),
    "s_lshl1_add_u32": lambda a, b: (2 * a + b & M32, int(2 * a + b > M32)),
    "s_lshl4_add_u32": lambda a, b: (16 * a + b & M32, int(16 * a + b > M32)),
}
KEEPING_SCC: dict[str, Callable[[int, int], int]] = {
    "s_mul_i32": lambda a, b: s32(a) * s32(b) & M32,
    "s_mul_hi_u32": lambda a, b: a * b >> 32,
    "s_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32 & M32,
    "s_bfm_b32": lambda a, b: ((1 << a % 32) - 1) << b % 32 & M32,
    "s_pack_ll_b32_b16": lambda a, b: (b & 0xFFFF) << 16 | a & 0xFFFF,
    "s_pack_lh_b32_b16": lambda a, b: (b >> 16) << 16 | a & 0xFFFF,
    "s_pack_hh_b32_b16": lambda a, b: (b >> 16) << 16 | a >> 16,
}


@settings(deadline=None, max_examples=12)
@given(a=words, b=words)
@example(a=0x7FFFFFFF, b=1)
@example(a=0x80000000, b=M32)
@example(a=0xFFFF0000, b=0x00100010)
@pytest.mark.parametrize("name", [*TWO_SOURCES])
def test_two_sources(execute: Any, name: str, a: int, b: int) -> None:
    assert run2(execute, name, a, b) == TWO_SOURCES[name](a, b)


@settings(deadline=None, max_examples=8)
@given(a=words, b=words, scc=st.integers(0, 1))
@pytest.mark.parametrize("name", [*KEEPING_SCC])
def test_scc_kept(execute: Any, name: str, a: int, b: int, scc: int) -> None:
    assert run2(execute, name, a, b, scc) == (KEEPING_SCC[name](a, b), scc)


@settings(deadline=None, max_examples=15)
@given(a=words, b=words, scc=st.integers(0, 1))
def test_carry_and_select(execute: Any, a: int, b: int, scc: int) -> None:
    assert run2(execute, "s_addc_u32", a, b, scc) == ((a + b + scc) & M32, int(a + b + scc > M32))
    assert run2(execute, "s_subb_u32", a, b, scc) == ((a - b - scc) & M32, int(a < b + scc))
    assert run2(execute, "s_cselect_b32", a, b, scc) == (a if scc else b, scc)


ONE_SOURCE: dict[str, Callable[[int], int]] = {
    "s_mov_b32": lambda a: a,
    "s_not_b32": lambda a: a ^ M32,
    "s_brev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "s_abs_i32": lambda a: abs(s32(a)) & M32,
    "s_bcnt1_i32_b32": lambda a: f"{a:b}".count("1"),
    "s_bcnt0_i32_b32": lambda a: f"{a:032b}".count("0"),
    "s_ff1_i32_b32": lambda a: f"{a:032b}"[::-1].find("1") & M32,
    "s_ff0_i32_b32": lambda a: f"{a:032b}"[::-1].find("0") & M32,
    "s_flbit_i32_b32": lambda a: f"{a:032b}".find("1") & M32,
    "s_flbit_i32": lambda a: f"{a:032b}".find("10"[a >> 31]) & M32,
    "s_sext_i32_i8": lambda a: ((a & 0xFF) ^ 0x80) - 0x80 & M32,
    "s_sext_i32_i16": lambda a: ((a & 0xFFFF) ^ 0x8000) - 0x8000 & M32,
}


@settings(deadline=None, max_examples=10)
@given(a=words)
@example(a=0)
@example(a=M32)
@pytest.mark.parametrize("name", [*ONE_SOURCE])
def test_one_source(execute: Any, name: str, a: int) -> None:
    out = execute([f"{name} s20, s10"], {"s10": a}, ["s20"])
    assert int(out["s20"][0]) == ONE_SOURCE[name](a)


WIDE: dict[str, Callable[[int, int], int]] = {
    "s_and_b64": lambda a, b: a & b,
    "s_xor_b64": lambda a, b: a ^ b,
    "s_andn2_b64": lambda a, b: a & ~b & M64,
    "s_lshl_b64": lambda a, b: a << b % 64 & M64,
    "s_lshr_b64": lambda a, b: a >> b % 64,
    "s_ashr_i64": lambda a, b: s64(a) >> b % 64 & M64,
}


@settings(deadline=None, max_examples=10)
@given(a=st.integers(0, M64), b=st.integers(0, M64))
@pytest.mark.parametrize("name", [*WIDE])
def test_wide(execute: Any, name: str, a: int, b: int) -> None:
    second = "s10" if "sh" in name else "s[10:11]"
    inputs = {"s8": a & M32, "s9": a >> 32, "s10": b & M32, "s11": b >> 32}
    out = execute([f"{name} s[20:21], s[8:9], {second}"], inputs, ["scc", "s20", "s21"])
    got = int(out["s20"][0]) | int(out["s21"][0]) << 32
    assert (got, int(out["scc"][0])) == (WIDE[name](a, b), int(WIDE[name](a, b) != 0))


ORDER = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@settings(deadline=None, max_examples=6)
@given(a=words, b=words)
@example(a=0x80000000, b=1)
@pytest.mark.parametrize("name", [*ORDER])
def test_compares(execute: Any, name: str, a: int, b: int) -> None:
    for kind in "iu":
        out = execute([f"s_cmp_{name}_{kind}32 s10, s11"], {"s10": a, "s11": b}, ["scc"])
        left, right = (s32(a), s32(b)) if kind == "i" else (a, b)
        assert int(out["scc"][0]) == int(eval(f"{left} {ORDER[name]} {right}"))


def test_short_constants(execute: Any) -> None:
    body = ["s_movk_i32 s20, 0x8000", "s_mov_b32 s21, 5", "s_mulk_i32 s21, 0xfffe", "s_mov_b32 s22, 7"]
    body += ["s_addk_i32 s22, 0xfff0", "s_cmpk_lt_i32 s22, 0xfff8"]
    out = execute(body, {}, ["scc", "s20", "s21", "s22"])
    values = [int(np.int32(out[name].view(np.int32)[0])) for name in ("s20", "s21", "s22")]
    assert values == [-32768, -10, -9] and out["scc"][0] == 1


def test_bits(execute: Any) -> None:
    body = ["s_bitset1_b32 s10, 4", "s_bitset0_b32 s10, 0", "s_bitcmp1_b32 s10, 4", "s_cselect_b32 s20, 3, 2"]
    body += ["s_bitcmp0_b32 s10, 4"]
    out = execute(body, {"s10": 1}, ["scc", "s10", "s20"])
    assert (out["s10"][0], out["s20"][0], out["scc"][0]) == (16, 3, 0)


def test_literals_of_64_bits(execute: Any) -> None:
    body = ["s_mov_b64 s[20:21], 0x80000000", "s_mov_b64 s[22:23], -3", "s_ashr_i64 s[24:25], 0x80000000, 4"]
    out = execute(body, {}, [f"s{n}" for n in range(20, 26)])
    assert [int(out[f"s{n}"][0]) for n in range(20, 26)] == [0x80000000, 0, M32 - 2, M32, 0xF8000000, M32]


def test_saveexec(execute: Any) -> None:
    body = ["s_mov_b64 s[20:21], 15", "s_and_saveexec_b64 s[22:23], s[20:21]", "s_mov_b64 s[24:25], exec"]
    body += ["s_andn2_saveexec_b64 s[26:27], s[22:23]"]
    out = execute(body, {}, ["scc", "s22", "s23", "s24", "s25", "s26", "exec_lo", "exec_hi"])
    assert [int(out[f"s{n}"][0]) for n in (22, 23, 24, 25, 26)] == [M32, M32, 15, 0, 15]
    assert (int(out["exec_lo"][0]), int(out["exec_hi"][0]), int(out["scc"][0])) == (M32 - 15, M32, 1)


def test_waves_differ(execute: Any) -> None:
    """The same operations with a value per wave: scalar registers read from lanes."""
    v = np.arange(256, dtype=np.uint32)
    body = ["v_readfirstlane_b32 s10, v1", "s_lshr_b32 s11, s10, 6", "s_mul_i32 s12, s11, s11", "s_add_u32 s12, s12, 1"]
    body += ["s_cmp_gt_u32 s11, 1", "s_cselect_b32 s13, s12, s10"]
    out = execute(body, {"v1": v}, ["scc", "s12", "s13"], waves=4)
    wave = v // 64
    np.testing.assert_array_equal(out["s12"], wave * wave + 1)
    np.testing.assert_array_equal(out["s13"], np.where(wave > 1, wave * wave + 1, wave * 64))
    np.testing.assert_array_equal(out["scc"], wave > 1)
