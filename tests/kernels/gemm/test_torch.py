"""PyTorch: operators, gradients, compilation, autocast, and the semantics of the names that PyTorch has too."""

from __future__ import annotations

import numpy as np
import pytest
from amdwarp.kernels import gemm

import amdwarp
from amdwarp import UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("amdwarp.kernels.gemm.torch_grouped")


@pytest.fixture(autouse=True)
def emulated():
    with amdwarp.emulate("gfx950") as emulation:
        yield emulation


def draw(*shape, dtype=torch.float16, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


def near(got, expected, rel=4e-3):
    """Within a few roundings of the operands' type of the largest expected element."""
    assert got.shape == expected.shape
    scale = expected.abs().max().item() if expected.numel() else 0.0
    assert (got.double() - expected).abs().max().item() <= rel * scale + 1e-6 if expected.numel() else True


def gradients(call, reference, *tensors):
    """Compare a result and the gradients of its arguments with float64 ones."""
    wide = [None if one is None else one.detach().double().requires_grad_(one.requires_grad) for one in tensors]
    out, expected = call(*tensors), reference(*wide)
    near(out, expected)
    weight = draw(*out.shape, dtype=out.dtype, seed=5)
    out.backward(weight)
    expected.backward(weight.double())
    for one, other in zip(tensors, wide, strict=True):
        if one is not None and one.requires_grad:
            assert one.grad.dtype == one.dtype
            near(one.grad, other.grad)


ACTIVATIONS = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swiglu": lambda x: torch.nn.functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_and_its_gradients(activation):
    x, w, bias = draw(2, 9, 24, grad=True), draw(16, 24, grad=True), draw(16, grad=True)
    gradients(
        lambda x, w, b: gemm.linear(x, w, b, activation),
        lambda x, w, b: ACTIVATIONS[activation](torch.nn.functional.linear(x, w, b)),
        x, w, bias,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((9, 24), (24, 16)),
        ((24,), (24, 16)),
        ((9, 24), (24,)),
        ((24,), (24,)),
        ((3, 9, 24), (24, 16)),
        ((9, 24), (3, 24, 16)),
        ((2, 1, 9, 24), (3, 24, 16)),
    ],
)
def test_matmul_follows_torch(a, b):
    gradients(gemm.matmul, torch.matmul, draw(*a, grad=True), draw(*b, seed=1, grad=True))


def test_batched_and_the_residual():
    a, b, c = draw(3, 9, 24, grad=True), draw(3, 24, 16, seed=1, grad=True), draw(9, 1, grad=True)
    gradients(
        lambda a, b, c: gemm.batched_matmul(a, b, residual=c, beta=0.5, scale=2.0),
        lambda a, b, c: torch.baddbmm(c.expand(3, 9, 16), a, b, beta=0.5, alpha=2.0),
        a, b, c,
    )  # fmt: skip


def grouped_reference(a, b, offsets, bias=None):
    rows = []
    for at, (first, end) in enumerate(zip([0, *offsets.tolist()[:-1]], offsets.tolist(), strict=True)):
        rows.append(a[first:end] @ b[at] + (0 if bias is None else bias[at]))
    return torch.cat([*rows, a.new_zeros(a.shape[0] - offsets[-1], b.shape[2])])


def test_groups_and_their_gradients():
    offsets = torch.tensor([5, 5, 20], dtype=torch.int32)
    a, b, bias = draw(25, 24, grad=True), draw(3, 24, 16, grad=True), draw(3, 16, grad=True)
    gradients(
        lambda a, b, bias: gemm.grouped_matmul(a, b, offsets, bias=bias),
        lambda a, b, bias: grouped_reference(a, b, offsets, bias),
        a, b, bias,
    )  # fmt: skip


ENDS = torch.tensor([5, 5, 20], dtype=torch.int32)


def test_groups_of_fp8():
    a, b = draw(25, 32).to(torch.float8_e4m3fn), draw(3, 32, 16).to(torch.float8_e4m3fn)
    scales = {"scale_a": torch.rand(25, 1) + 0.5, "scale_b": torch.rand(3, 1, 16) + 0.5}
    out = gemm.grouped_matmul(a, b, ENDS, **scales)
    assert out.dtype == torch.bfloat16
    expected = grouped_reference(a.double() * scales["scale_a"], b.double() * scales["scale_b"], ENDS, None)
    near(out, expected, 1e-2)
    with pytest.raises(UsageError, match=r"scale_a asks for a gradient, and quantised products have none"):
        gemm.grouped_matmul(a, b, ENDS, scale_a=scales["scale_a"].requires_grad_())


