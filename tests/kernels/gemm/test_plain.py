"""The plain family in the emulator: every schedule, layout and form, against float64."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import PlainConfig, reference
from amdwarp.kernels.gemm.dtypes import FORMATS

import amdwarp

pytest.importorskip("triton")

TARGETS = ("gfx942", "gfx950", "gfx1250")
SMALL = PlainConfig(32, 32, 32, num_warps=2)
SLOW_GFX1250 = pytest.param("gfx1250", marks=pytest.mark.slow)


def draw(*shape, dtype=np.float16, seed=0):
    return np.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape)).astype(dtype)


def f64(x):
    return np.asarray(x).astype(np.float64)


def close(got, expected):
    """Whether a result has the shape of what is expected, and every element is within its bound."""
    return got.shape == expected.value.shape and bool((np.abs(f64(got) - expected.value) <= expected.bound).all())


@pytest.mark.parametrize("target", [pytest.param("gfx942", marks=pytest.mark.slow), "gfx950", SLOW_GFX1250])
@pytest.mark.parametrize(
    "schedule",
    [
        {"schedule": "tiles"},
        {"schedule": "persistent", "programs": 2},
        {"schedule": "split_k", "splits": 2},
        {"schedule": "split_k", "splits": 4},
        {"schedule": "split_k", "splits": 3, "atomic": True},
        {"schedule": "stream_k", "programs": 3},
        {"schedule": "stream_k", "programs": 7},
    ],
    ids=str,
)
def test_schedules(schedule, target):
    a, b, bias = draw(40, 100), draw(100, 50), draw(50)
    with amdwarp.emulate(target):
        out = gemm.matmul(a, b, bias=bias, schedule=PlainConfig(32, 32, 32, num_warps=2, **schedule))
    assert close(out, reference.expect(f64(a), f64(b), "float16", bias=f64(bias)))


@pytest.mark.parametrize("schedule", ["split_k", "stream_k"])
def test_parts_are_added_in_the_same_order_every_time(schedule):
    a, b = draw(40, 300), draw(300, 50)
    config = PlainConfig(32, 32, 32, 2, schedule=schedule, **({"splits": 3} if schedule == "split_k" else {}))
    results = []
    for seed in range(3):
        with amdwarp.emulate("gfx950", seed=seed):
            results.append(gemm.matmul(a, b, out_dtype="float32", schedule=config))
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


@pytest.mark.parametrize(
    ("activation", "schedule"),
    [
        (None, "tiles"),
        ("relu", "stream_k"),
        ("gelu", "tiles"),
        ("gelu_tanh", "stream_k"),
        ("silu", "tiles"),
        ("swiglu", "tiles"),
        ("swiglu", "stream_k"),
    ],
)
def test_epilogues(activation, schedule):
    a, b, bias = draw(20, 40), draw(40, 48), draw(48)
    residual = draw(20, 24 if activation == "swiglu" else 48)
    config = PlainConfig(32, 32, 32, 2, schedule=schedule)
    with amdwarp.emulate("gfx950"):
        out = gemm.matmul(
            a, b, bias=bias, activation=activation, residual=residual, beta=0.5, scale=0.3, out_dtype="float32",
            schedule=config,
        )  # fmt: skip
    expected = reference.expect(
        f64(a), f64(b), "float32", scale=0.3, bias=f64(bias), activation=activation, residual=f64(residual), beta=0.5
    )  # fmt: skip
    assert close(out, expected)


def orders(rows, columns, dtype=np.float16):
    """The same matrix in row-major, column-major and strided memory."""
    x = draw(rows, columns, dtype=dtype)
    apart = np.full((rows * 2, columns * 3), np.nan, dtype)
    apart[::2, ::3] = x
    return {"row": x, "column": np.asfortranarray(x), "strided": apart[::2, ::3]}


@pytest.mark.parametrize("a_order", ["row", "column", "strided"])
@pytest.mark.parametrize("b_order", ["row", "column", "strided"])
@pytest.mark.parametrize("shape", [(40, 50, 70), pytest.param((48, 64, 32), marks=pytest.mark.slow)])
def test_layouts(a_order, b_order, shape):
    m, n, k = shape
    a, b = orders(m, k)[a_order], orders(k, n)[b_order]
    out = np.full((n, m), np.nan, np.float16).T
    with amdwarp.emulate("gfx950"):
        gemm.matmul(a, b, out=out, schedule=SMALL)
    assert close(out, reference.expect(f64(a), f64(b), "float16"))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 50, 33), (33, 1, 40), (3, 5, 7), (65, 31, 1)])
def test_ragged_shapes(shape):
    m, n, k = shape
    a, b = draw(m, k), draw(k, n)
    with amdwarp.emulate("gfx950"):
        assert close(gemm.matmul(a, b, schedule=SMALL), reference.expect(f64(a), f64(b), "float16"))
        assert close(gemm.matmul(a, b), reference.expect(f64(a), f64(b), "float16"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 20, 40), (2, 3, 40, 30)),
        ((3, 20, 40), (40, 30)),
        ((20, 40), (4, 40, 30)),
        ((2, 1, 3, 20, 40), (4, 1, 40, 30)),
    ],
)
def test_batches_broadcast(a, b):
    a, b = draw(*a), draw(*b)
    with amdwarp.emulate("gfx950"):
        assert close(gemm.matmul(a, b, schedule=SMALL), reference.expect(f64(a), f64(b), "float16"))


def test_four_batch_dimensions_that_do_not_join():
    a, b = draw(2, 2, 2, 2, 20, 24).transpose(3, 1, 0, 2, 4, 5), draw(24, 18)
    residual = draw(2, 1, 1, 18)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.matmul(a, b, residual=residual, schedule=SMALL)
    assert close(out, reference.expect(f64(a), f64(b), "float16", residual=f64(residual)))
    assert len(emulation.records) > 1


def test_vectors():
    a, b = draw(40), draw(40, 30)
    with amdwarp.emulate("gfx950"):
        assert close(gemm.matmul(a, b), reference.expect(f64(a), f64(b), "float16", roundings=120))
        assert gemm.matmul(b.T, a).shape == (30,)
        assert gemm.matmul(a, a).shape == ()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_float_types(dtype, target):
    a, b = draw(40, 70, dtype=dtype), draw(70, 50, dtype=dtype)
    with amdwarp.emulate(target):
        assert close(gemm.matmul(a, b, schedule=SMALL), reference.expect(f64(a), f64(b), np.dtype(dtype).name))


def test_xf32_keeps_ten_bits():
    a, b = draw(40, 70, dtype=np.float32), draw(70, 50, dtype=np.float32)
    with amdwarp.emulate("gfx942"):
        out = gemm.matmul(a, b, precision="xf32", schedule=SMALL)
    assert close(out, reference.expect(f64(a), f64(b), "float32", fraction=10))
    assert not close(out, reference.expect(f64(a), f64(b), "float32"))


@pytest.mark.parametrize(
    "schedule", [{"schedule": "stream_k", "programs": 1}, {"schedule": "split_k", "splits": 2}], ids=str
)
def test_one_tile_and_one_workgroup(schedule):
    """Extents of the launch that are 1 become constants of the kernel."""
    a, b = draw(20, 40), draw(40, 24)
    with amdwarp.emulate("gfx950", sanitize=True):
        out = gemm.matmul(a, b, schedule=PlainConfig(32, 32, 16, 2, **schedule))
    assert close(out, reference.expect(f64(a), f64(b), "float16"))


def test_one_group():
    a, b = draw(20, 40), draw(1, 40, 24)
    with amdwarp.emulate("gfx950", sanitize=True):
        rows = gemm.grouped_matmul(a, b, np.array([20], np.int32))
        columns = gemm.grouped_matmul(a.T, rows, np.array([20], np.int32))
    assert close(rows, reference.expect(f64(a), f64(b[0]), "float16"))
    assert close(columns[0], reference.expect(f64(a).T, f64(rows), "float16"))


def test_scales_that_32_bits_do_not_reach():
    """E8M0 scales of B whose lines along K lie 2**30 bytes apart."""
    (a, sa, left), (b, sb, right) = mx_operand("e4m3", 40, 128, 1), mx_operand("e4m3", 50, 128, 0)
    apart = np.lib.stride_tricks.as_strided(np.zeros(4 << 30, np.uint8), (4, 50), (1 << 30, 1))
    apart[...] = sb
    with amdwarp.emulate("gfx950"):
        out = gemm.scaled_matmul(a, b, sa, apart, out_dtype="float32")
    assert close(out, reference.expect(left, right, "float32"))


def test_shuffled_weights():
    x, w = draw(20, 70), draw(45, 70)
    shuffled = gemm.shuffle_weight(w)
    assert (gemm.unshuffle_weight(shuffled) == w).all()
    with amdwarp.emulate("gfx950"):
        assert close(gemm.linear(x, shuffled, schedule=SMALL), reference.expect(f64(x), f64(w).T, "float16"))


def test_no_k_leaves_the_epilogue_and_no_rows_leave_nothing():
    bias = draw(50)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.matmul(draw(40, 0), draw(0, 50), bias=bias, schedule=SMALL)
        assert (out == np.broadcast_to(bias, (40, 50))).all()
        launches = len(emulation.records)
        assert gemm.matmul(draw(0, 8), draw(8, 50)).shape == (0, 50)
        assert gemm.matmul(draw(3, 0, 4, 8), draw(8, 5)).shape == (3, 0, 4, 5)
        assert len(emulation.records) == launches


# ---- scaled


def fp8_types(target):
    flavour = "fnuz" if target == "gfx942" else ""
    return [getattr(ml_dtypes, f"float8_e4m3{flavour or 'fn'}"), getattr(ml_dtypes, f"float8_e5m2{flavour}")]


def scales(*shape, seed=9):
    return np.asarray(np.abs(draw(*shape, dtype=np.float64, seed=seed)) + 0.1, np.float32)


def spread(scale, lines, k, axis):
    """A blockwise scale as a matrix like its operand."""
    x = f64(scale) if axis == 1 else f64(scale).T
    x = np.repeat(x, 128, 1)[:, :k]
    x = np.repeat(x, 128, 0)[:lines] if x.shape[0] != lines else x
    return x if axis == 1 else x.T


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("left", "right"), [(0, 1), pytest.param(1, 1, marks=pytest.mark.slow)])
def test_fp8(left, right, target):
    types = fp8_types(target)
    a, b = draw(40, 150, dtype=types[left]), draw(150, 50, dtype=types[right])
    sa, sb = scales(40, 1), scales(1, 50)
    with amdwarp.emulate(target):
        out = gemm.scaled_matmul(a, b, sa, sb)
    assert close(out, reference.expect(f64(a), f64(b), "bfloat16", scale=f64(sa) * f64(sb)))


@pytest.mark.parametrize(
    ("a_scale", "b_scale"),
    [((), (1, 140)), ((1,), (3, 2)), ((150, 1), (1, 1)), ((150, 3), (3, 140)), ((2, 3), (3, 2)), ((150, 3), (3, 2))],
)
def test_scale_shapes(a_scale, b_scale):
    a, b = (draw(*shape, dtype=ml_dtypes.float8_e4m3fn) for shape in ((150, 300), (300, 140)))
    sa, sb = scales(*a_scale), scales(*b_scale)
    with amdwarp.emulate("gfx950"):
        out = gemm.scaled_matmul(a, b, sa, sb, out_dtype="float32", schedule=PlainConfig(64, 64, 128))
    left = f64(sa) if sa.size == 1 or sa.shape[1] == 1 else spread(sa, 150, 300, 1)
    right = f64(sb) if sb.size == 1 or sb.shape[0] == 1 else spread(sb, 140, 300, 0)
    assert close(out, reference.expect(f64(a) * left, f64(b) * right, "float32"))


def mx_operand(format, lines, k, axis):
    shape = (lines, k) if axis == 1 else (k, lines)
    stored = tuple(FORMATS[format].stored(n) if n == k else n for n in shape)
    rng = np.random.default_rng(lines)
    if format in ("e4m3", "e5m2"):
        data = rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn if format == "e4m3" else ml_dtypes.float8_e5m2)
    else:
        data = rng.integers(0, 256, stored).astype(np.uint8)
    scale = rng.integers(120, 134, tuple(n // 32 if n == k else n for n in shape)).astype(np.uint8)
    return data, scale, reference.unpack(data, format, axis) * np.repeat(reference.e8m0(scale), 32, axis)


@pytest.mark.parametrize("target", ["gfx950", SLOW_GFX1250])
@pytest.mark.parametrize(
    "formats",
    [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e2m3", "e3m2"), ("e3m2", "e2m1")],
)
def test_mx(formats, target):
    (a, sa, left), (b, sb, right) = mx_operand(formats[0], 40, 160, 1), mx_operand(formats[1], 50, 160, 0)
    with amdwarp.emulate(target):
        out = gemm.scaled_matmul(a, b, sa, sb, format_a=formats[0], format_b=formats[1], out_dtype="float32")
    assert close(out, reference.expect(left, right, "float32"))


@pytest.mark.parametrize("target", TARGETS)
def test_int8_is_exact(target):
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (40, 70)).astype(np.int8), rng.integers(-128, 128, (70, 50)).astype(np.int8)
    sa, sb = scales(40, 1), scales(1, 50)
    with amdwarp.emulate(target):
        assert (gemm.int8_matmul(a, b) == a.astype(int) @ b.astype(int)).all()
        out = gemm.int8_matmul(a, b, sa, sb, activation="gelu", out_dtype="float32")
        split = gemm.int8_matmul(a, b, schedule=PlainConfig(32, 32, 32, 2, schedule="split_k", splits=2))
    assert (split == a.astype(int) @ b.astype(int)).all()
    expected = reference.expect(
        f64(a), f64(b), "float32", scale=f64(sa) * f64(sb), activation="gelu_erf", roundings=0
    )  # fmt: skip
    assert close(out, expected)


def test_fp8_output_saturates():
    a, b = draw(40, 150, dtype=np.float16), draw(150, 50, dtype=np.float16)
    with amdwarp.emulate("gfx950"):
        out = gemm.matmul(a, b, scale=40.0, out_dtype="float8_e4m3fn")
    assert np.abs(f64(out)).max() == 448
    assert close(out, reference.expect(f64(a), f64(b), "float8_e4m3fn", scale=40.0))


# ---- groups


@functools.cache
def groups():
    return draw(90, 40), draw(4, 40, 24), np.array([17, 17, 60, 85], np.int32), draw(4, 24)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("schedule", [{"schedule": "tiles"}, {"schedule": "persistent", "programs": 3}], ids=str)
def test_groups_of_rows(schedule, target):
    a, b, offsets, bias = groups()
    out = np.full((90, 24), np.nan, np.float16)
    with amdwarp.emulate(target):
        gemm.grouped_matmul(a, b, offsets, bias=bias, out=out, schedule=PlainConfig(16, 16, 32, 2, **schedule))
    first = 0
    for at, end in enumerate(offsets):
        assert close(out[first:end], reference.expect(f64(a[first:end]), f64(b[at]), "float16", bias=f64(bias[at])))
        first = end
    assert (out[85:] == 0).all()


def test_groups_of_k():
    a, _, offsets, _ = groups()
    b = draw(90, 24)
    with amdwarp.emulate("gfx950"):
        out = gemm.grouped_matmul(a.T, b, offsets, schedule=PlainConfig(32, 32, 16, 2))
    first = 0
    for at, end in enumerate(offsets):
        assert close(out[at], reference.expect(f64(a[first:end]).T, f64(b[first:end]), "float16"))
        first = end


def test_a_kernel_stays_in_bounds_whatever_the_offsets():
    a, b, _, _ = groups()
    with amdwarp.emulate("gfx950") as emulation:
        gemm.grouped_matmul(a, b, np.array([17, 17, 60, 85], np.int32), schedule=PlainConfig(16, 16, 32, 2))
    launch = emulation.records[0][0]
    for wild in ([-5, 2**31 - 1, 3, 90], [200, 0, -1, 50]):
        launch.args["offsets"][:] = wild
        with amdwarp.emulate("gfx950"):
            amdwarp.runtime.run(launch)
        assert np.isfinite(launch.args["c"].astype(np.float32)).all()
