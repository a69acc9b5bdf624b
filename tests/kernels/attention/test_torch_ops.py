"""The operators in PyTorch: gradients against torch's own, `opcheck`, ``torch.compile``, autocast. On CPU tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from amdwarp.kernels.attention import reference, reference_backward
from amdwarp.kernels.attention.options import AttentionOptions

import amdwarp
from amdwarp.errors import UsageError

pytest.importorskip("triton")
torch = pytest.importorskip("torch")
torch_ops = pytest.importorskip("amdwarp.kernels.attention.torch_ops")

attention, varlen_attention = torch_ops.attention, torch_ops.varlen_attention
HALF = torch.float16


def draw(*shape, seed=0, dtype=HALF, grad=True):
    values = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return torch.tensor(values).to(dtype).requires_grad_(grad)


def three(rows=20, keys=24, heads=2, key_heads=1, dim=32, dtype=HALF):
    shapes = ((1, heads, rows, dim), (1, key_heads, keys, dim), (1, key_heads, keys, dim))
    return [draw(*shape, seed=at, dtype=dtype) for at, shape in enumerate(shapes)]


def as_float64(one):
    return one.detach().double().numpy()


def assert_gradients(tensors, dout, options, dlse=None, **extras):
    """The .grad of q, k, v and extras against the float64 gradients, within tolerance of the dtype."""
    arrays = [one.detach().view(torch.int16).numpy().view(np.float16) for one in tensors]
    plain = {name: as_float64(one) for name, one in extras.items()}
    named = {"dlse": None if dlse is None else as_float64(dlse)}
    of_out = as_float64(dout)
    expected = reference_backward.attention_backward(of_out, *arrays, options, **plain, **named)
    bound = reference_backward.tolerance(of_out, *arrays, options, **plain, **named)
    for name, tensor in zip(("q", "k", "v", *extras), (*tensors, *extras.values()), strict=True):
        if tensor.requires_grad:
            error = np.abs(as_float64(tensor.grad) - getattr(expected, name))
            assert (error <= getattr(bound, name)).all(), name


def test_gradients_through_both_kernels():
    tensors, sinks = three(), draw(2, dtype=torch.float32)
    bias = draw(1, 20, 24, dtype=torch.float32)
    dout, dlse = draw(1, 2, 20, 32, seed=9, grad=False), draw(1, 2, 20, seed=9, dtype=torch.float32, grad=False)
    with amdwarp.emulate("gfx950"):
        out, lse = attention(*tensors, causal=True, sinks=sinks, bias=bias, return_lse=True)
        torch.autograd.backward((out, lse), (dout, dlse))
    options = AttentionOptions(causal=True, sinks=True, bias=True)
    assert_gradients(tensors, dout, options, dlse, sinks=sinks, bias=bias)


def test_gradients_are_those_of_torch_in_float32():
    tensors = three(rows=24)
    with amdwarp.emulate("gfx942"):
        out = attention(*tensors, causal=True)
        out.sum().backward()  # its gradient is one expanded number
    copies = [one.detach().float().requires_grad_() for one in tensors]
    torch.nn.functional.scaled_dot_product_attention(*copies, is_causal=True, enable_gqa=True).sum().backward()
    for mine, theirs in zip(tensors, copies, strict=True):
        assert mine.grad.dtype == HALF
        torch.testing.assert_close(mine.grad.float(), theirs.grad, atol=4e-3, rtol=2e-3)


@pytest.mark.slow
def test_rows_before_heads_and_gradients_of_some_inputs_only():
    tensors = three()
    swapped = [one.detach().transpose(1, 2).contiguous().requires_grad_(at != 1) for at, one in enumerate(tensors)]
    dout = draw(1, 2, 20, 32, seed=9, grad=False)
    with amdwarp.emulate("gfx950"):
        attention(*swapped, window=(5, 3), layout="bshd").backward(dout.transpose(1, 2))
    assert swapped[1].grad is None
    tensors[1].requires_grad_(False)
    for mine, one in zip(tensors, swapped, strict=True):
        mine.grad = None if one.grad is None else one.grad.transpose(1, 2)
    assert_gradients(tensors, dout, AttentionOptions(window=(5, 3)))


def test_sequences_one_behind_the_other():
    starts = [torch.tensor(one, dtype=torch.int32) for one in ([0, 7, 7, 20], [0, 9, 12, 24])]
    q, k, v = draw(20, 2, 32), draw(24, 1, 32, seed=1), draw(24, 1, 32, seed=2)
    sinks, dout = draw(2, dtype=torch.float32), draw(20, 2, 32, seed=9, grad=False)
    with amdwarp.emulate("gfx950"):
        out = varlen_attention(q, k, v, *starts, 13, 12, causal=True, sinks=sinks)
        out.backward(dout)
    arrays = [as_float64(one) for one in (dout, q, k, v)]
    options = AttentionOptions(causal=True, sinks=True)
    numbers = [one.numpy() for one in starts]
    expected, _ = reference.varlen_attention(*arrays[1:], *numbers, options, sinks=as_float64(sinks))
    np.testing.assert_allclose(as_float64(out), expected, atol=2e-3)
    grads = reference_backward.varlen_attention_backward(*arrays, *numbers, options, sinks=as_float64(sinks))
    for mine, wanted in ((q, grads.q), (k, grads.k), (v, grads.v), (sinks, grads.sinks)):
        np.testing.assert_allclose(as_float64(mine.grad), wanted, atol=4e-3, rtol=2e-3)


def test_refusals_of_operators_name_the_argument():
    q, k, v = three(rows=5, keys=6)
    flat = [one[0].transpose(0, 1) for one in (q, k, v)]
    starts = [torch.tensor([0, 2, end], dtype=torch.int32) for end in (5, 6)]
    with amdwarp.emulate("gfx950"):
        for text, call in (
            (
                "q is float8_e4m3fn, which the",
                lambda: attention(*(one.to(torch.float8_e4m3fn) for one in (q, k, v))),
            ),
            ("q is float32, which the", lambda: varlen_attention(*map(torch.Tensor.float, flat), *starts, 3, 4)),
            ("attention: window is 3; give", lambda: attention(q, k, v, window=3)),
            ("attention: k is a ndarray; pass a torch tensor", lambda: attention(q, k.detach().numpy(), v)),
            ("varlen_attention: max_seqlen_k is 3", lambda: varlen_attention(*flat, *starts, 3, 3)),
            ("attention: layout is 'x'; take", lambda: attention(*(one.to("meta") for one in (q, k, v)), layout="x")),
            ("attention: k has 3 dimensions", lambda: attention(*(one.to("meta") for one in (q, k[0], v)))),
        ):
            with pytest.raises(UsageError, match=text):
                call()
        assert attention(*(one.to("meta") for one in (q, k, v))).shape == q.shape


def test_forward_mode_derivatives_are_refused():
    """An operator knows nothing of tangents, and would give zeros."""
    q, k, v = (one.detach() for one in three(rows=5, keys=6))
    with amdwarp.emulate("gfx950"), pytest.raises(UsageError, match="no forward-mode derivatives"):
        torch.func.jvp(lambda one: attention(one, k, v), (q,), (q,))
    with amdwarp.emulate("gfx950"), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.zeros(5, 6), torch.ones(5, 6))
        with pytest.raises(UsageError, match="no forward-mode derivatives"):
            attention(q, k, v, bias=dual)


def test_opcheck():
    q, k, v = three(rows=5, keys=6)
    sinks, bias = draw(2, dtype=torch.float32), draw(5, 6)
    with amdwarp.emulate("gfx950"):
        arguments = (q, k, v, bias, sinks, None, True, None, 4, None, 3.0, "bhsd")
        found = torch.library.opcheck(torch.ops.amdwarp.attention, arguments)
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.slow
def test_opcheck_of_all_operators():
    starts = [torch.tensor(one, dtype=torch.int32) for one in ([0, 2, 5], [0, 3, 6])]
    q, k, v = draw(5, 2, 32), draw(6, 1, 32, seed=1), draw(6, 1, 32, seed=2)
    with amdwarp.emulate("gfx950"):
        numbers = (None, None, True, 0.2, None, None, None)
        found = torch.library.opcheck(torch.ops.amdwarp.varlen_attention, (q, k, v, *starts, 3, 3, *numbers))
        assert set(found.values()) == {"SUCCESS"}
        some = [one.detach() for one in (q, k, v)]
        out, lse = torch.ops.amdwarp.varlen_attention(*some, *starts, 3, 3, *numbers)
        backward = torch.ops.amdwarp.varlen_attention_backward
        found = torch.library.opcheck(backward, (out, None, *some, out, lse, *starts, 3, 3, *numbers))
        assert set(found.values()) == {"SUCCESS"}
        q, k, v = (one.detach() for one in three(rows=5, keys=6))
        out, lse = torch.ops.amdwarp.attention(q, k, v, None, *numbers, "bhsd")
        backward = torch.ops.amdwarp.attention_backward
        found = torch.library.opcheck(backward, (out, lse, q, k, v, out, lse, None, False, *numbers, "bhsd"))
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("backend", [pytest.param("eager", marks=pytest.mark.slow), "aot_eager"])
def test_compiled_without_graph_breaks(backend):
    torch._dynamo.reset()
    starts = torch.tensor([0, 20], dtype=torch.int32), torch.tensor([0, 24], dtype=torch.int32)

    def step(q, k, v):
        out = attention(q, k, v, causal=True)
        flat = (one[0].transpose(0, 1) for one in (q, k, v))
        return (out.sum() + varlen_attention(*flat, *starts, 20, 24, causal=True).sum()).float()

    tensors = three()
    with amdwarp.emulate("gfx950"):
        step(*tensors).backward()
        eager = [one.grad.clone() for one in tensors]
        for one in tensors:
            one.grad = None
        torch.compile(step, backend=backend, fullgraph=True)(*tensors).backward()
    for one, wanted in zip(tensors, eager, strict=True):
        assert torch.equal(one.grad, wanted)


def test_autocast_decides_the_dtype():
    tensors = three(dtype=torch.float32)
    with amdwarp.emulate("gfx950"), torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(*tensors)
    assert out.dtype == torch.bfloat16
    with amdwarp.emulate("gfx950"):
        out.float().sum().backward()
        with (
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=False),
            pytest.raises(ValueError, match="q is float32"),
        ):
            attention(*tensors)
    assert all(one.grad.dtype == torch.float32 for one in tensors)


@pytest.mark.slow
def test_second_derivatives_are_refused_by_torch():
    tensors = three(rows=4, keys=4)
    with amdwarp.emulate("gfx950"):
        (gradient,) = torch.autograd.grad(attention(*tensors).sum(), tensors[0], create_graph=True)
        with pytest.raises(RuntimeError, match=r"amdwarp\.attention_backward"):
            gradient.sum().backward()


def test_importing_the_package_does_not_import_torch():
    code = "import sys, amdwarp, amdwarp.kernels.attention; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
