"""One product of the plain family as plain records: operands, scales, epilogue, and what the kernel is told of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from amdwarp.errors import UsageError

from .epilogue import Epilogue
from .operands import Array


@dataclass(frozen=True)
class Side:
    """How the kernel reaches one operand; a compile-time constant.

    Attributes:
        format: ``""`` for one element in one array element, else the packed format's name.
        wide: offsets inside a tile need 64 bits.
        mask_outer: rows of A (columns of B) are the contiguous dimension: mask them, do not repeat the last.
        vector: of a preshuffled weight the consecutive k, else 0.
        packed: elements in one array element along K where the tile counts array elements.
        numerator, denominator: array elements that a step of one along K moves on.
    """

    format: str = ""
    wide: bool = False
    mask_outer: bool = False
    vector: int = 0
    packed: int = 1
    numerator: int = 1
    denominator: int = 1


@dataclass(frozen=True)
class Description:
    """What the kernel computes; a compile-time constant."""

    accumulator: str = "float32"
    precision: str = "ieee"
    mx: bool = False
    a_mx: str = ""
    b_mx: str = ""
    scale_a: str = "none"
    scale_b: str = "none"
    block_m: int = 1
    block_n: int = 1
    groups: str = ""
    even_k: bool = False
    wide_c: bool = False
    batched_scales: bool = False
    group_scales: bool = False
    raw: bool = False
    xcds: int = 8

    @property
    def blockwise(self) -> bool:
        """Scales change along K, so that every step is scaled on its own."""
        return "block" in (self.scale_a, self.scale_b) and not self.mx


@dataclass(frozen=True)
class Operand:
    """A or B as the plain family sees it.

    Attributes:
        array: the memory.
        line, k: steps between rows of A (columns of B) and along K, in array elements.
        batch: steps of the batch dimensions, as many as the problem has.
        format: ``""``, or that of packed or E8M0-scaled elements.
        shuffle: elements of K that stand together in a preshuffled weight; 0 for a plain one.
    """

    array: Array
    line: int
    k: int
    batch: tuple[int, ...] = ()
    format: str = ""
    shuffle: int = 0

    @property
    def element_bytes(self) -> float:
        """Of one element of the product, in LDS: packed six-bit floats are widened on the way."""
        packed = self.format == "e2m1"
        return self.array.itemsize / 2 if packed else float(self.array.itemsize)


@dataclass(frozen=True)
class Scale:
    """Scales of one operand.

    Attributes:
        array: their memory.
        kind: ``tensor`` (one), ``line`` (one a row of A or column of B), ``block`` (one every 128 along K), ``mx``
            (E8M0, one every 32 along K).
        line, k: steps along rows (columns) and along K.
        block: rows (columns) under one scale, 1 or 128.
        batch: steps of the batch dimensions, as many as the problem has; none where all matrices share them.
        group: step between the scales of B of neighbouring groups of rows.
    """

    array: Array
    kind: str
    line: int = 0
    k: int = 0
    block: int = 1
    batch: tuple[int, ...] = ()
    group: int = 0


@dataclass(frozen=True)
class PlainProblem:
    """One product, checked.

    Attributes:
        construct: the public function, for errors.
        m, n, k: extents; n is that of the output, half the product's with ``swiglu``.
        batch: extents of the batch dimensions.
        a, b: operands.
        out: output; ``out_batch`` its batch steps, ``out_line`` and ``out_column`` those of a matrix.
        epilogue: what follows the sums.
        alpha, beta: its scalars.
        bias, residual: its arrays; steps of the latter as those of the output.
        scale_a, scale_b: operand scales.
        accumulator: ``float32`` or ``int32``.
        precision: of fp32 operands, ``ieee`` or ``tf32``.
        groups: ``""``, ``rows`` or ``k``; with `offsets`, `group_count`, and the step `b_group` between B's of groups.
    """

    construct: str
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    out: Array
    epilogue: Epilogue
    batch: tuple[int, ...] = ()
    out_batch: tuple[int, ...] = ()
    out_line: int = 0
    out_column: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    bias: Array | None = None
    bias_step: int = 1
    bias_group: int = 0
    residual: Array | None = None
    residual_batch: tuple[int, ...] = ()
    residual_line: int = 0
    residual_column: int = 0
    scale_a: Scale | None = None
    scale_b: Scale | None = None
    accumulator: str = "float32"
    precision: str = "ieee"
    groups: str = ""
    offsets: Array | None = None
    group_count: int = 0
    b_group: int = 0

    @property
    def mx(self) -> bool:
        """Multiplied with E8M0 scales."""
        return self.scale_a is not None and self.scale_a.kind == "mx"

    @property
    def blockwise(self) -> bool:
        """Scaled every 128 elements along K."""
        return any(scale is not None and scale.kind == "block" for scale in (self.scale_a, self.scale_b))

    @property
    def matrices(self) -> int:
        """Matrices of the batch, or groups along K."""
        return self.group_count if self.groups == "k" else math.prod(self.batch)

    @property
    def result(self) -> Any:
        """The output as the caller gets it."""
        return self.out.value

    def error(self, problem: str, remedy: str) -> UsageError:
        return UsageError(problem, remedy=remedy, construct=self.construct)


def folded(problem: PlainProblem) -> PlainProblem:
    """Batch dimensions that B does not have, folded into rows where steps allow it: x @ w of a (…, K) activation."""
    scale_a, scale_b = problem.scale_a, problem.scale_b
    by_row = scale_a is None or scale_a.kind == "tensor" or scale_a.block == 1
    own = any(problem.b.batch) or (scale_b is not None and any(scale_b.batch)) or problem.epilogue.bias == "row"
    if not problem.batch or own or not by_row:
        return problem
    steps = {"a": (problem.a.batch, problem.a.line), "out": (problem.out_batch, problem.out_line)}
    if problem.residual is not None:
        steps["residual"] = (problem.residual_batch, problem.residual_line)
    none = (0,) * len(problem.batch)
    if scale_a is not None:
        steps["scale_a"] = (scale_a.batch or none, scale_a.line)
    extents = (*problem.batch, problem.m)
    wanted = [extent for extent in extents if extent != 1]
    lines = {}
    for name, (batch, line) in steps.items():
        kept = [step for step, extent in zip((*batch, line), extents, strict=True) if extent != 1]
        if any(big != small * extent for big, small, extent in zip(kept, kept[1:], wanted[1:], strict=False)):
            return problem
        lines[name] = kept[-1] if kept else line
    return replace(
        problem,
        m=math.prod(extents),
        batch=(),
        a=replace(problem.a, batch=(), line=lines["a"]),
        b=replace(problem.b, batch=()),
        out_batch=(),
        out_line=lines["out"],
        residual_batch=(),
        residual_line=lines.get("residual", problem.residual_line),
        scale_a=None if scale_a is None else replace(scale_a, batch=(), line=lines["scale_a"]),
        scale_b=None if scale_b is None else replace(scale_b, batch=()),
    )
