"""Ragged groups: `grouped_matmul`, as mixtures of experts need it. No host learns how long the groups are."""

from __future__ import annotations

from typing import Any

from .dense import PRECISIONS, _check_dtypes, _check_precision, _step
from .dispatch import check_schedule, run_product
from .forms import Extras, by_operator, check_extents, epilogue_of, error, output, output_columns, read_bias
from .operands import Array, check_same_place, device_of, place_of, read
from .plain_config import PlainConfig
from .plain_problem import Operand, PlainProblem


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: str | None = None,
    scale: float = 1.0,
    out_dtype: Any = None,
    precision: str = "ieee",
    schedule: str | PlainConfig | None = None,
) -> Any:
    """A product for each group of rows, or of K; groups are given by where they end.

    * a (T, K), b (G, K, N): rows ``offsets[g - 1]`` to ``offsets[g]`` of a times ``b[g]``, into (T, N). Rows behind the
      last offset become zero. The forward and the gradient of a mixture of experts.
    * a (M, T), b (T, N): ``a[:, group] @ b[group]`` into (G, M, N). The gradient of the experts' weights.

    On a GPU the offsets are read by the kernel alone: nothing waits for them, and a graph may replay with others. A
    kernel takes offsets that are out of range or not ascending as the nearest ones that are.

    Args:
        a, b: fp16, bf16 or fp32, of any strides that are not negative.
        offsets: (G,) int32: the end of each group, ascending, as ``torch.nn.functional.grouped_mm`` takes ``offs``.
        bias: (G, N), the first form only; fp16, bf16 or fp32.
        out, activation, scale, out_dtype, precision: as for `matmul`; the first form only for activation.
        schedule: ``plain``, a `PlainConfig` without parts along K, or None for the choice of the shape.

    Raises:
        UsageError: what cannot be computed, before anything is launched; on the CPU, offsets that are no ends, too.
    """
    extras = Extras(scale, bias, "column", activation, None, 1.0, out_dtype)
    if by_operator("grouped_matmul", (a, b, offsets, *extras.arrays.values()), out, schedule):
        from . import torch_ops

        return torch_ops.grouped(a, b, offsets, extras, precision)
    return grouped(a, b, offsets, extras, out=out, precision=precision, schedule=schedule)


def grouped(
    a: Any, b: Any, offsets: Any, extras: Extras, *, out: Any = None, precision: str = "ieee", schedule: Any = None
) -> Any:
    """What `grouped_matmul` does, without gradients."""
    construct = "grouped_matmul"
    left, right, ends = (read(name, value, construct) for name, value in (("a", a), ("b", b), ("offsets", offsets)))
    arrays = [left, right, ends, *([read("bias", extras.bias, construct)] if extras.bias is not None else [])]
    check_same_place(arrays, construct)
    _check_dtypes(construct, left, right)
    if left.ndim != 2 or right.ndim not in (2, 3):
        raise error(
            construct,
            f"a has {left.ndim} dimensions and b {right.ndim}",
            "pass (T, K) and (G, K, N), or (M, T) and (T, N)",
        )
    if ends.dtype != "int32" or ends.ndim != 1 or (ends.size > 1 and ends.strides != (1,)):
        raise error(construct, f"offsets is {ends.describe()}", "pass a contiguous (G,) array of int32")
    target, compute_units = device_of(a, "a", construct)
    _check_precision(construct, precision, left.dtype, target)
    by_rows = right.ndim == 3
    limit = left.shape[0] if by_rows else left.shape[1]
    _check_offsets(construct, ends, limit)
    problem = (_by_rows if by_rows else _by_k)(construct, left, right, ends, extras, out, arrays, precision)
    check_schedule(construct, schedule)
    if schedule not in (None, "auto", "plain") and not isinstance(schedule, PlainConfig):
        raise error(construct, f"there is no schedule {schedule!r} of it", "take plain, a PlainConfig, or None")
    if problem.out.size:
        run_product(problem, schedule, target, compute_units)
    return problem.result


def _check_offsets(construct: str, ends: Array, limit: int) -> None:
    """Check what the CPU can see."""
    if place_of(ends.value) != "cpu":
        return
    previous = 0
    for at, end in enumerate(ends.value.tolist()):
        if not previous <= end <= limit:
            raise error(
                construct, f"offsets[{at}] = {end}", f"pass ascending ends of groups, {previous} to {limit} here"
            )
        previous = end


def _by_rows(
    construct: str, a: Array, b: Array, ends: Array, extras: Extras, out: Any, inputs: list[Array], precision: str
) -> PlainProblem:
    (m, k), (groups, inner, columns) = a.shape, b.shape
    if inner != k:
        raise error(construct, f"a is {m}x{k} and each b is {inner}x{columns}: the inner extents differ", "transpose b")
    if groups != ends.size:
        raise error(construct, f"b holds {groups} matrices and offsets {ends.size} ends", "pass one end a matrix")
    if not groups:
        raise error(construct, "b holds no matrix", "pass at least one group")
    check_extents(construct, M=m, N=columns, K=k)
    epilogue = epilogue_of(construct, extras, a.dtype)
    n = output_columns(construct, epilogue, columns)
    bias = read_bias(construct, extras, m, columns, groups)
    found = output(construct, out, (m, n), epilogue.out, inputs)
    return PlainProblem(
        construct,
        m,
        n,
        k,
        Operand(a, _step(a, -2), _step(a, -1)),
        Operand(b, _step(b, -1), _step(b, -2)),
        found,
        epilogue,
        out_line=found.strides[0],
        out_column=found.strides[1],
        alpha=float(extras.scale),
        bias=bias,
        bias_step=bias.strides[1] if bias is not None else 0,
        bias_group=bias.strides[0] if bias is not None else 0,
        precision=PRECISIONS[precision],
        groups="rows",
        offsets=ends,
        group_count=groups,
        b_group=b.strides[0],
    )


def _by_k(
    construct: str, a: Array, b: Array, ends: Array, extras: Extras, out: Any, inputs: list[Array], precision: str
) -> PlainProblem:
    (m, k), (inner, columns) = a.shape, b.shape
    if inner != k:
        raise error(
            construct, f"a is {m}x{k} and b is {inner}x{columns}: the inner extents differ", "transpose one of them"
        )
    if extras.bias is not None or extras.activation is not None:
        raise error(construct, "bias and activation are of groups of rows", "pass b of three dimensions, or neither")
    groups = ends.size
    check_extents(construct, M=m, N=columns, K=k)
    epilogue = epilogue_of(construct, extras, a.dtype)
    found = output(construct, out, (groups, m, columns), epilogue.out, inputs)
    return PlainProblem(
        construct,
        m,
        columns,
        k,
        Operand(a, _step(a, -2), _step(a, -1), (0,)),
        Operand(b, _step(b, -1), _step(b, -2), (0,)),
        found,
        epilogue,
        batch=(groups,),
        out_batch=(found.strides[0],),
        residual_batch=(0,),
        out_line=_step(found, -2),
        out_column=_step(found, -1),
        alpha=float(extras.scale),
        precision=PRECISIONS[precision],
        groups="k",
        offsets=ends,
        group_count=groups,
    )
