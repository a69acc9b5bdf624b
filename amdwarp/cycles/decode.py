"""From the instructions of a program to the operations of `amdwarp.cycles.issue`.

A mnemonic is classed by its row in the reader's table and by the lists below; nothing here depends on a run. Registers
are tracked only where it can matter: where a slow result (of an MFMA, or a vector result on its way to memory) meets a
consumer that some instruction of the program is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from amdwarp.asm import Immediate, Instruction, Program, Register
from amdwarp.asm.table import Format, lookup
from amdwarp.cycles import issue, sync
from amdwarp.cycles.encoding import encoded_bytes
from amdwarp.cycles.issue import ALU_BOARD, MATRIX_BOARD, MEMORY_BOARD, Op
from amdwarp.cycles.loops import Loop, innermost
from amdwarp.cycles.parameters import Parameters
from amdwarp.errors import EmulatorError

#: Transcendental instructions: mnemonics that begin like this.
TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos|tanh)(_|$)")
#: Integer instructions of a quarter of the rate (LLVM's WriteIntMul and Write64Bit quarter-rate rows).
QUARTER_RATE = re.compile(r"v_(mul_lo_u32|mul_hi_[iu]32|mad_[iu]64_[iu]32|mad_nc_[iu]64_[iu]32|mad_co_[iu]64_[iu]32)")
#: Packed fp32 arithmetic, which uses both halves of the vector ALU.
PACKED = re.compile(r"v_pk_(fma|mul|add)_f32")
LANE_EXCHANGE = re.compile(r"ds_(b?permute|swizzle)")
VECTOR_FORMATS = frozenset((Format.VOP1, Format.VOP2, Format.VOPC, Format.VOP3, Format.VOP3P))
VMEM_FORMATS = frozenset(("buffer", "global", "scratch", "flat", "tensor"))
#: Counter of the reader's table to the wave's.
COUNTERS = {"vm": issue.LOADS, "load": issue.LOADS, "store": issue.STORES, "async": issue.ASYNC, "tensor": issue.TENSOR}
_WIDTH = re.compile(r"_(?:dwordx(\d)|b(\d+)|(dword))(?:_|$)")
#: Slots that gfx12 code spends on what the hardware of gfx9 does by itself.
EXTRA_SLOTS = frozenset(("s_set_vgpr_msb", "s_delay_alu", "s_wait_alu"))
#: gfx12's wait instructions: counters with where their number stands in the operand. Others cover no data.
SPLIT_WAITS: dict[str, tuple[tuple[int, int], ...]] = {
    "s_wait_loadcnt": ((issue.LOADS, 0),),
    "s_wait_storecnt": ((issue.STORES, 0),),
    "s_wait_asynccnt": ((issue.ASYNC, 0),),
    "s_wait_tensorcnt": ((issue.TENSOR, 0),),
    "s_wait_dscnt": ((issue.DS, 0),),
    "s_wait_kmcnt": ((issue.KM, 0),),
    "s_wait_loadcnt_dscnt": ((issue.LOADS, 8), (issue.DS, 0)),
    "s_wait_storecnt_dscnt": ((issue.STORES, 8), (issue.DS, 0)),
}
#: Width of a number in such an operand.
_COUNT_MASK = 63
#: Barriers that have all waves of a workgroup as members; named ones are not modelled.
_WORKGROUP_BARRIERS = (-1, -3)
_SLEEP_CLK = 64


@dataclass(frozen=True)
class Decoded:
    """The operations of a program.

    Attributes:
        ops: one for each instruction.
        regions: for each instruction the innermost loop's number, or the number of loops.
        registers: length of a register board.
        code_bytes: size of the program.
    """

    ops: list[Op]
    regions: list[int]
    registers: int
    code_bytes: int


def decode(program: Program, loops: Sequence[Loop], parameters: Parameters) -> Decoded:
    """The operations of a program.

    Raises:
        EmulatorError: a matrix instruction without a row in the parameter file.
    """
    ops = [_op(inst, parameters) for inst in program.instructions]
    regions = innermost(program, list(loops))
    at = 0
    for op in ops:
        op.stalls = regions[op.index] * len(issue.CAUSES)
        op.line = at // parameters.icache_line_bytes
        at += encoded_bytes(op.inst)
    for loop in loops:
        ops[loop.header].header = loop.tails
        for tail in loop.tails:
            ops[tail].tail = True
    registers = _link(ops, program, parameters)
    return Decoded(ops, regions, registers, at)


def _op(inst: Instruction, p: Parameters) -> Op:
    info = lookup(inst.base)
    assert info is not None
    form = info.format
    if form is Format.MFMA or p.matrix_row(inst.base) is not None:
        return _matrix_op(inst, p)
    if form in VECTOR_FORMATS:
        return _vector_op(inst, p)
    if form is Format.DS:
        return _lds_op(inst, info.destinations, p)
    if form.value in VMEM_FORMATS:
        return _vmem_op(inst, info.counter, p)
    if form is Format.SMEM:
        return issue.ScalarLoadOp(inst, "salu", issue.PORT_SCALAR)
    if form is Format.SALU:
        return Op(inst, "salu", issue.PORT_SCALAR)
    if form is Format.BRANCH:
        return sync.EndOp(inst) if inst.base == "s_endpgm" else sync.BranchOp(inst)
    if form is Format.CACHE:
        return Op(inst, "other", issue.PORT_MEMORY)
    return _sync_op(inst, p)


def _vector_op(inst: Instruction, p: Parameters) -> Op:
    if TRANSCENDENTAL.match(inst.base):
        return issue.ValuOp(inst, p.trans_clk)
    if QUARTER_RATE.match(inst.base):
        return issue.ValuOp(inst, p.quarter_rate_clk)
    if PACKED.match(inst.base) and not p.packed_coissue:
        return issue.PackedOp(inst, p.valu_clk)
    return issue.ValuOp(inst, p.valu_clk)


def _has_8bit_operand(inst: Instruction) -> bool:
    """Whether A or B of an f8f6f4 instruction is fp8 or bf8, which is also what an absent format means."""
    formats = [inst.modifier(name) or 0 for name in ("cbsz", "blgp")]
    words = [str(inst.modifier(name) or "FP8") for name in ("matrix_a_fmt", "matrix_b_fmt")]
    if inst.base.startswith("v_wmma"):
        return any(word.endswith(("F8", "FP8")) for word in words)
    return any(value in (0, 1) for value in formats)


def _matrix_op(inst: Instruction, p: Parameters) -> Op:
    row = p.matrix_row(inst.base)
    if row is None:
        raise EmulatorError(f"'{inst.text}': no timing of this matrix instruction is known", where=inst.where)
    clk = row.clk
    if row.clk_8bit is not None and _has_8bit_operand(inst):
        clk = row.clk_8bit
    registers = sum(op.count for op in inst.operands[1:3] if isinstance(op, Register))
    read = row.read if row.read is not None else round(registers * p.mfma_read_clk_per_register)
    if row.read == row.clk:
        read = clk
    return issue.MatrixOp(inst, clk, min(max(read, p.valu_clk), clk))


def _passes(inst: Instruction, p: Parameters) -> int:
    row = p.matrix_row(inst.base)
    assert row is not None
    if row.passes_8bit is not None and _has_8bit_operand(inst):
        return row.passes_8bit
    return row.passes


def _lds_op(inst: Instruction, destinations: int, p: Parameters) -> Op:
    lanes = p.target.wave_size
    returned = sum(op.count for op in inst.operands[:destinations] if isinstance(op, Register))
    taken = sum(op.count for op in inst.operands[destinations:] if isinstance(op, Register) and op.kind in "va")
    input_clk = -(-lanes * taken * p.lds_address_bytes // p.lds_input_bytes_per_clk)
    return_clk = -(-lanes * returned * 4 // p.lds_return_bytes_per_clk)
    plain = len(p.lds["read", 4].phases) if LANE_EXCHANGE.match(inst.base) else 0
    return issue.LdsOp(inst, input_clk, return_clk, plain)


def access_bytes(base: str) -> int:
    """Bytes a lane of a vector memory instruction moves, as its mnemonic says; 4 where it moves less."""
    match = _WIDTH.search(base)
    if match is None or match[3]:
        return 4
    return 4 * int(match[1]) if match[1] else max(4, int(match[2]) // 8)


def _vmem_op(inst: Instruction, counter: str, p: Parameters) -> Op:
    size = access_bytes(inst.base)
    clk = p.tcp_clk_4 if size <= 4 else p.tcp_clk_8 if size <= 8 else p.tcp_clk_16
    returns = inst.has("sc0") or inst.has("glc")
    store = "store" in inst.base or ("atomic" in inst.base and not returns)
    port = issue.PORT_MEMORY if p.strict_memory_port else issue.PORT_VMEM
    return issue.VectorMemoryOp(inst, clk, store, COUNTERS.get(counter, issue.LOADS), port)


def _number(inst: Instruction) -> int:
    op = inst.operands[0] if inst.operands else None
    return int(op.value) if isinstance(op, Immediate) else 0


def _sync_op(inst: Instruction, p: Parameters) -> Op:
    base = inst.base
    if base == "s_waitcnt":
        return _wait_op(inst)
    if base in SPLIT_WAITS:
        code = _number(inst)
        return sync.WaitOp(inst, tuple((which, code >> shift & _COUNT_MASK) for which, shift in SPLIT_WAITS[base]))
    if base == "s_barrier":
        return sync.BarrierOp(inst)
    if base.startswith("s_barrier_") and inst.operands and _number(inst) in _WORKGROUP_BARRIERS:
        return sync.BarrierWaitOp(inst) if base == "s_barrier_wait" else sync.SignalOp(inst)
    if base == "s_setprio":
        return sync.PriorityOp(inst, _number(inst))
    if base == "s_nop":
        return sync.NopOp(inst, _number(inst) * p.issue_period_clk)
    if base == "s_sleep":
        return sync.NopOp(inst, _number(inst) * _SLEEP_CLK)
    if base in EXTRA_SLOTS:
        return sync.NopOp(inst, p.extra_slot_clk)
    return Op(inst, "other", issue.PORT_NONE)


def _wait_op(inst: Instruction) -> Op:
    """s_waitcnt with counters by name, or as one number: vmcnt in bits 0-3 and 14-15, lgkmcnt in bits 8-11."""
    if inst.operands:
        code = _number(inst)
        vm, lgkm = code & 15 | (code >> 14 & 3) << 4, code >> 8 & 15
        found = [(issue.LOADS, vm)] * (vm < 63) + [(issue.LGKM, lgkm)] * (lgkm < 15)
        return sync.WaitOp(inst, tuple(found))
    named = {"vmcnt": issue.LOADS, "lgkmcnt": issue.LGKM}
    return sync.WaitOp(inst, tuple((named[k], v) for k, v in inst.modifiers if k in named and isinstance(v, int)))


# Registers


@dataclass
class _Uses:
    """What an operation reads on which board, and writes, as ranges of board positions."""

    reads: list[tuple[int, int, int]]
    writes: list[tuple[int, int]]
    c: tuple[int, int] | None = None


def _link(ops: list[Op], program: Program, p: Parameters) -> int:
    """Fill in `checks` and `writes`; returns the length of a board."""
    vectors = 1
    for inst in program.instructions:
        for half in (inst, inst.second):
            for operand in half.operands if half is not None else ():
                if isinstance(operand, Register) and operand.kind == "v":
                    vectors = max(vectors, operand.index + operand.count)
    uses = [_uses(op, vectors) for op in ops]
    wanted: list[set[int]] = [set(), set(), set()]
    made: list[set[int]] = [set(), set(), set()]
    for op, use in zip(ops, uses, strict=True):
        for board, first, last in use.reads:
            wanted[board] |= set(range(first, last))
        for board, _ in _delays(op, p):
            for first, last in use.writes:
                made[board] |= set(range(first, last))
    for op, use in zip(ops, uses, strict=True):
        op.checks = tuple(read for read in use.reads if not made[read[0]].isdisjoint(range(read[1], read[2])))
        op.writes = tuple(
            (board, first, last, clk)
            for board, clk in _delays(op, p)
            for first, last in use.writes
            if not wanted[board].isdisjoint(range(first, last))
        )
    _link_chains(ops, uses, p)
    return vectors + 256


def _uses(op: Op, vectors: int) -> _Uses:
    use = _Uses([], [])
    for half in (op.inst, op.inst.second):
        if half is None:
            continue
        info = lookup(half.base)
        assert info is not None
        for at, operand in enumerate(half.operands):
            if not isinstance(operand, Register) or operand.kind == "s":
                continue
            first = operand.index + (vectors if operand.kind == "a" else 0)
            span = (first, first + operand.count)
            is_result = at < info.destinations
            if op.name == "mfma":
                if at == 3:
                    use.c = span
                elif is_result:
                    use.writes.append(span)
                else:
                    use.reads.append((MATRIX_BOARD, *span))
            elif op.name == "valu":
                use.reads.append((ALU_BOARD, *span))
                if is_result:
                    use.writes.append(span)
            elif op.name in ("lds", "vmem") and not is_result:
                use.reads.append((MEMORY_BOARD, *span))
    return use


def _delays(op: Op, p: Parameters) -> list[tuple[int, int]]:
    """Boards on which the results of an operation are late, and by how many clk from its issue."""
    if isinstance(op, issue.MatrixOp):
        clk = (_passes(op.inst, p) + p.mfma_use_wait + 1) * p.hazard_slot_clk
        return [(ALU_BOARD, clk), (MEMORY_BOARD, clk), (MATRIX_BOARD, clk)]
    if not isinstance(op, issue.ValuOp):
        return []
    extra = op.clk - p.valu_clk
    delays = [(MEMORY_BOARD, p.valu_to_memory_clk + extra)]
    if p.valu_latency_clk > p.issue_period_clk:
        delays.append((ALU_BOARD, p.valu_latency_clk + extra))
    if p.valu_to_mfma_wait:
        delays.append((MATRIX_BOARD, (p.valu_to_mfma_wait + 1) * p.hazard_slot_clk + extra))
    return delays


def _link_chains(ops: list[Op], uses: list[_Uses], p: Parameters) -> None:
    """Mark the matrix operations whose C can come from a result of another, overlapping range."""
    matrix = [(op, use) for op, use in zip(ops, uses, strict=True) if isinstance(op, issue.MatrixOp) and use.writes]
    spans = {use.writes[0] for _, use in matrix}
    mixed = {
        (a, b) for _, use in matrix if (a := use.c) is not None for b in spans if a != b and a[0] < b[1] and b[0] < a[1]
    }
    if not mixed:
        return
    for op, use in matrix:
        c = use.c if use.c is not None else (0, 0)
        op.chain = (c, use.writes[0])
        op.c_wait = (_passes(op.inst, p) + p.mfma_c_wait + 1) * p.hazard_slot_clk
