"""The float64 gradients against finite differences of the float64 forward, and against torch's own."""

import numpy as np
import pytest
from amdwarp.kernels.attention import reference, reference_backward
from amdwarp.kernels.attention.options import AttentionOptions

OPTIONS = [
    AttentionOptions(),
    AttentionOptions(causal=True),
    AttentionOptions(window=(2, 1), scale=0.7),
    AttentionOptions(window=(None, 0), softcap=1.5),
    AttentionOptions(softcap=0.8, sinks=True, alibi=True, bias=True, causal=True),
    AttentionOptions(window=(0, 0), sinks=True),
]


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def differences(function, at, step=1e-5):
    """Central differences of a scalar function of one array, element by element."""
    found = np.zeros(at.shape)
    for index in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        found[index] = (function(up) - function(down)) / (2 * step)
    return found


@pytest.mark.parametrize("rows,keys", [(3, 4), (4, 2)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_agrees_with_finite_differences(options, rows, keys):
    arrays = {"q": draw(2, 4, rows, 3), "k": draw(2, 2, keys, 3), "v": draw(2, 2, keys, 2)}
    if options.sinks:
        arrays["sinks"] = draw(4)
    if options.bias:
        arrays["bias"] = draw(4, 1, keys)
    fixed = {"alibi": np.abs(draw(4))} if options.alibi else {}
    dout, dlse = draw(2, 4, rows, 2), draw(2, 4, rows, seed=1)
    seen = ~np.isneginf(reference.attention(**arrays, **fixed, options=options)[1])
    dlse[~seen] = 0

    def loss(**changed):
        out, lse = reference.attention(**(arrays | changed), **fixed, options=options)
        return (out * dout).sum() + (lse[seen] * dlse[seen]).sum()

    grads = reference_backward.attention_backward(dout, **arrays, **fixed, options=options, dlse=dlse)
    for name, value in arrays.items():
        expected = differences(lambda changed, name=name: loss(**{name: changed}), value)
        np.testing.assert_allclose(getattr(grads, name), expected, atol=2e-9, err_msg=name)


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_torch(causal):
    torch = pytest.importorskip("torch")
    q, k, v, dout = draw(2, 4, 6, 8), draw(2, 2, 6, 8), draw(2, 2, 6, 5), draw(2, 4, 6, 5)
    tensors = [torch.tensor(one, requires_grad=True) for one in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)
    out.backward(torch.tensor(dout))
    grads = reference_backward.attention_backward(dout, q, k, v, AttentionOptions(causal=causal))
    for tensor, grad in zip(tensors, (grads.q, grads.k, grads.v), strict=True):
        np.testing.assert_allclose(grad, tensor.grad.numpy(), atol=1e-12)


def test_rows_that_see_nothing_pass_nothing_on():
    q, k, v, dout = draw(1, 2, 5, 4), draw(1, 1, 2, 4), draw(1, 1, 2, 4), draw(1, 2, 5, 4)
    grads = reference_backward.attention_backward(dout, q, k, v, AttentionOptions(causal=True))
    assert (grads.q[:, :, :3] == 0).all()
    assert (grads.q[:, :, 4] != 0).all()
    assert all(np.isfinite(one).all() for one in (grads.q, grads.k, grads.v))


def test_sequences_of_a_batch_are_apart():
    cu_rows, cu_keys = [0, 3, 3, 7], [1, 3, 6, 9]
    q, k, v, dout = draw(8, 4, 8), draw(9, 2, 8), draw(9, 2, 5), draw(8, 4, 5)
    options, sinks = AttentionOptions(causal=True, sinks=True), draw(4)
    grads = reference_backward.varlen_attention_backward(dout, q, k, v, cu_rows, cu_keys, options, sinks=sinks)
    assert (grads.q[7] == 0).all() and (grads.k[0] == 0).all() and (grads.k[3:6] == 0).all()
    third = [one[start:end].swapaxes(0, 1)[None] for one, start, end in ((dout, 3, 7), (q, 3, 7), (k, 6, 9), (v, 6, 9))]
    alone = reference_backward.attention_backward(*third, options, sinks=sinks)
    np.testing.assert_array_equal(grads.q[3:7], alone.q[0].swapaxes(0, 1))
    np.testing.assert_array_equal(grads.k[6:9], alone.k[0].swapaxes(0, 1))
