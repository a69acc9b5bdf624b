"""How a global memory access of a whole tensor is cut into machine instructions.

One lane moves by one instruction what it holds side by side and aligned, up to 128 bits; a mask shortens that to the
run on which it is constant. The operands of each operation are told apart here too.

Source: Triton's AMD ``Utility.cpp`` (``getVectorSize``) and ``LoadStoreOpToLLVM.cpp``; the tests compare with the
produced text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..ir import Op, Value
from .alignment import Alignment
from .layouts import layout_of
from .linear import OFFSET, REGISTER, LinearLayout
from .types import element_bits, pointee


@dataclass(frozen=True)
class Access:
    """Operands of a global memory access: pointers, or one pointer and offsets; ``mask`` may be None."""

    pointer: Value
    offsets: Value | None
    mask: Value | None
    element: str


def _segments(op: Op, names: tuple[str, ...]) -> dict[str, Value | None]:
    """Operands by name, from ``operandSegmentSizes``; without it they are all there, in order."""
    text = op.properties.get("operandSegmentSizes")
    sizes = [int(n) for n in re.findall(r"\d+", text.partition(":")[2])] if text else [1] * len(op.operands)
    found: dict[str, Value | None] = {}
    index = 0
    for name, size in zip(names, sizes, strict=False):
        found[name] = op.operands[index] if size else None
        index += size
    return found


# op -> its operands in order; "value" is what a store stores, "memory" where a copy goes
_OPERANDS: dict[str, tuple[str, ...]] = {
    "tt.load": ("pointer", "mask", "other"),
    "tt.store": ("pointer", "value", "mask"),
    "amdg.buffer_load": ("pointer", "offsets", "stride", "mask", "other"),
    "amdg.buffer_store": ("value", "pointer", "offsets", "stride", "mask"),
    "amdg.buffer_load_to_local": ("memory", "pointer", "offsets", "mask", "other", "stride"),
    "ttg.async_copy_global_to_local": ("pointer", "memory", "mask", "other"),
}


def operand(op: Op, name: str) -> Value | None:
    """An operand of a global memory op by its name in ``_OPERANDS``."""
    return _segments(op, _OPERANDS[op.name]).get(name)


def access_of(op: Op, alignment: Alignment) -> Access:
    parts = _segments(op, _OPERANDS[op.name])
    pointer = parts["pointer"]
    assert pointer is not None
    tensor = alignment.tensor(pointer)
    element = pointee(tensor.element if tensor else pointer.type)
    return Access(pointer, parts.get("offsets"), parts.get("mask"), element)


def vector_length(access: Access, alignment: Alignment) -> int:
    """Elements that one lane moves by one instruction, alignment and mask considered."""
    where = access.offsets or access.pointer
    tensor = alignment.tensor(where)
    if tensor is None:
        return 1
    facts = alignment.of(where)
    size = max(1, element_bits(access.element) // 8)
    inner = fastest_dimension(layout_of(tensor))
    run = min(facts.contiguity[inner], contiguous_registers(layout_of(tensor), inner))
    multiple = facts.divisibility[inner]
    run = min(run, multiple if access.offsets is not None else max(1, multiple // size))
    if access.offsets is not None:
        base = alignment.of(access.pointer).divisibility[0]
        run = min(run, max(1, base // size))
    if access.mask is not None:
        run = min(run, alignment.of(access.mask).constancy[inner])
    run = min(run, 128 // element_bits(access.element))
    return 1 << (max(1, run).bit_length() - 1)


def fastest_dimension(layout: LinearLayout) -> int:
    """The dimension along which a lane's registers, else its lanes, move first."""
    for name in layout.bases:
        for basis in layout.bases[name]:
            for dim, value in enumerate(basis):
                if value:
                    return dim
    return len(layout.outs) - 1


def contiguous_registers(layout: LinearLayout, dim: int) -> int:
    """How many elements side by side along ``dim`` one lane holds."""
    mine = layout.without_zero(REGISTER).bases[REGISTER]
    run = 1
    for basis in mine:
        if basis[dim] != run or sum(basis) != run:
            break
        run *= 2
    return run


def side_by_side(where: LinearLayout, run: int) -> bool:
    return where.column(REGISTER, OFFSET)[: run.bit_length() - 1] == [1 << i for i in range(run.bit_length() - 1)]
