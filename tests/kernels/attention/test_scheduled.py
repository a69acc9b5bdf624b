"""The scheduled kernels of gfx950: numbers, races, rescaling, resources; what they refuse and when they are chosen."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from amdwarp.kernels.attention import PingPongSchedule, attention, reference
from amdwarp.kernels.attention.options import AttentionOptions
from amdwarp.lowering.bridge import require_triton

import amdwarp
from amdwarp.errors import UsageError
from amdwarp.resources import resources
from amdwarp.runtime import compile_for, run
from amdwarp.sanitizer import check
from amdwarp.weave import windows_are

NEW = require_triton().version >= (3, 9)
each = pytest.mark.parametrize("schedule", ["ping_pong", "intra_wave"])
needs_39 = pytest.mark.skipif(not NEW, reason="needs the inline assembly of Triton 3.9")


def draw(*shape, dtype=np.float16, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def compute(schedule, q, k, v, causal=False, sinks=None, **arguments):
    """Emulate, compare with float64, and return the records of the emulation."""
    with amdwarp.emulate("gfx950") as emulation:
        out, lse = attention(q, k, v, causal=causal, sinks=sinks, return_lse=True, schedule=schedule, **arguments)
    options = AttentionOptions(causal=causal)
    expected, expected_lse = reference.attention(q, k, v, options, sinks=sinks)
    bound, lse_bound = reference.tolerance(q, k, v, options, out_dtype=str(out.dtype), sinks=sinks)
    assert np.nan_to_num(np.abs(out.astype(np.float64) - expected) / bound, nan=np.inf).max() <= 1
    nothing = np.isneginf(expected_lse)
    assert (np.isneginf(lse) == nothing).all()
    assert (np.abs(np.where(nothing, 0, lse) - np.where(nothing, 0, expected_lse)) <= lse_bound).all()
    assert (out.astype(np.float64)[nothing] == 0).all()
    return emulation.records, (out, lse)


@needs_39
@each
def test_whole_tiles_race_free_and_without_spills(schedule):
    records, (out, lse) = compute(schedule, draw(1, 2, 256, 64), draw(1, 1, 320, 64), draw(1, 1, 320, 64))
    launch, compiled, _ = records[-1]
    assert resources(compiled.asm["amdgcn"]).spills == 0
    with windows_are("off"):
        _, values = compile_for(launch, "gfx950")
    before = out.tobytes(), lse.tobytes()
    report = check(compiled, values, launch.grid, workgroups=1)
    assert report.ok, str(report)
    with windows_are("off"), amdwarp.emulate("gfx950", workgroups=1, seed=3):
        run(launch)
    assert (out.tobytes(), lse.tobytes()) == before


@needs_39
@each
def test_ragged_causal_with_sinks_and_rows_that_see_nothing(schedule):
    sinks = draw(2, dtype=np.float32)
    compute(schedule, draw(1, 2, 270, 64), draw(1, 1, 200, 64), draw(1, 1, 200, 64), causal=True, sinks=sinks)


@needs_39
@each
@pytest.mark.parametrize(
    "dim,causal,keys",
    [
        (128, True, 128),
        (64, False, 100),
        pytest.param(128, False, 100, marks=pytest.mark.slow),
        pytest.param(64, True, 128, marks=pytest.mark.slow),
    ],
)
def test_masks_spill_nothing(schedule, dim, causal, keys):
    q, k = draw(1, 1, 256, dim), draw(1, 1, keys, dim)
    with amdwarp.emulate("gfx950", workgroups=1) as emulation:
        attention(q, k, k, causal=causal, sinks=draw(1, dtype=np.float32), return_lse=True, schedule=schedule)
    assert resources(emulation.records[-1][1].asm["amdgcn"]).spills == 0


@needs_39
@pytest.mark.slow
@each
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows,keys", [(256, 256), (300, 500), (130, 64), (257, 1), (512, 1024)])
def test_forms(schedule, dim, dtype, causal, rows, keys):
    compute(
        schedule,
        *(draw(1, heads, n, dim, dtype=dtype) for heads, n in ((2, rows), (1, keys), (1, keys))),
        causal=causal,
    )


@needs_39
@each
def test_logits_that_grow_are_rescaled(schedule):
    """Each block's largest logit is 30 above the one before; then all rows are alike; then +-1e4."""
    q, k, v = np.ones((1, 1, 256, 64), np.float16), np.zeros((1, 1, 256, 64), np.float16), draw(1, 1, 256, 64)
    k[0, 0] = (np.arange(256) // 64 * 30.0 / 8.0)[:, None].astype(np.float16)
    compute(schedule, q, k, v)
    compute(schedule, q, np.ones_like(k), v)
    q[0, 0, ::2] = -1.0
    k[0, 0] = np.where(np.arange(256) % 2, 1250.0, -1250.0)[:, None]
    compute(schedule, q, k, v)


@needs_39
def test_refusals():
    half = draw(1, 1, 256, 64)
    cases = [
        ({"window": (4, 4)}, "ping-pong attention has no window"),
        ({"softcap": 3.0}, "ping-pong attention has no softcap"),
        ({"bias": np.zeros((256, 256), np.float32)}, "ping-pong attention has no bias"),
        ({"q": half[:, :, :, :32], "k": half[:, :, :, :32]}, "takes fp16 and bf16 heads of 64 or of 128 elements"),
        ({"schedule": PingPongSchedule(ring=2)}, "PingPongSchedule: ring = 2 is none of 3, 4"),
        ({"schedule": PingPongSchedule(threshold=20.0)}, "threshold = 20.0 leaves 0 to 14, where P fits into fp16"),
    ]
    for changes, text in cases:
        with amdwarp.emulate("gfx950"), pytest.raises(UsageError) as caught:
            attention(**{"q": half, "k": half, "v": half, "schedule": "ping_pong"} | changes)
        assert text in str(caught.value)
    with amdwarp.emulate("gfx942"), pytest.raises(UsageError, match="made for gfx950, not for gfx942"):
        attention(half, half, half, schedule="ping_pong")


def test_constraints_of_rings():
    assert PingPongSchedule().constraints("gfx950") == []
    assert PingPongSchedule(dim=64, ring=3).constraints("gfx950") == []
    assert "is none of 64, 128" in dataclasses.replace(PingPongSchedule(), dim=96).constraints("gfx950")[0]
