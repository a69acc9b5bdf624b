"""Products of scaled narrow elements: `scaled_matmul` (fp8 and MX formats) and `int8_matmul`."""

from __future__ import annotations

from typing import Any

from amdwarp.target import Target

from .configs import GemmSchedule
from .dispatch import check_schedule, run_product
from .dtypes import BYTES, FORMAT_OF, FORMATS, FP8, refuse_foreign_fp8
from .forms import (
    Extras,
    broadcast,
    broadcast_shapes,
    by_operator,
    check_extents,
    check_word,
    epilogue_of,
    error,
    output,
    output_columns,
    read_bias,
    read_residual,
    refuse_gradients,
)
from .operands import Array, bytes_view, check_same_place, device_of, read
from .plain_config import PlainConfig
from .plain_problem import Operand, PlainProblem, Scale, folded
from .scale_forms import MX_SCALES, line_remedy, mx_formats, mx_scale, plain_scale


def scaled_matmul(
    a: Any,
    b: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    *,
    format_a: str | None = None,
    format_b: str | None = None,
    out: Any = None,
    bias: Any = None,
    bias_axis: str = "column",
    activation: str | None = None,
    residual: Any = None,
    beta: float = 1.0,
    scale: float = 1.0,
    out_dtype: Any = "bfloat16",
    schedule: str | GemmSchedule | PlainConfig | None = None,
    tune: bool = False,
) -> Any:
    """(scale_a * A) @ (scale_b * B) with fp32 accumulation and an epilogue. No gradient is recorded.

    The shape of a scale says what it scales: with A (M, K) and B (K, N),

    ====================  ==================================  =============================================
    what                  scale_a                             scale_b
    ====================  ==================================  =============================================
    whole tensor          () or (1,) or (1, 1)                the same
    row of A, column of B (M, 1)                              (1, N)
    128 along K           (M, ceil(K / 128))                  (ceil(K / 128), N)
    128x128 block         (ceil(M / 128), ceil(K / 128))      (ceil(K / 128), ceil(N / 128))
    MX, 32 along K        (M, K / 32), E8M0                   (K / 32, N), E8M0
    ====================  ==================================  =============================================

    Args:
        a: (…, M, K) fp8, FNUZ on gfx942 and OCP on gfx950 and gfx1250; or bytes that hold packed fp4 or fp6 elements:
            (M, K / 2) or (M, 3 K / 4), lowest bits first.
        b: (…, K, N) likewise, packed along K; batch dimensions broadcast. e4m3 and e5m2 may be mixed, and so may MX
            formats.
        scale_a, scale_b: fp32, or for MX ``uint8`` or ``float8_e8m0fnu`` bytes, in both or in neither; None is 1. The
            last two dimensions are those of the table, any before them broadcast to the batch.
        format_a, format_b: of bytes: ``e2m1`` (the default), ``e2m3`` or ``e3m2``, lowest bits first.
        out, bias, bias_axis, activation, residual, beta, scale: as for `matmul`.
        out_dtype: of the result.
        schedule: as for `matmul`.
        tune: as for `matmul`.

    Raises:
        UsageError: what cannot be computed, before anything is launched.
    """
    extras = Extras(scale, bias, bias_axis, activation, residual, beta, out_dtype)
    return _dispatch("scaled_matmul", a, b, scale_a, scale_b, (format_a, format_b), extras, out, schedule, tune)


def int8_matmul(
    a: Any,
    b: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    *,
    out: Any = None,
    bias: Any = None,
    bias_axis: str = "column",
    activation: str | None = None,
    residual: Any = None,
    beta: float = 1.0,
    scale: float = 1.0,
    out_dtype: Any = None,
    schedule: str | GemmSchedule | PlainConfig | None = None,
    tune: bool = False,
) -> Any:
    """A @ B of int8 with exact int32 sums, which wrap past 2**31; then scales and an epilogue in fp32.

    Args:
        a: (…, M, K) int8.
        b: (…, K, N) int8; batch dimensions broadcast.
        scale_a: fp32, one value, or (…, M, 1): one a row; None is 1.
        scale_b: fp32, one value, or (…, 1, N): one a column; None is 1.
        out, bias, bias_axis, activation, residual, beta, scale: as for `matmul`.
        out_dtype: ``int32`` (the default where nothing but the product is asked for), or a float type (``bfloat16`` by
            default otherwise).
        schedule: as for `scaled_matmul`.
        tune: as for `matmul`.

    Raises:
        UsageError: what cannot be computed, before anything is launched.
    """
    bare = scale_a is scale_b is bias is activation is residual is None and scale == 1.0
    chosen = out_dtype if out_dtype is not None else "int32" if bare else "bfloat16"
    extras = Extras(scale, bias, bias_axis, activation, residual, beta, chosen)
    return _dispatch("int8_matmul", a, b, scale_a, scale_b, (None, None), extras, out, schedule, tune)


