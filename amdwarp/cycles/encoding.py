"""Bytes of an encoded instruction, for the instruction cache: the text does not state them."""

from __future__ import annotations

from amdwarp.asm import Immediate, Instruction
from amdwarp.asm.table import Format, lookup

_SHORT = frozenset((Format.SALU, Format.BRANCH, Format.SYNC))
_VOP = frozenset((Format.VOP1, Format.VOP2, Format.VOPC))
#: Floating-point numbers that need no literal.
_INLINE_FLOATS = frozenset((0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0))
#: Always followed by a literal, written as an operand.
_WITH_LITERAL = ("v_fmamk", "v_fmaak", "v_madmk", "v_madak", "s_setreg_imm32")


def _is_literal(operand: object) -> bool:
    if not isinstance(operand, Immediate):
        return False
    value = operand.value
    if isinstance(value, float):
        return value not in _INLINE_FLOATS and abs(value - 0.15915494) > 1e-7
    return not -16 <= value <= 64


def encoded_bytes(inst: Instruction) -> int:
    """Size of an instruction in bytes (gfx9 encodings; gfx12's differ for memory instructions, by 4)."""
    info = lookup(inst.base)
    assert info is not None
    form = info.format
    if inst.second is not None:
        return 8 + 4 * any(map(_is_literal, (*inst.operands, *inst.second.operands)))
    if form in _SHORT:
        simm = inst.base.startswith(("s_movk", "s_addk", "s_mulk", "s_cmpk", "s_cmovk")) or form is not Format.SALU
        literal = inst.base.startswith(_WITH_LITERAL) or (not simm and any(map(_is_literal, inst.operands)))
        return 8 if literal else 4
    if form in _VOP and inst.encoding in ("", "e32"):
        literal = inst.base.startswith(_WITH_LITERAL) or any(map(_is_literal, inst.operands))
        return 8 if literal else 4
    if inst.base.startswith("v_mfma_scale") or inst.base.startswith("v_wmma_scale"):
        return 16
    return 8
