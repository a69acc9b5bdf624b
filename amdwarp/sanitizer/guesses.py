"""Loads whose value a compare-and-swap confirms before it counts.

LLVM builds an atomic that the target lacks (fp16 addition on gfx1250, for one) from a plain load and a loop around a
compare-and-swap::

    global_load_b32 v5, v[2:3], off
    loop:
    v_add_f16 v4, v5, v8
    global_atomic_cmpswap_b32 v11, v[2:3], v[4:5], off th:TH_ATOMIC_RETURN     # v5: what memory should hold
    ...

Another workgroup may change the place behind the load: then the swap fails, and the loop goes on with what it returned.
"""

from __future__ import annotations

from typing import Any

from amdwarp.asm import Program
from amdwarp.asm.program import Instruction
from amdwarp.sanitizer.effects import Effects, register_bits

#: Modifiers that are part of an address.
_ADDRESSING = frozenset(("offset", "offen", "idxen"))


def guesses(program: Program, effects: tuple[Effects, ...]) -> frozenset[int]:
    """Indices of the plain loads that every lane confirms by a compare-and-swap at the same address."""
    swaps = [inst for inst in program.instructions if "atomic_cmpswap" in inst.base and inst.base[:3] != "ds_"]
    found = (_guess_of(swap, program, effects) for swap in swaps)
    return frozenset(at for at in found if at is not None)


def _guess_of(swap: Instruction, program: Program, effects: tuple[Effects, ...]) -> int | None:
    """The load that a compare-and-swap confirms: on a straight way before it, its registers not changed since."""
    address, data = _parts(swap, effects[swap.index])
    half = data.count // 2
    compared = register_bits(data.kind, data.index + half, half)
    held = compared
    for operand, bits in zip(swap.operands, effects[swap.index].operands, strict=True):
        if any(operand is one for one in address):
            held |= bits
    for at in range(swap.index - 1, -1, -1):
        inst, effect = program.instructions[at], effects[at]
        if effect.writes & held:
            is_load = inst.base.split("_")[:2] == [swap.base.split("_")[0], "load"]
            same = is_load and effect.writes == compared and inst.operands[1:] == address
            return at if same and _addressing(inst) == _addressing(swap) else None
        if "exec" in inst.text or inst.base.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_set_pc")):
            return None
    return None


def _parts(swap: Instruction, effects: Effects) -> tuple[tuple[Any, ...], Any]:
    """The address operands of a compare-and-swap, and its pair of new and compared value."""
    operands = swap.operands
    if swap.base.startswith("buffer"):
        return operands[1:], operands[0]
    rest = operands[effects.destinations :]
    return (rest[0], *rest[2:]), rest[1]


def _addressing(inst: Instruction) -> dict[str, Any]:
    return {name: value for name, value in inst.modifiers if name in _ADDRESSING}
