"""Cross-lane forms: DPP, SDWA, row swaps, lane reads and the LDS unit's exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

LANE = np.arange(64)
VALUE = (LANE * 3 + 1000).astype(np.uint32)
OLD = (LANE + 5).astype(np.uint32)

#: pattern: lane to source lane, or None
PATTERNS: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[1,0,3,2]": lambda i: i ^ 1,
    "quad_perm:[2,2,0,3]": lambda i: i & ~3 | (2, 2, 0, 3)[i & 3],
    "row_shl:1": lambda i: i + 1 if i % 16 + 1 < 16 else None,
    "row_shr:2": lambda i: i - 2 if i % 16 >= 2 else None,
    "row_ror:5": lambda i: i & ~15 | (i - 5) % 16,
    "row_mirror": lambda i: i & ~15 | 15 - i % 16,
    "row_half_mirror": lambda i: i & ~7 | 7 - i % 8,
    "row_bcast:15": lambda i: i // 16 * 16 - 1 if i >= 16 else None,
    "row_bcast:31": lambda i: 31 if i >= 32 else None,
    "wave_shl:1": lambda i: i + 1 if i < 63 else None,
    "wave_shr:1": lambda i: i - 1 if i else None,
    "wave_rol:1": lambda i: (i + 1) % 64,
    "wave_ror:1": lambda i: (i - 1) % 64,
    "row_newbcast:3": lambda i: i // 16 * 16 + 3,
}


def dpp(pattern: str, rows: int, banks: int, zeros: bool, on: Any) -> Any:
    """v1 = v2 + pattern(v1) with old value OLD, by the book."""
    out = OLD.copy()
    for lane in range(64):
        if not on[lane] or not rows >> lane // 16 & 1 or not banks >> lane // 4 % 4 & 1:
            continue
        source = PATTERNS[pattern](lane)
        if source is not None and on[source]:
            out[lane] = VALUE[source] + 7
        elif zeros:
            out[lane] = 7
    return out


@pytest.mark.parametrize("pattern", [*PATTERNS])
@pytest.mark.parametrize(("rows", "banks"), [(15, 15), (10, 15), (15, 5)])
@pytest.mark.parametrize("bound", ["", " bound_ctrl:1", " bound_ctrl:0"])
def test_dpp(execute: Any, pattern: str, rows: int, banks: int, bound: str) -> None:
    for mask in (2**64 - 1, 0xFFFF0FF0FFFF7FFE):
        body = [f"s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}", f"s_mov_b32 exec_hi, {mask >> 32:#x}"]
        body += [f"v_add_u32_dpp v10, v1, v2 {pattern} row_mask:{rows:#x} bank_mask:{banks:#x}{bound}"]
        out = execute(body, {"v1": VALUE, "v2": 7, "v10": OLD}, ["v10"])
        on = [bool(mask >> lane & 1) for lane in range(64)]
        np.testing.assert_array_equal(out["v10"], dpp(pattern, rows, banks, bool(bound), on))


def test_dpp_in_place(execute: Any) -> None:
    """A running sum within rows, source and destination the same register."""
    body = [f"v_add_u32_dpp v1, v1, v1 row_shr:{n} row_mask:0xf bank_mask:0xf bound_ctrl:0" for n in (1, 2, 4, 8)]
    out = execute(body, {"v1": VALUE}, ["v1"])
    np.testing.assert_array_equal(out["v1"], np.cumsum(VALUE.reshape(4, 16), axis=1).reshape(-1))


def test_dpp_float_modifiers(execute: Any) -> None:
    value = (LANE - 30).astype(np.float32)
    out = execute(
        ["v_max_f32_dpp v10, -|v1|, v2 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf"],
        {"v1": value, "v2": -5.0 + 0 * value},
        ["v10"],
    )
    np.testing.assert_array_equal(out["v10"].view(np.float32), np.maximum(-np.abs(value[LANE ^ 3]), -5))


SELECT = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
}
SELECT |= {"DWORD": (0, 32)}


@pytest.mark.parametrize("src0", [*SELECT])
@pytest.mark.parametrize("dst", ["BYTE_1", "WORD_0", "WORD_1", "DWORD"])
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
def test_sdwa(execute: Any, random: Any, src0: str, dst: str, unused: str) -> None:
    a, b, old = random.integers(0, 2**32, (3, 64), dtype=np.uint32)
    line = f"v_add_u32_sdwa v10, sext(v1), v2 dst_sel:{dst} dst_unused:{unused} src0_sel:{src0} src1_sel:WORD_1"
    out = execute([line], {"v1": a, "v2": b, "v10": old}, ["v10"])
    shift, width = SELECT[src0]
    x = (a.astype(np.int64) >> shift & (1 << width) - 1) ^ 1 << width - 1
    result = (x - (1 << width - 1) + (b >> 16)) & 0xFFFFFFFF
    to, size = SELECT[dst]
    field = result & (1 << size) - 1
    if unused == "UNUSED_PRESERVE":
        expected = old.astype(np.int64) & ~((1 << size) - 1 << to) | field << to
    elif unused == "UNUSED_SEXT":
        expected = ((field ^ 1 << size - 1) - (1 << size - 1)) << to & 0xFFFFFFFF
    else:
        expected = field << to
    np.testing.assert_array_equal(out["v10"], expected)


def test_sdwa_half_and_compare(execute: Any, random: Any) -> None:
    halves = random.standard_normal((64, 2)).astype(np.float16)
    packed = halves.view(np.uint32)[:, 0]
    body = [
        "v_cvt_f32_f16_sdwa v10, -v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
        "v_cmp_eq_u16_sdwa s[20:21], v1, v2 src0_sel:WORD_1 src1_sel:BYTE_0",
        "v_cndmask_b32_e64 v11, 0, 1, s[20:21]",
    ]
    second = (packed >> 16).astype(np.uint32)
    out = execute(body, {"v1": packed, "v2": second}, ["v10", "v11"])
    np.testing.assert_array_equal(out["v10"].view(np.float32), -halves[:, 1].astype(np.float32))
    np.testing.assert_array_equal(out["v11"], (second & 0xFF) == second)


def test_dpp_of_register_pairs(execute: Any) -> None:
    """64-bit forms broadcast one lane of each row."""
    low, high = VALUE, OLD
    body = ["v_mov_b64_dpp v[10:11], v[2:3] row_newbcast:5 row_mask:0xf bank_mask:0xf"]
    body += ["v_cvt_f64_i32_dpp v[12:13], v4 row_newbcast:2 row_mask:0xf bank_mask:0xf"]
    out = execute(body, {"v2": low, "v3": high, "v4": VALUE}, ["v10", "v11", "v12", "v13"])
    np.testing.assert_array_equal(out["v10"], low[LANE // 16 * 16 + 5])
    np.testing.assert_array_equal(out["v11"], high[LANE // 16 * 16 + 5])
    wide = np.ascontiguousarray(np.stack([out["v12"], out["v13"]], axis=1)).view(np.float64)[:, 0]
    np.testing.assert_array_equal(wide, VALUE[LANE // 16 * 16 + 2])


def test_carry_with_lane_patterns_and_parts(execute: Any, random: Any) -> None:
    a, b = random.integers(0, 2**32, (2, 64), dtype=np.uint32)
    body = [
        "v_add_co_u32_dpp v10, vcc, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        "v_cndmask_b32_e64 v11, 0, 1, vcc",
        "v_addc_co_u32_sdwa v12, vcc, v1, v2, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
        "v_cndmask_b32_e64 v13, 0, 1, vcc",
        "v_sub_co_u32_e64 v14, s[20:21], v1, v2 clamp",
    ]
    out = execute(body, {"v1": a, "v2": b}, [f"v{n}" for n in range(10, 15)])
    first = a[LANE ^ 1].astype(np.int64) + b
    np.testing.assert_array_equal(out["v10"], first & 0xFFFFFFFF)
    np.testing.assert_array_equal(out["v11"], first >> 32)
    second = (a >> 16).astype(np.int64) + b + (first >> 32)
    np.testing.assert_array_equal(out["v12"], second & 0xFFFFFFFF)
    np.testing.assert_array_equal(out["v13"], second >> 32)
    np.testing.assert_array_equal(out["v14"], np.maximum(a.astype(np.int64) - b, 0))


def test_sdwa_comparisons(execute: Any, random: Any) -> None:
    """To any scalar pair; cmpx also to exec; class tests a half."""
    a, b = random.integers(0, 2**32, (2, 64), dtype=np.uint32)
    body = [
        "v_cmp_lt_i16_sdwa s[20:21], sext(v1), sext(v2) src0_sel:BYTE_3 src1_sel:BYTE_1",
        "v_cndmask_b32_e64 v10, 0, 1, s[20:21]",
        "v_cmp_class_f16_sdwa vcc, v1, v3 src0_sel:WORD_1 src1_sel:DWORD",
        "v_cndmask_b32_e64 v11, 0, 1, vcc",
        "v_cmpx_ge_u32_sdwa vcc, v1, v2 src0_sel:WORD_0 src1_sel:WORD_1",
        "v_mov_b32_e32 v12, 1",
        "s_mov_b64 exec, -1",
    ]
    # Normal numbers of either sign.
    out = execute(body, {"v1": a, "v2": b, "v3": 0x108, "v12": 0}, ["v10", "v11", "v12"])
    byte = (a >> 24).astype(np.uint8).view(np.int8), (b >> 8).astype(np.uint8).view(np.int8)
    np.testing.assert_array_equal(out["v10"], byte[0] < byte[1])
    exponent = a >> 26 & 31
    np.testing.assert_array_equal(out["v11"], (exponent != 0) & (exponent != 31))
    np.testing.assert_array_equal(out["v12"], (a & 0xFFFF) >= (b >> 16))


def test_lane_numbers_in_m0(execute: Any) -> None:
    body = ["s_mov_b32 m0, 37", "v_readlane_b32 s20, v1, m0", "v_writelane_b32 v2, s21, m0", "v_writelane_b32 v2, 5, 3"]
    out = execute(body, {"v1": VALUE, "v2": OLD, "s21": 99}, ["s20", "v2"])
    expected = OLD.copy()
    expected[37], expected[3] = 99, 5
    assert out["s20"][0] == VALUE[37]
    np.testing.assert_array_equal(out["v2"], expected)


@pytest.mark.parametrize("width", [16, 32])
def test_row_swaps(execute: Any, width: int) -> None:
    a, b = LANE.astype(np.uint32), (LANE + 100).astype(np.uint32)
    out = execute([f"v_permlane{width}_swap_b32_e32 v1, v2"], {"v1": a, "v2": b}, ["v1", "v2"])
    x, y = a.reshape(-1, width).copy(), b.reshape(-1, width).copy()
    for row in range(0, 64 // width, 2):
        x[row + 1], y[row] = b.reshape(-1, width)[row], a.reshape(-1, width)[row + 1]
    np.testing.assert_array_equal(out["v1"], x.reshape(-1))
    np.testing.assert_array_equal(out["v2"], y.reshape(-1))


def test_swap(execute: Any) -> None:
    out = execute(["s_mov_b64 exec, 0xff", "v_swap_b32 v1, v2"], {"v1": VALUE, "v2": OLD}, ["v1", "v2"])
    np.testing.assert_array_equal(out["v1"], np.where(LANE < 8, OLD, VALUE))
    np.testing.assert_array_equal(out["v2"], np.where(LANE < 8, VALUE, OLD))


def test_lane_reads_and_writes(execute: Any) -> None:
    body = [
        "v_readlane_b32 s20, v1, 63",
        "s_mov_b32 s10, 0x45",
        "v_readlane_b32 s21, v1, s10",
        "v_writelane_b32 v2, s20, 7",
        "s_mov_b64 exec, 0xf00",
        "v_readfirstlane_b32 s22, v1",
        "s_mov_b64 exec, 0",
        "v_readfirstlane_b32 s23, v1",
        "v_readlane_b32 s24, v1, 3",
        "s_mov_b64 exec, -1",
    ]
    out = execute(body, {"v1": VALUE, "v2": OLD}, ["s20", "s21", "s22", "s23", "s24", "v2"])
    assert [int(out[f"s{n}"][0]) for n in range(20, 25)] == [int(VALUE[n]) for n in (63, 5, 8, 0, 3)]
    np.testing.assert_array_equal(out["v2"], np.where(LANE == 7, VALUE[63], OLD))


def test_bpermute_and_permute(execute: Any, random: Any) -> None:
    order = random.permutation(64).astype(np.uint32)
    body = ["ds_bpermute_b32 v10, v3, v1", "ds_permute_b32 v11, v3, v1", "s_waitcnt lgkmcnt(0)"]
    out = execute(["v_lshlrev_b32_e32 v3, 2, v2", *body], {"v1": VALUE, "v2": order}, ["v10", "v11"])
    np.testing.assert_array_equal(out["v10"], VALUE[order])
    np.testing.assert_array_equal(out["v11"][order], VALUE)
    masked = [
        "v_lshlrev_b32_e32 v3, 2, v2",
        "v_mov_b32_e32 v10, 9",
        "s_mov_b32 exec_hi, 0",
        *body,
        "s_mov_b32 exec_hi, -1",
    ]
    out = execute(masked, {"v1": VALUE, "v2": order}, ["v10"])
    expected = np.where(order < 32, VALUE[order], 0)
    np.testing.assert_array_equal(out["v10"], np.where(LANE < 32, expected, 9))


@pytest.mark.parametrize(
    ("code", "function"), [(0x041F, lambda i: i ^ 1), (0x7C1F, lambda i: i ^ 31), (0x0018, lambda i: i & ~7)]
)
def test_swizzle(execute: Any, code: int, function: Any) -> None:
    out = execute([f"ds_swizzle_b32 v10, v1 offset:{code}", "s_waitcnt lgkmcnt(0)"], {"v1": VALUE}, ["v10"])
    np.testing.assert_array_equal(out["v10"], VALUE[function(LANE)])


def test_quad_swizzle(execute: Any) -> None:
    out = execute(["ds_swizzle_b32 v10, v1 offset:0x801b", "s_waitcnt lgkmcnt(0)"], {"v1": VALUE}, ["v10"])
    np.testing.assert_array_equal(out["v10"], VALUE[LANE ^ 3])
