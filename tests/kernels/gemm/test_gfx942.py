"""The intra-wave schedules of gfx942: numbers in the emulator, registers, LDS, and what they refuse."""

from __future__ import annotations

import functools
import re

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.gemm import SCHEDULES, matmul, reference
from amdwarp.kernels.gemm.configs import named
from older_triton import fp16_for_bf16

import amdwarp
from amdwarp import UsageError
from amdwarp.resources import resources

pytest.importorskip("triton")

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
VARIANTS = [
    *(("intra_wave_gfx942", dtype, order) for dtype in DTYPES for order in ("nk", "kn")),
    *(("intra_wave_256_gfx942", dtype, "nk") for dtype in DTYPES),
]


EACH = fp16_for_bf16(VARIANTS, "-".join)


@functools.cache
def product(name, dtype, order, shape=(264, 136, 200)):
    """Run one product; returns A, B, C and the record of the launch."""
    m, n, k = shape
    rng = np.random.default_rng(5)
    a = rng.standard_normal((m, k)).astype(DTYPES[dtype])
    b = rng.standard_normal((n, k) if order == "nk" else (k, n)).astype(DTYPES[dtype])
    b = b.T if order == "nk" else b
    out = np.full((m, n), np.nan, DTYPES[dtype])
    with amdwarp.emulate("gfx942") as emulation:
        matmul(a, b, out=out, schedule=name)
    return a, b, out, emulation.records[-1]


@pytest.mark.parametrize("variant", EACH)
@pytest.mark.parametrize("shape", [(264, 136, 200), (8, 8, 8), (16, 264, 32), (300, 8, 64)], ids=str)
def test_numbers(variant, shape):
    a, b, out, _ = product(*variant, shape)
    error = np.abs(out.astype(np.float32) - reference.matmul(a, b).astype(np.float32))
    assert (error <= reference.tolerance(a, b)).all()


@pytest.mark.parametrize("variant", EACH)
def test_budget(variant):
    compiled = product(*variant)[3][1]
    used = resources(compiled.asm["amdgcn"])
    assert used.spills == 0 and used.scratch_bytes == 0 and used.vgprs <= 512
    assert compiled.metadata.shared == SCHEDULES[variant[0]].lds_bytes() <= 64 << 10


@pytest.mark.parametrize("variant", EACH)
def test_loads_and_stores_are_woven_between_mfmas(variant):
    """Two windows a turn, one barrier behind each; no run of memory instructions longer than four."""
    text = product(*variant)[3][1].asm["amdgcn"]
    letters = {"v_mfma": "M", "ds_read": "R", "ds_write": "W", "buffer_load": "G", "s_barrier": "|"}
    body = max(re.split(r"^\.LBB\w+:.*$", text, flags=re.M), key=lambda block: block.count("v_mfma"))
    found = re.findall(r"^\s+(v_mfma|ds_read|ds_write|buffer_load|s_barrier)", body, re.M)
    windows = "".join(letters[one] for one in found).split("|")
    for window in windows[:2]:
        assert window.count("M") == (64 if variant[0] == "intra_wave_gfx942" else 128)
        assert max(map(len, re.findall("[RWG]+", window))) <= 4


def test_names_follow_the_arch():
    assert named("intra_wave", "gfx942") == SCHEDULES["intra_wave_gfx942"]
    assert named("intra_wave", "gfx950") == SCHEDULES["intra_wave"]
    assert named("nothing", "gfx942") is None
    assert product("intra_wave", "fp16", "nk")[3][0].constexprs["S"] == SCHEDULES["intra_wave_gfx942"]


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "order", "text"),
    [
        ("intra_wave_256_gfx942", "fp16", (8, 8, 8), "kn", "takes only B with K contiguous"),
        ("intra_wave", "fp16", (8, 8, 9), "nk", "rows are 16-byte aligned"),
        ("inter_wave_256", "fp16", (8, 8, 8), "nk", "made for gfx950, not for gfx942"),
        ("inter_wave", "fp16", (8, 8, 8), "nk", "there is no schedule 'inter_wave'"),
    ],
)
def test_refusals(name, dtype, shape, order, text):
    with pytest.raises(UsageError, match=text):
        product(name, dtype, order, shape)
