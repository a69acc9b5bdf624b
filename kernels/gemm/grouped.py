"""Ragged groups: `grouped_matmul`, as mixtures of experts need it. No host learns how long the groups are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .dense import _check_dtypes, _check_precision, _step
from .dispatch import check_schedule, run_product
from .dtypes import FP8, PRECISIONS, refuse_foreign_fp8
from .forms import (
    Extras,
    by_operator,
    check_extents,
    epilogue_of,
    error,
    output,
    output_columns,
    read_bias,
    refuse_gradients,
)
from .operands import Array, check_same_place, device_of, place_of, read
from .plain_config import BLOCK_K, PlainConfig
from .plain_problem import Operand, PlainProblem
from .scale_forms import plain_scale


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    out: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
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
        a, b: fp16, bf16 or fp32, of any strides that are not negative; in the first form fp8 too, without gradients.
        offsets: (G,) int32: the end of each group, ascending, as ``torch.nn.functional.grouped_mm`` takes ``offs``.
        scale_a: of fp8: fp32, one value, (T, 1): one a row, (T, ceil(K / 128)): one every 128 along K, or None.
        scale_b: of fp8: fp32, one value, (G, 1, 1): one a matrix, (G, 1, N): one a column, (G, ceil(K / 128), N) or
            (G, ceil(K / 128), ceil(N / 128)): one a 128x128 block, or None.
        bias: (G, N), the first form only; fp16, bf16 or fp32.
        out, activation, scale, out_dtype, precision: as for `matmul`; the first form only for activation. fp8 operands
            give bf16 by default.
        schedule: ``plain``, a `PlainConfig` without parts along K, or None for the choice of the shape.

    Raises:
        UsageError: what cannot be computed, before anything is launched; on the CPU, offsets that are no ends, too.
    """
    extras = Extras(scale, bias, "column", activation, None, 1.0, out_dtype)
    scales = {name: one for name, one in (("scale_a", scale_a), ("scale_b", scale_b)) if one is not None}
    if by_operator("grouped_matmul", (a, b, offsets, *scales.values(), *extras.arrays.values()), out, schedule):
        from . import torch_grouped

        return torch_grouped.grouped(a, b, offsets, scales, extras, precision)
    return grouped(a, b, offsets, extras, scales, out=out, precision=precision, schedule=schedule)


def grouped(
    a: Any,
    b: Any,
    offsets: Any,
    extras: Extras,
    scales: Mapping[str, Any],
    *,
    out: Any = None,
    precision: str = "ieee",
    schedule: Any = None,
) -> Any:
    """What `grouped_matmul` does, without gradients."""
    construct = "grouped_matmul"
    left, right, ends = (read(name, value, construct) for name, value in (("a", a), ("b", b), ("offsets", offsets)))
    factors = {name: read(name, value, construct) for name, value in scales.items()}
    further = [*factors.values(), *(read(name, value, construct) for name, value in extras.arrays.items())]
    arrays = [left, right, ends, *further]
    check_same_place(arrays, construct)
    if left.ndim != 2 or right.ndim not in (2, 3):
        raise error(
            construct,
            f"a has {left.ndim} dimensions and b {right.ndim}",
            "pass (T, K) and (G, K, N), or (M, T) and (T, N)",
        )
    if ends.dtype != "int32" or ends.ndim != 1 or (ends.size > 1 and ends.strides != (1,)):
        raise error(construct, f"offsets is {ends.describe()}", "pass a contiguous (G,) array of int32")
    target, compute_units = device_of(a, "a", construct)
    by_rows = right.ndim == 3
    if left.dtype in FP8 and by_rows:
        _check_fp8(construct, arrays, target.arch, precision)
        extras = extras if extras.out_dtype is not None else replace(extras, out_dtype="bfloat16")
    else:
        _check_dtypes(construct, left, right)
        _check_precision(construct, precision, left.dtype, target)
        if factors:
            remedy = "pass fp8 operands in groups of rows, or no scales"
            raise error(construct, f"{next(iter(factors))} of {left.dtype} operands", remedy)
    limit = left.shape[0] if by_rows else left.shape[1]
    _check_offsets(construct, ends, limit)
    if by_rows:
        problem = _by_rows(construct, left, right, ends, extras, out, arrays, precision)
        problem = _with_scales(construct, problem, factors)
    else:
        problem = _by_k(construct, left, right, ends, extras, out, arrays, precision)
    check_schedule(construct, schedule, target)
    if schedule not in (None, "auto", "plain") and not isinstance(schedule, PlainConfig):
        raise error(construct, f"there is no schedule {schedule!r} of it", "take plain, a PlainConfig, or None")
    if problem.out.size:
        run_product(problem, schedule, target, compute_units)
    return problem.result


def _check_fp8(construct: str, arrays: list[Array], arch: str, precision: str) -> None:
    """Refuse operands that fp8 ones do not go with, and gradients."""
    for one in arrays[:2]:
        if one.dtype not in FP8:
            raise error(construct, f"a is {arrays[0].dtype} and b is {arrays[1].dtype}", "convert one of them")
        refuse_foreign_fp8(one.name, one.dtype, arch, construct)
    if precision != "ieee":
        raise error(construct, f"precision = {precision!r} with fp8 operands", "pass ieee")
    refuse_gradients(construct, arrays, "quantised products have none")


def _with_scales(construct: str, problem: PlainProblem, factors: Mapping[str, Array]) -> PlainProblem:
    """A product of groups of rows, with the scales of rows and of each group's matrix."""
    if "scale_a" in factors:
        found = plain_scale(construct, factors["scale_a"], "a", problem.m, problem.k)
        if found.block != 1:
            shapes = f"(), ({problem.m}, 1), ({problem.m}, {-(-problem.k // BLOCK_K)})"
            text = f"scale_a is {factors['scale_a'].describe()}, in which blocks cross groups"
            raise error(construct, text, f"pass one of the shapes {shapes}")
        problem = replace(problem, scale_a=found)
    if "scale_b" in factors:
        columns = problem.n * (2 if problem.epilogue.gated else 1)
        found = plain_scale(construct, factors["scale_b"], "b", columns, problem.k, (problem.group_count,))
        problem = replace(problem, scale_b=replace(found, batch=(), group=found.batch[0] if found.batch else 0))
    return problem


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
