"""distribute_cover: the order of machine instructions that each window asks for.

Anchors (memory and transcendental instructions) come in the order of their operations; matrix instructions are dealt
out between them by what each anchor needs to be hidden (``analysis/cover.py``).

Before::

    ttg.local_load …   {stream = "memory", price = "4 R128"}
    amdg.buffer_load … {stream = "memory", price = "2 G128"}
    tt.dot …           {stream = "matrix", price = "16 M"}
    rocdl.sched.barrier {amdwarp.window.end = 1}

After::

    rocdl.sched.barrier {amdwarp.window.end = 1, amdwarp.window.order = "R M R M2 R M R M2 G M5 G M5"}

Where the author gave an order, it is taken instead. Refuses one that has other numbers of matrix, memory or
transcendental instructions than there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.cover import Anchor, anchors, matrix_clocks, plan
from ..analysis.pricing import FP4, Slot, arch_of, scaled_types
from ..analysis.types import parse_type
from ..analysis.windows import (
    ORDER,
    STREAM,
    WANTED,
    Group,
    Stream,
    Window,
    order_text,
    parse_order,
    prices_of,
    quoted,
    unquoted,
    windows_of,
)
from ..dialect import Kind, kind_of
from ..ir import Module, Op

NAME = "distribute_cover"


@dataclass(frozen=True)
class DistributeCover:
    """The pass.

    Attributes:
        vector: ask for vector work of the vector stream beside each matrix instruction, where there is some. It keeps
            that work from piling up, and ties LLVM's hands.
    """

    vector: bool = True
    name: str = NAME

    def run(self, module: Module) -> None:
        for window in windows_of(module):
            found = _order(window, module, arch_of(module), self.vector)
            if WANTED in window.begin.attributes:
                found = _wanted(window, found)
            window.end.attributes[ORDER] = quoted(order_text(found))


def _wanted(window: Window, dealt: list[Group]) -> list[Group]:
    """The author's order, which must have as many of each instruction as there are; `dealt` has."""
    asked = parse_order(unquoted(window.begin.attributes[WANTED]))
    for slot in Slot:
        have, want = (sum(count for one, count in groups if one is slot) for groups in (dealt, asked))
        if slot.exact and have != want:
            raise window.error(
                f"its order has {want} of the instructions {slot.value}, and there are {have}",
                "count them anew, or leave the order out",
                NAME,
            )
    return asked


def _order(window: Window, module: Module, arch: str, spread: bool) -> list[tuple[Slot, int]]:
    found: list[Anchor] = []
    matrix = vector = 0
    clocks: list[int] = []
    for op in window.ops:
        stream = op.attributes.get(STREAM, "").strip('"')
        prices = prices_of(op)
        counted = [price for price in prices if price.slot.memory or stream == Stream.VECTOR.value]
        found += anchors(arch, counted)
        matrix += sum(price.count for price in prices if price.slot is Slot.MFMA)
        if stream == Stream.VECTOR.value:
            vector += sum(price.count for price in prices if price.slot is Slot.VALU)
        if kind_of(op) is Kind.MFMA and prices:
            clocks += [_clocks(op, module, arch)] * sum(price.count for price in prices)
    return plan(found, matrix, max(1, sum(clocks) // max(1, len(clocks))), vector if spread else 0)


def _clocks(op: Op, module: Module, arch: str) -> int:
    encoding = parse_type(op.results[0].type, module).encoding
    assert encoding is not None
    bits = [parse_type(value.type, module).bits for value in op.operands[:2]]
    if op.name == "tt.dot_scaled":
        bits = [4 if name in (FP4, "e2m3", "e3m2") else 8 for name in scaled_types(op)]
    return matrix_clocks(arch, encoding.ints("instrShape"), max(bits))
