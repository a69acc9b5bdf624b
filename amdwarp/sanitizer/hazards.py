"""Wait states that the compiler must leave between instructions of CDNA3 and CDNA4, as a table of rules.

The numbers are those of LLVM's ``GCNHazardRecognizer.cpp`` for gfx940 and gfx950 (llvm-project, 2026), which follow the
sections "Manually inserted wait states" of AMD's CDNA3 and CDNA4 instruction set manuals. A wait state is one issued
instruction; ``s_nop n`` counts for n + 1. LLVM looks 19 states back at most, and so does this check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from amdwarp.asm import Instruction
from amdwarp.asm.table import Format
from amdwarp.sanitizer.effects import EXEC_BITS, M0_BITS, SCALAR_BITS, VALU_FORMATS, VCC_BITS, VECTOR_BITS, Effects

#: Targets that the rules are for.
TARGETS = ("gfx942", "gfx950")
#: Wait states that are looked at behind an instruction at most.
FARTHEST = 19
_MEMORY = (Format.DS, Format.BUFFER, Format.GLOBAL, Format.FLAT, Format.SCRATCH)
_VMEM = _MEMORY[1:]
_TRANS = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos|exp_legacy|log_legacy)_f(16|32|64)$")
_MFMA = re.compile(r"v_s?mfma\w*?_(f32|i32|f64)_(\d+)x\d+x\d+_?(?:(\d+)b_)?(\w+)$")
_LANES = ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")


@dataclass(frozen=True, slots=True)
class Matrix:
    """Timing class of a matrix instruction.

    Attributes:
        passes: of 4 clocks.
        kind: ``xdl`` (the matrix pipe proper), ``sgemm`` (f32) or ``dgemm`` (f64).
        rows: rows of a block of the result: 4, 16 or 32.
    """

    passes: int
    kind: str
    rows: int


def matrix_class(inst: Instruction, target: str) -> Matrix | None:
    """Timing class of `inst`, or None if it is no matrix instruction."""
    match = _MFMA.match(inst.base)
    if match is None:
        return None
    result, rows, blocks, element = match[1], int(match[2]), int(match[3] or 1), match[4]
    if result == "f64":
        return Matrix(4 if rows == 4 else 16 if target == "gfx950" else 8, "dgemm", rows)
    if element == "f32":
        return Matrix({4: 2, 16: 8, 32: 16}[rows], "sgemm", rows)
    passes = {4: 2, 16: 4 if blocks == 1 else 8, 32: 8 if blocks == 1 else 16}[rows]
    if element == "f8f6f4" and any(inst.modifier(name) in (None, 0, 1) for name in ("cbsz", "blgp")):
        passes *= 2
    return Matrix(passes, "xdl", rows)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules ask of an instruction.

    Attributes:
        matrix: its timing class if it is a matrix instruction.
        is_valu: vector arithmetic other than that.
        is_memory: LDS and vector memory operations.
        is_dpp: a form that reads other lanes.
        vector_writes: vector registers written, those that a load delivers included.
        scalar_writes: scalar registers written.
    """

    inst: Instruction
    effects: Effects
    is_gfx950: bool
    matrix: Matrix | None
    is_valu: bool
    is_memory: bool
    is_dpp: bool
    vector_writes: int
    scalar_writes: int


