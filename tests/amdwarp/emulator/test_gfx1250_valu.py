"""Vector and scalar ALU of gfx1250: what it has beyond gfx9, in waves of 32 lanes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from amdwarp.errors import EmulatorError

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
EDGES = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001]
EDGES16 = [0, 0x8000, 1, 0x3FF, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00]
lanes32 = hnp.arrays(np.uint32, 32, elements=st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1)))
lanes16 = hnp.arrays(np.uint16, 32, elements=st.one_of(st.sampled_from(EDGES16), st.integers(0, 0xFFFF)))
lanes64 = hnp.arrays(
    np.uint64, 32, elements=st.one_of(st.sampled_from([0, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
)


@pytest.fixture(scope="session")
def run(execute: Any) -> Any:
    """`execute` for gfx1250."""

    def call(body: list[str], inputs: dict[str, Any] | None = None, outputs: list[str] | None = None, **kw: Any) -> Any:
        return execute(body, inputs, outputs, arch="gfx1250", **kw)

    return call


def halves(low: Any, high: Any) -> Any:
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def split64(value: Any) -> tuple[Any, Any]:
    return (value & np.uint64(0xFFFFFFFF)).astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)


def join64(out: dict[str, Any], low: str, high: str) -> Any:
    return out[low].astype(np.uint64) | out[high].astype(np.uint64) << np.uint64(32)


def same(got: Any, expected: Any) -> None:
    """Equal bit for bit, except that any NaN equals any NaN."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    wide = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(wide)[~nan], expected.view(wide)[~nan])


@settings(max_examples=20, deadline=None)
@given(a=lanes32, b=lanes32, c=lanes32)
def test_integer(run: Any, a: Any, b: Any, c: Any) -> None:
    body = [
        "v_add_nc_u32_e32 v10, v1, v2",
        "v_sub_nc_u32_e32 v11, v1, v2",
        "v_subrev_nc_u32_e32 v12, v1, v2",
        "v_mad_u32 v13, v1, v2, v3",
        "v_xor3_b32 v14, v1, v2, v3",
        "v_maxmin_i32 v15, v1, v2, v3",
        "v_minmax_u32 v16, v1, v2, v3",
        "v_bitop3_b32 v17, v1, v2, v3 bitop3:0xca",
        "v_sub_nc_u32_e64 v18, v1, v2 clamp",
        "v_alignbit_b32 v19, v1, v2, v3.l",
        "v_clz_i32_u32_e32 v20, v1",
        "v_ctz_i32_b32_e32 v21, v1",
        "v_cls_i32_e32 v22, v1",
    ]
    out = run(body, {"v1": a, "v2": b, "v3": c}, [f"v{n}" for n in range(10, 23)])
    i, j, k = (v.view(np.int32) for v in (a, b, c))
    wide = a.astype(np.uint64) << np.uint64(32) | b
    expected = [
        *(a + b, a - b, b - a, a * b + c, a ^ b ^ c),
        *(np.minimum(np.maximum(i, j), k).view(np.uint32), np.maximum(np.minimum(a, b), c)),
        *((a & b) | (~a & c), np.where(a < b, 0, a - b).astype(np.uint32)),
        (wide >> (c & np.uint32(31)).astype(np.uint64)).astype(np.uint32),
    ]
    for got, want in zip(out.values(), expected, strict=False):
        np.testing.assert_array_equal(got, want)
    for lane, value in enumerate(a.tolist()):
        text = f"{value:032b}"
        ones = len(text) - len(text.lstrip(text[0]))
        assert out["v20"][lane] == (text.index("1") if value else 0xFFFFFFFF)
        assert out["v21"][lane] == (text[::-1].index("1") if value else 0xFFFFFFFF)
        assert out["v22"][lane] == (ones if ones < 32 else 0xFFFFFFFF)


