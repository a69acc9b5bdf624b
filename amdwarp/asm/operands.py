"""Operands and modifiers of one instruction's text."""

from __future__ import annotations

import re
from functools import lru_cache

from amdwarp.asm.program import SPECIAL_SGPRS, TTMP0, Immediate, ModifierValue, Operand, Register, Symbol, words

#: Modifiers that stand alone.
FLAG_MODIFIERS = frozenset(
    words(
        """
    offen idxen addr64 lds glc slc dlc nt sc0 sc1 tfe lwe gds clamp high done vm unorm nv scale_offset
    matrix_a_reuse matrix_b_reuse
    """
    )
)

#: Modifiers with a value behind a colon.
VALUE_MODIFIERS = frozenset(
    words(
        """
    offset offset0 offset1 op_sel op_sel_hi neg_lo neg_hi neg abs mul div omod cbsz abid blgp bitop3 byte_sel
    format quad_perm row_shl row_shr row_ror row_bcast row_newbcast row_share row_xmask wave_shl wave_shr
    wave_rol wave_ror row_mask bank_mask bound_ctrl fi dpp8 dst_sel dst_unused src0_sel src1_sel scope th
    matrix_a_fmt matrix_b_fmt matrix_a_scale matrix_b_scale matrix_a_scale_fmt matrix_b_scale_fmt index_key
    wait_exp wait_va_vdst wait_vdst wait_vm_vsrc bitop2 swizzle scale_sel
    """
    )
)

#: DPP words without a value.
DPP_FLAGS = frozenset(("row_mirror", "row_half_mirror"))

#: Counters written as ``name(number)``.
WAIT_COUNTERS = frozenset(("vmcnt", "lgkmcnt", "expcnt", "vscnt"))

SYMBOLS = frozenset(
    words(
        """
    off null src_scc scc src_vccz src_execz src_shared_base src_shared_limit src_private_base src_private_limit
    src_lds_direct src_pops_exiting_wave_id
    """
    )
)

_RANGE = re.compile(r"([vsa]|ttmp)\[(\d+)(?::(\d+))?\]$")
_SINGLE = re.compile(r"(v|s|a|ttmp)(\d+)(?:\.([lh]))?$")
_INTEGER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)$")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)$")
_MODIFIER = re.compile(r"([a-z_][a-z0-9_]*):(.+)$")
_COUNTER = re.compile(r"([a-z]+)\((\d+)\)$")
_LABEL = re.compile(r"[.$A-Za-z_][\w.$@]*(?:[-+]\d+)?$")
#: Half of the distance between two labels, as a jump beyond the reach of a branch adds it to the program counter.
LABEL_DISTANCE = re.compile(r"\(([.$A-Za-z_][\w.$@]*)-([.$A-Za-z_][\w.$@]*)\)(&4294967295|>>32)$")
_HIGH = re.compile(r"\bv(?:\d+(?:\.[lh])?|\[\d+:\d+\])\s*/\*(v(?:\d+(?:\.[lh])?|\[\d+:\d+\]))\*/")
#: Scheduling hints: words like ``instid0(VALU_DEP_1)`` or ``depctr_va_vdst(0)`` between ``|`` or ``&``, or a number.
_HINT = re.compile(r"(?:\w+\(\w+\)|0x[0-9a-fA-F]+|\d+)$")


def restore_high_registers(text: str) -> str:
    """Replace ``v33 /*v289*/`` by ``v289``: the comment holds the number once the bank bits are applied."""
    return _HIGH.sub(lambda m: str(m[1]), text)


def split_top(text: str, separators: str) -> list[str]:
    """Split `text` at characters of `separators` that stand outside brackets; empty pieces are dropped."""
    pieces, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        elif depth == 0 and char in separators:
            pieces.append(text[start:at].strip())
            start = at + 1
    pieces.append(text[start:].strip())
    return [piece for piece in pieces if piece]


