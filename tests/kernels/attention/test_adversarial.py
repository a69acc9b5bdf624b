"""Values that break careless softmaxes, and sinks and logits beyond all others; the matrix poisons pages."""

from __future__ import annotations

import numpy as np
import pytest
from amdwarp.kernels.attention import attention, decode, reference
from amdwarp.kernels.attention.backward import attention_backward
from amdwarp.kernels.attention.configs import NEWEST_CONSTRUCTS
from amdwarp.kernels.attention.options import LOGIT_MAX, AttentionOptions
from amdwarp.kernels.attention.reference_backward import attention_backward as reference_backward
from amdwarp.lowering.bridge import require_triton

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


PLAIN = [("gfx942", "plain"), ("gfx950", "plain"), ("gfx1250", "plain")]
NEW = pytest.mark.skipif(require_triton().version < NEWEST_CONSTRUCTS, reason="needs the inline assembly of Triton 3.9")
SCHEDULED = [pytest.param("gfx950", name, marks=NEW) for name in ("ping_pong", "intra_wave")]
TASKS = ("gfx1250", "tasks")
SINKS = np.array([np.inf, -np.inf, 3e38, 1e30], np.float32)


def agree_with_sinks(q, k, v, out, lse):
    expected, expected_lse = reference.attention(q, k, v, AttentionOptions(), sinks=SINKS)
    bound, lse_bound = reference.tolerance(q, k, v, AttentionOptions(), out_dtype="float16", sinks=SINKS)
    assert (np.abs(out.astype(np.float64) - expected) <= bound).all()
    assert (out[:, [0, 2, 3]] == 0).all() and (out[:, 1] != 0).any()
    assert np.isposinf(lse[:, 0]).all() and np.isposinf(expected_lse[:, 0]).all()
    assert (np.abs(lse[:, 1:] - expected_lse[:, 1:]) <= lse_bound[:, 1:]).all()


@pytest.mark.parametrize("arch,schedule", [PLAIN[1], *SCHEDULED, TASKS])
def test_sinks_that_are_no_number(arch, schedule):
    q, k, v = normal(1, 2, ROWS, 64), normal(1, 2, KEYS, 64), normal(1, 2, KEYS, 64)
    with amdwarp.emulate(arch):
        sinks = np.array([np.nan, 1.0], np.float32)
        out, lse = attention(q, k, v, sinks=sinks, return_lse=True, schedule=schedule)
    assert np.isnan(out[:, 0]).all() and np.isnan(lse[:, 0]).all() and np.isfinite(out[:, 1]).all()


@pytest.mark.parametrize("hidden", [-1e9, float(np.finfo(np.float32).min)])
def test_rows_that_a_finite_bias_hides(hidden):
    """The mean of the values, as in torch, and no gradient: of how many keys it is a mean, lse cannot tell."""
    q, k, v, dout = normal(1, 1, ROWS, 32), normal(1, 1, KEYS, 32), normal(1, 1, KEYS, 32), normal(1, 1, ROWS, 32)
    bias = np.zeros((ROWS, KEYS), np.float32)
    bias[3], bias[:, 40:] = hidden, hidden
    seen = np.where(bias == 0, bias, -np.inf)
    dout[:, :, 3] *= 1000
    with amdwarp.emulate("gfx950"):
        out, lse = attention(q, k, v, bias=bias, return_lse=True)
        got = attention_backward(dout, q, k, v, out, lse, bias=bias)
    expected, _ = reference.attention(q, k, v, bias=seen)
    expected[:, :, 3] = v.astype(np.float64).mean(axis=2)
    np.testing.assert_allclose(out, expected, atol=2e-3)
    gradients = reference_backward(dout, q, k, v, bias=seen)
    for name in ("q", "k", "v", "bias"):
        np.testing.assert_allclose(getattr(got, name), getattr(gradients, name), rtol=2e-2, atol=2e-2, err_msg=name)


@pytest.mark.parametrize("arch,schedule", [*PLAIN, *SCHEDULED, TASKS])
def test_infinite_sinks(arch, schedule):
    q, k, v = normal(1, 4, ROWS, 64), normal(1, 2, KEYS, 64), normal(1, 2, KEYS, 64)
    with amdwarp.emulate(arch):
        agree_with_sinks(q, k, v, *attention(q, k, v, sinks=SINKS, return_lse=True, schedule=schedule))


def test_infinite_sinks_of_split_keys():
    q, k, v = normal(1, 3, 4, 64), normal(1, KEYS, 2, 64), normal(1, KEYS, 2, 64)
    with amdwarp.emulate("gfx950"):
        out, lse = decode(q, k, v, np.array([KEYS], np.int32), sinks=SINKS, splits=2, causal=False, return_lse=True)
    agree_with_sinks(*(x.swapaxes(1, 2) for x in (q, k, v, out)), lse)


def test_gradients_of_infinite_sinks():
    q, k, v, dout = normal(1, 4, ROWS, 32), normal(1, 2, KEYS, 32), normal(1, 2, KEYS, 32), normal(1, 4, ROWS, 32)
    sinks = np.array([np.inf, -np.inf, 3e38, 2.0], np.float32)
    dlse = RNG.standard_normal((1, 4, ROWS)).astype(np.float32)
    with amdwarp.emulate("gfx950"):
        out, lse = attention(q, k, v, sinks=sinks, return_lse=True)
        got = attention_backward(dout, q, k, v, out, lse, sinks=sinks, dlse=dlse)
    expected = reference_backward(dout, q, k, v, sinks=sinks, dlse=dlse)
    for name in ("q", "k", "v", "sinks"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=2e-2, atol=2e-2, err_msg=name)
    np.testing.assert_allclose(expected.sinks[0], dlse[0, 0].sum())


@pytest.mark.parametrize("arch,schedule", [*PLAIN, *SCHEDULED, TASKS])
def test_logits_beyond_all_bounds(arch, schedule):
    """Up to the bound results are finite; beyond it they are a mean of values, or NaN, and never zeros."""
    rows = 16 if schedule == "plain" else 130
    q, k = (np.where(RNG.random((1, 1, n, 1)) < 0.5, -1.0, 1.0) * np.ones(64) for n in (rows, KEYS))
    q, k, v = q.astype(np.float16), k.astype(np.float16), np.ones((1, 1, KEYS, 64), np.float16)
    for largest in (0.99 * LOGIT_MAX, 1.1 * LOGIT_MAX, 4.7e10):
        with amdwarp.emulate(arch):
            out, lse = attention(q, k, v, scale=largest / 64, return_lse=True, schedule=schedule)
        lost = np.isnan(lse)
        assert (np.isnan(out).any(axis=3) == lost).all()
        np.testing.assert_allclose(out[~lost], 1.0, rtol=1e-2)
        np.testing.assert_allclose(lse[~lost], largest, rtol=1e-5)
        assert not lost.any() or largest > LOGIT_MAX
        assert lost.all() or largest < LOGIT_MAX or schedule == "tasks"
