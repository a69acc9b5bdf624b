"""Bad input: every refusal names the argument, what it is, and what was expected. Nothing is compiled here."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels import gemm
from amdwarp.kernels.gemm import Epilogue, PlainConfig, ShuffledWeight

import amdwarp
from amdwarp import UsageError

F8, F8Z = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz


def z(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def read_only(*shape):
    out = z(*shape)
    out.flags.writeable = False
    return out


def refuse(call, text, target="gfx950"):
    with amdwarp.emulate(target, execute=False) as emulation, pytest.raises(UsageError) as caught:
        call()
    assert text in str(caught.value), str(caught.value)
    assert not emulation.records, "something was compiled"


BUFFER = z(64, 64)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: gemm.matmul([[1.0]], z(1, 1)), "matmul: a is a list; pass torch tensors or numpy arrays"),
        (lambda: gemm.matmul(z(), z(1, 1)), "a is a scalar; pass arrays of one dimension or more"),
        (
            lambda: gemm.matmul(z(3, 4), z(5, 6)),
            "a is 3x4 and b is 5x6: the inner extents differ; transpose",
        ),
        (
            lambda: gemm.matmul(z(2, 3, 4), z(3, 4, 5)),
            "batch dimensions of a (2,) and b (3,) do not broadcast: 2 and 3",
        ),
        (lambda: gemm.matmul(z(3, 4), z(4, 5, dtype=np.float32)), "a is float16 and b is float32; convert one of them"),
        (lambda: gemm.matmul(z(3, 4, dtype=np.int64), z(4, 5, dtype=np.int64)), "dtype int64 is not supported"),
        (lambda: gemm.matmul(z(3, 4, dtype=F8), z(4, 5, dtype=F8)), "or call gemm.scaled_matmul"),
        (lambda: gemm.matmul(z(3, 4)[::-1], z(4, 5)), "a has a negative stride; copy a"),
        (lambda: gemm.matmul(z(3, 4).astype(">f2"), z(4, 5)), "a has the byte order of another machine"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), out=z(3, 6)), "out is 3x6 float16, the result is 3x5"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), out=z(3, 5, dtype=np.float32)), "out is float32 and the result float16"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), out=read_only(3, 5)), "out is read-only; pass a writeable one, or none"),
        (
            lambda: gemm.matmul(z(3, 4), z(4, 5), out=np.lib.stride_tricks.as_strided(z(8), (3, 5), (2, 2))),
            "out has strides (1, 1), so that elements share memory",
        ),
        (lambda: gemm.matmul(BUFFER[:8, :8], z(8, 8), out=BUFFER[4:12, 4:12]), "out lies over a in memory"),
        (
            lambda: gemm.matmul(z(8, 8), z(8, 8), residual=BUFFER[:8, :8], out=BUFFER[:8, :8]),
            "out lies over residual in memory",
        ),
        (lambda: gemm.matmul(z(8, 8), z(8, 8), bias=BUFFER[0, :8], out=BUFFER[:8, :8]), "out lies over bias in memory"),
        (
            lambda: gemm.matmul(z(3, 4), z(4, 5), bias=z(3)),
            "bias is 3 float16; pass 5 values, one a column of",
        ),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), bias=z(5), bias_axis="row"), "pass 3 values, one a row"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), bias=z(5), bias_axis="k"), "bias_axis = 'k'; pass column or row"),
        (
            lambda: gemm.matmul(z(3, 4), z(4, 5), bias=z(5, dtype=np.int32)),
            "bias is int32; convert it to one of",
        ),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), residual=z(2, 5)), "residual is 2x5 float16, the result is 3x5"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), residual=z(3, 5, dtype=np.int8)), "residual is int8; convert it"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), activation="tanh"), "activation = 'tanh' is not known; use one of relu"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), activation="swiglu"), "b has 5 columns, and swiglu halves them"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), scale="2"), "scale = '2' is a str, not a number; pass a float as scale"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), beta=float("nan")), "beta is NaN"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), out_dtype="int4"), "dtype 'int4' is not supported; use one of float32"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), out_dtype="int32", scale=2.0), "out = int32 takes no epilogue"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), precision="tf32"), "precision = 'tf32'; pass ieee or xf32"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), precision="xf32"), "gfx950 has no xf32; pass ieee, or run on gfx942"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), schedule="fast"), "there is no schedule 'fast' for gfx950"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), schedule=7), "schedule is 7; take inter_wave"),
        (
            lambda: gemm.matmul(z(3, 4), z(4, 6), activation="swiglu", schedule="inter_wave"),
            "the scheduled kernels have no swiglu; pass schedule=None, 'plain' or a PlainConfig",
        ),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), schedule=PlainConfig(48)), "tile_m = 48 is no power of two"),
        (lambda: gemm.batched_matmul(z(3, 4), z(2, 4, 5)), "a has 2 dimensions, not 3; reshape it"),
        (lambda: gemm.linear(z(3, 4), z(2, 5, 4)), "w has 3 dimensions, not 2; pass an (N, K) weight"),
        (
            lambda: gemm.linear(z(3, 4), ShuffledWeight(z(8), 5, 4)),
            "w holds 8 float16 for 5x4; pass what",
        ),
        (lambda: gemm.linear(z(3, 4), z(5, 3)), "x is 3x4 and w is 5x3: the inner extents differ; pass an (N, K)"),
        (lambda: gemm.linear(z(3, 4), z(5, 4, dtype=np.float32)), "x is float16 and w is float32"),
        (lambda: gemm.shuffle_weight(z(4)), "w has 1 dimensions, not 2"),
        (lambda: gemm.shuffle_weight(z(16, 16, dtype=bool)), "w is bool; convert it to one of"),
        (lambda: gemm.unshuffle_weight(z(16, 16)), "w is a ndarray, not a ShuffledWeight; pass what shuffle_weight"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), scale=10**400), "scale exceeds 3.403e+38, the largest fp32 number"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), residual=z(5), beta=-1e39), "beta exceeds 3.403e+38"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), precision=["ieee"]), "precision = ['ieee']; pass ieee or xf32"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), bias_axis="k"), "bias_axis = 'k'; pass column or row"),
        (lambda: gemm.matmul(z(3, 4), z(4, 5), tune="no"), "tune = 'no' is a str, not a bool; pass True or False"),
        (lambda: gemm.matmul(z(0, 4), z(4, 5), schedule="fast"), "there is no schedule 'fast' for gfx950"),
        (lambda: gemm.matmul(z(0, 4), z(4, 5), schedule=PlainConfig(48)), "tile_m = 48 is no power of two"),
        (lambda: gemm.matmul(z(0, 4), z(4, 5), schedule=7), "schedule is 7; take inter_wave"),
        (
            lambda: gemm.matmul(np.broadcast_to(z(1, 8), (2**31, 8)), z(8, 8)),
            "M = 2147483648 exceeds 2147482624; split the product",
        ),
    ],
)
def test_dense(call, text):
    refuse(call, text)


def scaled(a=None, b=None, *scales, **options):
    left, right = z(40, 256, dtype=F8) if a is None else a, z(256, 50, dtype=F8) if b is None else b
    return lambda: gemm.scaled_matmul(left, right, *scales, **options)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


FP4 = z(40, 128, dtype=np.uint8), z(128, 50, dtype=np.uint8)
E8 = ones(40, 8, dtype=np.uint8), ones(8, 50, dtype=np.uint8)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (scaled(z(40, 256, dtype=F8Z)), "a is float8_e4m3fnuz, and gfx950 multiplies float8_e4m3fn; convert a to"),
        (scaled(z(40, 256)), "a is float16; pass float8_e4m3fn or"),
        (scaled(z(256, dtype=F8)), "a has 1 dimensions; pass matrices, or stacks of them"),
        (scaled(None, z(255, 50, dtype=F8)), "a is 40x256 and b is 255x50: the inner extents differ"),
        (scaled(None, None, ones(40, 1, dtype=np.float16)), "scale_a is float16, not float32"),
        (
            scaled(None, None, ones(50, 1)),
            "scale_a is 50x1 float32; pass one of the shapes (), (40, 1), (40, 2)",
        ),
        (
            scaled(None, None, None, ones(50, 1)),
            "scale_b is 50x1 float32; pass one of the shapes (), (1, 50),",
        ),
        (scaled(format_a=4), "format_a = 4; pass e4m3 or"),
        (scaled(z(0, 256, dtype=F8), schedule=PlainConfig(48)), "tile_m = 48 is no power of two"),
        (scaled(format_a="e4m3"), "format_a and format_b are of MX products"),
        (scaled(*FP4), "scale_a is missing; an MX product has E8M0 scales for both operands"),
        (scaled(*FP4, ones(40, 8), E8[1]), "scale_a is float32; pass uint8 or float8_e8m0fnu in both scales"),
        (scaled(*FP4, E8[1].T[:40, :4], E8[1]), "scale_a is 40x4 uint8; pass (40, 8), one E8M0 value every 32 along K"),
        (scaled(*FP4, *E8, format_a="e4m3"), "format_a = 'e4m3' of uint8 elements; pass one of e2m3, e3m2, e2m1"),
        (scaled(FP4[0][:, :10], FP4[1][:10], *E8), "K = 20 of a; an MX product needs a multiple of 32"),
        (scaled(out_dtype="int32"), "out_dtype = int32 of a float product; pass a float out_dtype"),
        (scaled(schedule="inter_wave_128"), "this schedule multiplies fp16 and bf16, not fp8e4nv"),
        (
            scaled(*FP4, *E8, schedule=PlainConfig(16, 16, 64)),
            "tile_k = 64; with E8M0 scales it is at least 128",
        ),
        (
            scaled(None, None, ones(40, 2), schedule=PlainConfig(32, 32, 256)),
            "tile_k = 256 spans two scales of 128 elements",
        ),
    ],
)
def test_scaled(call, text):
    refuse(call, text)


def test_what_a_target_lacks():
    refuse(scaled(*FP4, *E8), "gfx942 does not multiply with E8M0 scales; run on gfx950 or gfx1250", "gfx942")
    refuse(scaled(), "a is float8_e4m3fn, and gfx942 multiplies float8_e4m3fnuz", "gfx942")
    refuse(scaled(z(40, 256, dtype=F8Z)), "gfx1250 multiplies float8_e4m3fn", "gfx1250")
    wide = z(4, 4, dtype=np.float32)
    refuse(
        lambda: gemm.matmul(z(4, 4), z(4, 4), precision="xf32"), "precision = 'xf32' with float16 operands", "gfx942"
    )
    refuse(lambda: gemm.matmul(wide, wide, precision="xf32"), "gfx1250 has no xf32", "gfx1250")
    refuse(
        lambda: gemm.matmul(z(4, 4), z(4, 4), schedule="inter_wave"), "no schedule 'inter_wave' for gfx1250", "gfx1250"
    )


I8 = z(8, 64, dtype=np.int8), z(64, 16, dtype=np.int8)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: gemm.int8_matmul(z(8, 64), I8[1]),
            "int8_matmul: a is float16, not int8; quantise a, or",
        ),
        (lambda: gemm.int8_matmul(I8[0], I8[1][:32]), "a is 8x64 and b is 32x16: the inner extents differ"),
        (lambda: gemm.int8_matmul(*I8, ones(4, 1)), "scale_a is 4x1 float32"),
        (lambda: gemm.int8_matmul(z(8, 256, dtype=np.int8), z(256, 16, dtype=np.int8), ones(8, 2)), "or (8, 1)"),
        (lambda: gemm.int8_matmul(*I8, ones(8, 1), out_dtype="int32"), "out_dtype = int32 with scales"),
        (lambda: gemm.int8_matmul(*I8, activation="relu", out_dtype="int32"), "out = int32 takes no epilogue"),
        (
            lambda: gemm.int8_matmul(
                *I8, schedule=PlainConfig(16, 16, 32, 2, schedule="split_k", splits=2, atomic=True)
            ),
            "atomic = True adds in float32, and these sums are int32",
        ),
    ],
)
def test_int8(call, text):
    refuse(call, text)


ENDS = np.array([2, 5, 8], np.int32)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: gemm.grouped_matmul(z(8, 4), z(4, 5), z(3)),
            "offsets is 3 float16; pass a contiguous (G,) array",
        ),
        (lambda: gemm.grouped_matmul(z(8, 4), z(2, 4, 5), ENDS), "b holds 2 matrices and offsets 3 ends"),
        (
            lambda: gemm.grouped_matmul(z(8, 4), z(3, 5, 6), ENDS),
            "a is 8x4 and each b is 5x6: the inner extents",
        ),
        (
            lambda: gemm.grouped_matmul(z(7, 4), z(3, 4, 6), ENDS),
            "offsets[2] = 8; pass ascending ends of groups, 5",
        ),
        (
            lambda: gemm.grouped_matmul(z(8, 4), z(3, 4, 6), ENDS[::-1].copy()),
            "offsets[1] = 5; pass ascending ends",
        ),
        (lambda: gemm.grouped_matmul(z(8, 4), z(3, 4, 6), ENDS, bias=z(6)), "bias is 6 float16; pass 3x6 values"),
        (
            lambda: gemm.grouped_matmul(z(4, 8), z(8, 6), ENDS, activation="relu"),
            "bias and activation are of groups",
        ),
        (lambda: gemm.grouped_matmul(z(8, 4), z(0, 4, 6), ENDS[:0]), "b holds no matrix; pass at least one group"),
        (
            lambda: gemm.grouped_matmul(z(8, 4), z(3, 4, 6), ENDS, schedule=PlainConfig(schedule="stream_k")),
            "schedule = 'stream_k' does not take groups",
        ),
    ],
)
def test_grouped(call, text):
    refuse(call, text)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"tile_m": 8}, "tile_m = 8 is less than 16"),
        ({"tile_k": 24}, "tile_k = 24 is no power of two"),
        ({"num_warps": 32}, "num_warps = 32; on gfx950 it must be 1 to 16"),
        ({"stages": 0}, "stages = 0; it must be 1 to 4"),
        ({"schedule": "fast"}, "schedule = 'fast' is none of tiles, persistent, split_k, stream_k"),
        ({"splits": 2}, "splits = 2 with schedule = 'tiles'; only split_k has parts"),
        ({"atomic": True}, "atomic = True with schedule = 'tiles'"),
        ({"programs": 2}, "programs = 2; only persistent and stream_k take a number of workgroups"),
        ({"group_m": 0}, "group_m = 0 must be at least 1"),
        ({"mfma": 8}, "mfma = 8; on gfx950 it must be 0, 16 or 32"),
        ({"tile_m": 16, "mfma": 32}, "mfma = 32 is larger than the tile"),
        ({"tile_m": 256, "tile_n": 256, "num_warps": 2}, "512 accumulator registers of 512 leave no room for operands"),
        ({"tile_m": True}, "tile_m = True is no int"),
        ({"atomic": 1}, "atomic = 1 is no bool"),
    ],
)
def test_configurations(config, text):
    wrong = PlainConfig(**config).constraints("gfx950")
    assert any(text in one for one in wrong), wrong


def test_constraints_of_other_targets():
    assert PlainConfig().constraints("gfx950") == PlainConfig().constraints("gfx942") == []
    assert "num_warps = 1; on gfx1250 it must be 2 to 16" in PlainConfig(num_warps=1).constraints("gfx1250")
    assert "mfma = 32; on gfx1250 it must be 0 or 16" in PlainConfig(mfma=32).constraints("gfx1250")


def test_epilogues():
    assert Epilogue().constraints() == []
    assert "activation = 'tanh'" in Epilogue(activation="tanh").constraints()[0]
    with pytest.raises(UsageError, match="bias = 'k' is none of column, row"):
        Epilogue(bias="k").check()


def test_jobs():
    refuse(lambda: gemm.compile_ahead([7]), "compile_ahead: 7 is no Job; pass a list of Jobs")
    job = gemm.Job.of(-1, 64, 64, "float16", "gfx950")
    refuse(lambda: gemm.compile_ahead([job]), "Job: x has the shape (-1, 64); use integers of at least 0")


def test_too_much_lds_and_workspace():
    wide = z(256, 256, dtype=np.float32)
    config = PlainConfig(128, 128, 64, 4, stages=3)
    refuse(lambda: gemm.matmul(wide, wide, schedule=config), "take 196608 bytes of LDS, gfx942 has 65536", "gfx942")
    many = np.broadcast_to(z(1, 4096), (65536, 4096))
    config = PlainConfig(64, 64, 64, schedule="split_k", splits=32)
    refuse(lambda: gemm.matmul(many, z(4096, 1024), schedule=config), "split_k takes a workspace of 8589934592 bytes")
