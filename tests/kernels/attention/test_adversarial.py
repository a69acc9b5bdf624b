"""Values that break careless softmaxes, on the plain kernel; the conformance matrix poisons pages."""

from __future__ import annotations

import numpy as np
import pytest
from amdwarp.kernels.attention import attention, reference
from amdwarp.kernels.attention.options import AttentionOptions

import amdwarp

pytest.importorskip("triton")
RNG = np.random.default_rng(3)
ROWS, KEYS, DIM = 16, 70, 32


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float16)


def compare(arch, q, k, v, options=None, bias=None):
    options = options or AttentionOptions()
    with amdwarp.emulate(arch):
        out, lse = attention(
            q, k, v, bias=bias, causal=options.causal, scale=options.scale, return_lse=True, schedule="plain"
        )
    expected, expected_lse = reference.attention(q, k, v, options, bias=bias)
    bound, lse_bound = reference.tolerance(q, k, v, options, out_dtype="float16", bias=bias)
    nothing = np.isneginf(expected_lse)
    assert np.isfinite(out.astype(np.float64)).all() and (np.isneginf(lse) == nothing).all()
    assert (np.abs(out - expected) <= bound).all() and (out[nothing] == 0).all()
    assert (np.abs(np.where(nothing, 0, lse) - np.where(nothing, 0, expected_lse)) <= lse_bound).all()
    return out, lse


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1250"])
def test_large_equal_and_hidden_logits(arch):
    q, k, v = normal(1, 1, ROWS, DIM), normal(1, 1, KEYS, DIM), normal(1, 1, KEYS, DIM)
    # logits of +-1e4: rows and keys of +-1, scaled
    signs = [np.where(RNG.random(x.shape[:3]) < 0.5, -1.0, 1.0)[..., None] * np.ones(DIM) for x in (q, k)]
    bias = np.zeros((ROWS, KEYS), np.float32)
    bias[3], bias[:, 65:] = -np.inf, -np.inf  # a row that sees nothing, keys that nobody sees
    compare(arch, *(x.astype(np.float16) for x in signs), v, AttentionOptions(scale=1e4 / DIM), bias)
    # all rows and keys alike: the mean of the values
    same, _ = compare(arch, np.ones_like(q), np.ones_like(k), v, bias=np.zeros((ROWS, KEYS), np.float32))
    assert np.ptp(same.astype(np.float64), axis=2).max() == 0


def test_one_key_and_none():
    q, v = normal(1, 1, ROWS, DIM), normal(1, 1, 1, DIM)
    out, _ = compare("gfx950", q, normal(1, 1, 1, DIM), v)
    np.testing.assert_array_equal(out, np.broadcast_to(v, out.shape))
    nothing = np.zeros((1, 1, 0, DIM), np.float16)
    out, lse = compare("gfx950", q, nothing, nothing)
    assert (out == 0).all() and np.isneginf(lse).all()