def facts_of(inst: Instruction, effects: Effects, target: str) -> Facts:
    """What the rules ask of `inst`."""
    return Facts(
        inst,
        effects,
        target == "gfx950",
        matrix_class(inst, target) if effects.format is Format.MFMA else None,
        effects.format in VALU_FORMATS,
        effects.format in _MEMORY,
        inst.encoding in ("dpp", "e64_dpp", "dpp8"),
        effects.writes & VECTOR_BITS,
        effects.writes & SCALAR_BITS,
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """One hazard.

    Attributes:
        name: from what to what, for the finding.
        source: registers of a producer that are dangerous, 0 where it is none.
        reach: the most wait states it asks for.
        hit: (registers of a consumer that meet them, wait states needed); the first argument is the producer.
    """

    name: str
    source: Callable[[Facts], int]
    reach: int
    hit: Callable[[Facts, Facts], tuple[int, int]]


_NOTHING = (0, 0)


def _valu_vectors(p: Facts) -> int:
    return p.vector_writes if p.is_valu else 0


def _valu_scalars(p: Facts) -> int:
    return p.scalar_writes if p.is_valu else 0


def _result_needs(m: Matrix, is_gfx950: bool, memory: bool) -> int:
    """From a matrix result to a read by anything but a matrix instruction."""
    if m.kind == "dgemm":
        if m.rows == 4:
            return 9 if memory else 6
        return 18 if memory else 19 if is_gfx950 else 11
    if m.kind == "sgemm":
        return m.passes + 2
    return m.passes + 3 + (is_gfx950 and m.passes != 2)


def _overwrite_needs(m: Matrix, is_gfx950: bool) -> int:
    """From a matrix result to a write by anything but a matrix instruction."""
    if m.kind == "dgemm":
        return 6 if m.rows == 4 else 11
    return _result_needs(m, is_gfx950, False)


def _addend_needs(p: Matrix, c: Matrix, same: bool, is_gfx950: bool) -> int:
    """From a matrix result to its use as C; `same`: exactly the same registers."""
    if same:
        if p.kind == c.kind == "dgemm" and p.rows == c.rows == 4:
            return 4
        return 2 if p.passes == 2 else 0
    if p.kind == "dgemm":
        wide = 17 if is_gfx950 else 9
        return 0 if c.kind == "xdl" else 4 if p.rows == 4 else wide
    if p.kind == "sgemm":
        return 0 if c.kind == "xdl" else p.passes
    if c.kind == "xdl":
        return p.passes + 1 + is_gfx950
    return p.passes + 1 + (is_gfx950 and p.passes != 2)


def _factor_needs(p: Matrix, is_gfx950: bool) -> int:
    """From a matrix result to its use as A, B or a scale."""
    if p.kind == "dgemm":
        wide = 19 if is_gfx950 else 11
        return 6 if p.rows == 4 else wide
    return _result_needs(p, is_gfx950, False)


def _factors(c: Facts) -> int:
    """Registers of A, B and the scales."""
    bits = 0
    for at, operand in enumerate(c.effects.operands):
        if at not in (0, 3):
            bits |= operand
    return bits


def _mfma_to_addend(p: Facts, c: Facts) -> tuple[int, int]:
    if p.matrix is None or c.matrix is None or len(c.effects.operands) < 4:
        return _NOTHING
    addend, result = c.effects.operands[3], p.effects.operands[0]
    return addend, _addend_needs(p.matrix, c.matrix, addend == result, c.is_gfx950)


def _mfma_to_factor(p: Facts, c: Facts) -> tuple[int, int]:
    if p.matrix is None or c.matrix is None:
        return _NOTHING
    return _factors(c), _factor_needs(p.matrix, c.is_gfx950)


def _mfma_to_read(p: Facts, c: Facts) -> tuple[int, int]:
    if p.matrix is None or not (c.is_valu or c.is_memory):
        return _NOTHING
    return c.effects.reads, _result_needs(p.matrix, c.is_gfx950, c.is_memory)


def _mfma_to_write(p: Facts, c: Facts) -> tuple[int, int]:
    if p.matrix is None or not (c.is_valu or c.is_memory):
        return _NOTHING
    return c.vector_writes, _overwrite_needs(p.matrix, c.is_gfx950)


_ADDEND_OVERWRITE = {2: 1, 4: 3, 8: 7, 16: 15}


def _addend(p: Facts) -> int:
    return (
        p.effects.operands[3] if p.matrix is not None and p.matrix.kind == "xdl" and len(p.effects.operands) > 3 else 0
    )


def _addend_to_write(p: Facts, c: Facts) -> tuple[int, int]:
    if p.matrix is None or not (c.is_valu or c.is_memory):
        return _NOTHING
    return c.vector_writes, _ADDEND_OVERWRITE[p.matrix.passes]


def _wide_store(p: Facts) -> int:
    """Data registers of a store of more than 8 bytes; a buffer store with a scalar offset register is exempt."""
    if "_store_" not in p.inst.base or p.effects.format not in _VMEM:
        return 0
    if not p.inst.base.endswith(("x3", "x4")):
        return 0
    if p.effects.format is Format.BUFFER:
        return 0 if p.effects.operands[3] else p.effects.operands[0]
    return p.effects.operands[1]


def _shifted_result(p: Facts) -> int:
    """Result of a form that writes part of a register: SDWA with dst_sel, or op_sel on the destination."""
    if not p.is_valu:
        return 0
    if p.inst.encoding == "sdwa":
        return 0 if p.inst.modifier("dst_sel") in (None, "DWORD") else p.vector_writes
    select = p.inst.modifier("op_sel")
    sources = len(p.inst.operands) - p.effects.destinations
    if p.effects.format is not Format.VOP3P and isinstance(select, tuple) and len(select) > sources and select[sources]:
        return p.vector_writes
    return 0


def _lane_select(p: Facts, c: Facts) -> tuple[int, int]:
    if c.inst.base in ("v_readlane_b32", "v_writelane_b32") and len(c.effects.operands) > 2:
        return c.effects.operands[2], 4
    return _NOTHING


def _matrix_result(p: Facts) -> int:
    return p.vector_writes if p.matrix is not None else 0


def _transcendental(p: Facts) -> int:
    return p.vector_writes if p.is_valu and _TRANS.match(p.inst.base) else 0


def _dot(p: Facts) -> int:
    return p.vector_writes if p.is_valu and p.inst.base.startswith("v_dot") else 0


def _salu_m0(p: Facts) -> int:
    return p.effects.writes & M0_BITS if p.effects.format is Format.SALU else 0


def _any_result(p: Facts) -> int:
    return p.vector_writes


def _if(
    name: str,
    source: Callable[[Facts], int],
    states: int,
    applies: Callable[[Facts], bool],
    bits: Callable[[Facts], int],
) -> Rule:
    """A rule that asks for `states` of every consumer where it `applies`."""
    return Rule(name, source, states, lambda p, c: (bits(c), states) if applies(c) else _NOTHING)


def _reads(c: Facts) -> int:
    return c.effects.reads


def _touches(c: Facts) -> int:
    return c.effects.touches


def _exec(c: Facts) -> int:
    return EXEC_BITS


def _is_matrix(c: Facts) -> bool:
    return c.matrix is not None


def _is_vmem(c: Facts) -> bool:
    return c.effects.format in _VMEM


def _is_valu(c: Facts) -> bool:
    return c.is_valu


def _is_dpp(c: Facts) -> bool:
    return c.is_dpp


def _is_lane(c: Facts) -> bool:
    return c.is_valu and c.inst.base in _LANES


def _is_lane_read(c: Facts) -> bool:
    return c.is_valu and c.inst.base in _LANES[:2]


def _is_swap(c: Facts) -> bool:
    return c.is_gfx950 and c.is_valu and c.inst.base.startswith("v_permlane")


def _is_div_fmas(c: Facts) -> bool:
    return c.is_valu and c.inst.base.startswith("v_div_fmas")


def _is_vector(c: Facts) -> bool:
    return c.is_valu or c.matrix is not None


def _is_plain_vector(c: Facts) -> bool:
    return _is_vector(c) and not _TRANS.match(c.inst.base)


def _is_other_than_dot(c: Facts) -> bool:
    return (c.is_valu or c.is_memory) and not c.inst.base.startswith("v_dot")


#: Every rule.
RULES: tuple[Rule, ...] = (
    Rule("a matrix result used as C", _matrix_result, FARTHEST, _mfma_to_addend),
    Rule("a matrix result used as A or B", _matrix_result, FARTHEST, _mfma_to_factor),
    Rule("a matrix result read", _matrix_result, FARTHEST, _mfma_to_read),
    Rule("a matrix result overwritten", _matrix_result, FARTHEST, _mfma_to_write),
    Rule("C of a matrix instruction overwritten", _addend, 15, _addend_to_write),
    Rule("an SGPR written by VALU used to select a lane", _valu_scalars, 4, _lane_select),
    _if("a VALU result used by a matrix instruction", _valu_vectors, 2, _is_matrix, _reads),
    _if("exec written by VALU before a matrix instruction", _valu_scalars, 4, _is_matrix, _exec),
    _if("an SGPR written by VALU read by vector memory", _valu_scalars, 5, _is_vmem, _reads),
    _if("an SGPR written by VALU read by VALU", _valu_scalars, 2, _is_valu, _reads),
    _if("vcc written by VALU before v_div_fmas", _valu_scalars, 4, _is_div_fmas, lambda c: VCC_BITS),
    _if("exec written by VALU before a lane access", _valu_scalars, 4, _is_lane, _exec),
    _if("a VALU result read by a lane access", _valu_vectors, 1, _is_lane_read, _reads),
    _if("a result read by DPP", _any_result, 2, _is_dpp, _reads),
    _if("exec written by VALU before DPP", _valu_scalars, 5, _is_dpp, _exec),
    _if("a transcendental result read by another unit", _transcendental, 1, _is_plain_vector, _reads),
    _if("a partly written register used", _shifted_result, 1, _is_vector, _touches),
    _if("data of a wide store overwritten", _wide_store, 2, _is_valu, lambda c: c.vector_writes),
    _if("m0 written before a load to LDS", _salu_m0, 1, lambda c: c.effects.to_lds, lambda c: M0_BITS),
    _if("a VALU result used by a lane swap", _valu_vectors, 2, _is_swap, _reads),
    _if("exec written by v_cmpx before a lane swap", _valu_scalars, 4, _is_swap, _exec),
    _if("a dot product used by another instruction", _dot, 3, _is_other_than_dot, _touches),
)
