"""What each instruction does to registers and counters, computed once for a program.

Registers are bits of a Python int, so that a set of registers is one number and two sets meet where their `&` is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.asm import Immediate, Instruction, Program, Register
from amdwarp.asm.program import EXEC, M0, VCC
from amdwarp.asm.rows import Format, InstructionInfo
from amdwarp.asm.table import lookup

#: First bit of the accumulation and of the scalar registers; vector registers start at 0.
_BASE = {"v": 0, "a": 1024, "s": 2048}
SCC_BIT = 1 << (2048 + 128)

#: Queues that waits empty: vector memory loads (and on gfx9 stores), LDS operations, scalar loads; on gfx1250 also
#: stores, copies between LDS and memory, and tensor copies.
VM, DS, SM, ST, AS, TN = "vm", "ds", "sm", "st", "as", "tn"
QUEUES = (VM, DS, SM, ST, AS, TN)

#: Queues whose operations finish in order. Scalar loads do not: only a wait for none of them covers a particular one.
IN_ORDER = (VM, DS, ST, AS, TN)

#: The wait for each queue, with a place for the number of operations that may stay under way. ``lgkmcnt`` counts both
#: LDS operations and scalar loads.
_GFX9_WAITS = {VM: "s_waitcnt vmcnt({})", DS: "s_waitcnt lgkmcnt({})", SM: "s_waitcnt lgkmcnt({})"}
_GFX12_WAITS = {
    VM: "s_wait_loadcnt {:#x}",
    DS: "s_wait_dscnt {:#x}",
    SM: "s_wait_kmcnt {:#x}",
    ST: "s_wait_storecnt {:#x}",
    AS: "s_wait_asynccnt {:#x}",
    TN: "s_wait_tensorcnt {:#x}",
}
#: Wait instructions of gfx1250: queues, the first in the low bits where there are two.
_SPLIT_WAITS: dict[str, tuple[str, ...]] = {
    "s_wait_loadcnt": (VM,),
    "s_wait_storecnt": (ST,),
    "s_wait_dscnt": (DS,),
    "s_wait_kmcnt": (SM,),
    "s_wait_asynccnt": (AS,),
    "s_wait_tensorcnt": (TN,),
    "s_wait_loadcnt_dscnt": (DS, VM),
    "s_wait_storecnt_dscnt": (DS, ST),
}

_QUEUE_OF_FORMAT = {
    Format.BUFFER: VM,
    Format.GLOBAL: VM,
    Format.FLAT: VM,
    Format.SCRATCH: VM,
    Format.DS: DS,
    Format.SMEM: SM,
    Format.TENSOR: TN,
}


def has_split_counters(target: str) -> bool:
    """True for a target whose stores and LDS operations have wait instructions of their own."""
    return target.startswith("gfx12")


def spell_wait(target: str, queue: str, younger: int) -> str:
    """The wait that covers an operation with so many younger ones in its queue."""
    waits = _GFX12_WAITS if has_split_counters(target) else _GFX9_WAITS
    return waits[queue].format(younger if queue in IN_ORDER else 0)


def counter_name(target: str, queue: str) -> str:
    """``vmcnt``, ``dscnt``: the counter of a queue."""
    words = spell_wait(target, queue, 0).split()
    return words[1].split("(")[0] if words[0] == "s_waitcnt" else words[0].removeprefix("s_wait_")


#: Instructions that also read what they write.
_READ_MODIFY_WRITE = (
    *("v_fmac_", "v_mac_", "v_dot2c_", "v_dot4c_", "v_pk_fmac_", "v_writelane_", "v_swap_", "v_permlane"),
    *("s_cmov", "s_bitset", "s_addk_", "s_mulk_"),
)


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
        to_lds: True for a load that writes LDS itself, past the queue of LDS operations.
        format: format family, or None where the table has none.

    An operation whose queue is neither "" nor `DS` and that accesses LDS does so past the queue of LDS operations.
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
    """What a wait instruction waits for: (queue, operations that may stay under way)."""
    if inst.base == "s_wait_idle":
        return tuple((queue, 0) for queue in QUEUES)
    if inst.base in _SPLIT_WAITS:
        queues, number = _SPLIT_WAITS[inst.base], inst.operands[0]
        count = int(number.value) if isinstance(number, Immediate) else 0
        limits = [(queue, count >> 8 * at & 63) for at, queue in enumerate(queues)]
        return tuple((queue, left) for queue, left in limits if queue in IN_ORDER or left == 0)
    if inst.operands and isinstance(inst.operands[0], Immediate):
        code = int(inst.operands[0].value)
        vm: object = code & 15 | (code >> 14 & 3) << 4
        lgkm: object = code >> 8 & 15
    else:
        vm, lgkm = inst.modifier("vmcnt"), inst.modifier("lgkmcnt")
    limits = []
    # The largest count waits too: no more operations than that are ever under way, and LLVM relies on it.
    if isinstance(vm, int):
        limits.append((VM, vm))
    if isinstance(lgkm, int):
        limits.append((DS, lgkm))
        if lgkm == 0:
            limits.append((SM, 0))
    return tuple(limits)


def effects_of(inst: Instruction, target: str) -> Effects:
    """Effects of one instruction."""
    if inst.base == "s_waitcnt" or inst.base == "s_wait_idle" or inst.base in _SPLIT_WAITS:
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
    to_lds = inst.has("lds") or "_load_lds_" in inst.base or "_to_lds" in inst.base
    returns = "_atomic_" in inst.base and _returns(inst)
    # The result of a buffer atomic stands in its data operand, that of the others in a first operand of its own.
    destinations = 0 if to_lds else 1 if returns else info.destinations
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
    if to_lds and not has_split_counters(target):
        reads |= M0_BITS
    queue = _queue(inst, info, target, returns) if info.counter else ""
    delivers = writes if queue else 0
    if inst.second is not None:
        other = effects_of(inst.second, target)
        reads, writes, operands = reads | other.reads, writes | other.writes, operands + other.operands
    return Effects(reads, writes, operands, destinations, queue, delivers, (), to_lds, info.format)


def _returns(inst: Instruction) -> bool:
    """True for an atomic that gives back the old value."""
    policy = inst.modifier("th")
    return inst.has("sc0") or inst.has("glc") or (isinstance(policy, str) and "RETURN" in policy)


def _queue(inst: Instruction, info: InstructionInfo, target: str, returns: bool) -> str:
    """The queue that a memory operation enters."""
    queue = _QUEUE_OF_FORMAT[info.format]
    if not has_split_counters(target):
        return queue
    if "_async_" in inst.base:
        return AS
    if queue == VM and ("_store_" in inst.base or ("_atomic_" in inst.base and not returns)):
        return ST
    return queue


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
    return tuple(effects_of(inst, program.target) for inst in program.instructions)
