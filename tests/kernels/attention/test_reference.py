"""The float64 reference against torch, against a loop over single rows, and on rows whose result is known."""

import numpy as np
import pytest
from amdwarp.kernels.attention import reference
from amdwarp.kernels.attention.options import AttentionOptions


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def by_rows(q, k, v, options, sinks=None, alibi=None, bias=None):
    """The same, one row and one key at a time."""
    batch, heads, rows, dim = q.shape
    keys, ratio = k.shape[2], heads // k.shape[1]
    out, lse = np.zeros((batch, heads, rows, v.shape[3])), np.zeros((batch, heads, rows))
    for b, h, i in np.ndindex(batch, heads, rows):
        total = 0.0 if sinks is None else np.exp(sinks[h])
        value = np.zeros(v.shape[3])
        for j in options.visible_keys(i, rows, keys):
            s = options.scale_of(dim) * float(q[b, h, i] @ k[b, h // ratio, j])
            if options.softcap:
                s = options.softcap * np.tanh(s / options.softcap)
            if alibi is not None:
                s -= alibi[h] * abs(i + keys - rows - j)
            if bias is not None:
                s += bias[b, h, i, j]
            total += np.exp(s)
            value += np.exp(s) * v[b, h // ratio, j]
        out[b, h, i] = value / total if total else 0.0
        lse[b, h, i] = np.log(total) if total else -np.inf
    return out, lse


@pytest.mark.parametrize("rows,keys", [(5, 5), (3, 7), (7, 3), (4, 1)])
@pytest.mark.parametrize(
    "options",
    [
        AttentionOptions(),
        AttentionOptions(causal=True),
        AttentionOptions(window=(2, 1), scale=0.7),
        AttentionOptions(window=(2, None), causal=True),
        AttentionOptions(window=(None, 0), softcap=1.5),
        AttentionOptions(softcap=0.3, sinks=True, alibi=True, bias=True, causal=True),
    ],
)
def test_agrees_with_single_rows(rows, keys, options):
    q, k, v = draw(2, 4, rows, 8), draw(2, 2, keys, 8), draw(2, 2, keys, 6)
    extras = {}
    if options.sinks:
        extras = {"sinks": draw(4), "alibi": np.abs(draw(4)), "bias": draw(2, 4, rows, keys)}
    out, lse = reference.attention(q, k, v, options, **extras)
    expected, expected_lse = by_rows(q, k, v, options, **extras)
    np.testing.assert_allclose(out, expected, atol=1e-12)
    np.testing.assert_allclose(lse, expected_lse, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_torch(causal):
    torch = pytest.importorskip("torch")
    q, k, v = draw(2, 4, 9, 16), draw(2, 2, 9, 16), draw(2, 2, 9, 16)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q, k, v)), is_causal=causal, enable_gqa=True
    )
    out, _ = reference.attention(q, k, v, AttentionOptions(causal=causal))
    np.testing.assert_allclose(out, expected.numpy(), atol=1e-12)


def test_rows_that_see_nothing():
    q, k, v = draw(1, 1, 4, 8), draw(1, 1, 2, 8), draw(1, 1, 2, 8)
    out, lse = reference.attention(q, k, v, AttentionOptions(causal=True))
    assert (out[0, 0, :2] == 0).all() and np.isneginf(lse[0, 0, :2]).all() and np.isfinite(lse[0, 0, 2:]).all()
    out, lse = reference.attention(q, k, v, AttentionOptions(causal=True), sinks=np.array([0.25]))
    assert (out[0, 0, :2] == 0).all() and (lse[0, 0, :2] == 0.25).all()
    out, lse = reference.attention(q, k, v, bias=np.full((4, 2), -np.inf))
    assert (out == 0).all() and np.isneginf(lse).all()
    out, lse = reference.attention(q, k[:, :, :0], v[:, :, :0])
    assert (out == 0).all() and np.isneginf(lse).all()


def test_large_logits_stay_finite():
    q, k, v = np.full((1, 1, 2, 8), 1e4), np.ones((1, 1, 3, 8)), draw(1, 1, 3, 8)
    out, lse = reference.attention(q, k, v, AttentionOptions(scale=1.0))
    np.testing.assert_allclose(out[0, 0, 0], v[0, 0].mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(lse, 8e4 + np.log(3))


def test_varlen_and_pages_are_each_sequence_for_itself():
    rows, keys, options = (2, 0, 3), (5, 4, 3), AttentionOptions(causal=True, window=(3, None))
    q, k, v = draw(5, 4, 8), draw(12, 2, 8), draw(12, 2, 8)
    out, lse = reference.varlen_attention(q, k, v, np.cumsum((0, *rows)), np.cumsum((0, *keys)), options)
    alone, alone_lse = reference.attention(
        *(x[None, s].swapaxes(1, 2) for x, s in zip((q, k, v), (slice(2, 5), slice(9, 12), slice(9, 12)), strict=True)),
        options,
    )
    np.testing.assert_array_equal(out[2:], alone[0].swapaxes(0, 1))
    np.testing.assert_array_equal(lse[:, 2:], alone_lse[0])

    cache, table = np.full((2, 6, 4, 2, 8), np.nan), np.array([[3, 1], [5, 0], [2, 4]])
    for one, (start, length) in enumerate(zip((0, 5, 9), keys, strict=True)):
        for at in range(length):
            cache[0, table[one, at // 4], at % 4], cache[1, table[one, at // 4], at % 4] = k[start + at], v[start + at]
    newest = draw(3, 2, 4, 8)
    paged, paged_lse = reference.paged_attention(newest, cache[0], cache[1], table, keys, options)
    flat, flat_lse = reference.varlen_attention(
        newest.reshape(6, 4, 8), k, v, (0, 2, 4, 6), np.cumsum((0, *keys)), options
    )
    np.testing.assert_array_equal(paged.reshape(6, 4, 8), flat)
    np.testing.assert_array_equal(paged_lse.swapaxes(0, 1).reshape(4, 6), flat_lse)
