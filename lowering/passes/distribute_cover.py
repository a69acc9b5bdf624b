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

Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.cover import Anchor, anchors, matrix_clocks, plan
from ..analysis.pricing import FP4, Slot, arch_of, scaled_types
from ..analysis.types import parse_type
from ..analysis.windows import ORDER, STREAM, Stream, Window, order_text, prices_of, quoted, windows_of
from ..dialect import Kind, kind_of
from ..ir import Module, Op


@dataclass(frozen=True)
class DistributeCover:
    """The pass.

    Attributes:
        vector: ask for vector work of the vector stream beside each matrix instruction, where there is some. It keeps
            that work from piling up, and ties LLVM's hands.
    """

    vector: bool = True
    name: str = "distribute_cover"

    def run(self, module: Module) -> None:
        for window in windows_of(module):
            arch = arch_of(module)
            window.end.attributes[ORDER] = quoted(order_text(_order(window, module, arch, self.vector)))


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
