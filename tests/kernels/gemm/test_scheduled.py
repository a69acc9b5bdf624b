"""Public functions on the scheduled kernels: epilogues, operand scales, and what they refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import SCHEDULES

import amdwarp
from amdwarp import UsageError
from amdwarp.resources import resources

pytest.importorskip("triton")

M, N, K = 136, 144, 192
SHAPES = {"gfx950": "inter_wave_256", "gfx942": "intra_wave_256"}
FP8 = {"gfx950": ml_dtypes.float8_e4m3fn, "gfx942": ml_dtypes.float8_e4m3fnuz}
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def normal(seed: int, *shape: int, dtype: Any = np.float16) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def agrees(emulation: Any, out: Any, expected: Any, schedule: Any, relative: float) -> None:
    """The schedule ran, spilled nothing, and is within a relative error of the largest value."""
    launch, compiled, _ = emulation.records[-1]
    assert launch.constexprs["S"] == schedule
    assert resources(compiled.asm["amdgcn"]).spills == 0
    assert np.abs(out.astype(np.float64) - expected).max() <= relative * np.abs(expected).max()


@pytest.mark.parametrize(
    ("arch", "schedule"),
    [("gfx950", "inter_wave_256"), ("gfx950", "inter_wave_128"), ("gfx942", "intra_wave_256_gfx942")],
)
def test_every_part_of_an_epilogue_at_once(arch: str, schedule: str) -> None:
    a, b, bias, old = normal(0, M, K), normal(1, N, K), normal(2, N), normal(3, M, N)
    with amdwarp.emulate(arch) as emulation:
        out = gemm.matmul(
            a, b.T, bias=bias, activation="silu", scale=0.5, residual=old, beta=2.0, out_dtype="float32",
            schedule=schedule,
        )  # fmt: skip
    x = 0.5 * (a.astype(np.float64) @ b.T.astype(np.float64)) + bias
    agrees(emulation, out, x / (1 + np.exp(-x)) + 2.0 * old, SCHEDULES[schedule], 1e-5)


def test_bias_of_rows_and_a_broadcast_residual() -> None:
    a, b, bias, old = normal(0, M, K), normal(1, N, K), normal(2, M), normal(3, N)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.matmul(a, b.T, bias=bias, bias_axis="row", residual=old, schedule="inter_wave_256")
    expected = a.astype(np.float64) @ b.T.astype(np.float64) + bias[:, None] + old
    agrees(emulation, out, expected, SCHEDULES["inter_wave_256"], 2e-3)


@pytest.mark.parametrize("arch", SHAPES)
@pytest.mark.parametrize("rows", [True, False])
def test_fp8_with_scales(arch: str, rows: bool) -> None:
    a, b, bias = normal(0, M, K, dtype=FP8[arch]), normal(1, N, K, dtype=FP8[arch]), normal(2, N)
    rng = np.random.default_rng(5)
    scale_a, scale_b = (rng.random((M, 1), np.float32), rng.random((1, N), np.float32)) if rows else (
        np.float32(0.5).reshape(1), np.float32(0.25).reshape(1))  # fmt: skip
    with amdwarp.emulate(arch) as emulation:
        out = gemm.scaled_matmul(a, b.T, scale_a, scale_b, bias=bias, out_dtype="float16", schedule=SHAPES[arch])
    expected = (a.astype(np.float64) @ b.T.astype(np.float64)) * scale_a * scale_b + bias
    name = "inter_wave_256_fp8" if arch == "gfx950" else "intra_wave_256_fp8_gfx942"
    agrees(emulation, out, expected, SCHEDULES[name], 2e-3)


def test_fp4_with_scales_in_rows() -> None:
    rng = np.random.default_rng(0)
    stored = [rng.integers(0, 256, (lines, K // 2)).astype(np.uint8) for lines in (M, N)]
    scales = [rng.integers(120, 130, (lines, K // 32)).astype(np.uint8) for lines in (M, N)]
    values = []
    for packed, factors in zip(stored, scales, strict=True):
        elements = np.stack((FP4[packed & 15], FP4[packed >> 4]), axis=2).reshape(-1, K)
        values.append(elements * np.repeat(2.0 ** (factors.astype(int) - 127), 32, axis=1))
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.scaled_matmul(
            stored[0], stored[1].T, scales[0], scales[1].T, activation="relu", schedule="inter_wave_256"
        )
    agrees(emulation, out, np.maximum(values[0] @ values[1].T, 0), SCHEDULES["inter_wave_256_mxfp4"], 1e-2)


def test_int8_is_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (lines, K)).astype(np.int8) for lines in (M, N))
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.int8_matmul(a, b.T, schedule="inter_wave_256")
    agrees(emulation, out, a.astype(np.float64) @ b.T.astype(np.float64), SCHEDULES["inter_wave_256_i8"], 0.0)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"activation": "swiglu"}, "have no swiglu"),
    ({"out_dtype": "float8_e4m3fn"}, "do not write float8_e4m3fn"),
    ({"bias": normal(2, N), "schedule": "intra_wave"}, "this schedule has no epilogue"),
]


@pytest.mark.parametrize(("keywords", "text"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_refusals(keywords: dict[str, Any], text: str) -> None:
    given = {"schedule": "inter_wave_256"} | keywords
    with amdwarp.emulate("gfx950"), pytest.raises(UsageError, match=text):
        gemm.matmul(normal(0, M, K), normal(1, N, K).T, **given)


def test_a_residual_whose_rows_lie_too_far_apart_is_refused() -> None:
    """None of the memory is touched: the residual is a view of one row's worth."""
    far = np.lib.stride_tricks.as_strided(np.zeros(N, np.float16), (2, N), (1 << 24, 2), writeable=False)
    with amdwarp.emulate("gfx950"), pytest.raises(UsageError, match="residual spans more than 2 GiB in one tile"):
        gemm.matmul(normal(0, 2, K), normal(1, N, K).T, residual=far, schedule="inter_wave_256")


def test_other_products_are_refused() -> None:
    a, b = normal(0, M, K, dtype=FP8["gfx950"]), normal(1, N, K, dtype=ml_dtypes.float8_e5m2)
    with amdwarp.emulate("gfx950"):
        with pytest.raises(UsageError, match="do not multiply float8_e4m3fn with float8_e5m2"):
            gemm.scaled_matmul(a, b.T, schedule="inter_wave_256")
        with pytest.raises(UsageError, match="have no scales of blocks"):
            blocks = np.ones((M, 2), np.float32)
            gemm.scaled_matmul(a, normal(1, N, K, dtype=FP8["gfx950"]).T, blocks, schedule="inter_wave_256")
        with pytest.raises(UsageError, match="there is no schedule 'nothing' for gfx950"):
            gemm.scaled_matmul(a, a.T, schedule="nothing")
        with pytest.raises(UsageError, match="write sums of int8 as int32"):
            ones = np.ones((64, 64), np.int8)
            gemm.int8_matmul(ones, ones, np.float32(2).reshape(1), schedule="inter_wave_256")
