"""place_chunks: the chunks of a window in one interleaved order.

Each stream keeps its own order. A chunk goes where its middle falls when every stream is stretched over the whole
window, memory first where two fall together. The order is what LLVM starts from, and what is left of the schedule
should its scheduler drop the groups. It also decides about registers: a load that stands behind the last use of the
value it replaces in a loop gets that value's registers, and then LLVM cannot move it ahead of that use. With
``interleave`` off the memory stream stands in front as a whole: more registers, and all freedom.

Before (stream and chunk of each operation)::

    memory 0 ; memory 1 ; matrix 0 ; matrix 1

After::

    memory 0 ; matrix 0 ; memory 1 ; matrix 1

Refuses nothing: no value leads from one stream to another, and memory operations keep their order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from ..analysis.windows import CHUNK, Stream, Window, number_of, prices_of, windows_of
from ..ir import Module, Op

RANK = (Stream.MEMORY, Stream.VECTOR, Stream.MATRIX)


@dataclass(frozen=True)
class PlaceChunks:
    """The pass.

    Attributes:
        interleave: weave the streams; one after the other if false, memory first.
    """

    interleave: bool = True
    name: str = "place_chunks"

    def run(self, module: Module) -> None:
        for window in windows_of(module):
            for op in placed(window, self.interleave):
                op.move_before(window.end)


def placed(window: Window, interleave: bool) -> list[Op]:
    """The operations of a window in their new order."""
    order: list[tuple[Fraction, int, int, list[Op]]] = []
    for rank, stream in enumerate(RANK):
        chunks: dict[int, list[Op]] = defaultdict(list)
        for op in window.stream(stream):
            chunks[number_of(op, CHUNK)].append(op)
        weights = {index: max(1, sum(p.count for op in ops for p in prices_of(op))) for index, ops in chunks.items()}
        total, before = sum(weights.values()), 0
        for index in sorted(chunks):
            middle = Fraction(2 * before + weights[index], 2 * total)
            order.append((middle if interleave else Fraction(0), rank, index, chunks[index]))
            before += weights[index]
    order.sort(key=lambda item: item[:3])
    first, last = _free(window)
    return [*first, *(op for *_, ops in order for op in ops), *last]


def _free(window: Window) -> tuple[list[Op], list[Op]]:
    """Operations of no stream of their own: those that need nothing of the window, and those that end it."""
    inside, first, last = set(window.ops), [], []
    for op in window.stream(Stream.FREE):
        if any(value.op in inside and value.op not in first for inner in op.walk() for value in inner.operands):
            last.append(op)
        else:
            first.append(op)
    return first, last