def test_stacks_of_fp8_compile():
    a, b, scale = draw(2, 9, 32).to(torch.float8_e4m3fn), draw(32, 16).to(torch.float8_e4m3fn), torch.rand(2, 9, 1)
    compiled = torch.compile(gemm.scaled_matmul, backend="aot_eager", fullgraph=True)
    near(compiled(a, b, scale), (a.double() * scale) @ b.double(), 1e-2)


def bytes_of(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


CASES = {
    "gemm_product": lambda: (
        *("matmul", draw(9, 24, grad=True), draw(24, 16, grad=True), draw(16, grad=True), None),
        *("column", "silu", 1.0, 1.0, None, "ieee"),
    ),
    "gemm_grouped": lambda: (
        *(draw(25, 24, grad=True), draw(3, 24, 16, grad=True), ENDS, None, None, 1.0, None, "ieee"),
    ),
    "gemm_grouped_scaled": lambda: (
        *(draw(25, 32).to(torch.float8_e4m3fn), draw(3, 32, 16).to(torch.float8_e4m3fn), ENDS),
        *(torch.ones(25, 1), torch.ones(3, 1, 16), None, None, 1.0, "bfloat16", "ieee"),
    ),
    "gemm_quantised": lambda: (
        *("int8_matmul", bytes_of(9, 32), bytes_of(32, 16), torch.ones(9, 1), torch.ones(1, 16)),
        *(None, None, None, None, "column", None, 1.0, 1.0, "bfloat16"),
    ),
}


@pytest.mark.parametrize("operator", CASES)
def test_opcheck(operator):
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    if operator == "gemm_grouped_scaled":
        utilities = utilities[1:]  # it multiplies arguments, which PyTorch does not do with fp8
    torch.library.opcheck(getattr(torch.ops.amdwarp, operator), CASES[operator](), test_utils=utilities)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_a_graph_break(backend):
    x, w, bias = draw(9, 24, grad=True), draw(16, 24, grad=True), draw(16, grad=True)

    def model(x, w, bias):
        y = gemm.linear(x, w, bias, "silu")
        return gemm.batched_matmul(y[None], gemm.matmul(w, w.T)[None]) * 2

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    out = compiled(x, w, bias)
    assert torch.equal(out, model(x, w, bias))
    out.sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_autocast_decides_the_type():
    x, w = draw(9, 24, dtype=torch.float32, grad=True), draw(16, 24, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = gemm.linear(x, w)
        assert out.dtype == torch.nn.functional.linear(x, w).dtype == torch.bfloat16
    out.float().sum().backward()
    assert x.grad.dtype == torch.float32
    assert gemm.linear(x, w).dtype == torch.float32


def test_out_is_written_and_returned():
    a, b = draw(9, 24), draw(24, 16)
    out = torch.zeros(9, 32, dtype=torch.float16)[:, ::2]
    assert gemm.matmul(a, b, out=out) is out
    near(out, a.double() @ b.double())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a, b: gemm.matmul(a, b, out=a.new_zeros(9, 16)), "out is given, and an argument asks for a gradient"),
        (lambda a, b: gemm.matmul(a, b, schedule="plain"), "schedule is given, and an argument asks for a gradient"),
        (
            lambda a, b: gemm.linear(a, gemm.shuffle_weight(b.T)),
            "x asks for a gradient, and a shuffled weight has none",
        ),
        (
            lambda a, b: gemm.int8_matmul(a.to(torch.int8), b.to(torch.int8), torch.ones(9, 1, requires_grad=True)),
            "scale_a asks for a gradient, and quantised products have none",
        ),
        (lambda a, b: gemm.matmul(a, b.numpy(force=True)), "a is a tensor on cpu and b is a numpy array"),
        (lambda a, b: gemm.matmul(a, b, bias=np.zeros(16)), "bias is a numpy array"),
        (lambda a, b: gemm.matmul(a, b, activation="tanh"), "activation = 'tanh' is not known"),
        (lambda a, b: gemm.matmul(a.to("meta"), b.to("meta"), schedule="plain"), "a is on device meta"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(UsageError, match=text):
        call(draw(9, 24, grad="meta" not in text), draw(24, 16, grad="meta" not in text))


EIGHT = getattr(torch, "float8_e4m3fn", None)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a, b: gemm.matmul(a.to("meta"), b), "a is on device meta; move it to an AMD GPU"),
        (lambda a, b: gemm.matmul(a, b, bias=b[0].to("meta")), "bias is on device meta"),
        (lambda a, b: gemm.matmul(a, b, residual=b[0].to("meta")), "residual is on device meta"),
        (lambda a, b: gemm.int8_matmul(a.char().to("meta"), b.char()), "a is on device meta"),
        (lambda a, b: gemm.scaled_matmul(a.to(EIGHT), b.to(EIGHT), torch.ones(1).to("meta")), "scale_a is on device"),
        (lambda a, b: gemm.grouped_matmul(a, b[None], torch.tensor([9]).int().to("meta")), "offsets is on device"),
        (lambda a, b: gemm.matmul(torch.nested.nested_tensor([a, a]), b), "a is a nested tensor; pass a.to_padded"),
        (lambda a, b: gemm.matmul(a, b, precision=7), "precision = 7; pass ieee or xf32"),
        (lambda a, b: gemm.grouped_matmul(a, b[None], torch.tensor([9]).int(), precision=7), "precision = 7"),
        (lambda a, b: gemm.matmul(a, b, bias=b[0], bias_axis=7), "bias_axis = 7; pass column or row"),
        (lambda a, b: gemm.scaled_matmul(a.to(EIGHT), b.to(EIGHT), format_a=7), "format_a = 7; pass e4m3"),
        (lambda a, b: gemm.matmul(a, b, out=np.zeros((9, 16), np.float16)), "out is a numpy array; convert or move"),
    ],
)
def test_what_an_operator_would_take_or_refuse_in_its_own_terms(call, text):
    """A tensor on ``meta`` among others gave a result that nobody had computed."""
    with pytest.raises(UsageError, match=text):
        call(draw(9, 24), draw(24, 16))


