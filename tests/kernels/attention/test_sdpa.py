"""The drop-in against torch's own function on CPU: what it computes, what it passes on, and what it says then."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import amdwarp

pytest.importorskip("triton")
torch = pytest.importorskip("torch")
sdpa = pytest.importorskip("amdwarp.kernels.attention.sdpa")

theirs = torch.nn.functional.scaled_dot_product_attention
HALF = torch.float16


def draw(*shape, seed=0, dtype=HALF):
    return torch.tensor(np.random.default_rng((seed, *shape)).standard_normal(shape)).to(dtype)


def inputs(rows=20, keys=20, heads=2, key_heads=2, dim=32, dim_v=32, leading=(1,)):
    shapes = ((heads, rows, dim), (key_heads, keys, dim), (key_heads, keys, dim_v))
    return [draw(*leading, *shape, seed=at) for at, shape in enumerate(shapes)]


MASK = torch.tensor(np.random.default_rng(0).random((20, 20)) < 0.5)
MASK[3] = False
CASES = {
    "plain": ({}, {}),
    "causal": ({}, {"is_causal": True}),
    "causal, more keys": ({"keys": 33}, {"is_causal": True}),
    "causal, more rows": ({"rows": 33}, {"is_causal": True}),
    "bool mask with a row that sees nothing": ({}, {"attn_mask": MASK}),
    "float mask": ({}, {"attn_mask": draw(1, 2, 1, 20, seed=5)}),
    "mask of five dimensions": ({"leading": (2, 1)}, {"attn_mask": draw(2, 1, 1, 20, 20, seed=5)}),
    "mask of four dimensions beside five": ({"leading": (2, 3)}, {"attn_mask": draw(3, 1, 20, 20, seed=5)}),
    "grouped heads, scale": ({"heads": 4}, {"enable_gqa": True, "scale": 0.3}),
    "three dimensions": ({"leading": ()}, {"is_causal": True}),
    "wider v": ({"dim_v": 40}, {}),
}


def both(tensors, arguments):
    """Outputs and gradients of ours in the emulator, and of torch's in fp32."""
    found = []
    for function, dtype in ((sdpa.scaled_dot_product_attention, HALF), (theirs, torch.float32)):
        moved = [one.detach().to(dtype).requires_grad_() for one in tensors]
        named = dict(arguments)
        mask = named.get("attn_mask")
        if mask is not None and mask.dtype != torch.bool:
            named["attn_mask"] = mask.detach().to(dtype).requires_grad_()
            moved.append(named["attn_mask"])
        out = function(*moved[:3], **named)
        out.backward(draw(*out.shape, seed=9).to(dtype))
        found.append([out.detach().float(), *(one.grad.float() for one in moved)])
    return found


FAST = (
    "mask of four dimensions beside five",
    "causal, more keys",
    "bool mask with a row that sees nothing",
    "grouped heads, scale",
)


