"""Registers addressed relative to M0: s_movrel and the vector ALU's index mode (s_set_gpr_idx).

Within index mode the vector registers that an enabled operand names are counted from M0[7:0]. An instruction that can
be reached in that mode is bound once for each index it meets.
"""

from __future__ import annotations

import re
from dataclasses import replace

from amdwarp.asm import Immediate, Instruction, Operand, Program, Register, Symbol
from amdwarp.asm.program import M0
from amdwarp.asm.table import Format, lookup
from amdwarp.emulator.bind import Binder, bind_plainly, handles
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import Batch, Closure

#: MODE bit of index mode.
INDEX_MODE = 1 << 27
_FORMATS = (Format.VOP1, Format.VOP2, Format.VOPC, Format.VOP3)
_ENABLES = ("SRC0", "SRC1", "SRC2", "DST")
_LIST = re.compile(r"gpr_idx\(([A-Z0-9,]*)\)$")


def _uniform(value: object) -> int:
    if not isinstance(value, int):
        raise Fault("the waves of a batch hold different register indices in M0", remedy="launch with lockstep=1")
    return value


#: The last program that `indexed` looked at.
_last: list[tuple[Program, bool]] = []


def indexed(program: Program) -> bool:
    """True if `program` uses index mode."""
    if not _last or _last[0][0] is not program:
        _last[:] = [(program, any(inst.base == "s_set_gpr_idx_on" for inst in program.instructions))]
    return _last[0][1]


def takes_index(inst: Instruction) -> bool:
    """True if the instruction's vector registers follow index mode."""
    info = lookup(inst.base)
    return info is not None and info.format in _FORMATS


def _shifted(inst: Instruction, index: int, enables: int) -> Instruction:
    info = lookup(inst.base)
    assert info is not None
    operands: list[Operand] = []
    for at, op in enumerate(inst.operands):
        flag = 8 if at < info.destinations else 1 << (at - info.destinations)
        if isinstance(op, Register) and op.kind == "v" and enables & flag:
            operands.append(replace(op, index=op.index + index))
        else:
            operands.append(op)
    return replace(inst, operands=tuple(operands))


def bind_indexed(program: Program, inst: Instruction, agpr_base: int, plain: Closure) -> Closure:
    """`plain`, or in index mode the instruction with shifted registers."""
    known: dict[tuple[int, int], Closure] = {}

    def run(b: Batch) -> int | None:
        if not b.mode & INDEX_MODE:
            return plain(b)
        value = _uniform(b.s[M0])
        key = value & 0xFF, value >> 12 & 15
        if key not in known:
            moved = _shifted(inst, *key)
            for op in moved.operands:
                if isinstance(op, Register) and op.kind == "v" and op.index + op.count > agpr_base:
                    raise Fault(f"register index {key[0]} leaves the {agpr_base} vector registers")
            known[key] = bind_plainly(program, moved, agpr_base)
        return known[key](b)

    return run


def _enables(binder: Binder, at: int) -> int:
    op = binder.ops[at]
    if isinstance(op, Immediate) and isinstance(op.value, int):
        return op.value & 15
    match = _LIST.match(op.name) if isinstance(op, Symbol) else None
    names = [name for name in match[1].split(",") if name] if match else ["?"]
    if any(name not in _ENABLES for name in names):
        raise binder.fail(f"operand {at + 1} names the operands that are indexed")
    return sum(1 << _ENABLES.index(name) for name in names)


def _merge(b: Batch, value: int, mask: int) -> None:
    b.s[M0] = _uniform(b.s[M0]) & ~mask | value & mask


@handles("s_set_gpr_idx_on")
def bind_index_on(binder: Binder) -> Closure:
    """Enter index mode: M0[7:0] is the index, M0[15:12] the operands it counts for."""
    binder.need(2)
    get, enables = binder.scalar_source(0), _enables(binder, 1)

    def run(b: Batch) -> None:
        _merge(b, _uniform(get(b)) & 0xFF | enables << 12, 0xF0FF)
        b.mode |= INDEX_MODE

    return run


@handles("s_set_gpr_idx_off")
def bind_index_off(binder: Binder) -> Closure:
    """Leave index mode."""
    binder.need(0)

    def run(b: Batch) -> None:
        b.mode &= ~INDEX_MODE

    return run


@handles("s_set_gpr_idx_idx")
def bind_index(binder: Binder) -> Closure:
    """Change the index."""
    binder.need(1)
    get = binder.scalar_source(0)
    return lambda b: _merge(b, _uniform(get(b)), 0xFF)


@handles("s_set_gpr_idx_mode")
def bind_index_operands(binder: Binder) -> Closure:
    """Change the operands that are indexed."""
    binder.need(1)
    enables = _enables(binder, 0)
    return lambda b: _merge(b, enables << 12, 0xF000)


@handles("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64")
def bind_move_relative(binder: Binder) -> Closure:
    """Scalar move from (movrels) or to (movreld) the register M0 places behind the one that is written."""
    binder.need(2)
    count = int(binder.inst.base[-2:]) // 32
    if "movrels" in binder.inst.base:
        put, first = binder.scalar_target(0, 32 * count), binder.scalar(1, count)

        def from_relative(b: Batch) -> None:
            at = _within(first + _uniform(b.s[M0]), count)
            put(b, b.pair(at) if count == 2 else b.s[at])

        return from_relative
    target, get = binder.scalar(0, count), binder.scalar_source(1, 32 * count)

    def to_relative(b: Batch) -> None:
        at = _within(target + _uniform(b.s[M0]), count)
        if count == 2:
            b.set_pair(at, get(b))
        else:
            b.s[at] = get(b)

    return to_relative


def _within(at: int, count: int) -> int:
    if not 0 <= at <= 104 - count:
        raise Fault(f"scalar register {at} does not exist")
    return at
