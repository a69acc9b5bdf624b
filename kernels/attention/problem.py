"""One attention to compute, whatever form it came in: operands, extents, strides, options."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdwarp.errors import UsageError
from amdwarp.runtime import is_tensor
from amdwarp.target import Target

from .operands import EXTENT_LIMIT, FLOATS, FP8, HALVES, TILE_LIMIT, Checker, Operand, new_array
from .options import FP32_MAX, HEAD_DIM_MAX, HEAD_DIM_MIN, HEAD_DIM_STEP, AttentionOptions

#: Layout name -> where batch, head and row stand in the shape; elements of a head come last.
LAYOUTS = {"bhsd": (0, 1, 2), "bshd": (0, 2, 1)}
LARGEST_TILE = 128  # rows or keys that 32-bit offsets may have to span
#: What a call was given besides q, k and v, by argument name; absent ones are left out or None.
Extras = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """An attention, checked.

    Attributes:
        checker: words its refusals.
        q, k, v, out: operands as they were passed.
        lse: the operand that log-sum-exp goes to, (batch, heads, rows) or (heads, rows), or None.
        batch, heads, key_heads, rows, keys, dim, dim_v: extents; rows and keys of one sequence, or the most of any.
        steps: operand name -> strides of (batch, head, row), elements; batch is the page for a paged cache.
        options: what to compute.
        target, compute_units: where.
        extras: sinks, alibi, bias, scales, sequence starts, lengths, table: operands by argument name.
        page: keys of a page of the cache; 0 for none.
    """

    checker: Checker
    q: Operand
    k: Operand
    v: Operand
    out: Operand
    lse: Operand | None
    batch: int
    heads: int
    key_heads: int
    rows: int
    keys: int
    steps: dict[str, tuple[int, int, int]]
    options: AttentionOptions
    target: Target
    compute_units: int
    extras: dict[str, Operand] = field(default_factory=dict)
    page: int = 0

    def __post_init__(self) -> None:
        self.checker.apart(self.out, self.extras.values())

    @property
    def dim(self) -> int:
        """Elements of a head of q and k."""
        return self.q.shape[-1]

    @property
    def dim_v(self) -> int:
        """Elements of a head of v."""
        return self.v.shape[-1]

    @property
    def ratio(self) -> int:
        """Query heads to a key head."""
        return self.heads // self.key_heads

    @property
    def fp8(self) -> bool:
        """Elements of q, k and v are 8-bit floats."""
        return self.q.itemsize == 1


def input_dtypes(target: Target) -> tuple[str, ...]:
    """Types of q, k and v that a GPU takes."""
    return HALVES + FP8[target.arch]


def check_inputs(
    checker: Checker, q: Any, k: Any, v: Any, ranks: tuple[int, int]
) -> tuple[Operand, Operand, Operand, Target, int]:
    """q, k and v as operands of one dtype in one place, and the GPU they run on.

    Args:
        checker: of the call.
        q, k, v: as passed.
        ranks: dimensions of q, and of k and v.
    """
    every = tuple(dict.fromkeys(HALVES + sum(FP8.values(), ())))
    query = checker.operand("q", q, ranks[0], every, unit=True)
    key = checker.operand("k", k, ranks[1], every, unit=True)
    value = checker.operand("v", v, ranks[1], every, unit=True)
    checker.same_place(query, key, value)
    target, compute_units = checker.target(query)
    for one in (query, key, value):
        if one.dtype not in input_dtypes(target):
            raise checker.error(
                f"{one.name} is {one.value.dtype}, which {target.arch} does not multiply",
                f"convert to fp16, bf16 or {' or '.join(FP8[target.arch])}",
            )
        if one.dtype != query.dtype:
            raise checker.error(f"{one.name} is {one.value.dtype} and q is {query.value.dtype}", "convert one of them")
        dim = one.shape[-1]
        if not HEAD_DIM_MIN <= dim <= HEAD_DIM_MAX or dim % HEAD_DIM_STEP:
            raise checker.error(
                f"{one.name} has heads of {dim} elements",
                f"pad them to a multiple of {HEAD_DIM_STEP} from {HEAD_DIM_MIN} to {HEAD_DIM_MAX}",
            )
    if key.shape[-1] != query.shape[-1]:
        raise checker.error(
            f"k has heads of {key.shape[-1]} elements and q of {query.shape[-1]}", "only v may have others"
        )
    return query, key, value, target, compute_units


def check_agree(checker: Checker, what: str, one: Operand, extent: int, other: Operand, wanted: int) -> None:
    """Refuse two operands that disagree about an extent."""
    if extent != wanted:
        raise checker.error(f"{one.name} has {what} {extent} and {other.name} has {wanted}", "they must be equal")


def check_heads(checker: Checker, heads: int, key_heads: int) -> None:
    """Refuse query heads that key heads do not divide."""
    if heads < 1 or key_heads < 1 or heads % key_heads:
        raise checker.error(
            f"{heads} query heads over {key_heads} key heads", "make the first a multiple of the second, which is not 0"
        )


def check_reach(checker: Checker, one: Operand, step: int) -> None:
    """Refuse rows so far apart that a tile of them leaves 32-bit offsets."""
    if LARGEST_TILE * step + HEAD_DIM_MAX >= TILE_LIMIT:
        raise checker.error(
            f"{one.name} has rows {step} elements apart, too far for 32-bit offsets", f"copy {one.name}"
        )


def out_dtype(q: Operand) -> str:
    """The type of a new output: that of q, or bf16 where q is fp8."""
    return q.dtype if q.itemsize == 2 else "bf16"


def check_out(checker: Checker, out: Any, q: Operand, shape: tuple[int, ...], inputs: tuple[Operand, ...]) -> Operand:
    """The output as an operand: the caller's, or a new one of the type of q (bf16 for fp8)."""
    if out is None:
        return checker.operand("out", new_array(q.value, shape, out_dtype(q)), len(shape), FLOATS)
    allowed = (q.dtype,) if q.itemsize == 2 else FLOATS
    made = checker.operand("out", out, len(shape), allowed, unit=True)
    if made.shape != shape:
        raise checker.error(f"out is {list(made.shape)}", f"pass one of {list(shape)}, or none")
    checker.same_place(q, made)
    checker.output(made, inputs)
    return made


