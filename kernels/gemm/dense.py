"""Products of floats: `matmul`, `batched_matmul` and `linear`."""

from __future__ import annotations

from typing import Any

from amdwarp.target import Target

from .configs import GemmSchedule
from .dispatch import check_schedule, run_product
from .dtypes import BYTES, FLOATS, FP8, PRECISIONS, XF32_TARGETS
from .epilogue import Epilogue
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
from .operands import Array, check_same_place, device_of, rank, read
from .plain_config import PlainConfig
from .plain_problem import Operand, PlainProblem, folded
from .preshuffle import ShuffledWeight


def product(
    construct: str,
    a: Any,
    b: Any,
    extras: Extras,
    *,
    out: Any = None,
    precision: str = "ieee",
    schedule: Any = None,
    tune: bool = False,
) -> Any:
    """A @ B by ``torch.matmul``'s rules of shapes, with an epilogue; what the public functions share.

    Args:
        construct: the public function, for errors.
        a, b: tensors or arrays of one or more dimensions; b may be a `ShuffledWeight`, taken as (K, N).
        extras: the epilogue.
        out: the output, or None for a new one.
        precision: of fp32 operands: ``ieee``, or ``xf32`` on gfx942.
        schedule: None, a name, a `GemmSchedule` or a `PlainConfig`.
        tune: try configurations first, and keep the best.
    """
    names = ("x", "w") if construct == "linear" else ("a", "b")
    left = read(names[0], a, construct)
    right = _weight(names[1], b, construct) if isinstance(b, ShuffledWeight) else read(names[1], b, construct)
    inputs = [left, right, *(read(name, value, construct) for name, value in extras.arrays.items())]
    check_same_place(inputs, construct)
    if isinstance(b, ShuffledWeight):
        refuse_gradients(construct, inputs, "a shuffled weight has none")
    _check_dtypes(construct, left, right)
    target, compute_units = device_of(a, names[0], construct)
    check_schedule(construct, schedule, target)
    _check_precision(construct, precision, left.dtype, target)
    epilogue = epilogue_of(construct, extras, left.dtype)
    left2, right2, dropped = _promoted(construct, left, right)
    (m, k), columns = left2.shape[-2:], right2.shape[-1]
    if right2.shape[-2] != k:
        raise error(
            construct,
            f"{left.name} is {_by(left2.shape[-2:])} and {right.name} is "
            f"{_by(right2.shape[-2:][:: -1 if right.name == 'w' else 1])}: the inner extents differ",
            "pass an (N, K) weight" if right.name == "w" else "transpose one of them",
        )
    n = output_columns(construct, epilogue, columns)
    check_extents(construct, M=m, N=columns, K=k)
    batch = broadcast_shapes(construct, left2.shape[:-2], right2.shape[:-2])
    full = (*batch, m, n)
    shape = (*batch, *(() if "a" in dropped else (m,)), *(() if "b" in dropped else (n,)))
    bias = read_bias(construct, extras, m, columns)
    residual = read_residual(construct, extras, shape)
    found = output(construct, out, shape, epilogue.out, inputs)
    result = found.value
    matrix = _undropped(found, full, dropped)
    old = _undropped(residual, full, dropped) if residual is not None else None
    problem = _problem(construct, left2, right2, b, matrix, old, bias, batch, (m, n, k), extras, epilogue, precision)
    if not matrix.size:
        return result
    run_product(problem, schedule, target, compute_units, tune)
    return result


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _weight(name: str, weight: ShuffledWeight, construct: str) -> Array:
    """A preshuffled weight as a (K, N) array; its steps are those of bands and pieces."""
    array = read(name, weight.data, construct)
    needed = -(-weight.n // 16) * weight.row_stride
    if array.ndim != 1 or array.size != needed or (array.size > 1 and array.strides != (1,)):
        raise error(
            construct, f"{name} holds {array.describe()} for {weight.n}x{weight.k}", "pass what shuffle_weight gave"
        )
    return array.reshaped((weight.k, weight.n), (1, weight.row_stride))


def _check_dtypes(construct: str, a: Array, b: Array) -> None:
    if a.dtype != b.dtype:
        raise error(construct, f"{a.name} is {a.dtype} and {b.name} is {b.dtype}", "convert one of them")
    if a.dtype not in FLOATS:
        other = "int8_matmul" if a.dtype == "int8" else "scaled_matmul" if a.dtype in (*FP8, *BYTES) else ""
        hint = f" or call gemm.{other}" if other else ""
        raise error(construct, f"dtype {a.dtype} is not supported", f"convert to {' or '.join(FLOATS)}{hint}")


def _check_precision(construct: str, precision: str, dtype: str, target: Target) -> None:
    check_word(construct, "precision", precision, PRECISIONS)
    if precision == "xf32" and target.arch not in XF32_TARGETS:
        raise error(construct, f"precision = 'xf32', and {target.arch} has no xf32", "pass ieee, or run on gfx942")
    if precision == "xf32" and dtype != "float32":
        raise error(construct, f"precision = 'xf32' with {dtype} operands", "pass fp32 operands, or precision='ieee'")


def _promoted(construct: str, a: Array, b: Array) -> tuple[Array, Array, set[str]]:
    """Operands of two dimensions at least, and which of them had one."""
    dropped = set()
    for one in (a, b):
        if one.ndim < 1:
            raise error(construct, f"{one.name} is a scalar", "pass arrays of one dimension or more")
    if a.ndim == 1:
        dropped.add("a")
        a = a.reshaped((1, *a.shape), (0, *a.strides))
    if b.ndim == 1:
        dropped.add("b")
        b = b.reshaped((*b.shape, 1), (*b.strides, 0))
    return a, b, dropped


def _undropped(array: Array, full: tuple[int, ...], dropped: set[str]) -> Array:
    """An output-shaped array with the dimensions of vectors put back."""
    strides = list(array.strides)
    if "a" in dropped:
        strides.insert(len(full) - 2, 0)
    if "b" in dropped:
        strides.append(0)
    return array.reshaped(full, tuple(strides))


def _problem(
    construct: str,
    a: Array,
    b: Array,
    weight: Any,
    out: Array,
    residual: Array | None,
    bias: Array | None,
    batch: tuple[int, ...],
    extents: tuple[int, int, int],
    extras: Extras,
    epilogue: Epilogue,
    precision: str,
) -> PlainProblem:
    m, n, k = extents
    wide_a = broadcast(a, (*batch, *a.shape[-2:]))
    wide_b = broadcast(b, (*batch, *b.shape[-2:]))
    assert wide_a is not None and wide_b is not None
    shuffle = weight.vector if isinstance(weight, ShuffledWeight) else 0
    if shuffle and epilogue.gated and n % 16:
        raise error(construct, f"swiglu of a shuffled weight with {2 * n} rows", "pass a multiple of 32, or no shuffle")
    problem = PlainProblem(
        construct,
        m,
        n,
        k,
        Operand(a, _step(a, -2), _step(a, -1), wide_a.strides[:-2]),
        Operand(b, b.strides[-1] if shuffle else _step(b, -1), _step(b, -2), wide_b.strides[:-2], shuffle=shuffle),
        out,
        epilogue,
        batch=batch,
        out_batch=out.strides[:-2],
        out_line=_step(out, -2),
        out_column=_step(out, -1),
        alpha=float(extras.scale),
        beta=float(extras.beta),
        bias=bias,
        bias_step=bias.strides[0] if bias is not None else 0,
        residual=residual,
        residual_batch=residual.strides[:-2] if residual is not None else (),
        residual_line=residual.strides[-2] if residual is not None else 0,
        residual_column=residual.strides[-1] if residual is not None else 0,
        precision=PRECISIONS[precision],
    )
    return folded(problem)


def _step(array: Array, axis: int) -> int:
    """A step of a matrix; where its extent is 1 it is never taken, and keeps the other one contiguous."""
    if array.shape[axis] > 1:
        return array.strides[axis]
    other = array.strides[-3 - axis] if axis in (-1, -2) else 0
    return 1 if axis == -1 and other != 1 else max(16, array.shape[-3 - axis])


# ---- public functions


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    bias_axis: str = "column",
    activation: str | None = None,
    residual: Any = None,
    beta: float = 1.0,
    scale: float = 1.0,
    out_dtype: Any = None,
    precision: str = "ieee",
    schedule: str | GemmSchedule | PlainConfig | None = None,
    tune: bool = False,
) -> Any:
    """A @ B with fp32 accumulation, an epilogue, and one rounding, by the shape rules of ``torch.matmul``.

    ``out = activation(scale * (a @ b) + bias) + beta * residual``. Gradients are recorded for torch tensors.

    Args:
        a: (…, M, K) or (K,), fp16, bf16 or fp32, of any strides that are not negative. A torch tensor or a numpy array
            (bf16 as ``ml_dtypes.bfloat16``).
        b: (…, K, N) or (K,) of the same kind and dtype; batch dimensions broadcast. Or a `ShuffledWeight`.
        out: the result's array, written and returned; a new one if None. It may not lie over an input.
        bias: (N,), or (M,) with ``bias_axis="row"``; fp16, bf16 or fp32.
        bias_axis: ``column`` or ``row``.
        activation: ``relu``, ``gelu`` (``gelu_erf``), ``gelu_tanh``, ``silu``, or ``swiglu``, which takes the first
            half of the product's columns as the gate of the second.
        residual: fp16, bf16 or fp32, broadcast to the result.
        beta, scale: factors of the residual and of the product.
        out_dtype: of the result; that of the operands if None. fp8 saturates.
        precision: of fp32 operands: ``ieee``, or ``xf32`` (10 bits of fraction) on gfx942.
        schedule: a name in ``SCHEDULES``, ``inter_wave``, ``plain``, a `GemmSchedule`, a `PlainConfig`, or None or
            ``auto`` for the choice of the shape, which takes the plain family where no scheduled kernel can compute
            the product. One that is named and cannot is refused.
        tune: where the choice is free and nothing is kept for products of this class, try the scheduled kernels that
            can compute it and plain configurations (on the GPU; in the cycle model inside `amdwarp.emulate`), run the
            best, and keep it for later calls. No gradient is recorded.

    Raises:
        UsageError: what cannot be computed, before anything is launched.
        UnsupportedTritonError: no Triton, or one of a version this package was not tried with.
    """
    extras = Extras(scale, bias, bias_axis, activation, residual, beta, out_dtype)
    return _dispatch("matmul", a, b, extras, out, precision, schedule, tune)


