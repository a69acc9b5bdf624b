"""What each instruction does to registers and counters, computed once for a program.

Registers are bits of a Python int, so that a set of registers is one number and two sets meet where their `&` is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.asm import Immediate, Instruction, Program, Register
from amdwarp.asm.program import EXEC, M0, VCC
from amdwarp.asm.table import Format, lookup

#: First bit of the accumulation and of the scalar registers; vector registers start at 0.
_BASE = {"v": 0, "a": 1024, "s": 2048}
SCC_BIT = 1 << (2048 + 128)

#: Queues that waits empty. Operations of one queue finish in order, but for scalar loads, which only a wait for none
#: covers. ``lgkmcnt`` counts both LDS operations and scalar loads.
VM, DS, SM = "vm", "ds", "sm"
QUEUES = (VM, DS, SM)

#: Queues that finish in order.
IN_ORDER = (VM, DS)

#: The wait for a queue, with a place for the number of operations that may stay under way.
COUNTER = {VM: "s_waitcnt vmcnt({})", DS: "s_waitcnt lgkmcnt({})", SM: "s_waitcnt lgkmcnt({})"}

_QUEUE_OF_FORMAT = {
    Format.BUFFER: VM,
    Format.GLOBAL: VM,
    Format.FLAT: VM,
    Format.SCRATCH: VM,
    Format.DS: DS,
    Format.SMEM: SM,
}

#: Instructions that also read what they write.
_READ_MODIFY_WRITE = (
    *("v_fmac_", "v_mac_", "v_dot2c_", "v_dot4c_", "v_pk_fmac_", "v_writelane_", "v_swap_", "v_permlane"),
    *("s_cmov", "s_bitset", "s_addk_", "s_mulk_"),
)

_VCNT_NONE, _LGKM_NONE = 63, 15


def register_bits(kind: str, index: int, count: int) -> int:
    """The set of `count` registers from `index` on; `kind` is ``v``, ``a`` or ``s``."""
    return ((1 << count) - 1) << (_BASE[kind] + index)


VECTOR_BITS = register_bits("v", 0, 1024) | register_bits("a", 0, 1024)
SCALAR_BITS = register_bits("s", 0, 128)

_IMPLICIT = {
    "scc": SCC_BIT,
    "vcc": register_bits("s", VCC, 2),
    "exec": register_bits("s", EXEC, 2),
    "m0": register_bits("s", M0, 1),
}
EXEC_BITS, VCC_BITS, M0_BITS = _IMPLICIT["exec"], _IMPLICIT["vcc"], _IMPLICIT["m0"]


def name_registers(bits: int) -> str:
    """``v[4:7], s2``: the registers of a set."""
    names = []
    for kind, first in _BASE.items():
        part, at = bits >> first & (1 << 1024) - 1, 0
        if kind == "s":
            part &= (1 << 128) - 1
        while part:
            low = (part & -part).bit_length() - 1
            part >>= low
            run = ((part + 1) & -(part + 1)).bit_length() - 1
            start = at + low
            names.append(f"{kind}{start}" if run == 1 else f"{kind}[{start}:{start + run - 1}]")
            part >>= run
            at = start + run
    return ", ".join(names) or "scc"


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of one instruction.

    Attributes:
        reads, writes: registers, implicit ones included; exec is left out of `reads`.
        operands: the set of each operand, in text order; 0 for what is no register.
        destinations: how many leading operands are written.
        queue: the queue it enters, or "".
        delivers: registers that hold its result only behind a wait.
        waits: (queue, operations that may stay under way) of a wait instruction.
        to_lds: True for a load that writes LDS itself.
        format: format family, or None where the table has none.
    """

    reads: int
    writes: int
    operands: tuple[int, ...]
    destinations: int
    queue: str = ""
    delivers: int = 0
    waits: tuple[tuple[str, int], ...] = ()
    to_lds: bool = False
    format: Format | None = None

    @property
    def touches(self) -> int:
        """Registers read or written."""
        return self.reads | self.writes


#: Vector arithmetic, matrix instructions left out.
VALU_FORMATS = (Format.VOP1, Format.VOP2, Format.VOP3, Format.VOP3P, Format.VOPC)


def wait_limits(inst: Instruction) -> tuple[tuple[str, int], ...]:
    """What ``s_waitcnt`` waits for: (queue, operations that may stay under way)."""
    if inst.operands and isinstance(inst.operands[0], Immediate):
        code = int(inst.operands[0].value)
        vm: object = code & 15 | (code >> 14 & 3) << 4
        lgkm: object = code >> 8 & 15
    else:
        vm, lgkm = inst.modifier("vmcnt"), inst.modifier("lgkmcnt")
    limits: list[tuple[str, int]] = []
    if isinstance(vm, int) and vm < _VCNT_NONE:
        limits.append((VM, vm))
    if isinstance(lgkm, int) and lgkm < _LGKM_NONE:
        limits.append((DS, lgkm))
        if lgkm == 0:
            limits.append((SM, 0))
    return tuple(limits)


def effects_of(inst: Instruction) -> Effects:
    """Effects of one instruction."""
    if inst.base == "s_waitcnt":
        return Effects(0, 0, (), 0, waits=wait_limits(inst), format=Format.SYNC)
    info = lookup(inst.base)
    operands = tuple(
        register_bits(op.kind, op.index, op.count) if isinstance(op, Register) else 0 for op in inst.operands
    )
    if info is None:
        everything = 0
        for bits in operands:
            everything |= bits
        return Effects(everything, everything, operands, len(operands))
    to_lds = inst.has("lds") or "_load_lds_" in inst.base
    destinations = 0 if to_lds else info.destinations
    delivers = 0
    if "_atomic_" in inst.base and (inst.has("sc0") or inst.has("glc")):
        # The result of a buffer atomic stands in its data operand, that of the others in a first operand of its own.
        destinations = 1
    reads = writes = 0
    for at, bits in enumerate(operands):
        if at < destinations:
            writes |= bits
        else:
            reads |= bits
    if _reads_destination(inst, destinations):
        reads |= writes
    for name in info.reads:
        reads |= 0 if name == "exec" else _IMPLICIT[name]
    for name in info.writes:
        writes |= _IMPLICIT[name]
    if to_lds:
        reads |= M0_BITS
    queue = _QUEUE_OF_FORMAT.get(info.format, "") if info.counter else ""
    if queue:
        delivers, writes = writes, 0
    return Effects(reads, writes | delivers, operands, destinations, queue, delivers, (), to_lds, info.format)


def _reads_destination(inst: Instruction, destinations: int) -> bool:
    if not destinations:
        return False
    if inst.base.startswith(_READ_MODIFY_WRITE) or "_d16" in inst.base or inst.base.startswith("buffer_atomic"):
        return True
    if inst.encoding in ("dpp", "e64_dpp", "dpp8"):
        return True
    return inst.encoding == "sdwa" and inst.modifier("dst_unused") == "UNUSED_PRESERVE"


def program_effects(program: Program) -> tuple[Effects, ...]:
    """Effects of every instruction, by index."""
    return tuple(effects_of(inst) for inst in program.instructions)
