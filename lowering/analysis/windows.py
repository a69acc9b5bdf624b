"""Intra-wave windows: a run of operations whose memory instructions are to be woven between its matrix instructions.

A window stands between two scheduling walls that carry its attributes; ``passes/open_windows.py`` makes them of the
author's regions, and the passes after it leave what they know on the operations and on the walls:

====================  ===========================  =================================================================
attribute             on                           says
====================  ===========================  =================================================================
``WINDOW``            opening and closing wall     number of the window in its module, also its LLVM sync id
``LABEL``             opening wall                 the author's name for it, or ``""``
``WANTED``            opening wall                 the order that the author asks for, if there is one
``REGION``            operations of a pair         0 or 1: the region the operation was written in
``INDEX``             operations                   position in the window as it was written
``STREAM``            operations                   memory, matrix, vector or free
``CHUNK``             operations                   position of the operation's chunk in its stream
``PRICE``             operations                   machine instructions, ``"8 R128"``; see :func:`price_text`
``ORDER``             closing wall                 the order asked for, ``"R M2 R M2"``; see :func:`order_text`
``OPS``               closing wall                 each priced operation with its line and price, for reports
====================  ===========================  =================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from amdwarp.errors import LoweringError
from amdwarp.stage import BEGIN, END, PAIR, SCOPE

from ..ir import Module, Op
from .pricing import Price, Slot

WINDOW = "amdwarp.window"
ENDS = "amdwarp.window.end"
LABEL = "amdwarp.window.label"
REGION = "amdwarp.window.region"
STREAM = "amdwarp.window.stream"
CHUNK = "amdwarp.window.chunk"
INDEX = "amdwarp.window.index"
PRICE = "amdwarp.window.price"
ORDER = "amdwarp.window.order"
OPS = "amdwarp.window.ops"
PAIRED = "amdwarp.window.paired"
WANTED = "amdwarp.window.wanted"
ON_OPS = (REGION, INDEX, STREAM, CHUNK, PRICE)

INTRA_WAVE = "intra_wave"


class Stream(Enum):
    MEMORY = "memory"
    MATRIX = "matrix"
    VECTOR = "vector"
    FREE = "free"  # used by more than one stream: constants, common subexpressions


@dataclass
class Window:
    """One window whose walls stand.

    Attributes:
        number: its ``WINDOW``.
        begin, end: its walls, in one block.
    """

    number: int
    begin: Op
    end: Op

    @property
    def label(self) -> str:
        return unquoted(self.begin.attributes.get(LABEL, '""'))

    @property
    def paired(self) -> bool:
        return PAIRED in self.begin.attributes

    @property
    def where(self) -> str | None:
        return self.begin.where

    @property
    def ops(self) -> list[Op]:
        block = self.begin.block
        return block.ops[block.index(self.begin) + 1 : block.index(self.end)]

    def stream(self, *streams: Stream) -> list[Op]:
        """The operations of some streams, in order; known after ``chunk_streams``."""
        words = {f'"{stream.value}"' for stream in streams}
        return [op for op in self.ops if op.attributes.get(STREAM) in words]

    def error(self, problem: str, remedy: str = "", pass_name: str | None = None) -> LoweringError:
        return window_error(self.begin, self.label, problem, remedy, pass_name)


def construct(label: str) -> str:
    """How messages name a window."""
    return f"intra_wave {label!r}" if label else "intra_wave window"


def window_error(op: Op, label: str, problem: str, remedy: str = "", pass_name: str | None = None) -> LoweringError:
    return LoweringError(problem, remedy=remedy, construct=construct(label), where=op.where, pass_name=pass_name)


def mentioned(op: Op, window: Op) -> str:
    """``amdg.buffer_store, line 84``; the file too where it is not the window's."""
    place, own = op.where, window.where
    if place is None:
        return op.name
    file, _, line = place.rpartition(":")
    same = own is not None and own.rpartition(":")[0] == file
    return f"{op.name}, line {line}" if same else f"{op.name}, {place}"


def marks(op: Op) -> str | None:
    """``"begin"`` or ``"end"`` for an anchor that ``mark_stages`` left of an intra-wave region, else None."""
    if op.attributes.get(SCOPE) != f'"{INTRA_WAVE}"':
        return None
    return "begin" if BEGIN in op.attributes else "end" if END in op.attributes else None


def mark_label(op: Op) -> str:
    return unquoted(op.attributes.get(BEGIN, op.attributes.get(END, '""')))


def mark_pair(op: Op) -> int | None:
    text = op.attributes.get(PAIR)
    return None if text is None else int(text.partition(":")[0])


def windows_of(scope: Op | Module) -> list[Window]:
    """Every window under a function or in a module, in text order."""
    opened: dict[int, Op] = {}
    found = []
    for op in scope.walk():
        if WINDOW in op.attributes:
            opened[number_of(op, WINDOW)] = op
        elif ENDS in op.attributes:
            number = number_of(op, ENDS)
            found.append(Window(number, opened[number], op))
    return found


def number_of(op: Op, name: str) -> int:
    return int(op.attributes[name].partition(":")[0])


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\5C").replace('"', "\\22") + '"'


def unquoted(text: str) -> str:
    return re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text.strip('"'))


# ---- prices and orders as text


def price_text(prices: Iterable[Price]) -> str:
    """``"8 R128, 4 G64"``: count, letter, bits a lane."""
    return ", ".join(f"{one.count} {one.slot.value}{one.bits or ''}" for one in prices)


def parse_price(text: str) -> tuple[Price, ...]:
    found = re.findall(r"(\d+) ([A-Z])(\d*)", text)
    return tuple(Price(Slot(letter), int(count), int(bits or 0)) for count, letter, bits in found)


def prices_of(op: Op) -> tuple[Price, ...]:
    """The price that ``chunk_streams`` left on an operation."""
    return parse_price(unquoted(op.attributes.get(PRICE, '""')))


Group = tuple[Slot, int]


def order_text(groups: Iterable[Group]) -> str:
    """``"R M2 G M4"``: the groups in order, with their sizes."""
    return " ".join(slot.value + (str(count) if count > 1 else "") for slot, count in groups)


def parse_order(text: str) -> list[Group]:
    return [(Slot(letter), int(count or 1)) for letter, count in re.findall(r"([A-Z])(\d*)", text)]


def letters(groups: Sequence[Group]) -> str:
    """``"RMMGMMMM"``, without the groups whose size is only an estimate."""
    return "".join(slot.value * count for slot, count in groups if slot.exact)
