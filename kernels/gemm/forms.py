"""Argument checks that the GEMM's functions share: shapes, dtypes, epilogues, outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amdwarp.errors import UsageError

from .dtypes import FLOATS, dtype_name
from .epilogue import Epilogue, activation_name
from .operands import Array, check_apart, check_out, check_same_place, empty, read
from .plain_config import EXTENT_LIMIT

FP32_MAX = 3.4028234663852886e38


@dataclass(frozen=True)
class Extras:
    """What a call asks of the epilogue, as it was passed.

    Attributes:
        scale: factor of the product, before the bias.
        bias: values a column (or a row with ``bias_axis="row"``) of the product.
        bias_axis: ``column`` or ``row``.
        activation: a name in ``ACTIVATIONS`` or a synonym.
        residual: a matrix that broadcasts to the output, added times ``beta``.
        beta: factor of the residual.
        out_dtype: of the result; None for that of the operands.
    """

    scale: float = 1.0
    bias: Any = None
    bias_axis: str = "column"
    activation: str | None = None
    residual: Any = None
    beta: float = 1.0
    out_dtype: Any = None

    @property
    def arrays(self) -> dict[str, Any]:
        """Arguments that are arrays, by name."""
        return {name: value for name, value in (("bias", self.bias), ("residual", self.residual)) if value is not None}


def error(construct: str, problem: str, remedy: str) -> UsageError:
    """A `UsageError` of one of the public functions."""
    return UsageError(problem, remedy=remedy, construct=construct)


def scalar(construct: str, name: str, value: Any) -> float:
    """A finite or infinite float argument.

    Raises:
        UsageError: anything that is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise error(
            construct, f"{name} = {value!r} is a {type(value).__name__}, not a number", f"pass a float as {name}"
        )
    if isinstance(value, float) and math.isnan(value):
        raise error(construct, f"{name} is NaN", f"pass a number as {name}")
    if abs(value) > FP32_MAX and not (isinstance(value, float) and math.isinf(value)):
        raise error(construct, f"{name} exceeds {FP32_MAX:.4g}, the largest fp32 number", f"pass a smaller {name}")
    return float(value)


def check_word(construct: str, name: str, value: Any, words: Iterable[str]) -> None:
    """Refuse what is none of some words; a torch operator would say so in its own terms."""
    if not isinstance(value, str) or value not in words:
        raise error(construct, f"{name} = {value!r}", f"pass {' or '.join(words)}")


def epilogue_of(construct: str, extras: Extras, default: str) -> Epilogue:
    """The epilogue that a call asks for.

    Raises:
        UsageError: an unknown activation or dtype, or a scalar that is none.
    """
    out = default if extras.out_dtype is None else dtype_name(extras.out_dtype, construct)
    check_word(construct, "bias_axis", extras.bias_axis, ("column", "row"))
    scalar(construct, "beta", extras.beta)
    made = Epilogue(
        out=out,
        scaled=scalar(construct, "scale", extras.scale) != 1.0,
        bias=extras.bias_axis if extras.bias is not None else None,
        activation=activation_name(extras.activation, construct),
        residual=extras.residual is not None,
    )
    if wrong := made.constraints():
        raise error(construct, wrong[0], "change out_dtype or the epilogue")
    return made


def output_columns(construct: str, epilogue: Epilogue, columns: int) -> int:
    """Columns of the output of a product: half of them with ``swiglu``.

    Raises:
        UsageError: an odd number to halve.
    """
    if not epilogue.gated:
        return columns
    if columns % 2:
        raise error(construct, f"b has {columns} columns, and swiglu halves them", "pass an even number of columns")
    return columns // 2


def read_bias(construct: str, extras: Extras, rows: int, columns: int, groups: int | None = None) -> Array | None:
    """The bias, one value a column (or row) of the product; with groups one such line each.

    Raises:
        UsageError: another shape or dtype.
    """
    if extras.bias is None:
        return None
    array = read("bias", extras.bias, construct)
    length = columns if extras.bias_axis == "column" else rows
    shape = (length,) if groups is None else (groups, length)
    if array.shape != shape:
        of = "column of the product" if extras.bias_axis == "column" else "row"
        want = "x".join(map(str, shape))
        raise error(construct, f"bias is {array.describe()}", f"pass {want} values, one a {of}")
    check_float(construct, array)
    return array


