"""Wait states: each rule one state short, and just right."""

from __future__ import annotations

import pytest
from handmade import PROLOGUE, kinds, run, text_of

from amdwarp.asm import parse, parse_instruction
from amdwarp.sanitizer.effects import program_effects
from amdwarp.sanitizer.hazards import RULES, matrix_class
from amdwarp.sanitizer.waitstates import shortfalls

MFMA16 = "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], v[20:23]"
MFMA32 = "v_mfma_f32_32x32x8_f16 v[20:35], v[10:11], v[12:13], v[20:35]"
MFMA4 = "v_mfma_f32_4x4x4_16b_f16 v[20:23], v[10:11], v[12:13], v[20:23]"
SGEMM = "v_mfma_f32_16x16x4_f32 v[20:23], v10, v12, v[20:23]"
DGEMM = "v_mfma_f64_16x16x4_f64 v[20:27], v[10:11], v[12:13], v[20:27]"
DGEMM4 = "v_mfma_f64_4x4x4_4b_f64 v[20:21], v[10:11], v[12:13], v[20:21]"
READ, WRITE = "v_add_u32_e32 v5, v20, v20", "v_mov_b32_e32 v20, 0"
STORE = "global_store_dword v1, v20, s[6:7]"
AB = "v_mfma_f32_16x16x16_f16 v[40:43], v[20:21], v[12:13], v[40:43]"
BOTH, CDNA3, CDNA4 = ("gfx942", "gfx950"), ("gfx942",), ("gfx950",)

#: targets, producer, consumer, wait states needed
CASES = [
    (CDNA3, MFMA16, READ, 7),
    (CDNA4, MFMA16, READ, 8),
    (CDNA3, MFMA32, READ, 11),
    (CDNA4, MFMA32, READ, 12),
    (BOTH, MFMA4, READ, 5),
    (CDNA3, MFMA16, STORE, 7),
    (CDNA4, MFMA16, STORE, 8),
    (CDNA3, MFMA16, WRITE, 7),
    (CDNA4, MFMA16, WRITE, 8),
    (CDNA3, MFMA16, AB, 7),
    (CDNA4, MFMA16, AB, 8),
    (BOTH, MFMA16, MFMA16, 0),
    (BOTH, MFMA4, MFMA4, 2),
    (CDNA3, MFMA16, "v_mfma_f32_16x16x16_f16 v[22:25], v[10:11], v[12:13], v[22:25]", 5),
    (CDNA4, MFMA16, "v_mfma_f32_16x16x16_f16 v[22:25], v[10:11], v[12:13], v[22:25]", 6),
    (BOTH, SGEMM, READ, 10),
    (BOTH, SGEMM, "v_mfma_f32_16x16x4_f32 v[22:25], v10, v12, v[22:25]", 8),
    (BOTH, SGEMM, "v_mfma_f32_16x16x16_f16 v[22:25], v[10:11], v[12:13], v[22:25]", 0),
    (CDNA3, DGEMM, READ, 11),
    (BOTH, DGEMM, STORE, 18),
    (BOTH, DGEMM4, READ, 6),
    (BOTH, DGEMM4, DGEMM4, 4),
    (BOTH, "v_mfma_f32_16x16x16_f16 v[40:43], v[10:11], v[12:13], v[20:23]", WRITE, 3),
    (BOTH, "v_mfma_f32_32x32x8_f16 v[40:55], v[10:11], v[12:13], v[20:35]", WRITE, 7),
    (BOTH, "v_mov_b32_e32 v10, 0", MFMA16, 2),
    (BOTH, "v_cmpx_eq_u32_e64 exec, v1, v2", MFMA16, 4),
    (BOTH, "v_readfirstlane_b32 s10, v1", "buffer_load_dword v30, v1, s[8:11], 0 offen", 5),
    (BOTH, "v_readfirstlane_b32 s20, v1", "v_add_u32_e32 v5, s20, v1", 2),
    (BOTH, "v_cmp_eq_u32_e32 vcc, v1, v2", "v_cndmask_b32_e32 v5, v1, v2, vcc", 2),
    (BOTH, "v_cmp_eq_u32_e32 vcc, v1, v2", "v_div_fmas_f32 v5, v1, v2, v3", 4),
    (BOTH, "v_readfirstlane_b32 s20, v1", "v_readlane_b32 s21, v2, s20", 4),
    (BOTH, "v_mov_b32_e32 v20, 0", "v_readfirstlane_b32 s20, v20", 1),
    (BOTH, "v_mov_b32_e32 v20, 0", "v_mov_b32_dpp v5, v20 row_shr:1 row_mask:0xf bank_mask:0xf", 2),
    (BOTH, "v_exp_f32_e32 v20, v1", READ, 1),
    (BOTH, "v_exp_f32_e32 v20, v1", "v_log_f32_e32 v5, v20", 0),
    (BOTH, "global_store_dwordx4 v1, v[20:23], s[6:7]", WRITE, 2),
    (BOTH, "buffer_store_dwordx4 v[20:23], v1, s[8:11], 0 offen", WRITE, 2),
    (BOTH, "buffer_store_dwordx4 v[20:23], v1, s[8:11], s20 offen", WRITE, 0),
    (BOTH, "global_store_dwordx2 v1, v[20:21], s[6:7]", WRITE, 0),
    (BOTH, "s_mov_b32 m0, 0", "buffer_load_dword v1, s[8:11], 0 offen lds", 1),
    (CDNA4, "v_mov_b32_e32 v20, 0", "v_permlane32_swap_b32_e32 v5, v20", 2),
    (BOTH, "s_mov_b32 s20, 0", "v_add_u32_e32 v5, s20, v1", 0),
    (BOTH, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0", 2),
]
PAIRS = [(target, *case[1:]) for case in CASES for target in case[0]]


def found(target: str, lines: list[str]) -> list[tuple[int, int]]:
    """(needed, there) of every shortfall in a text."""
    program = parse(text_of("\n".join(lines), target=target))
    return [(pair.needed, pair.found) for pair in shortfalls(program, program_effects(program))]


@pytest.mark.parametrize(("target", "first", "second", "needed"), PAIRS, ids=lambda value: str(value)[:40])
def test_rule(target: str, first: str, second: str, needed: int) -> None:
    assert found(target, [first, *["s_nop 0"] * needed, second]) == []
    if needed:
        assert (needed, needed - 1) in found(target, [first, *["s_nop 0"] * (needed - 1), second])
        assert (
            found(target, [first, f"s_nop {min(needed, 8) - 1}", *["s_nop 0"] * (needed - min(needed, 8)), second])
            == []
        )


def test_every_rule_has_a_case() -> None:
    names = set()
    for target, first, second, _ in PAIRS:
        program = parse(text_of(f"{first}\n{second}", target=target))
        names |= {pair.name for pair in shortfalls(program, program_effects(program))}
    names |= {"a hardware register accessed behind s_setreg"}
    # covered below, or by the same code as a rule above
    other = {
        "exec written by VALU before a lane access", "exec written by VALU before DPP",
        "a partly written register used",
        "exec written by v_cmpx before a lane swap", "a dot product used by another instruction",
    }  # fmt: skip
    assert {rule.name for rule in RULES} - names == other


@pytest.mark.parametrize(
    ("first", "second", "needed"),
    [
        ("v_cmpx_eq_u32_e64 exec, v1, v2", "v_readlane_b32 s21, v2, 3", 4),
        ("v_cmpx_eq_u32_e64 exec, v1, v2", "v_mov_b32_dpp v5, v20 row_shr:1 row_mask:0xf bank_mask:0xf", 5),
        ("v_cmpx_eq_u32_e64 exec, v1, v2", "v_permlane32_swap_b32_e32 v5, v20", 4),
        ("v_or_b32_sdwa v20, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD", READ, 1),
        ("v_dot2_f32_f16 v20, v1, v2, v3", READ, 3),
    ],
)
def test_rarer_rules(first: str, second: str, needed: int) -> None:
    assert found("gfx950", [first, *["s_nop 0"] * needed, second]) == []
    assert (needed, needed - 1) in found("gfx950", [first, *["s_nop 0"] * (needed - 1), second])


@pytest.mark.parametrize(
    ("text", "target", "passes", "kind"),
    [
        ("v_mfma_f32_32x32x16_f16 v[0:15], v[20:23], v[24:27], 0", "gfx950", 8, "xdl"),
        ("v_mfma_f32_16x16x4_4b_f16 v[0:15], v[20:21], v[24:25], 0", "gfx942", 8, "xdl"),
        ("v_mfma_f32_32x32x4_2b_bf16 v[0:31], v[40:41], v[44:45], 0", "gfx942", 16, "xdl"),
        ("v_mfma_f32_32x32x2_f32 v[0:15], v20, v24, 0", "gfx942", 16, "sgemm"),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[20:21], v[24:25], 0", "gfx942", 8, "dgemm"),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[20:21], v[24:25], 0", "gfx950", 16, "dgemm"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[20:27], v[30:37], v[0:3]", "gfx950", 8, "xdl"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[20:23], v[30:33], v[0:3] cbsz:4 blgp:4", "gfx950", 4, "xdl"),
        ("v_mfma_i32_16x16x32_i8 v[0:3], v[20:21], v[30:31], v[0:3]", "gfx942", 4, "xdl"),
        ("v_mfma_f32_32x32x4_xf32 v[0:15], v[20:21], v[30:31], v[0:15]", "gfx942", 8, "xdl"),
    ],
)
def test_passes_of_matrix_instructions(text: str, target: str, passes: int, kind: str) -> None:
    matrix = matrix_class(parse_instruction(text), target)
    assert matrix is not None and (matrix.passes, matrix.kind) == (passes, kind)