def test_scaled_matmul_writes_bfloat16_by_default():
    out = gemm.scaled_matmul(draw(9, 32).to(EIGHT), draw(32, 16).to(EIGHT), out_dtype=None)
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_the_gradient_of_a_gradient(activation):
    """As a gradient penalty takes it; PyTorch's own operators in fp64 are the reference."""
    from amdwarp.kernels.gemm.torch_ops import activate

    found = []
    for dtype in (torch.float32, torch.float64):
        a = draw(3, 8, dtype=torch.float32, seed=1).to(dtype).requires_grad_()
        b = draw(8, 6, dtype=torch.float32, seed=2).to(dtype).requires_grad_()
        single = dtype == torch.float32
        out = gemm.matmul(a, b, activation=activation) if single else activate(a @ b, activation)
        (slope,) = torch.autograd.grad(out.sum(), a, create_graph=True)
        found.append(torch.autograd.grad((slope**2).sum(), (a, b)))
    for got, expected in zip(*found, strict=True):
        near(got, expected, 1e-5)


def test_the_gradient_of_a_gradient_of_groups():
    a, ends = draw(5, 8, dtype=torch.float32, seed=1, grad=True), torch.tensor([2, 5], dtype=torch.int32)
    b = draw(2, 8, 6, dtype=torch.float32, seed=2, grad=True)
    found = []
    for grouped in (True, False):
        if grouped:
            out = gemm.grouped_matmul(a, b, ends, activation="silu")
        else:
            out = torch.nn.functional.silu(torch.cat((a[:2] @ b[0], a[2:] @ b[1])))
        (slope,) = torch.autograd.grad(out.sum(), a, create_graph=True)
        found.append(torch.autograd.grad((slope**2).sum(), (a, b)))
    for got, expected in zip(*found, strict=True):
        near(got, expected, 1e-5)


@pytest.mark.parametrize(
    ("a", "b"),
    [((9, 24), (23, 16)), ((24,), (23,)), ((3, 9, 24), (2, 24, 16)), ((), (24, 16)), ((24, 16), ())],
)
def test_what_torch_refuses_is_refused(a, b):
    with pytest.raises(RuntimeError):
        torch.matmul(draw(*a), draw(*b))
    with pytest.raises(UsageError):
        gemm.matmul(draw(*a), draw(*b), schedule="plain")
    with pytest.raises((UsageError, RuntimeError)):
        gemm.matmul(draw(*a), draw(*b))


@pytest.mark.parametrize(
    ("a", "b"), [((0, 24), (24, 16)), ((9, 0), (0, 16)), ((9, 24), (24, 0)), ((0, 9, 24), (24, 16))]
)
def test_zero_extents_as_torch_has_them(a, b):
    x, y = draw(*a, grad=True), draw(*b, grad=True)
    out, expected = gemm.matmul(x, y), torch.matmul(x.detach().double(), y.detach().double())
    near(out, expected)
    out.sum().backward()
    assert x.grad.shape == x.shape and (y.grad == 0).all() == (x.numel() == 0 or not y.grad.any())
