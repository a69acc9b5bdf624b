"""emit_groups: scheduling groups for LLVM, in front of each window's closing wall.

LLVM fills the groups of one sync id scanning upward from where they stand, so they stand behind the window's
operations. A window's number is its sync id. The walls keep their attributes for reports (``amdwarp explain``); those
of the operations go. Operations of a window that share a source position are told apart by column, so that the line
table ties each machine instruction to one operation.

Before::

    …
    rocdl.sched.barrier {amdwarp.window.end = 1, amdwarp.window.order = "R M2 R M2"}

After::

    …
    rocdl.sched.group.barrier ds_read, 1, 1
    rocdl.sched.group.barrier mfma_wmma, 2, 1
    rocdl.sched.group.barrier ds_read, 1, 1
    rocdl.sched.group.barrier mfma_wmma, 2, 1
    rocdl.sched.barrier {amdwarp.window.end = 1, amdwarp.window.order = …, amdwarp.window.ops = […]}

Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .. import spelling
from ..analysis.pricing import Slot
from ..analysis.windows import (
    INDEX,
    ON_OPS,
    OPS,
    ORDER,
    PRICE,
    Window,
    number_of,
    parse_order,
    quoted,
    unquoted,
    windows_of,
)
from ..dialect import Kind, kind_of
from ..ir import Module
from ..location import SourceLocation
from ..rewriter import Builder

MASKS = {
    Slot.MFMA: spelling.Mask.MFMA,
    Slot.DS_READ: spelling.Mask.DS_READ,
    Slot.DS_WRITE: spelling.Mask.DS_WRITE,
    Slot.VMEM_READ: spelling.Mask.VMEM_READ,
    Slot.VMEM_WRITE: spelling.Mask.VMEM_WRITE,
    # the class of vector memory reads had these copies in it up to Triton 3.8, and has not since
    Slot.COPY: spelling.Mask.LDSDMA,
    Slot.TRANS: spelling.Mask.TRANS,
    Slot.VALU: spelling.Mask.VALU,
}
COLUMN_STEP, LAST_COLUMN = 1000, 0xFFFF


@dataclass(frozen=True)
class EmitGroups:
    """The pass.

    Attributes:
        groups: leave the groups out if false: the walls alone, for comparison.
    """

    groups: bool = True
    name: str = "emit_groups"

    def run(self, module: Module) -> None:
        for window in windows_of(module):
            _tell_apart(window, module)
            window.end.attributes[OPS] = f"[{', '.join(map(quoted, _summary(window)))}]"
            if self.groups:
                build = Builder(window.end.block, window.end, window.begin.loc)
                for slot, count in parse_order(unquoted(window.end.attributes[ORDER])):
                    build.insert(spelling.sched_group_barrier(MASKS[slot], count, window.number))
            for op in window.ops:
                for name in ON_OPS:
                    op.attributes.pop(name, None)


def _summary(window: Window) -> Iterator[str]:
    """``"3 ttg.local_load gemm.py:81:20 8 R128"`` for each priced operation: position, name, place, price."""
    for op in window.ops:
        if PRICE in op.attributes:
            place = op.location()
            where = f"{place.file}:{place.line}:{place.column}" if place else "?:0:0"
            yield f"{number_of(op, INDEX)} {op.name} {where} {unquoted(op.attributes[PRICE])}"


def _tell_apart(window: Window, module: Module) -> None:
    """Give operations that share file, line and column columns of their own."""
    seen: set[tuple[str, int, int]] = set()
    for op in window.ops:
        place = op.location()
        if place is None or kind_of(op) is Kind.SCHED:
            continue
        column = place.column
        while (place.file, place.line, column) in seen and column + COLUMN_STEP <= LAST_COLUMN:
            column += COLUMN_STEP
        seen.add((place.file, place.line, column))
        if column != place.column:
            op.loc = _moved(place, column)


def _moved(place: SourceLocation, column: int) -> str:
    """The text of a location with another column in its innermost frame; names and callers stay."""
    frames = [f"{quoted(place.file)}:{place.line}:{column}"]
    frames += [f"{quoted(caller.file)}:{caller.line}:{caller.column}" for caller in place.callers]
    if place.name is not None:
        frames[0] = f"{quoted(place.name)}({frames[0]})"
    text = frames[-1]
    for frame in reversed(frames[:-1]):
        text = f"callsite({frame} at {text})"
    return text