def parse_operand(text: str) -> Operand:
    """Read one operand.

    Raises:
        ValueError: the text is no operand.
    """
    neg = absolute = sext = False
    core = text
    if core.startswith("-") and not (_INTEGER.match(core) or _FLOAT.match(core)):
        neg, core = True, core[1:]
    for word in ("neg", "abs", "sext"):
        if core.startswith(word + "(") and core.endswith(")"):
            core = core[len(word) + 1 : -1]
            neg, absolute, sext = neg or word == "neg", absolute or word == "abs", sext or word == "sext"
    if core.startswith("|") and core.endswith("|") and len(core) > 2:
        absolute, core = True, core[1:-1]
    register = _parse_register(core, neg, absolute, sext)
    if register is not None:
        return register
    if core.startswith("lit(") and core.endswith(")"):
        core = core[4:-1]
    elif core.startswith("lit64(") and core.endswith(")"):
        core = core[6:-1]
    if _INTEGER.match(core):
        return Immediate(int(core, 0), neg, absolute)
    if _FLOAT.match(core):
        return Immediate(float(core), neg, absolute)
    if not (neg or absolute or sext) and (core in SYMBOLS or core.startswith(("hwreg(", "sendmsg(", "gpr_idx("))):
        return Symbol(core)
    if not (neg or absolute or sext) and (_LABEL.match(core) or LABEL_DISTANCE.match(core)):
        return Symbol(core)
    raise ValueError(f"operand '{text}' is neither a register, a number nor a known word")


def _parse_register(core: str, neg: bool, absolute: bool, sext: bool) -> Register | None:
    if core in SPECIAL_SGPRS:
        index, count = SPECIAL_SGPRS[core]
        return Register("s", index, count, neg, absolute, sext)
    match = _SINGLE.match(core) or _RANGE.match(core)
    if match is None:
        return None
    kind, first = match[1], int(match[2])
    last = int(match[3]) if match.re is _RANGE and match[3] else first
    if last < first:
        raise ValueError(f"register range '{core}' runs backwards")
    half = match[3] or "" if match.re is _SINGLE else ""
    if half and kind != "v":
        raise ValueError(f"half register '{core}' is not known")
    if kind == "ttmp":
        kind, first, last = "s", first + TTMP0, last + TTMP0
    limit = {"v": 1024, "a": 256, "s": 128}[kind]
    if last >= limit:
        raise ValueError(f"register '{core}' does not exist")
    return Register(kind, first, last - first + 1, neg, absolute, sext, half)


def parse_modifier(text: str) -> tuple[str, ModifierValue]:
    """Read one modifier word.

    Raises:
        ValueError: the word is no known modifier.
    """
    if text in FLAG_MODIFIERS or text in DPP_FLAGS:
        return text, None
    match = _COUNTER.match(text)
    if match and match[1] in WAIT_COUNTERS:
        return match[1], int(match[2])
    match = _MODIFIER.match(text)
    if match is None or match[1] not in VALUE_MODIFIERS:
        raise ValueError(f"modifier '{text}' is not known")
    name, value = match[1], match[2]
    if value.startswith("[") and value.endswith("]"):
        return name, tuple(int(part, 0) for part in value[1:-1].split(","))
    if _INTEGER.match(value):
        return name, int(value, 0)
    return name, value


def check_hints(text: str) -> None:
    """Refuse what is no list of scheduling hints (``s_delay_alu``, ``s_wait_alu``); their values change no result.

    Raises:
        ValueError: some word is none.
    """
    for word in split_top(text, " \t|&"):
        if not _HINT.match(word):
            raise ValueError(f"'{word}' is no scheduling hint")


@lru_cache(maxsize=1 << 15)  # a text is read by the compilation, the emulator and the sanitizer, and repeats itself
def parse_operands(text: str, waits: bool = False) -> tuple[tuple[Operand, ...], tuple[tuple[str, ModifierValue], ...]]:
    """Read everything behind a mnemonic.

    Args:
        text: operands separated by commas, then modifiers separated by blanks.
        waits: the instruction takes wait counters, ``vmcnt(0) & lgkmcnt(1)``, not operands.

    Raises:
        ValueError: some piece is not known.
    """
    if waits and "(" in text:
        return (), tuple(parse_modifier(word) for word in split_top(text, " \t&"))
    operands: list[Operand] = []
    modifiers: list[tuple[str, ModifierValue]] = []
    pieces = split_top(text, ",")
    for at, piece in enumerate(pieces):
        words = split_top(piece, " \t")
        first = words[0]
        if first in FLAG_MODIFIERS or first in DPP_FLAGS or _MODIFIER.match(first):
            words.insert(0, "")
        elif not modifiers:
            operands.append(parse_operand(first))
        else:
            raise ValueError(f"operand '{first}' stands behind a modifier")
        if len(words) > 1 and at != len(pieces) - 1:
            raise ValueError(f"modifier '{words[1]}' stands before the last operand")
        modifiers += [parse_modifier(word) for word in words[1:]]
    return tuple(operands), tuple(modifiers)
