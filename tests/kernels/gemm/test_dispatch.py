"""Which family runs what: the scheduled kernels where they are legal and their tiles are not mostly empty."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import GemmSchedule, PlainConfig, reference

import amdwarp
from amdwarp import UsageError

pytest.importorskip("triton")


def chosen(call, target="gfx950"):
    with amdwarp.emulate(target, execute=False) as emulation:
        call()
    return emulation.records[0][0].constexprs["S"]


def z(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


F8 = ml_dtypes.float8_e4m3fn
F8Z = ml_dtypes.float8_e4m3fnuz


@pytest.mark.parametrize(
    ("call", "target", "family"),
    [
        (lambda: gemm.matmul(z(128, 64), z(64, 128)), "gfx950", GemmSchedule),
        (lambda: gemm.matmul(z(128, 64), z(64, 128), out_dtype="float32"), "gfx950", GemmSchedule),
        (lambda: gemm.linear(z(2, 64, 64), z(128, 64)), "gfx950", GemmSchedule),
        (lambda: gemm.matmul(z(16, 64), z(64, 128)), "gfx950", PlainConfig),
        (lambda: gemm.matmul(z(128, 64), z(64, 128), activation="relu"), "gfx950", GemmSchedule),
        (lambda: gemm.matmul(z(128, 64), z(64, 128), activation="swiglu"), "gfx950", PlainConfig),
        (lambda: gemm.matmul(z(128, 64), z(64, 128)), "gfx942", PlainConfig),
        (lambda: gemm.matmul(z(128, 65), z(65, 128)), "gfx942", PlainConfig),
        (lambda: gemm.matmul(z(128, 64, dtype=np.float32), z(64, 128, dtype=np.float32)), "gfx950", PlainConfig),
        (lambda: gemm.scaled_matmul(z(256, 256, dtype=F8), z(256, 256, dtype=F8).T), "gfx950", GemmSchedule),
        (lambda: gemm.scaled_matmul(z(16, 256, dtype=F8), z(256, 256, dtype=F8).T), "gfx950", PlainConfig),
        (lambda: gemm.int8_matmul(z(256, 256, dtype=np.int8), z(256, 256, dtype=np.int8).T), "gfx950", GemmSchedule),
        (lambda: gemm.scaled_matmul(z(256, 256, dtype=F8Z), z(256, 256, dtype=F8Z).T), "gfx942", PlainConfig),
    ],
)
def test_the_default(call, target, family):
    assert isinstance(chosen(call, target), family)


def test_a_name_of_a_plain_or_scheduled_kernel():
    a, b = z(128, 64), z(64, 128)
    assert isinstance(chosen(lambda: gemm.matmul(a, b, schedule="plain")), PlainConfig)
    assert chosen(lambda: gemm.matmul(a, b, schedule="intra_wave")) == gemm.SCHEDULES["intra_wave"]
    with pytest.raises(UsageError, match="do not multiply float8_e4m3fn with float8_e5m2"):
        chosen(
            lambda: gemm.scaled_matmul(z(8, 16, dtype=F8), z(16, 8, dtype=ml_dtypes.float8_e5m2), schedule="inter_wave")
        )


def test_scheduled_fp8_and_int8_through_the_public_functions():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((256, 128)).astype(F8) for _ in range(2))
    i, j = (rng.integers(-128, 128, (256, 128)).astype(np.int8) for _ in range(2))
    with amdwarp.emulate("gfx950") as emulation:
        out, exact = gemm.scaled_matmul(a, b.T, out_dtype="float32"), gemm.int8_matmul(i, j.T)
    assert all(isinstance(launch.constexprs["S"], GemmSchedule) for launch, *_ in emulation.records)
    expected = reference.expect(a.astype(float), b.astype(float).T, "float32")
    assert (np.abs(out - expected.value) <= expected.bound).all()
    assert (exact == i.astype(int) @ j.astype(int).T).all()


def test_scheduled_fp4_through_the_public_function():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (256, 128)).astype(np.uint8) for _ in range(2))
    sa, sb = (rng.integers(122, 132, (256, 8)).astype(np.uint8) for _ in range(2))
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.scaled_matmul(a, b.T, sa, sb.T, out_dtype="float32")
    assert emulation.records[0][0].constexprs["S"] == gemm.SCHEDULES["inter_wave_256_mxfp4"]
    left, right = (
        reference.unpack(x, "e2m1", 1) * np.repeat(reference.e8m0(s), 32, axis=1) for x, s in ((a, sa), (b, sb))
    )
    expected = reference.expect(left, right.T, "float32")
    assert (np.abs(out - expected.value) <= expected.bound).all()


@pytest.mark.parametrize("operand", ["a", "b"])
def test_plain_operands_beyond_2_gib(operand):
    rows, k = (1 << 21) + 8, 520  # 2.2e9 bytes of zeros, of which only the last pages are ever there
    rng = np.random.default_rng(3)
    large = np.zeros((rows, k), np.float16)
    large[-64:] = rng.standard_normal((64, k)).astype(np.float16)
    small = rng.standard_normal((16, k)).astype(np.float16)
    a, b = (large, small.T) if operand == "a" else (small, large.T)
    out = np.full((a.shape[0], b.shape[1]), np.nan, np.float16)
    tile = PlainConfig(16, 64, 64, 2) if operand == "b" else PlainConfig(64, 16, 64, 2)
    tiles = -(-rows // 64)
    # eight dies: the last workgroup of some die computes the last tile
    with amdwarp.emulate("gfx950", workgroups=range(tiles - 8, tiles)):
        gemm.matmul(a, b, out=out, schedule=tile)
    corner = np.s_[-8:, :] if operand == "a" else np.s_[:, -8:]
    left, right = (a[-8:], b) if operand == "a" else (a, b[:, -8:])
    expected = reference.expect(left.astype(float), right.astype(float), "float16")
    assert (np.abs(out[corner].astype(float) - expected.value) <= expected.bound).all()


def test_rows_so_far_apart_that_a_tile_needs_64_bit_offsets():
    stride = 1 << 27  # 64 rows of 2**28 bytes: 16 GiB of address space, of which a few pages are there
    memory = np.zeros(40 * stride, np.float16)
    a = np.lib.stride_tricks.as_strided(memory, (40, 32), (2 * stride, 2))
    a[...] = np.random.default_rng(1).standard_normal((40, 32))
    b = np.random.default_rng(2).standard_normal((32, 24)).astype(np.float16)
    with amdwarp.emulate("gfx950") as emulation:
        out = gemm.matmul(a, b, schedule=PlainConfig(64, 32, 32, 2))
    assert emulation.records[0][0].constexprs["A"].wide
    expected = reference.expect(a.astype(float), b.astype(float), "float16")
    assert (np.abs(out.astype(float) - expected.value) <= expected.bound).all()
