"""Reader of AMDGCN assembly text as LLVM prints it.

`parse` is strict: a line that is neither a known directive, a label nor an instruction of the table in
`amdwarp.asm.table` is an `EmulatorError` that names the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from amdwarp.asm.cdna import ALIASES, REFUSED
from amdwarp.asm.metadata import parse_metadata
from amdwarp.asm.operands import check_hints, parse_operands, restore_high_registers
from amdwarp.asm.program import (
    Immediate,
    Instruction,
    KernelDescriptor,
    Program,
    Register,
    SourceLocation,
    Symbol,
    words,
)
from amdwarp.asm.table import lookup
from amdwarp.asm.table_gfx1250 import REFUSED as REFUSED_GFX1250
from amdwarp.errors import EmulatorError

#: Directives that say nothing the emulator needs.
IGNORED_DIRECTIVES = frozenset(
    words(
        """
    .globl .weak .hidden .protected .p2align .p2alignl .align .type .size .cfi_sections .cfi_startproc
    .cfi_endproc .cfi_escape .cfi_undefined .cfi_def_cfa .cfi_offset .cfi_register .cfi_llvm_def_aspace_cfa
    .cfi_llvm_register_pair .local .comm
    .fill .set .ident .addrsig .addrsig_sym .amdgpu_info .amdhsa_code_object_version
    """
    )
)
#: Directives that only data sections hold.
DATA_DIRECTIVES = frozenset(
    words(
        """
    .ascii .asciz .byte .short .long .quad .zero .uleb128 .sleb128 .int .hword .2byte .4byte .8byte
    """
    )
)

#: Instructions whose operands are scheduling hints only.
HINTS = frozenset(("s_delay_alu", "s_wait_alu"))
#: Descriptor directives whose value may be an expression over symbols; nothing reads them.
_SYMBOLIC_DIRECTIVES = frozenset((".amdhsa_inst_pref_size",))

_ENCODINGS = ("e64_dpp", "e64_dpp8", "dpp8", "e32", "e64", "dpp", "sdwa")
_LABEL = re.compile(r"([.$\w@\"]+):\s*(.*)$")
_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
_TARGET = re.compile(r"gfx[0-9a-f]+")


@dataclass
class _State:
    """What the reader has seen so far."""

    target: str = ""
    section: str = ".text"
    kernel: str | None = None
    source: SourceLocation | None = None
    files: dict[int, str] = field(default_factory=dict)
    directives: dict[str, int] = field(default_factory=dict)
    metadata: list[tuple[int, str]] = field(default_factory=list)
    block: str = ""
    block_line: int = 0
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def split_mnemonic(mnemonic: str) -> tuple[str, str]:
    """(base, encoding): ``v_add_u32_e32`` gives ``("v_add_u32", "e32")``."""
    for encoding in _ENCODINGS:
        if mnemonic.startswith("v_") and mnemonic.endswith("_" + encoding):
            return mnemonic[: -len(encoding) - 1], encoding
    return mnemonic, ""


def _strip_comment(line: str) -> str:
    """`line` without its comment; a ``;`` inside a string stays."""
    if '"' not in line:
        return line.partition(";")[0]
    quoted = False
    for at, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif char == ";" and not quoted:
            return line[:at]
    return line


def parse_instruction(text: str, line: int = 1, index: int = 0, source: SourceLocation | None = None) -> Instruction:
    """Read one instruction.

    Raises:
        EmulatorError: the mnemonic, an operand or a modifier is not known.
    """
    halves = [half.strip() for half in text.split(" :: ")]
    if len(halves) == 2:
        first = parse_instruction(halves[0], line, index, source)
        return replace(first, text=text, second=parse_instruction(halves[1], line, index, source))
    mnemonic, _, rest = text.partition(" ")
    base, encoding = split_mnemonic(mnemonic)
    base = ALIASES.get(base, base)
    info = lookup(base)
    reason = REFUSED.get(base) or REFUSED_GFX1250.get(base)
    if reason is not None:
        raise EmulatorError(f"instruction '{text}' is not executed: {reason}", where=f"line {line}")
    if info is None:
        raise EmulatorError(
            f"instruction '{text}' is not known",
            where=f"line {line}",
            remedy="check that the text is AMDGCN assembly as LLVM prints it; its table is amdwarp/asm/table.py",
        )
    try:
        if base in HINTS:
            check_hints(rest)
            rest = ""
        operands, modifiers = parse_operands(rest.strip(), waits=base == "s_waitcnt")
    except ValueError as problem:
        raise EmulatorError(f"{problem} in '{text}'", where=f"line {line}") from None
    return Instruction(index, line, text, mnemonic, base, encoding, operands, modifiers, source)


@lru_cache(maxsize=8)
def parse(text: str) -> Program:
    """Read a whole text of one kernel.

    The programs of the texts read last are kept: the compilation reads a text, and so do each launch in the emulator
    and the sanitizer, which find again what they keep for a program, such as its bound instructions.

    Args:
        text: what LLVM's AMDGPU back end prints, e.g. ``kernel.asm["amdgcn"]``.

    Raises:
        EmulatorError: the text is empty, cut off, no AMDGCN, or holds something not known (with line and text).
    """
    if not text.strip():
        raise EmulatorError("the program text is empty", remedy="pass kernel.asm['amdgcn']")
    state = _State()
    for number, raw in enumerate(text.splitlines(), 1):
        _read_line(state, raw, number)
    if state.block:
        raise EmulatorError(
            f"the text ends inside the {state.block} that line {state.block_line} opens",
            remedy="it was cut off: pass the whole text",
        )
    return _finish(state)


def _read_line(state: _State, raw: str, number: int) -> None:
    if state.block == ".amdgpu_metadata":
        if raw.strip() == ".end_amdgpu_metadata":
            state.block = ""
        else:
            state.metadata.append((number, raw))
        return
    line = _strip_comment(raw).strip()
    if not line:
        return
    label = _LABEL.match(line)
    if label and not line.startswith('"'):
        if state.section == ".text":
            if label[1] in state.labels:
                if state.kernel is not None:
                    raise _second_kernel(state, line, number)
                raise EmulatorError(f"label '{label[1]}' is defined twice", where=f"line {number}")
            state.labels[label[1]] = len(state.instructions)
        line = label[2].strip()
        if not line:
            return
    if line.startswith("."):
        _read_directive(state, " ".join(line.split()), number)
    elif state.section == ".text":
        line = " ".join(restore_high_registers(line).split())
        state.instructions.append(parse_instruction(line, number, len(state.instructions), state.source))
    else:
        raise EmulatorError(f"'{line}' stands in the data section {state.section}", where=f"line {number}")


def _read_directive(state: _State, line: str, number: int) -> None:
    word, _, rest = line.partition(" ")
    if state.block == ".amdhsa_kernel":
        if word == ".end_amdhsa_kernel":
            state.block = ""
        elif word in _SYMBOLIC_DIRECTIVES:
            return
        elif word.startswith(".amdhsa_"):
            try:
                state.directives[word[len(".amdhsa_") :]] = int(rest, 0)
            except ValueError:
                raise EmulatorError(f"'{line}' has no number", where=f"line {number}") from None
        else:
            raise EmulatorError(f"'{line}' stands inside a kernel descriptor", where=f"line {number}")
    elif word == ".amdgcn_target":
        match = _TARGET.search(rest)
        if match is None:
            raise EmulatorError(f"'{line}' names no architecture", where=f"line {number}")
        state.target = match[0]
    elif word == ".amdhsa_kernel":
        if state.kernel is not None:
            raise _second_kernel(state, line, number)
        state.kernel, state.block, state.block_line = rest, word, number
    elif word == ".amdgpu_metadata":
        state.block, state.block_line = word, number
    elif word == ".loc":
        _read_loc(state, line, number)
    elif word == ".file":
        match_file = _FILE.match(line)
        if match_file:
            folder, name = match_file[2], match_file[3]
            state.files[int(match_file[1])] = f"{folder}/{name}" if folder and not name.startswith("/") else name
    elif word in (".text", ".section", ".data", ".bss", ".rodata"):
        state.section = rest.split(",")[0].strip() if word == ".section" else word
    elif word not in IGNORED_DIRECTIVES and not (word in DATA_DIRECTIVES and state.section != ".text"):
        raise EmulatorError(f"directive '{line}' is not known", where=f"line {number}")


def _second_kernel(state: _State, line: str, number: int) -> EmulatorError:
    problem = f"'{line}' belongs to the text's second kernel ('{state.kernel}' is the first)"
    return EmulatorError(problem, where=f"line {number}", remedy="pass the text of one kernel")


def _read_loc(state: _State, line: str, number: int) -> None:
    words = line.split()
    try:
        file, row = int(words[1]), int(words[2])
    except (ValueError, IndexError):
        raise EmulatorError(f"'{line}' is no line-table entry", where=f"line {number}") from None
    state.source = SourceLocation(state.files.get(file, f"file {file}"), row) if row else None


def _finish(state: _State) -> Program:
    if not state.target and not state.instructions:
        raise EmulatorError("the text is no AMDGCN assembly", remedy="pass kernel.asm['amdgcn']")
    if not state.instructions:
        raise EmulatorError("the text holds no instruction", remedy="pass kernel.asm['amdgcn']")
    if state.kernel is None or not state.metadata:
        lacks = "kernel descriptor (.amdhsa_kernel)" if state.kernel is None else "metadata note (.amdgpu_metadata)"
        raise EmulatorError(f"the text has no {lacks}", remedy="it was cut off: pass the whole text")
    metadata, triple = parse_metadata(state.metadata, state.kernel)
    if not state.target:
        match = _TARGET.search(triple)
        if match is None:
            raise EmulatorError("the text names no architecture (.amdgcn_target)")
        state.target = match[0]
    for inst in state.instructions:
        if inst.base == "s_branch" or inst.base.startswith("s_cbranch"):
            target = inst.operands[0] if inst.operands else None
            if not isinstance(target, Symbol) or target.name not in state.labels:
                raise EmulatorError(f"'{inst.text}' jumps to a label that is not defined", where=inst.where)
    if not any(inst.base == "s_endpgm" for inst in state.instructions):
        raise EmulatorError("the program has no s_endpgm", remedy="it was cut off: pass the whole text")
    _check_high_registers(state.instructions)
    descriptor = KernelDescriptor(state.directives)
    instructions = tuple(state.instructions)
    entry = state.labels.get(state.kernel, 0)
    # gfx1250 preloads arguments without such a prologue.
    if state.target != "gfx1250":
        entry = _entry(descriptor, instructions, state.labels, entry)
    return Program(state.kernel, state.target, descriptor, metadata, instructions, state.labels, entry)


def _check_high_registers(instructions: list[Instruction]) -> None:
    """Refuse a text whose comments, which hold the numbers of registers above v255, were taken out.

    ``s_set_vgpr_msb`` says in bits 0-7 that such registers follow.
    """
    switch: Instruction | None = None
    for inst in instructions:
        if inst.base != "s_set_vgpr_msb":
            if switch is not None and _names_high_register(inst):
                switch = None
            continue
        if switch is not None:
            break
        value = inst.operands[0] if inst.operands else None
        if isinstance(value, Immediate) and isinstance(value.value, int) and value.value & 0xFF:
            switch = inst
    if switch is not None:
        raise EmulatorError(
            f"no register above v255 stands behind '{switch.text}'",
            where=switch.where,
            remedy="pass the text with LLVM's comments, which hold the numbers of these registers",
        )


def _names_high_register(inst: Instruction) -> bool:
    halves = (inst,) if inst.second is None else (inst, inst.second)
    registers = [op for half in halves for op in half.operands if isinstance(op, Register) and op.kind == "v"]
    return any(op.index + op.count > 256 for op in registers)


def _entry(
    descriptor: KernelDescriptor, instructions: tuple[Instruction, ...], labels: dict[str, int], start: int
) -> int:
    """First instruction that runs: hardware that preloads arguments skips the 256-byte prologue that loads them."""
    if not descriptor.kernarg_preload[0]:
        return start
    for inst in instructions[start:]:
        if inst.base == "s_branch":
            target = inst.operands[0]
            assert isinstance(target, Symbol)
            return labels[target.name]
        if not inst.base.startswith(("s_load_", "s_waitcnt", "s_nop")):
            break
    return start
