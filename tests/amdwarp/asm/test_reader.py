"""Whole texts: what is read from them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdwarp.asm import SourceLocation, parse
from amdwarp.errors import EmulatorError

TEXT = """\t.amdgcn_target "amdgpu9.50-amd-amdhsa-unknown-gfx950"
\t.amdhsa_code_object_version 5
\t.text
\t.globl\tscale                           ; -- Begin function scale
\t.p2align\t8
\t.type\tscale,@function
scale:                                  ; @scale
.Lfunc_begin0:
\t.cfi_startproc
; %bb.1:
\t.file\t1 "/src" "kernel.py"
\t.loc\t1 5 0 prologue_end              ; kernel.py:5:0
\ts_load_dwordx2 s[2:3], s[0:1], 0x0
\ts_load_dwordx2 s[4:5], s[0:1], 0x8
\ts_waitcnt lgkmcnt(0)
\ts_branch .LBB0_0
\t.loc\t1 0 0 is_stmt 0                 ; :0:0
.Ltmp0:
\t.p2align\t8
.LBB0_0:
\ts_mov_b32 s7, 0
\t.loc\t1 7 4 is_stmt 1                 ; kernel.py:7:4
\tv_accvgpr_write_b32 a16, v0           ;  Reload Reuse
\ts_endpgm
.Lfunc_end0:
\t.size\tscale, .Lfunc_end0-scale
\t.cfi_endproc
\t.section\t.rodata,"a",@progbits
\t.p2align\t6, 0x0
\t.amdhsa_kernel scale
\t\t.amdhsa_group_segment_fixed_size 512
\t\t.amdhsa_private_segment_fixed_size 16
\t\t.amdhsa_kernarg_size 24
\t\t.amdhsa_user_sgpr_count 6
\t\t.amdhsa_user_sgpr_dispatch_ptr 0
\t\t.amdhsa_user_sgpr_queue_ptr 0
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_user_sgpr_kernarg_preload_length 4
\t\t.amdhsa_user_sgpr_kernarg_preload_offset 0
\t\t.amdhsa_next_free_vgpr 9
\t.end_amdhsa_kernel
\t.text
\t.set .Lscale.num_vgpr, 9
\t.section\t.AMDGPU.csdata,"",@progbits
; Kernel info:
; codeLenInByte = 416
\t.text
\t.p2alignl 6, 3212836864
\t.fill 256, 4, 3212836864
\t.section\t.debug_str,"MS",@progbits,1
.Linfo_string0:
\t.asciz\t"triton; v3"                    ; string offset=0
\t.byte\t1
\t.section\t".note.GNU-stack","",@progbits
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     4
    .args:
      - .address_space:  global
        .name:           x
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
      - .offset:         16
        .size:           8
        .value_kind:     hidden_queue_ptr
    .group_segment_fixed_size: 512
    .kernarg_segment_align: 8
    .kernarg_segment_size: 24
    .max_flat_workgroup_size: 256
    .name:           scale
    .private_segment_fixed_size: 16
    .sgpr_count:     22
    .sgpr_spill_count: 1
    .symbol:         scale.kd
    .uses_dynamic_stack: false
    .vgpr_count:     9
    .vgpr_spill_count: 2
    .wavefront_size: 64
amdhsa.target:   amdgpu9.50-amd-amdhsa-unknown-gfx950
amdhsa.version:
  - 1
  - 2
...

