"""chunk_streams: the streams of each window, cut into chunks, each with its price.

A chunk is one priced operation with the arithmetic in front of it that nothing before needed; arithmetic behind the
last priced operation of a stream belongs to its last chunk.

Before::

    rocdl.sched.barrier {amdwarp.window = 1, …}
    %a = ttg.local_load …
    %o = arith.addi …
    %b = amdg.buffer_load %p[%o]
    %r = tt.dot …
    rocdl.sched.barrier {amdwarp.window.end = 1}

After (the attributes without their prefix)::

    %a = ttg.local_load …        {stream = "memory", chunk = 0, price = "8 R128"}
    %o = arith.addi …            {stream = "memory", chunk = 1}
    %b = amdg.buffer_load %p[%o] {stream = "memory", chunk = 1, price = "4 G128"}
    %r = tt.dot …                {stream = "matrix", chunk = 0, price = "32 M"}

Refuses when: something may not stand in a window, or its streams depend on each other (``analysis/streams.py``); an
operation's instructions cannot be counted; no dot uses the matrix unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..analysis.pricing import Price, Pricer, PricingError, Slot
from ..analysis.streams import check_contents, split
from ..analysis.windows import CHUNK, INDEX, PRICE, STREAM, Stream, Window, mentioned, price_text, quoted, windows_of
from ..ir import Module, Op

NAME = "chunk_streams"

Key = tuple[int, int]
"""(number of the window, position of the operation in it as it was written)."""


@dataclass(frozen=True)
class ChunkStreams:
    """The pass.

    Attributes:
        corrections: prices that replace the computed ones, from a count in the produced text.
    """

    corrections: Mapping[Key, tuple[Price, ...]] = field(default_factory=dict)
    name: str = NAME

    def run(self, module: Module) -> None:
        for function in module.functions():
            windows = windows_of(function)
            if windows:
                pricer = Pricer(function, module)
                for window in windows:
                    check_contents(window, module)
                    _chunk(window, split(window), pricer, self.corrections)


def _chunk(
    window: Window, streams: Mapping[Op, Stream], pricer: Pricer, corrections: Mapping[Key, tuple[Price, ...]]
) -> None:
    ops = window.ops
    for index, op in enumerate(ops):
        op.attributes[INDEX] = f"{index} : i32"
    prices = {op: corrections.get((window.number, i), _price(window, op, pricer)) for i, op in enumerate(ops)}
    if not any(one.slot is Slot.MFMA for found in prices.values() for one in found):
        raise window.error("none of its dots uses the matrix unit", "give their results an MFMA or WMMA layout", NAME)
    for stream in Stream:
        mine = [op for op in ops if streams[op] is stream]
        last = max(0, sum(_anchors(prices[op], stream) for op in mine) - 1)
        chunk = 0
        for op in mine:
            op.attributes[STREAM] = f'"{stream.value}"'
            op.attributes[CHUNK] = f"{min(chunk, last)} : i32"
            if prices[op]:
                op.attributes[PRICE] = quoted(price_text(prices[op]))
            chunk += _anchors(prices[op], stream)


def _price(window: Window, op: Op, pricer: Pricer) -> tuple[Price, ...]:
    try:
        return pricer.price(op)
    except PricingError as error:
        raise window.error(
            error.problem + f" ({mentioned(op, window.begin)})", "move it out of the window", NAME
        ) from error


def _anchors(prices: tuple[Price, ...], stream: Stream) -> bool:
    """Whether an operation ends a chunk: in the vector stream any instruction does, elsewhere those that are woven."""
    return any(one.slot is not Slot.VALU or stream is Stream.VECTOR for one in prices)