def _dispatch(
    construct: str,
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    formats: tuple[Any, Any],
    extras: Extras,
    out: Any,
    schedule: Any,
    tune: bool,
) -> Any:
    scales = [one for one in (scale_a, scale_b) if one is not None]
    for name, given in zip(("format_a", "format_b"), formats, strict=True):
        if given is not None:
            check_word(construct, name, given, FORMATS)
    if by_operator(construct, (a, b, *scales, *extras.arrays.values()), out, schedule, tune):
        from . import torch_ops

        return torch_ops.quantised(construct, a, b, scale_a, scale_b, formats, extras)
    return quantised(construct, a, b, scale_a, scale_b, formats, extras, out=out, schedule=schedule, tune=tune)


def quantised(
    construct: str,
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    formats: tuple[Any, Any],
    extras: Extras,
    *,
    out: Any = None,
    schedule: Any = None,
    tune: bool = False,
) -> Any:
    """What `scaled_matmul` and `int8_matmul` do, without PyTorch's operator."""
    made = _scaled if construct == "scaled_matmul" else _int8
    return made(a, b, scale_a, scale_b, formats, extras, out, schedule, tune)


def _scaled(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    formats_given: tuple[Any, Any],
    extras: Extras,
    out: Any,
    schedule: Any,
    tune: bool,
) -> Any:
    construct = "scaled_matmul"
    left, right = read("a", a, construct), read("b", b, construct)
    target, compute_units = device_of(a, "a", construct)
    scales = {n: read(n, v, construct) for n, v in (("scale_a", scale_a), ("scale_b", scale_b)) if v is not None}
    mx = any(one.dtype in MX_SCALES for one in scales.values()) or left.dtype in BYTES or right.dtype in BYTES
    for name, one in (("a", left), ("b", right)):
        if one.ndim < 2:
            raise error(construct, f"{name} has {one.ndim} dimensions", "pass matrices, or stacks of them")
        if one.dtype not in FP8 and one.dtype not in FORMAT_OF:
            raise error(construct, f"{name} is {one.dtype}", f"pass {' or '.join(FP8)}, or bytes of an MX format")
        refuse_foreign_fp8(name, one.dtype, target.arch, construct)
    formats = ("", "")
    if mx:
        formats = mx_formats(construct, left, right, scales, formats_given, target)
    elif formats_given != (None, None):
        raise error(construct, "format_a and format_b are of MX products", "leave them out, or pass E8M0 scales")
    m, n = left.shape[-2], right.shape[-1]
    batch = broadcast_shapes(construct, left.shape[:-2], right.shape[:-2])
    k = _inner(construct, left, right, formats)
    made = {}
    for name, of, lines in (("scale_a", "a", m), ("scale_b", "b", n)):
        if name in scales:
            made[name] = (mx_scale if mx else plain_scale)(construct, scales[name], of, lines, k, batch)
    problem = _problem(construct, (left, right), batch, (m, n, k), formats, made, scales, extras, out, "float32")
    return _run(problem, schedule, target, compute_units, tune)


def _int8(
    a: Any, b: Any, scale_a: Any, scale_b: Any, _: tuple[Any, Any], extras: Extras, out: Any, schedule: Any, tune: bool
) -> Any:
    construct = "int8_matmul"
    left, right = read("a", a, construct), read("b", b, construct)
    target, compute_units = device_of(a, "a", construct)
    for name, one in (("a", left), ("b", right)):
        if one.ndim < 2:
            raise error(construct, f"{name} has {one.ndim} dimensions", "pass matrices, or stacks of them")
        if one.dtype != "int8":
            raise error(construct, f"{name} is {one.dtype}, not int8", f"quantise {name}, or call gemm.matmul")
    m, n = left.shape[-2], right.shape[-1]
    batch = broadcast_shapes(construct, left.shape[:-2], right.shape[:-2])
    k = _inner(construct, left, right, ("", ""))
    scales = {n: read(n, v, construct) for n, v in (("scale_a", scale_a), ("scale_b", scale_b)) if v is not None}
    made = {}
    for name, of, lines in (("scale_a", "a", m), ("scale_b", "b", n)):
        if name in scales:
            made[name] = plain_scale(construct, scales[name], of, lines, k, batch)
            if made[name].kind == "block":
                raise error(construct, f"{name} is {scales[name].describe()}", line_remedy(of, lines))
    if scales and epilogue_of(construct, extras, "bfloat16").out == "int32":
        raise error(construct, "out_dtype = int32 with scales", "pass a float out_dtype, or no scales")
    problem = _problem(construct, (left, right), batch, (m, n, k), ("", ""), made, scales, extras, out, "int32")
    return _run(problem, schedule, target, compute_units, tune)