\t.end_amdgpu_metadata
\t.section\t.debug_line,"",@progbits
.Lline_table_start0:
"""


def test_program() -> None:
    program = parse(TEXT)
    assert (program.name, program.target, program.waves, program.wave_size) == ("scale", "gfx950", 4, 64)
    assert [inst.mnemonic for inst in program] == ["s_load_dwordx2"] * 2 + [
        "s_waitcnt", "s_branch", "s_mov_b32", "v_accvgpr_write_b32", "s_endpgm",
    ]  # fmt: skip
    assert [inst.index for inst in program] == list(range(7))
    assert program.labels[".LBB0_0"] == 4 and program.entry == 4
    first, *_, write, _ = program.instructions
    assert first.line == 13 and first.text == "s_load_dwordx2 s[2:3], s[0:1], 0x0"
    assert first.source == SourceLocation("/src/kernel.py", 5) and str(first.source) == "/src/kernel.py:5"
    assert program.instructions[4].source is None
    assert write.source == SourceLocation("/src/kernel.py", 7) and write.where == "line 23, /src/kernel.py:7"


def test_descriptor_and_metadata() -> None:
    program = parse(TEXT)
    descriptor, metadata = program.descriptor, program.metadata
    assert (descriptor.lds_bytes, descriptor.scratch_bytes, descriptor.user_sgprs) == (512, 16, 6)
    assert descriptor.kernarg_sgpr == 0 and descriptor.kernarg_preload == (4, 0) and descriptor.preload_sgpr == 2
    assert not descriptor.wave32 and descriptor.get("no_such", 7) == 7
    assert (metadata.vgprs, metadata.agprs, metadata.sgprs) == (9, 4, 22)
    assert (metadata.vgpr_spills, metadata.sgpr_spills) == (2, 1)
    assert (metadata.kernarg_size, metadata.lds_bytes, metadata.max_workgroup_size) == (24, 512, 256)
    pointer, scalar, hidden = metadata.arguments
    assert pointer.is_pointer and pointer.name == "x" and pointer.address_space == "global"
    assert (scalar.offset, scalar.size, scalar.is_pointer) == (8, 4, False)
    assert hidden.is_hidden and not scalar.is_hidden


def test_pointers_before_the_argument_pointer_move_it() -> None:
    text = TEXT.replace("dispatch_ptr 0", "dispatch_ptr 1").replace("queue_ptr 0", "queue_ptr 1")
    assert parse(text).descriptor.kernarg_sgpr == 4


def test_without_preload_everything_runs() -> None:
    assert parse(TEXT.replace("preload_length 4", "preload_length 0")).entry == 0


def change(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


REFUSED: list[tuple[str, str, str]] = [
    ("empty", "  \n ", "the program text is empty; pass kernel.asm['amdgcn']"),
    ("prose", "hello world", "(line 1): instruction 'hello world' is not known"),
    ("C", "int main() { return 0; }", "(line 1): "),
    ("MLIR", 'module attributes {"ttg.num-warps" = 4 : i32} {', "(line 1): "),
    ("only a target", '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"\n', "the text holds no instruction"),
    ("nothing known", "; a comment\n\t.text\n", "the text is no AMDGCN assembly"),
    ("bad target", '\t.amdgcn_target "nvptx"\n', "(line 1): '.amdgcn_target \"nvptx\"' names no architecture"),
    ("unknown directive", change(".globl\tscale", ".frob\tscale"), "(line 4): directive '.frob scale' is not known"),
    ("data in text", change("\ts_endpgm", "\t.byte 1\n\ts_endpgm"), "directive '.byte 1' is not known"),
    (
        "unknown instruction",
        change("s_mov_b32 s7, 0", "s_move_b32 s7, 0"),
        "(line 21): instruction 's_move_b32 s7, 0' is not known",
    ),
    ("unknown modifier", change("s_mov_b32 s7, 0", "s_mov_b32 s7, 0 fast"), "(line 21): modifier 'fast' is not known"),
    ("label twice", change(".Ltmp0:", ".LBB0_0:"), "(line 20): label '.LBB0_0' is defined twice"),
    (
        "no such label",
        change("s_branch .LBB0_0", "s_branch .LBB0_9"),
        "'s_branch .LBB0_9' jumps to a label that is not defined",
    ),
    ("no end", change("\ts_endpgm", "\ts_nop 0"), "the program has no s_endpgm"),
    (
        "no descriptor",
        change("\t.amdhsa_kernel", "\t.text\n\t.amdhsa_kernel")
        .replace(".amdhsa_kernel scale\n", ".set a, 1\n", 1)
        .replace("\t.end_amdhsa_kernel\n", ""),
        "(line 32): directive '.amdhsa_group_segment_fixed_size 512' is not known",
    ),
    (
        "descriptor without number",
        change("kernarg_size 24", "kernarg_size many"),
        "'.amdhsa_kernarg_size many' has no number",
    ),
    ("instruction in data", change("\t.byte\t1\n", "\ts_nop 0\n"), "'s_nop 0' stands in the data section .debug_str"),
    ("second kernel", TEXT + "\t.amdhsa_kernel other\n\t.end_amdhsa_kernel\n", "second kernel ('scale' is the first)"),
    ("the text twice", TEXT + TEXT, "second kernel ('scale' is the first)"),
    ("line table", change(".loc\t1 5 0", ".loc\tx"), "is no line-table entry"),
    (
        "note names another",
        change(".name:           scale", ".name:           scalar"),
        "describes the kernels scalar, not exactly one 'scale'",
    ),
    ("note without sizes", change("    .wavefront_size: 64\n", ""), "kernel 'scale' has no .wavefront_size"),
    (
        "note malformed",
        change("amdhsa.target:   ", "amdhsa target "),
        "metadata note (line 84): this is no 'key: value'",
    ),
]


@pytest.mark.parametrize(("name", "text", "message"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_refusals(name: str, text: str, message: str) -> None:
    with pytest.raises(EmulatorError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_a_text_is_read_once() -> None:
    assert parse(TEXT) is parse(TEXT)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, len(TEXT) - 60))
def test_text_that_is_cut_off(length: int) -> None:
    """Cut anywhere before the note's end: an error of this package, never another one."""
    with pytest.raises(EmulatorError):
        parse(TEXT[:length])


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_damaged_text(data: Any) -> None:
    """Lines lost, doubled or exchanged: read or refused."""
    lines = TEXT.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        kind = data.draw(st.sampled_from(["lose", "double", "exchange", "cut"]))
        if kind == "lose":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "exchange":
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = lines[at][: len(lines[at]) // 2]
    try:
        parse("\n".join(lines))
    except EmulatorError as problem:
        assert str(problem)


def test_windows_line_ends() -> None:
    assert len(parse(TEXT.replace("\n", "\r\n")).instructions) == 7
