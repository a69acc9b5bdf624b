"""Scaled products of stacks and of groups of rows, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import GemmSchedule, PlainConfig, reference
from amdwarp.kernels.gemm.dtypes import fp8_for

import amdwarp
from amdwarp import UsageError

pytest.importorskip("triton")

TARGETS = [pytest.param("gfx942", marks=pytest.mark.slow), "gfx950", pytest.param("gfx1250", marks=pytest.mark.slow)]
K = 300


def fp8(target, *shape, seed=0):
    drawn = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return drawn.astype(getattr(ml_dtypes, fp8_for("float8_e4m3fn", target)))


def factors(*shape):
    return np.asarray(np.random.default_rng(shape).random(shape) + 0.5, dtype=np.float32)


def widened(x, scales, rows):
    """Elements times their scales: one a 128 along the last axis, and along the one before it where they are fewer."""
    wide = np.repeat(scales.astype(float), 128, -1)[..., : x.shape[-1]]
    return x.astype(float) * (wide if scales.shape[-2] == rows else np.repeat(wide, 128, -2)[..., :rows, :])


def close(got, expected):
    return got.shape == expected.value.shape and bool(
        (np.abs(got.astype(float) - expected.value) <= expected.bound).all()
    )


SCALES = {
    "lines of each": ((3, 2, 20, 1), (2, 1, 40)),
    "one for each": ((3, 1, 1, 1), (2, 1, 1)),
    "lines of all": ((20, 1), (1, 40)),
    "blocks": ((3, 2, 20, 3), (2, 3, 1)),
    "blocks of all": ((1, 3), (3, 40)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SCALES)
def test_stacks(name, target):
    a, b = fp8(target, 3, 2, 20, K), fp8(target, 2, K, 40)
    scale_a, scale_b = (factors(*shape) for shape in SCALES[name])
    with amdwarp.emulate(target, sanitize=True):
        out = gemm.scaled_matmul(a, b, scale_a, scale_b, out_dtype="float32")
    if name.startswith("blocks"):
        left, right = widened(a, scale_a, 20), widened(b.swapaxes(-1, -2), scale_b.swapaxes(-1, -2), 40)
        expected = reference.expect(left, right.swapaxes(-1, -2), "float32")
    else:
        scale = scale_a.astype(float) * scale_b
        expected = reference.expect(a.astype(float), b.astype(float), "float32", scale=scale)
    assert close(out, expected)


@pytest.mark.parametrize(
    "config", [{"schedule": "split_k", "splits": 2}, {"schedule": "stream_k", "programs": 5}], ids=str
)
def test_parts_of_stacks(config):
    a, b, scale_a, scale_b = fp8("gfx950", 2, 20, K), fp8("gfx950", 2, K, 40), factors(2, 20, 1), factors(2, 1, 40)
    with amdwarp.emulate("gfx950", sanitize=True):
        made = PlainConfig(32, 32, 64, 2, **config)
        out = gemm.scaled_matmul(a, b, scale_a, scale_b, out_dtype="float32", schedule=made)
    scale = scale_a.astype(float) * scale_b
    assert close(out, reference.expect(a.astype(float), b.astype(float), "float32", scale=scale))


def test_four_batch_dimensions_of_scales_that_do_not_join():
    a, b = fp8("gfx950", 2, 1, 3, 1, 4, 32), fp8("gfx950", 1, 2, 1, 2, 32, 5)
    scale_a, scale_b = factors(2, 1, 3, 1, 4, 1), factors(1, 2, 1, 2, 1, 5)
    with amdwarp.emulate("gfx950"):
        out = gemm.scaled_matmul(a, b, scale_a, scale_b, out_dtype="float32")
    scale = scale_a.astype(float) * scale_b
    assert close(out, reference.expect(a.astype(float), b.astype(float), "float32", scale=scale))


def test_a_stack_times_one_matrix_is_one_product():
    a, b, scale_a = fp8("gfx950", 2, 128, 128), fp8("gfx950", 256, 128).T, factors(2, 128, 1)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.scaled_matmul(a, b, scale_a, out_dtype="float32")
    ((launch, *_),) = emulation.records
    assert isinstance(launch.constexprs["S"], GemmSchedule) and launch.args["m"] == 256
    assert close(out, reference.expect(a.astype(float), b.astype(float), "float32", scale=scale_a.astype(float)))


def test_stacks_of_fp4():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.integers(0, 256, shape).astype(np.uint8)  # noqa: E731
    a, b, scale_a, scale_b = draw(2, 128, 64), draw(256, 64), draw(2, 128, 4) % 8 + 124, draw(256, 4) % 8 + 124
    with amdwarp.emulate("gfx950"):
        scheduled = gemm.scaled_matmul(a, b.T, scale_a, scale_b.T, out_dtype="float32")
        stack = gemm.scaled_matmul(a, b.T[None].repeat(2, 0), scale_a, scale_b.T, out_dtype="float32")
    values = (reference.unpack(b, "e2m1", 1) * np.repeat(reference.e8m0(scale_b), 32, 1)).T
    for at in range(2):
        own = reference.unpack(a[at], "e2m1", 1) * np.repeat(reference.e8m0(scale_a[at]), 32, 1)
        expected = reference.expect(own, values, "float32")
        assert close(scheduled[at], expected) and close(stack[at], expected)


def test_stacks_of_int8_are_exact():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 9, 32), (32, 17)))
    with amdwarp.emulate("gfx950"):
        assert (gemm.int8_matmul(a, b) == a.astype(int) @ b.astype(int)).all()


GROUPS = {
    "lines": ((50, 1), (3, 1, 136)),
    "one": ((), ()),
    "one for each": ((1, 1), (3, 1, 1)),
    "blocks": ((50, 3), (3, 3, 2)),
    "none": (None, None),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GROUPS)
def test_groups(name, target):
    a, b, ends = fp8(target, 50, K), fp8(target, 3, K, 136), np.array([20, 20, 45], np.int32)
    shape_a, shape_b = GROUPS[name]
    scales = {} if shape_a is None else {"scale_a": factors(*shape_a), "scale_b": factors(*shape_b)}
    bias = factors(3, 136)
    with amdwarp.emulate(target, sanitize=True):
        out = gemm.grouped_matmul(a, b, ends, bias=bias, out_dtype="float32", **scales)
    for group, rows in ((0, slice(0, 20)), (2, slice(20, 45))):
        left, right, scale = a[rows].astype(float), b[group].astype(float), 1.0
        if name == "blocks":
            left = widened(a[rows], scales["scale_a"][rows], 25 if group else 20)
            right = widened(b[group].T, scales["scale_b"][group].T, 136).T
        elif scales:
            one_a, one_b = scales["scale_a"], scales["scale_b"]
            scale = (one_a[rows] if name == "lines" else one_a).astype(float) * (one_b[group] if one_b.ndim else one_b)
        expected = reference.expect(left, right, "float32", scale=scale, bias=bias[group].astype(float))
        assert close(out[rows], expected)
    assert (out[45:] == 0).all()


def z(*shape, dtype=ml_dtypes.float8_e4m3fn):
    return np.zeros(shape, dtype)


ENDS = np.array([4, 8], np.int32)
HALF = z(8, 64, dtype=np.float16)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: gemm.scaled_matmul(z(2, 8, 64), z(64, 16), factors(3, 8, 1)),
            r"scale_a is 3x8x1 float32; pass batch dimensions that broadcast to \(2,\), or none",
        ),
        (
            lambda: gemm.scaled_matmul(z(2, 8, 64), z(64, 16), factors(2, 7, 1)),
            r"scale_a is 2x7x1 float32; pass one of the shapes .*, behind batch dimensions that broadcast or none",
        ),
        (lambda: gemm.scaled_matmul(z(2, 8, 64), z(3, 64, 16)), "the batch dimensions of a .* do not broadcast"),
        (
            lambda: gemm.grouped_matmul(z(8, 64), z(2, 64, 16), ENDS, scale_a=factors(1, 1), scale_b=factors(3, 1, 1)),
            r"scale_b is 3x1x1 float32; pass batch dimensions that broadcast to \(2,\)",
        ),
        (
            lambda: gemm.grouped_matmul(z(300, 300), z(2, 300, 16), ENDS, scale_a=factors(3, 3)),
            r"scale_a is 3x3 float32, in which blocks cross groups; pass one of .* \(\), \(300, 1\), \(300, 3\)",
        ),
        (
            lambda: gemm.grouped_matmul(
                z(8, 64, dtype=np.float16), z(2, 64, 16, dtype=np.float16), ENDS, scale_a=factors()
            ),
            "scale_a of float16 operands; pass fp8 operands in groups of rows, or no scales",
        ),
        (lambda: gemm.grouped_matmul(z(8, 8), z(8, 16), ENDS), "dtype float8_e4m3fn is not supported"),
        (
            lambda: gemm.grouped_matmul(z(8, 64, dtype=ml_dtypes.float8_e4m3fnuz), z(2, 64, 16), ENDS),
            "a is float8_e4m3fnuz, and gfx950 multiplies float8_e4m3fn",
        ),
        (lambda: gemm.grouped_matmul(z(8, 64), z(2, 64, 16), ENDS, precision="xf32"), "with fp8 operands; pass ieee"),
        (
            lambda: gemm.scaled_matmul(z(2, 8, 64), z(2, 64, 16), schedule="inter_wave"),
            "the scheduled kernels multiply two matrices; pass schedule=None, 'plain' or a PlainConfig",
        ),
    ],
)
def test_refusals(call, text):
    with amdwarp.emulate("gfx950"), pytest.raises(UsageError, match=text):
        call()
