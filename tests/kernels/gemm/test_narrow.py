"""The scheduled kernels of fp8, int8 and fp4 with E8M0 scales: numbers, races, registers, stages, and refusals."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.gemm import SCHEDULES, GemmPlan, Matrix, plan
from amdwarp.kernels.gemm.configs import choose
from amdwarp.kernels.gemm.scales import shuffle_scales, shuffled_size

import amdwarp
from amdwarp import UsageError
from amdwarp.resources import resources
from amdwarp.runtime import Launch, memory_span, run
from amdwarp.sanitizer import check

pytest.importorskip("triton")

FP8 = {
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
    "fp8e4b8": ml_dtypes.float8_e4m3fnuz,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
}
OUT = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "i32": np.int32}
#: (dtype, schedule, output); `VARIANTS` of one operand kind share a kernel but for the types.
VARIANTS = [
    ("fp8e4nv", "inter_wave_256_fp8", "bf16"),
    ("fp8e5", "inter_wave_256_fp8", "fp32"),
    ("i8", "inter_wave_256_i8", "i32"),
    ("mxfp4", "inter_wave_256_mxfp4", "fp16"),
]
GFX942 = [
    ("fp8e4b8", "intra_wave_256_fp8_gfx942", "bf16"),
    ("fp8e5b16", "intra_wave_256_fp8_gfx942", "fp32"),
    ("i8", "intra_wave_256_i8_gfx942", "i32"),
]
#: Relative rounding of an output type.
ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-22, "i32": 0.0}
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def matrix(array: Any) -> Matrix:
    rows, columns = array.shape
    down, across = (stride // array.itemsize for stride in array.strides)
    return Matrix(rows, columns, down, across, array.__array_interface__["data"][0], array.itemsize)


def operand(rng: np.random.Generator, dtype: str, rows: int, k: int) -> tuple[Any, Any, Any]:
    """A (rows, k) operand as it is stored, its scales or None, and its values."""
    if dtype == "mxfp4":
        stored = rng.integers(0, 256, (rows, k // 2)).astype(np.uint8)
        scales = rng.integers(119, 129, (rows, k // 32)).astype(np.uint8)
        values = np.stack((FP4[stored & 15], FP4[stored >> 4]), axis=2).reshape(rows, k)
        return stored, scales, values * np.repeat(2.0 ** (scales.astype(int) - 127), 32, axis=1)
    if dtype == "i8":
        stored = rng.integers(-128, 128, (rows, k)).astype(np.int8)
    else:
        stored = rng.standard_normal((rows, k)).astype(np.float32).astype(FP8[dtype])
    return stored, None, stored.astype(np.float64)


def prepared(dtype: str, schedule: str, out: str, shape: tuple[int, int, int]) -> tuple[Any, ...]:
    """The plan of a product, its arrays by argument, and the expected sums with their magnitudes."""
    m, n, k = shape
    rng = np.random.default_rng(3)
    (a, a_scale, left), (b, b_scale, right) = operand(rng, dtype, m, k), operand(rng, dtype, n, k)
    c = np.zeros((m, n), OUT[out])
    target = SCHEDULES[schedule].arch
    made = plan(matrix(a), matrix(b.T), matrix(c), dtype, schedule, out_dtype=out, target=target)
    arrays = {"a_ptr": a, "b_ptr": b.T, "c_ptr": c}
    if dtype == "mxfp4":
        arrays |= {"scale_a_ptr": shuffle_scales(a_scale), "scale_b_ptr": shuffle_scales(b_scale)}
    return made, arrays, left @ right.T, np.abs(left) @ np.abs(right).T


def compiled(made: GemmPlan) -> Any:
    return amdwarp.compile(
        made.function(), made.signature, made.constexprs, made.schedule.arch, attrs=made.hints, **made.options
    )


@functools.cache
def whole(dtype: str, schedule: str, out: str) -> Any:
    return compiled(prepared(dtype, schedule, out, (256, 256, 512))[0])


@pytest.mark.parametrize("variant", [*VARIANTS, *GFX942], ids="-".join)
@pytest.mark.parametrize("shape", [(264, 272, 416), (8, 8, 32), (256, 256, 1024)], ids=str)
def test_numbers(variant: tuple[str, str, str], shape: tuple[int, int, int]) -> None:
    """fp32 sums err by K roundings of the sum of magnitudes at most; int32 ones are exact."""
    made, arrays, expected, magnitude = prepared(*variant, shape)
    with amdwarp.emulate(made.schedule.arch):
        run(Launch(made.function(), made.grid, arrays | made.arguments, made.constexprs, made.options))
    bound = ROUNDING[variant[2]] * np.abs(expected)
    if variant[0] != "i8":
        bound = bound + shape[2] * 2.0**-24 * magnitude + 2.0**-24
    assert (np.abs(arrays["c_ptr"].astype(np.float64) - expected) <= bound).all()


@pytest.mark.slow
@pytest.mark.parametrize("variant", [*VARIANTS, *GFX942], ids="-".join)
def test_nothing_races(variant: tuple[str, str, str]) -> None:
    """Five K steps of a ragged tile, every access examined."""
    made, arrays, *_ = prepared(*variant, (200, 240, 1184 if variant[0] == "mxfp4" else 592))
    program = compiled(made)
    args = [*(memory_span(array) for array in arrays.values()), *made.arguments.values()]
    report = check(program.asm["amdgcn"], args, made.grid, lds_bytes=program.metadata.shared)
    assert report.findings == []


@pytest.mark.parametrize("variant", VARIANTS, ids="-".join)
def test_budget_and_instructions(variant: tuple[str, str, str]) -> None:
    """No spills, two workgroup halves on a SIMD, and the fast MFMA: 32 of 32 rows a K step and wave."""
    program = whole(*variant)
    used = resources(program.asm["amdgcn"])
    assert (used.spills, used.scratch_bytes, used.agprs) == (0, 0, 0)
    assert used.vgprs <= 256
    assert program.metadata.shared == SCHEDULES[variant[1]].lds_bytes() == 133056
    name = "v_mfma_i32_32x32x32_i8" if variant[0] == "i8" else "v_mfma_scale_f32_32x32x64_f8f6f4"
    text = program.asm["amdgcn"]
    steps = 2  # written out
    assert text.count(name) == text.count("v_mfma") == steps * {"i8": 32, "mxfp4": 32}.get(variant[0], 16)


@pytest.mark.parametrize("variant", GFX942, ids="-".join)
def test_budget_of_gfx942(variant: tuple[str, str, str]) -> None:
    """Two K steps of 128 MFMAs of 16x16 (of int8: 32 of 32x32), nothing spilled, LDS full."""
    program = whole(*variant)
    used = resources(program.asm["amdgcn"])
    assert (used.spills, used.scratch_bytes) == (0, 0) and used.vgprs <= 512
    assert program.metadata.shared == SCHEDULES[variant[1]].lds_bytes() == 65536
    kind = "fp8_fp8" if variant[0] == "fp8e4b8" else "bf8_bf8"
    name = "v_mfma_i32_32x32x16_i8" if variant[0] == "i8" else f"v_mfma_f32_16x16x32_{kind}"
    assert program.asm["amdgcn"].count(name) == (128 if variant[0] == "i8" else 256)


def test_scales_are_taken_a_word_at_a_time() -> None:
    """Each MFMA of fp4 selects its byte of a word that was loaded: no byte is loaded or shifted out by itself."""
    text = whole(*VARIANTS[3]).asm["amdgcn"]
    assert "op_sel" in text
    assert "buffer_load_ubyte" not in text
    loop = max(text.split(".LBB"), key=lambda block: block.count("v_mfma"))
    assert loop.count("v_lshrrev_b32") + loop.count("v_bfe_u32") <= 4


def test_shuffled_scales() -> None:
    scales = np.arange(40 * 11, dtype=np.int64).astype(np.uint8).reshape(40, 11)
    flat = shuffle_scales(scales)
    assert flat.shape == (shuffled_size(40, 11),) == (1024,)
    for row, column in ((0, 0), (31, 3), (5, 4), (39, 10), (33, 7)):
        block = row // 32 * 2 + column // 8
        lane = row % 32 + column % 8 // 4 * 32
        assert flat[block * 256 + lane * 4 + column % 4] == scales[row, column]
    assert flat[256 + 3] == 0  # past the last column


def test_shuffled_scales_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    scales = np.random.default_rng(0).integers(0, 256, (70, 9)).astype(np.uint8)
    assert (shuffle_scales(torch.from_numpy(scales)).numpy() == shuffle_scales(scales)).all()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: shuffle_scales(np.zeros((4, 4), np.float32)), "2-dimensional array of 4 bytes an element"),
        (lambda: planned("fp8e4nv", k=72), "takes only operands whose rows are 16-byte aligned"),
        (lambda: planned("fp8e4nv", order="kn"), "takes only B with K contiguous, as weight.T"),
        (lambda: planned("fp8e4nv", schedule="inter_wave_128"), "multiplies fp16 and bf16, not fp8e4nv"),
        (lambda: planned("i8", out="bf16"), "a product of i8 is not written as bf16; take i32"),
        (lambda: planned("fp8e4nv", out="i32"), "a product of fp8e4nv is not written as i32; take fp16, bf16, fp32"),
        (lambda: planned("fp16"), "a has elements of 1 bytes, not 2"),
        (lambda: planned("fp4"), "dtype fp4 is not supported"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        call()


def planned(dtype: str, *, k: int = 64, order: str = "nk", out: str | None = None, schedule: str | None = None) -> Any:
    b = Matrix(k, 64, 1, k, 0, 1) if order == "nk" else Matrix(k, 64, 64, 1, 0, 1)
    size = {None: 2, "bf16": 2, "i32": 4}[out] if dtype != "i8" or out else 4
    return plan(Matrix(64, k, k, 1, 0, 1), b, Matrix(64, 64, 64, 1, 0, size), dtype, schedule, out_dtype=out)


@pytest.mark.parametrize("variant", VARIANTS, ids="-".join)
def test_names_and_defaults_follow_the_dtype(variant: tuple[str, str, str]) -> None:
    dtype, name, _ = variant
    assert choose(64, 64, 64, dtype=dtype) == SCHEDULES[name]
    assert planned(dtype, schedule="inter_wave_256").schedule == SCHEDULES[name]
