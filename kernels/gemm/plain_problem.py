"""One product of the plain family as plain records: operands, scales, epilogue, and what the kernel is told of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    """

    array: Array
    kind: str
    line: int = 0
    k: int = 0
    block: int = 1


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
