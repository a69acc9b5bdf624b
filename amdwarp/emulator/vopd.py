"""Dual issue (VOPD): two operations in one instruction. Both read their sources before either writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from amdwarp.asm import Instruction, Register
from amdwarp.asm.program import VCC
from amdwarp.emulator.bind import HANDLERS, Binder, handles
from amdwarp.emulator.names import NAMES
from amdwarp.emulator.state import Batch, Closure

#: Operation of a half (without ``v_dual_``) to its name as an instruction of its own, where that is not ``v_`` + name.
_NAMES = {
    "mul_dx9_zero_f32": "v_mul_legacy_f32",
    "dot2acc_f32_f16": "v_dot2c_f32_f16",
    "dot2acc_f32_bf16": "v_dot2c_f32_bf16",
}
_ACCUMULATE = ("fmac", "dot2acc")


def single(base: str) -> str:
    """Name of the handler of the half `base` (``v_dual_...``)."""
    name = base[len("v_dual_") :]
    alone = _NAMES.get(name, f"v_{name}")
    return NAMES.get(alone, alone)


def _single(half: Instruction) -> Instruction:
    """The half as an instruction of its own."""
    operands = half.operands
    if half.base == "v_dual_cndmask_b32" and len(operands) == 3:
        operands = (*operands, Register("s", VCC))
    return replace(half, base=single(half.base), operands=operands, second=None)


def _rows(half: Instruction, at: slice) -> set[int]:
    """Vector registers among the operands."""
    found: set[int] = set()
    for op in half.operands[at]:
        if isinstance(op, Register) and op.kind == "v":
            found |= set(range(op.index, op.index + op.count))
    return found


def _reads(half: Instruction) -> set[int]:
    accumulates = any(name in half.mnemonic for name in _ACCUMULATE)
    return _rows(half, slice(0, None) if accumulates else slice(1, None))


@handles("dual issue")
def bind_dual(binder: Binder) -> Closure:
    """Run the halves in an order that lets both read old values, or put those aside where no order does."""
    inst = binder.inst
    assert inst.second is not None
    if not all(half.mnemonic.startswith("v_dual_") for half in (inst, inst.second)):
        raise binder.fail("only v_dual_ operations pair up")
    halves = [_single(inst), _single(inst.second)]
    closures = []
    for half in halves:
        inner = Binder(binder.program, half, binder.agpr_base)
        handler = HANDLERS.get(half.base)
        if handler is None:
            raise binder.fail(f"the emulator does not know {half.mnemonic}")
        closures.append(handler(inner))
        inner.finish()
    binder.left.clear()
    first, second = closures
    writes = [_rows(half, slice(0, 1)) for half in halves]
    if writes[0] & writes[1]:
        raise binder.fail("both operations write the same register")
    if not writes[0] & _reads(halves[1]):
        return _in_order(first, second)
    if not writes[1] & _reads(halves[0]):
        return _in_order(second, first)
    rows = sorted(writes[0])

    def run(b: Batch) -> None:
        old = b.u[rows].copy()
        first(b)
        new = b.u[rows].copy()
        b.u[rows] = old
        second(b)
        b.u[rows] = new

    return run


def _in_order(first: Closure, second: Closure) -> Closure:
    def run(b: Batch) -> None:
        first(b)
        second(b)

    return run


@handles("v_bitop2_b32")
def bind_bitop2(binder: Binder) -> Closure:
    """Any function of two bits: bit (a * 4 + b * 2) of the table."""
    binder.need(3)
    table = binder.take("bitop3", 0)
    x, y, put = binder.source(1, "u32"), binder.source(2, "u32"), binder.target(0, "u32")
    terms = [row for row in (0, 2, 4, 6) if table >> row & 1]

    def run(b: Batch) -> None:
        p, q = np.asarray(x(b)), np.asarray(y(b))
        out = np.zeros_like(p | q)
        for row in terms:
            out |= (p if row & 4 else ~p) & (q if row & 2 else ~q)
        put(b, out, b.mask)

    return run