def check_options(
    checker: Checker, causal: Any, scale: Any, window: Any, softcap: Any, extras: Extras
) -> AttentionOptions:
    """The options of a call, their refusals under the name of the function. Scalars of numpy count as Python's."""
    causal, scale, softcap = (_python(one) for one in (causal, scale, softcap))
    window = tuple(map(_python, window)) if isinstance(window, tuple) else window
    given = {name: extras.get(name) is not None for name in ("sinks", "alibi", "bias")}
    try:
        return AttentionOptions(causal=causal, scale=scale, window=window, softcap=softcap, **given)
    except UsageError as error:
        raise checker.error(error.problem, error.remedy) from None


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def check_layout(checker: Checker, layout: Any) -> tuple[int, int, int]:
    """Where batch, head and row stand in the shapes of a call."""
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise checker.error(f"layout is {layout!r}", f"take {' or '.join(LAYOUTS)}")
    return LAYOUTS[layout]


def check_extras(
    checker: Checker, q: Operand, extras: Extras, batch: int, heads: int, key_heads: int, extents: tuple[int, int]
) -> dict[str, Operand]:
    """Sinks, slopes, bias and scales as operands whose strides are those of their full shapes.

    Scales may be numbers. Sinks fill (heads,), alibi and q_scale (batch, heads), k_scale and v_scale
    (batch, key heads), bias (batch, heads, rows, keys). Sinks and slopes of a batch entry come out contiguous, copied
    if need be: kernels count on it.
    """
    found: dict[str, Operand] = {}
    shapes: dict[str, tuple[int, ...]] = {
        "sinks": (heads,),
        "alibi": (batch, heads),
        "bias": (batch, heads, *extents),
        "q_scale": (batch, heads),
        "k_scale": (batch, key_heads),
        "v_scale": (batch, key_heads),
    }
    for name, shape in shapes.items():
        value = extras.get(name)
        if value is None:
            continue
        if name.endswith("_scale"):
            if q.itemsize != 1:
                raise checker.error(
                    f"{name} is given and q is {q.value.dtype}", f"leave {name} out: scales are for fp8"
                )
            value = _python(value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                if not abs(value) <= FP32_MAX:
                    raise checker.error(f"{name} is {value!r}", "give a finite number that fp32 can hold")
                value = new_array(q.value, (1,), "fp32", float(value))
        kinds = FLOATS if name == "bias" else ("fp32",)
        fewest = 1 if name in ("sinks", "alibi") else 0
        one = checker.operand(name, value, tuple(range(fewest, len(shape) + 1)), kinds)
        checker.same_place(q, one)
        if name == "sinks" and one.shape != shape:
            raise checker.error(f"sinks is {list(one.shape)}", f"pass one logit a query head, {list(shape)}")
        steps = one.broadcast(shape, checker.construct)
        if name in ("sinks", "alibi") and heads > 1 and steps[-1] != 1:
            one = checker.operand(name, _spread(one.value, (*one.shape[:-1], heads)), len(one.shape), kinds)
            steps = one.broadcast(shape, checker.construct)
        found[name] = Operand(name, one.value, shape, steps, one.dtype, one.address, one.itemsize)
    return found


def _spread(value: Any, shape: tuple[int, ...]) -> Any:
    """A contiguous copy of an array or tensor, broadcast to a shape."""
    return value.expand(shape).contiguous() if is_tensor(value) else np.array(np.broadcast_to(value, shape), order="C")


def check_total(checker: Checker, name: str, *extents: int) -> None:
    """Refuse a product of extents that a grid dimension does not hold."""
    if math.prod(extents) > min(EXTENT_LIMIT, 65535):
        raise checker.error(f"{name} is {math.prod(extents)}, beyond the 65535 of a grid", "split the batch")