@pytest.mark.parametrize("name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_means_what_torch_means(name, caplog):
    shapes, arguments = CASES[name]
    with amdwarp.emulate("gfx950") as emulation:
        mine, expected = both(inputs(**shapes), arguments)
    assert len(emulation.records) == 4 and not caplog.records
    for got, wanted in zip(mine, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=6e-3, rtol=4e-3)


def falls_back(caplog, reason, tensors=None, emulated=True, **arguments):
    """Check that torch computes it and that the log says why; returns what came out, or what torch raised."""
    tensors = inputs() if tensors is None else tensors
    sdpa._warn_once.cache_clear()
    caplog.set_level(logging.DEBUG, "amdwarp.attention")
    caplog.clear()
    torch.manual_seed(0)
    try:
        if emulated:
            with amdwarp.emulate("gfx950") as emulation:
                out = sdpa.scaled_dot_product_attention(*tensors, **arguments)
            assert not emulation.records
        else:
            out = sdpa.scaled_dot_product_attention(*tensors, **arguments)
    except (RuntimeError, TypeError) as error:
        out = error
    text = f"scaled_dot_product_attention goes to torch: {reason}"
    assert [one.getMessage() for one in caplog.records] == [text, text]
    assert [one.levelname for one in caplog.records] == ["WARNING", "DEBUG"]
    return out


@pytest.mark.parametrize(
    "reason,shapes,arguments",
    [
        ("dropout_p is not 0", {}, {"dropout_p": 0.5}),
        ("scale is not a positive number up to 2**127", {}, {"scale": -0.5}),
        ("scale is not a positive number up to 2**127", {}, {"scale": 1e39}),
        ("heads have 20 elements, not a multiple of 8 from 32 to 256", {"dim": 20}, {}),
        ("heads have 264 elements, not a multiple of 8 from 32 to 256", {"dim_v": 264}, {}),
        ("a tensor is empty", {"leading": (0,)}, {}),
        ("attn_mask and is_causal are both given", {}, {"is_causal": True, "attn_mask": MASK}),
    ],
)
def test_what_the_kernels_do_not_do_goes_to_torch(reason, shapes, arguments, caplog):
    tensors = inputs(**shapes)
    out = falls_back(caplog, reason, tensors, **arguments)
    torch.manual_seed(0)
    torch.testing.assert_close(out, theirs(*tensors, **arguments), rtol=0, atol=0, equal_nan=True)


def test_dtypes_and_places_that_go_to_torch(caplog):
    tensors = [one.float() for one in inputs()]
    assert torch.equal(falls_back(caplog, "dtype torch.float32 is neither fp16 nor bf16", tensors), theirs(*tensors))
    falls_back(caplog, "tensors are in CPU memory, outside of amdwarp.emulate", emulated=False)
    falls_back(caplog, "device meta is no AMD GPU", [one.to("meta") for one in inputs()])
    q, k, v = inputs()
    out = falls_back(caplog, "batch dimensions differ", [q, k, v.expand(3, *v.shape[1:])])
    assert out.shape == (3, *q.shape[1:])


def test_what_torch_refuses_it_refuses_itself(caplog):
    different = "query and key have different heads, and enable_gqa is False, or they do not divide"
    assert isinstance(falls_back(caplog, different, inputs(heads=4)), RuntimeError)
    mixed = [inputs()[0].float(), *inputs()[1:]]
    assert isinstance(falls_back(caplog, "query, key and value have different dtypes", mixed), RuntimeError)
    assert isinstance(falls_back(caplog, "query, key, value or attn_mask is no tensor", attn_mask=[[True]]), TypeError)
    assert isinstance(falls_back(caplog, "attn_mask does not broadcast", attn_mask=MASK[:, :7]), RuntimeError)


def test_forward_mode_derivatives_go_to_torch(caplog):
    q, k, v = inputs()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        out = falls_back(caplog, "an argument has a tangent: forward-mode derivatives", [dual, k, v])
    assert isinstance(out, NotImplementedError)  # as it is from the function on the CPU


def test_a_reason_is_a_warning_once(caplog):
    falls_back(caplog, "dropout_p is not 0", dropout_p=0.1)
    caplog.clear()
    with amdwarp.emulate("gfx950"):
        sdpa.scaled_dot_product_attention(*inputs(), dropout_p=0.1)
    assert [one.levelname for one in caplog.records] == ["DEBUG"]


def test_compiled_without_graph_breaks(caplog):
    tensors = inputs()
    sdpa._warn_once.cache_clear()
    torch._dynamo.reset()

    def step(q, k, v):
        first = sdpa.scaled_dot_product_attention(q, k, v, is_causal=True)
        return first, sdpa.scaled_dot_product_attention(q, k, v, scale=-1.0)

    with amdwarp.emulate("gfx950") as emulation:
        mine, passed_on = torch.compile(step, backend="aot_eager", fullgraph=True)(*tensors)
    assert len(emulation.records) == 1
    torch.testing.assert_close(
        mine.float(), theirs(*(one.float() for one in tensors), is_causal=True), atol=3e-3, rtol=1e-3
    )
    assert torch.equal(passed_on, theirs(*tensors, scale=-1.0))
    assert "scale is not a positive number" in caplog.text


def test_autocast(caplog):
    tensors = [one.float() for one in inputs()]
    with amdwarp.emulate("gfx950") as emulation, torch.autocast("cpu", dtype=torch.bfloat16):
        out = sdpa.scaled_dot_product_attention(*tensors, attn_mask=draw(20, 20, seed=5, dtype=torch.float32))
        expected = theirs(*tensors, attn_mask=draw(20, 20, seed=5, dtype=torch.float32))
    assert len(emulation.records) == 1 and not caplog.records
    assert out.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(out, expected, atol=2e-2, rtol=2e-2)


def test_devices_of_torch(monkeypatch):
    """On a GPU the arch decides; here a stand-in for its name."""

    class OnGpu:
        is_nested, layout, device = False, torch.strided, torch.device("cuda", 0)

    monkeypatch.setattr(torch.version, "hip", "7.0")
    for arch, reason in (("gfx950", ""), ("gfx1100", "gfx1100 is none of gfx942, gfx950, gfx1250")):
        monkeypatch.setattr(sdpa, "_arch", lambda _, arch=arch: arch)
        assert sdpa._reason_of_place([OnGpu()]) == reason
    monkeypatch.setattr(torch.version, "hip", None)
    assert sdpa._reason_of_place([OnGpu()]) == "device cuda:0 is no AMD GPU"