@settings(max_examples=15, deadline=None)
@given(a=lanes64, b=lanes64, c=lanes32, d=lanes32)
def test_integer64(run: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    (a0, a1), (b0, b1) = split64(a), split64(b)
    body = [
        "v_add_nc_u64_e32 v[10:11], v[2:3], v[4:5]",
        "v_sub_nc_u64_e32 v[12:13], v[2:3], v[4:5]",
        "v_mad_nc_u64_u32 v[14:15], v6, v7, v[2:3]",
        "v_mad_nc_i64_i32 v[16:17], v6, v7, v[2:3]",
        "v_lshlrev_b64_e32 v[18:19], v6, v[2:3]",
        "v_mul_u64_e32 v[20:21], v[2:3], v[4:5]",
        "v_max_i64 v[22:23], v[2:3], v[4:5]",
        "v_mov_b64_e32 v[24:25], 0x123456789abcdef0",
        "v_add_nc_u64_e32 v[26:27], -1, v[2:3]",
    ]
    inputs = {"v2": a0, "v3": a1, "v4": b0, "v5": b1, "v6": c, "v7": d}
    out = run(body, inputs, [f"v{n}" for n in range(10, 28)])
    signed = c.view(np.int32).astype(np.int64) * d.view(np.int32)
    expected = [
        *(a + b, a - b, c.astype(np.uint64) * d + a, signed.view(np.uint64) + a),
        *(a << (c & np.uint32(63)).astype(np.uint64), a * b),
        np.maximum(a.view(np.int64), b.view(np.int64)).view(np.uint64),
        np.full(32, 0x123456789ABCDEF0, np.uint64),
        a - np.uint64(1),
    ]
    for at, want in enumerate(expected):
        np.testing.assert_array_equal(join64(out, f"v{10 + 2 * at}", f"v{11 + 2 * at}"), want)


@settings(max_examples=20, deadline=None)
@given(a=lanes16, b=lanes16, c=lanes16, old=lanes32)
def test_half_registers(run: Any, a: Any, b: Any, c: Any, old: Any) -> None:
    """A 16-bit result leaves the other half of its register alone."""
    body = [
        "v_mov_b16_e32 v10.h, v1.l",
        "v_mov_b16_e32 v11.l, v1.h",
        "v_and_b16 v12.h, v1.h, v1.l",
        "v_or_b16 v13.l, 0x7f, v1.h",
        "v_add_nc_u16 v14.h, v1.l, v2.l",
        "v_add_f16_e32 v15.h, v1.l, v1.h",
        "v_max_num_f16_e32 v16.l, v1.l, v1.h",
        "v_med3_num_f16 v17.h, v1.l, v1.h, v2.l",
        "v_cvt_u32_u16_e32 v18, v1.h",
        "v_cvt_f32_f16_e32 v19, v1.h",
        "v_cvt_f16_f32_e32 v20.h, v19",
        "v_cmp_gt_u16_e32 vcc_lo, v1.l, v1.h",
        "v_cndmask_b16 v21.h, v1.l, v1.h, vcc_lo",
    ]
    inputs = {"v1": halves(a, b), "v2": c.astype(np.uint32)} | {f"v{n}": old for n in range(10, 22)}
    out = run(body, inputs, [f"v{n}" for n in range(10, 22)])
    low = (old & np.uint32(0xFFFF)).astype(np.uint16)
    high = (old >> np.uint32(16)).astype(np.uint16)
    np.testing.assert_array_equal(out["v10"], halves(low, a))
    np.testing.assert_array_equal(out["v11"], halves(b, high))
    np.testing.assert_array_equal(out["v12"], halves(low, a & b))
    np.testing.assert_array_equal(out["v13"], halves(b | np.uint16(0x7F), high))
    np.testing.assert_array_equal(out["v14"], halves(low, a + c))
    x, y, z = (v.view(F16) for v in (a, b, c))
    with np.errstate(all="ignore"):
        same((out["v15"] >> 16).astype(np.uint16).view(F16), x + y)
        same(out["v19"].view(F32), y.astype(F32))
    np.testing.assert_array_equal(out["v15"] & 0xFFFF, low)
    ordinary = ~(np.isnan(x) | np.isnan(y) | np.isnan(z) | (x == 0) | (y == 0) | (z == 0))
    top = (out["v16"] & 0xFFFF).astype(np.uint16).view(F16)
    np.testing.assert_array_equal(top[ordinary], np.maximum(x, y)[ordinary])
    middle = (out["v17"] >> 16).astype(np.uint16).view(F16)
    np.testing.assert_array_equal(middle[ordinary], np.sort(np.stack((x, y, z)), axis=0)[1][ordinary])
    np.testing.assert_array_equal(out["v18"], b)
    same((out["v20"] >> 16).astype(np.uint16).view(F16), y)
    np.testing.assert_array_equal(out["v21"], halves(low, np.where(a > b, b, a)))


def test_dual_issue_reads_before_it_writes(run: Any) -> None:
    a, b, c = np.arange(32, dtype=F32), np.arange(32, dtype=F32) * 3 + 1, np.full(32, 2, F32)
    body = [
        "s_mov_b32 vcc_lo, 0x0f0f0f0f",
        # A swap: each half reads what the other writes.
        "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1",
        "v_dual_add_f32 v10, v1, v2 :: v_dual_mul_f32 v3, v1, v3",
        # The second half reads the first one's destination.
        "v_dual_fmac_f32 v11, v1, v2 :: v_dual_fma_f32 v12, -v11, v2, v3",
        "v_dual_cndmask_b32 v13, v1, v2 :: v_dual_bitop2_b32 v14, 16, v4 bitop3:0x54",
        "v_dual_lshlrev_b32 v15, 2, v4 :: v_dual_ashrrev_i32 v16, 1, v5",
        "v_dual_max_num_f32 v17, v1, v2 :: v_dual_sub_nc_u32 v18, v4, v5",
    ]
    lanes = np.arange(32, dtype=np.uint32)
    inputs = {"v1": a, "v2": b, "v3": c, "v4": lanes, "v5": lanes - 9, "v11": np.ones(32, F32)}
    out = run(body, inputs, ["v1", "v2", "v3", *(f"v{n}" for n in range(10, 19))])
    got = {name: value.view(F32) for name, value in out.items()}
    np.testing.assert_array_equal(got["v1"], b)
    np.testing.assert_array_equal(got["v2"], a)
    np.testing.assert_array_equal(got["v10"], a + b)
    np.testing.assert_array_equal(got["v3"], b * c)
    np.testing.assert_array_equal(got["v11"], b * a + 1)
    np.testing.assert_array_equal(got["v12"], -a + b * c)
    on = 0x0F0F0F0F >> lanes & 1 == 1
    np.testing.assert_array_equal(got["v13"], np.where(on, a, b))
    np.testing.assert_array_equal(out["v14"], lanes | 16)
    np.testing.assert_array_equal(out["v15"], lanes << 2)
    np.testing.assert_array_equal(out["v16"].view(np.int32), (lanes - 9).view(np.int32) >> 1)
    np.testing.assert_array_equal(got["v17"], np.maximum(a, b))
    np.testing.assert_array_equal(out["v18"], 9)


def test_high_registers(run: Any) -> None:
    lanes = np.arange(32, dtype=np.uint32)
    body = [
        "s_set_vgpr_msb 64",
        "v_add_nc_u32_e32 v33 /*v289*/, 5, v1",
        "s_set_vgpr_msb 0x4009",
        "v_lshlrev_b32_e32 v2, 3, v33 /*v289*/",
        "v_mov_b64_e32 v[8:9] /*v[1000:1001]*/, v[2:3]",
        "v_mov_b32_e32 v4, v8 /*v1000*/",
    ]
    out = run(body, {"v1": lanes}, ["v2", "v4"])
    np.testing.assert_array_equal(out["v2"], (lanes + 5) << 3)
    np.testing.assert_array_equal(out["v4"], out["v2"])


@pytest.mark.parametrize(
    ("control", "source"),
    [
        ("row_xmask:5", lambda i: i ^ 5),
        ("row_share:3", lambda i: (i & ~15) | 3),
        ("quad_perm:[3,2,1,0]", lambda i: i ^ 3),
        ("row_ror:4", lambda i: (i & ~15) | ((i - 4) & 15)),
        ("row_mirror", lambda i: (i & ~15) | (15 - (i & 15))),
    ],
)
def test_dpp(run: Any, random: Any, control: str, source: Any) -> None:
    a = random.integers(0, 2**32, 32, dtype=np.uint32)
    tail = "row_mask:0xf bank_mask:0xf bound_ctrl:1"
    body = [f"v_mov_b32_dpp v2, v1 {control} {tail}", f"v_cmp_gt_u32_e64_dpp s4, v1, v1 {control} {tail}"]
    out = run([*body, "v_cndmask_b32_e64 v3, 0, 1, s4"], {"v1": a, "v2": a * 0}, ["v2", "v3"])
    moved = a[source(np.arange(32))]
    np.testing.assert_array_equal(out["v2"], moved)
    np.testing.assert_array_equal(out["v3"], moved > a)


def test_dpp8_and_disabled_lanes(run: Any, random: Any) -> None:
    a = random.integers(0, 2**32, 32, dtype=np.uint32)
    body = [
        "s_mov_b32 exec_lo, 0x0000fffe",
        "v_mov_b32_dpp v2, v1 dpp8:[7,6,5,4,3,2,1,0]",
        "v_mov_b32_dpp v3, v1 dpp8:[7,6,5,4,3,2,1,0] fi:1",
        "v_mov_b32_dpp v4, v1 row_xmask:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
        "v_mov_b32_dpp v5, v1 row_xmask:1 row_mask:0xf bank_mask:0xf",
    ]
    out = run(body, {"v1": a} | {f"v{n}": np.full(32, 7, np.uint32) for n in (2, 3, 4, 5)}, ["v2", "v3", "v4", "v5"])
    lane = np.arange(32)
    on = (0xFFFE >> lane & 1) == 1
    eight, pair = lane ^ 7, lane ^ 1
    # dpp8 has no bound_ctrl: a disabled source leaves the lane unless fi reads it.
    np.testing.assert_array_equal(out["v2"], np.where(on & on[eight], a[eight], 7))
    np.testing.assert_array_equal(out["v3"], np.where(on, a[eight], 7))
    np.testing.assert_array_equal(out["v4"], np.where(on, np.where(on[pair], a[pair], 0), 7))
    np.testing.assert_array_equal(out["v5"], np.where(on & on[pair], a[pair], 7))


@pytest.mark.parametrize("select", ["", " op_sel:[1,0]", " op_sel:[0,1]"])
@pytest.mark.parametrize("name", ["v_permlane16_b32", "v_permlanex16_b32"])
def test_permlane(run: Any, random: Any, name: str, select: str) -> None:
    a = random.integers(0, 2**32, 32, dtype=np.uint32)
    body = ["s_mov_b32 exec_lo, 0xff00ffff", f"{name} v2, v1, s4, s5{select}"]
    picks = random.integers(0, 16, 16)
    words = [int(sum(int(p) << 4 * i for i, p in enumerate(picks[k : k + 8]))) for k in (0, 8)]
    out = run(body, {"v1": a, "v2": np.full(32, 7, np.uint32), "s4": words[0], "s5": words[1]}, ["v2"])
    lane = np.arange(32)
    source = (lane & 16 ^ (16 if "x16" in name else 0)) + picks[lane & 15]
    on = (0xFF00FFFF >> lane & 1) == 1
    if "1,0" in select:
        expected = np.where(on, a[source], 7)
    elif "0,1" in select:
        expected = np.where(on, np.where(on[source], a[source], 0), 7)
    else:
        expected = np.where(on & on[source], a[source], 7)
    np.testing.assert_array_equal(out["v2"], expected)


def test_permlane16_swap(run: Any) -> None:
    lanes = np.arange(32, dtype=np.uint32)
    out = run(["v_permlane16_swap_b32_e32 v1, v2"], {"v1": lanes, "v2": lanes + 100}, ["v1", "v2"])
    np.testing.assert_array_equal(out["v1"], np.r_[0:16, 100:116])
    np.testing.assert_array_equal(out["v2"], np.r_[16:32, 116:132])


def test_compare_to_exec_writes_exec_only(run: Any) -> None:
    a = np.arange(32, dtype=F32)
    body = ["s_mov_b32 vcc_lo, 0x1234", "v_cmpx_lt_f32_e32 4.0, v1", "v_mov_b32_e32 v2, 9"]
    out = run(body, {"v1": a, "v2": np.zeros(32, np.uint32)}, ["v2", "vcc_lo", "exec_lo"])
    np.testing.assert_array_equal(out["v2"], np.where(a > 4, 9, 0))
    assert out["exec_lo"][0] == 0xFFFFFFE0 and out["vcc_lo"][0] == 0x1234


@settings(max_examples=15, deadline=None)
@given(a=lanes16, b=lanes16, c=lanes16, d=lanes16)
def test_bf16_pairs(run: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    body = [
        "v_pk_add_bf16 v10, v1, v2",
        "v_pk_mul_bf16 v11, v1, v2",
        "v_pk_max_num_bf16 v12, v1, v2",
        "v_pk_add_bf16 v13, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]",
    ]
    out = run(body, {"v1": halves(a, b), "v2": halves(c, d)}, [f"v{n}" for n in range(10, 14)])
    x, y, z, w = ((v.astype(np.uint32) << np.uint32(16)).view(F32) for v in (a, b, c, d))
    with np.errstate(all="ignore"):
        for name, pair in (
            ("v10", (x + z, y + w)),
            ("v11", (x * z, y * w)),
            ("v13", (y + z, x + w)),
        ):
            for at, value in enumerate(pair):
                got = (out[name] >> np.uint32(16 * at) & np.uint32(0xFFFF)).astype(np.uint16).view(BF16)
                same(got, value.astype(BF16))
        top = (out["v12"] & np.uint32(0xFFFF)).astype(np.uint16).view(BF16).astype(F32)
        plain = ~(np.isnan(x) | np.isnan(z) | ((x == 0) & (z == 0)))
        np.testing.assert_array_equal(top[plain], np.fmax(x, z)[plain])


def test_packed_f32_takes_the_lower_scalar_for_both(run: Any) -> None:
    a = np.arange(32, dtype=F32)
    body = ["v_pk_mul_f32 v[4:5], s[2:3], v[2:3]", "v_pk_mul_f32 v[6:7], s[2:3], v[2:3] op_sel_hi:[0,1]"]
    out = run(body, {"v2": a, "v3": a + 1, "s2": 0x40000000, "s3": 0x40400000}, ["v4", "v5", "v6", "v7"])
    for low, high in (("v4", "v5"), ("v6", "v7")):
        np.testing.assert_array_equal(out[low].view(F32), 2 * a)
        np.testing.assert_array_equal(out[high].view(F32), 2 * (a + 1))


@pytest.mark.parametrize("select", [0, 8])
@pytest.mark.parametrize("narrow", ["fp8", "bf8"])
def test_scaled_upcast(run: Any, random: Any, narrow: str, select: int) -> None:
    kind = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}[narrow]
    codes = random.integers(0, 256, (32, 8), dtype=np.uint8)
    words = codes.view(np.uint32)
    scales = random.integers(100, 150, (32, 4), dtype=np.uint8)
    tail = f" scale_sel:{select}" if select else ""
    body = [
        f"v_cvt_scale_pk8_f32_{narrow} v[10:17], v[2:3], v1{tail}",
        f"v_cvt_scale_pk8_f16_{narrow} v[4:7], v[2:3], v1{tail}",
    ]
    inputs = {"v1": scales.view(np.uint32)[:, 0], "v2": words[:, 0].copy(), "v3": words[:, 1].copy()}
    out = run(body, inputs, [f"v{n}" for n in (*range(10, 18), 4, 5, 6, 7)])
    lane = np.arange(32)
    factor = np.exp2(scales[lane % 16, np.where((lane >= 16) & (select == 8), 1, 0)].astype(np.float64) - 127)
    wide = codes.view(kind).astype(np.float64) * factor[:, None]
    for at in range(8):
        same(out[f"v{10 + at}"].view(F32), wide[:, at].astype(F32))
        half = (out[f"v{4 + at // 2}"] >> np.uint32(16 * (at % 2)) & np.uint32(0xFFFF)).astype(np.uint16).view(F16)
        with np.errstate(over="ignore"):
            same(half, wide[:, at].astype(F32).astype(F16))


def test_scaled_upcast_fp4(run: Any, random: Any) -> None:
    codes = random.integers(0, 2**32, 32, dtype=np.uint32)
    scales = random.integers(120, 135, (32, 4), dtype=np.uint8)
    out = run(
        ["v_cvt_scale_pk8_bf16_fp4 v[4:7], v2, v1"],
        {"v1": scales.view(np.uint32)[:, 0], "v2": codes},
        [f"v{n}" for n in range(4, 8)],
    )
    lane = np.arange(32)
    factor = np.exp2(scales[lane % 16, lane // 16].astype(np.float64) - 127)
    for at in range(8):
        nibble = (codes >> np.uint32(4 * at) & np.uint32(15)).astype(np.uint8)
        wide = nibble.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * factor
        half = (out[f"v{4 + at // 2}"] >> np.uint32(16 * (at % 2)) & np.uint32(0xFFFF)).astype(np.uint16).view(BF16)
        same(half, wide.astype(BF16))


@pytest.mark.parametrize("narrow", ["fp8", "bf8"])
def test_scaled_downcast(run: Any, random: Any, narrow: str) -> None:
    kind = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}[narrow]
    x = (random.standard_normal((8, 32)) * 8).astype(F32)
    out = run(
        [f"v_cvt_scalef32_pk8_{narrow}_f32 v[20:21], v[2:9], 4.0"],
        {f"v{2 + n}": x[n] for n in range(8)},
        ["v20", "v21"],
    )
    codes = np.stack((out["v20"], out["v21"]), axis=-1).view(np.uint8).reshape(32, 8)
    np.testing.assert_array_equal(codes, (x / 4).astype(kind).T.view(np.uint8))


@pytest.mark.parametrize(
    "line",
    [
        "ds_read_b32 v1, v2",
        "v_add_u32_e32 v1, v2, v3",
        "s_waitcnt vmcnt(0)",
        "s_barrier",
        "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]",
        "global_load_dword v1, v[2:3], off",
        "s_and_saveexec_b64 s[0:1], vcc",
        "v_mov_b32_e32 v1, v2.l",
        "v_cvt_scale_pk8_f32_fp8 v[10:17], v[2:3], v1 scale_sel:3",
        "v_add_nc_u32_e32 v1, v2, v3 op_sel:[1,0,0]",
        "global_load_b32 v1, v[2:3], off th:TH_NONSENSE",
        "s_sendmsg sendmsg(MSG_GS_ALLOC_REQ)",
        "s_barrier_wait 40",
        "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v1, v3",
    ],
)
def test_refused(run: Any, line: str) -> None:
    with pytest.raises(EmulatorError, match="line"):
        run([line])


@pytest.mark.parametrize("line", ["v_add_nc_u32_e32 v1, v2, v3", "ds_load_b32 v1, v2", "s_wait_loadcnt 0x0"])
def test_gfx9_refuses_what_is_of_gfx1250(execute: Any, line: str) -> None:
    with pytest.raises(EmulatorError, match="line"):
        execute([line], arch="gfx950")