def _run(problem: PlainProblem, schedule: Any, target: Target, compute_units: int, tune: bool) -> Any:
    check_schedule(problem.construct, schedule, target)
    if problem.out.size:
        run_product(problem, schedule, target, compute_units, tune)
    return problem.result


def _problem(
    construct: str,
    operands: tuple[Array, Array],
    batch: tuple[int, ...],
    extents: tuple[int, int, int],
    formats: tuple[str, str],
    made: dict[str, Scale],
    scales: dict[str, Array],
    extras: Extras,
    out: Any,
    accumulator: str,
) -> PlainProblem:
    left, right = operands
    m, columns, k = extents
    read_extras = [read(name, value, construct) for name, value in extras.arrays.items()]
    inputs = [left, right, *scales.values(), *read_extras]
    check_same_place(inputs, construct)
    refuse_gradients(construct, inputs, "quantised products have none")
    check_extents(construct, M=m, N=columns, K=k)
    epilogue = epilogue_of(construct, extras, "bfloat16")
    if epilogue.out == "int32" and accumulator != "int32":
        raise error(construct, "out_dtype = int32 of a float product", "pass a float out_dtype")
    n = output_columns(construct, epilogue, columns)
    bias = read_bias(construct, extras, m, columns)
    residual = read_residual(construct, extras, (*batch, m, n))
    found = output(construct, out, (*batch, m, n), epilogue.out, inputs)
    steps = [broadcast(one.reshaped(one.shape[:-2], one.strides[:-2]), batch) for one in operands]
    assert steps[0] is not None and steps[1] is not None
    problem = PlainProblem(
        construct,
        m,
        n,
        k,
        Operand(_bytes(left, formats[0]), *_steps(left, -2), steps[0].strides, format=formats[0]),
        Operand(_bytes(right, formats[1]), *_steps(right, -1), steps[1].strides, format=formats[1]),
        found,
        epilogue,
        batch=batch,
        out_batch=found.strides[:-2],
        out_line=found.strides[-2],
        out_column=found.strides[-1],
        alpha=float(extras.scale),
        beta=float(extras.beta),
        bias=bias,
        bias_step=bias.strides[0] if bias is not None else 0,
        residual=residual,
        residual_batch=residual.strides[:-2] if residual is not None else (),
        residual_line=residual.strides[-2] if residual is not None else 0,
        residual_column=residual.strides[-1] if residual is not None else 0,
        scale_a=made.get("scale_a"),
        scale_b=made.get("scale_b"),
        accumulator=accumulator,
    )
    return folded(problem)


def _steps(array: Array, line_axis: int) -> tuple[int, int]:
    """Steps along rows of A (columns of B) and along K; one that is never taken keeps the other contiguous."""
    k_axis = -3 - line_axis
    line, k = array.strides[line_axis], array.strides[k_axis]
    if array.shape[line_axis] <= 1:
        line = 16 if k == 1 else 1
    if array.shape[k_axis] <= 1:
        k = 16 if line == 1 else 1
    return line, k


def _bytes(array: Array, format: str) -> Array:
    """Packed elements as bytes, under a dtype that Triton has a name for."""
    if not format or array.dtype in ("uint8", "float8_e4m3fn", "float8_e5m2"):
        return array
    return Array(array.name, bytes_view(array.value), "uint8", array.shape, array.strides, array.address, 1)


def _inner(construct: str, a: Array, b: Array, formats: tuple[str, str]) -> int:
    """K of both operands, in elements."""
    ks = []
    for one, axis, name in ((a, -1, formats[0]), (b, -2, formats[1])):
        stored = one.shape[axis]
        if name in FORMATS and stored * FORMATS[name].denominator % FORMATS[name].numerator:
            raise error(construct, f"{one.name} has {stored} bytes along K", f"{name} packs 4 elements in 3 bytes")
        ks.append(FORMATS[name].elements(stored) if name else stored)
    if ks[0] != ks[1]:
        raise error(
            construct,
            f"a is {a.shape[-2]}x{ks[0]} and b is {ks[1]}x{b.shape[-1]}: the inner extents differ",
            "transpose one of them, or pass format_a and format_b",
        )
    return ks[0]