def batched_matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    beta: float = 1.0,
    scale: float = 1.0,
    out_dtype: Any = None,
    precision: str = "ieee",
    schedule: str | GemmSchedule | PlainConfig | None = None,
    tune: bool = False,
) -> Any:
    """Products of two stacks of matrices, (B, M, K) @ (B, K, N); see `matmul` for the arguments.

    A stack of one matrix is used with every matrix of the other, without a copy, as is one broadcast by a step of 0.

    Raises:
        UsageError: operands that are no stacks, or what `matmul` refuses.
    """
    for name, value in (("a", a), ("b", b)):
        if (dimensions := rank(name, value, "batched_matmul")) != 3:
            raise error("batched_matmul", f"{name} has {dimensions} dimensions, not 3", "reshape it")
    extras = Extras(scale, bias, "column", activation, residual, beta, out_dtype)
    return _dispatch("batched_matmul", a, b, extras, out, precision, schedule, tune)


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    activation: str | None = None,
    *,
    out: Any = None,
    residual: Any = None,
    beta: float = 1.0,
    scale: float = 1.0,
    out_dtype: Any = None,
    precision: str = "ieee",
    schedule: str | GemmSchedule | PlainConfig | None = None,
    tune: bool = False,
) -> Any:
    """``activation(x @ w.T + bias)``, as ``torch.nn.functional.linear``; see `matmul` for the arguments.

    Args:
        x: (…, K).
        w: (N, K), or a `ShuffledWeight`.
        bias: (N,) or None.

    Raises:
        UsageError: a weight that is no matrix, or what `matmul` refuses.
    """
    if not isinstance(w, ShuffledWeight):
        if (dimensions := rank("w", w, "linear")) != 2:
            raise error("linear", f"w has {dimensions} dimensions, not 2", "pass an (N, K) weight")
        w = w.T
    extras = Extras(scale, bias, "column", activation, residual, beta, out_dtype)
    return _dispatch("linear", x, w, extras, out, precision, schedule, tune)


def _dispatch(
    construct: str, a: Any, b: Any, extras: Extras, out: Any, precision: str, schedule: Any, tune: bool
) -> Any:
    if by_operator(construct, (a, b, *extras.arrays.values()), out, schedule, tune):
        from . import torch_ops

        return torch_ops.product(construct, a, b, extras, precision)
    return product(construct, a, b, extras, out=out, precision=precision, schedule=schedule, tune=tune)


__all__ = ["batched_matmul", "linear", "matmul", "product"]