def test_across_a_jump_and_around_a_loop() -> None:
    jump = [MFMA16, "s_cbranch_scc0 there", "s_nop 7", "there:", READ]
    assert (8, 1) in found("gfx950", jump)
    loop = ["again:", READ, "s_nop 5", MFMA16, "s_cbranch_scc1 again"]
    assert (8, 1) in found("gfx950", loop)
    assert found("gfx950", ["again:", READ, "s_nop 5", MFMA16, "s_nop 6", "s_cbranch_scc1 again"]) == []


def test_an_overwritten_scalar_is_harmless() -> None:
    assert found("gfx950", ["v_readfirstlane_b32 s20, v1", "s_mov_b32 s20, 0", "v_add_u32_e32 v5, s20, v1"]) == []


def test_the_finding_in_a_run() -> None:
    body = PROLOGUE + "v_readfirstlane_b32 s20, v1\nv_add_u32_e32 v5, s20, v1"
    (finding,) = run(body).findings
    assert finding.kind == "wait-states"
    assert finding.problem == "an SGPR written by VALU read by VALU (s20): 2 wait states are needed, 0 are there"
    assert finding.remedy == "s_nop 1 between them"
    assert finding.first is not None and finding.first.inst.text == "v_readfirstlane_b32 s20, v1"


def test_code_that_does_not_run_is_not_reported() -> None:
    body = PROLOGUE + "s_branch end\nv_readfirstlane_b32 s20, v1\nv_add_u32_e32 v5, s20, v1\nend:"
    assert kinds(body) == []
