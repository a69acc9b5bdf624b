"""Scalar ALU of gfx1250: floats, 64-bit integers, masks of 32 lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdwarp.errors import EmulatorError

F16, F32 = np.float16, np.float32


@pytest.fixture(scope="session")
def run(execute: Any) -> Any:
    """`execute` for gfx1250."""

    def call(body: list[str], inputs: dict[str, Any] | None = None, outputs: list[str] | None = None, **kw: Any) -> Any:
        return execute(body, inputs, outputs, arch="gfx1250", **kw)

    return call


def same(got: Any, expected: Any) -> None:
    """Equal bit for bit, except that any NaN equals any NaN."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    wide = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(wide)[~nan], expected.view(wide)[~nan])


@settings(max_examples=25, deadline=None)
@given(a=st.floats(width=32), b=st.floats(width=32), c=st.floats(width=32))
def test_scalar_floats(run: Any, a: float, b: float, c: float) -> None:
    x, y, z = F32(a), F32(b), F32(c)
    bits = [int(v.view(np.uint32)) for v in (x, y, z)]
    body = [
        "s_mul_f32 s10, s4, s5",
        "s_add_f32 s11, s4, s5",
        "s_mov_b32 s12, s6",
        "s_fmac_f32 s12, s4, s5",
        "s_cmp_lt_f32 s4, s5",
        "s_cselect_b32 s13, 1, 0",
        "s_cmp_nge_f32 s4, s5",
        "s_cselect_b32 s14, 1, 0",
        "s_max_num_f32 s15, s4, s5",
        "s_floor_f32 s16, s4",
        "s_cvt_i32_f32 s17, s4",
        "s_cvt_u32_f32 s18, s4",
        "v_s_sqrt_f32 s19, s4",
        "s_cvt_f16_f32 s20, s4",
    ]
    out = run(body, {"s4": bits[0], "s5": bits[1], "s6": bits[2]}, [f"s{n}" for n in range(10, 21)])
    got = {name: value[:1].view(F32) for name, value in out.items()}
    with np.errstate(all="ignore"):
        same(got["s10"], np.array([x * y]))
        same(got["s11"], np.array([x + y]))
        exact = np.longdouble(x) * np.longdouble(y) + np.longdouble(z)
        if np.isfinite(exact) and abs(exact) < 1e38:
            assert abs(np.longdouble(got["s12"][0]) - exact) <= np.spacing(np.abs(got["s12"][0]))
        assert out["s13"][0] == (x < y) and out["s14"][0] == (not x >= y)
        if not (x == y == 0):
            same(got["s15"], np.array([np.fmax(x, y)]))
        same(got["s16"], np.array([np.floor(x)]))
        same(got["s19"], np.array([np.sqrt(x)]))
        same(out["s20"][:1].astype(np.uint16).view(F16), np.array([x.astype(F16)]))
    whole = (
        0
        if np.isnan(x)
        else max(-(2**31), min(2**31 - 1, int(x) if np.isfinite(x) else (2**40 if x > 0 else -(2**40))))
    )
    assert int(out["s17"].view(np.int32)[0]) == whole
    positive = 0 if np.isnan(x) else max(0, min(2**32 - 1, int(x) if np.isfinite(x) else (2**40 if x > 0 else 0)))
    assert int(out["s18"][0]) == positive


@settings(max_examples=20, deadline=None)
@given(a=st.integers(0, 2**64 - 1), b=st.integers(0, 2**64 - 1))
def test_scalar64(run: Any, a: int, b: int) -> None:
    inputs = {"s4": a & 0xFFFFFFFF, "s5": a >> 32, "s6": b & 0xFFFFFFFF, "s7": b >> 32}
    body = [
        "s_add_nc_u64 s[10:11], s[4:5], s[6:7]",
        "s_sub_nc_u64 s[12:13], s[4:5], s[6:7]",
        "s_mul_u64 s[14:15], s[4:5], s[6:7]",
        "s_or_b64 s[16:17], s[4:5], 0xfc00000000000000",
        "s_add_co_u32 s18, s4, s6",
        "s_add_co_ci_u32 s19, s5, s7",
        "s_and_not1_b32 s20, s4, s6",
    ]
    out = run(body, inputs, [f"s{n}" for n in range(10, 21)])
    mask = 2**64 - 1
    for at, want in enumerate(((a + b) & mask, (a - b) & mask, a * b & mask, a | 0xFC00000000000000, (a + b) & mask)):
        low, high = (int(out[f"s{10 + 2 * at + k}"][0]) for k in (0, 1))
        assert low | high << 32 == want
    assert out["s20"][0] == a & ~b & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("and", lambda a, e: a & e),
        ("or", lambda a, e: a | e),
        ("and_not1", lambda a, e: a & ~e & 0xFFFFFFFF),
        ("and_not0", lambda a, e: ~a & e & 0xFFFFFFFF),
        ("xor", lambda a, e: a ^ e),
    ],
)
def test_saveexec(run: Any, name: str, result: Any) -> None:
    value, exec_lo = 0x0FF0F00F, 0x00FFFF03
    body = [f"s_mov_b32 exec_lo, {exec_lo:#x}", f"s_{name}_saveexec_b32 s10, s4"]
    out = run(body, {"s4": value}, ["s10", "exec_lo", "scc"])
    assert (out["s10"][0], out["exec_lo"][0], out["scc"][0]) == (exec_lo, result(value, exec_lo), 1)


def test_a_workgroup_in_a_cluster_is_refused(run: Any) -> None:
    with pytest.raises(EmulatorError, match="workgroups in clusters"):
        run(["s_lshl_b32 s4, ttmp6, 9"])