def read_residual(construct: str, extras: Extras, shape: tuple[int, ...]) -> Array | None:
    """The residual, broadcast to the output's shape by steps of 0.

    Raises:
        UsageError: a shape that does not broadcast, or another dtype.
    """
    if extras.residual is None:
        return None
    array = read("residual", extras.residual, construct)
    check_float(construct, array)
    found = broadcast(array, shape)
    if found is None:
        want = "x".join(map(str, shape)) or "a scalar"
        raise error(
            construct, f"residual is {array.describe()}, the result is {want}", "pass one that broadcasts to it"
        )
    return found


def check_float(construct: str, array: Array) -> None:
    """Refuse what is no fp16, bf16 or fp32."""
    if array.dtype not in FLOATS:
        raise error(construct, f"{array.name} is {array.dtype}", f"convert it to one of {', '.join(FLOATS)}")


def broadcast(array: Array, shape: tuple[int, ...]) -> Array | None:
    """An array seen with another shape by numpy's rules; None if it does not broadcast to it."""
    missing = len(shape) - array.ndim
    if missing < 0:
        return None
    old = (1,) * missing + array.shape
    steps = (0,) * missing + array.strides
    if any(mine not in (1, wanted) for mine, wanted in zip(old, shape, strict=True)):
        return None
    strides = tuple(0 if mine == 1 else step for mine, step in zip(old, steps, strict=True))
    return array.reshaped(shape, strides)


def broadcast_shapes(construct: str, a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Batch dimensions of a product.

    Raises:
        UsageError: extents that do not broadcast.
    """
    length = max(len(a), len(b))
    left, right = (1,) * (length - len(a)) + tuple(a), (1,) * (length - len(b)) + tuple(b)
    for at, (mine, other) in enumerate(zip(left, right, strict=True)):
        if mine != other and 1 not in (mine, other):
            raise error(
                construct,
                f"the batch dimensions of a {tuple(a)} and b {tuple(b)} do not broadcast: {mine} and {other}",
                f"make batch dimension {at - length} of both equal, or 1",
            )
    return tuple(max(x, y) if 0 not in (x, y) else 0 for x, y in zip(left, right, strict=True))


def check_extents(construct: str, **extents: int) -> None:
    """Refuse extents that 32-bit kernel arguments do not hold, before an output is made."""
    for name, extent in extents.items():
        if extent > EXTENT_LIMIT:
            raise error(construct, f"{name} = {extent} exceeds {EXTENT_LIMIT}", "split the product")


def output(construct: str, out: Any, shape: tuple[int, ...], dtype: str, inputs: list[Array]) -> Array:
    """The record of the output: a new array, or the checked one of the caller."""
    if out is None:
        return read("out", empty(inputs[0].value, shape, dtype), construct)
    found = read("out", out, construct)
    check_same_place([inputs[0], found], construct)
    check_out(found, shape, dtype, construct)
    check_apart(found, inputs, construct)
    return found


def by_operator(construct: str, values: Sequence[Any], out: Any, schedule: Any, tune: bool = False) -> bool:
    """Whether a call goes through PyTorch's operator: all tensors, with nothing that an operator does not take.

    Raises:
        UsageError: a gradient that could not be recorded.
    """
    from amdwarp.runtime import is_tensor

    if not isinstance(tune, bool):
        raise error(construct, f"tune = {tune!r} is a {type(tune).__name__}, not a bool", "pass True or False")
    if not all(map(is_tensor, values)) or not (out is None or is_tensor(out)):
        return False
    chosen = schedule is not None and not (isinstance(schedule, str) and schedule == "auto")
    if out is None and not chosen and not tune:
        return True
    import torch

    if torch.is_grad_enabled() and any(one.requires_grad for one in (*values, *([] if out is None else [out]))):
        which = "out" if out is not None else "schedule" if chosen else "tune"
        raise error(
            construct, f"{which} is given, and an argument asks for a gradient", f"leave {which} out, or detach"
        )
    return False


def refuse_gradients(construct: str, arrays: Sequence[Any], why: str) -> None:
    """Refuse arguments that want gradients which this function does not give."""
    from amdwarp.runtime import is_tensor

    tensors = [one for one in arrays if is_tensor(one.value)]
    if not tensors:
        return
    import torch

    for one in tensors:
        if one.value.requires_grad and torch.is_grad_enabled():
            raise error(construct, f"{one.name} asks for a gradient, and {why}", f"pass {one.name}.detach()")
