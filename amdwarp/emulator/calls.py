"""Jumps through registers, calls, hardware registers and traps.

Code has addresses of its own: instruction i stands at `CODE` + 8 i. That suits the way LLVM addresses a function, a
program counter plus ``name@rel32``: both literals are relative to their own place, 4 bytes behind the start of the
instruction, and the difference is taken out by the constants written behind the name.
"""

from __future__ import annotations

import re

from amdwarp.asm import Immediate, Symbol
from amdwarp.asm.operands import LABEL_DISTANCE
from amdwarp.emulator.bind import MASK32, Binder, Getter, handles
from amdwarp.emulator.hardware import NUMBERS, register_field
from amdwarp.emulator.memory import Fault
from amdwarp.emulator.state import Batch, Closure, Scalar, SplitError, expand

#: Address of the first instruction; no buffer lies there.
CODE = 0x0000_7000_0000
#: Bytes of an instruction.
STEP = 8

_RELATIVE = re.compile(r"(.+)@rel32@(lo|hi)\+(\d+)$")


def address_of(index: int) -> int:
    """Address of an instruction."""
    return CODE + STEP * index


def relative_address(binder: Binder, name: str) -> int | None:
    """The value of ``function@rel32@lo+4`` or ``(label-label)>>32`` here; None where `name` is neither."""
    labels = binder.program.labels
    if distance := LABEL_DISTANCE.match(name):
        for one in (distance[1], distance[2]):
            if one not in labels:
                raise binder.fail(f"the text has no label '{one}'")
        wide = address_of(labels[distance[1]]) - address_of(labels[distance[2]])
        return (wide >> (32 if distance[3] == ">>32" else 0)) & MASK32
    match = _RELATIVE.match(name)
    if match is None:
        return None
    if match[1] not in labels:
        raise binder.fail(f"the text has no function '{match[1]}'")
    place = address_of(binder.inst.index) + 4
    wide = address_of(labels[match[1]]) + int(match[3]) - place
    return (wide >> (32 if match[2] == "hi" else 0)) & MASK32


def _jump(b: Batch, address: Scalar, count: int) -> int:
    """The instruction at `address`.

    Raises:
        Fault: no instruction stands there.
        SplitError: the waves jump to different places.
    """
    targets = []
    for wave, place in enumerate(expand(address, b.n)):
        index, rest = divmod(place - CODE, STEP)
        if rest or not 0 <= index < count:
            raise Fault(f"a jump to {place:#x}, where no instruction stands", wave, 0)
        targets.append(index)
    if len(set(targets)) > 1:
        raise SplitError(targets)
    return targets[0]


@handles("s_getpc_b64", "s_get_pc_i64")
def bind_get_pc(binder: Binder) -> Closure:
    """The address of the next instruction."""
    binder.need(1)
    put, value = binder.scalar_target(0, 64), address_of(binder.inst.index + 1)
    return lambda b: put(b, value)


@handles("s_setpc_b64", "s_set_pc_i64")
def bind_set_pc(binder: Binder) -> Closure:
    """Jump to an address."""
    binder.need(1)
    get, count = binder.scalar_source(0, 64), len(binder.program.instructions)
    return lambda b: _jump(b, get(b), count)


@handles("s_swappc_b64", "s_swap_pc_i64")
def bind_swap_pc(binder: Binder) -> Closure:
    """Call: jump to an address and keep that of the next instruction."""
    binder.need(2)
    put, get, count = binder.scalar_target(0, 64), binder.scalar_source(1, 64), len(binder.program.instructions)
    back = address_of(binder.inst.index + 1)

    def run(b: Batch) -> int:
        address = get(b)
        put(b, back)
        return _jump(b, address, count)

    return run


@handles("s_call_b64", "s_call_i64")
def bind_call(binder: Binder) -> Closure:
    """Jump to a label and keep the address of the next instruction."""
    binder.need(2)
    op = binder.ops[1]
    if not isinstance(op, Symbol) or op.name not in binder.program.labels:
        raise binder.fail("operand 2 must be a label of the text")
    put, target, back = binder.scalar_target(0, 64), binder.program.labels[op.name], address_of(binder.inst.index + 1)

    def run(b: Batch) -> int:
        put(b, back)
        return target

    return run


def hardware_register(binder: Binder, at: int) -> tuple[int, int, int]:
    """Register number, lowest bit and width of an operand ``hwreg(...)``."""
    op = binder.ops[at]
    if isinstance(op, Immediate) and isinstance(op.value, int):
        return op.value & 63, op.value >> 6 & 31, (op.value >> 11 & 31) + 1
    field = register_field(op.name) if isinstance(op, Symbol) else None
    if field is None:
        raise binder.fail(f"operand {at + 1} is no hardware register that is known")
    return field


def _values(binder: Binder, number: int) -> Getter:
    if number == NUMBERS["HW_REG_MODE"]:
        return lambda b: b.mode
    if number == NUMBERS["HW_REG_XCC_ID"]:
        return lambda b: 0
    if number == NUMBERS["HW_REG_HW_ID"]:
        # The wave's slot; everything runs on the first compute unit.
        return lambda b: tuple(range(b.first, b.last)) if b.n > 1 else b.first
    if number in (NUMBERS["HW_REG_STATUS"], NUMBERS["HW_REG_TRAPSTS"]):
        return lambda b: 0
    raise binder.fail(f"the hardware register {number} is not known")


@handles("s_getreg_b32")
def bind_get_register(binder: Binder) -> Closure:
    """A field of MODE; STATUS, TRAPSTS and XCC_ID read as 0, HW_ID as the number of the wave."""
    binder.need(2)
    number, offset, size = hardware_register(binder, 1)
    get, put, mask = _values(binder, number), binder.scalar_target(0), (1 << size) - 1

    def run(b: Batch) -> None:
        value = get(b)
        put(b, value >> offset & mask if isinstance(value, int) else tuple(x >> offset & mask for x in value))

    return run


@handles("s_wakeup")
def bind_wake_up(binder: Binder) -> Closure:
    """Wakes the other waves of the workgroup: no effect on what is computed."""
    return lambda b: None


@handles("s_trap")
def bind_trap(binder: Binder) -> Closure:
    """The trap handler ends the kernel: a failed assertion or an abort."""
    binder.need(1)
    op = binder.ops[0]

    def run(b: Batch) -> None:
        raise Fault(f"the kernel traps ({getattr(op, 'value', op)}): an assertion failed or it called abort")

    return run
