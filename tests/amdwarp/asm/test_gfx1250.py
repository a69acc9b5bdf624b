"""What the reader knows of gfx1250's text."""

from __future__ import annotations

import pytest

from amdwarp.asm import Register, parse_instruction
from amdwarp.asm.operands import restore_high_registers
from amdwarp.asm.reader import _check_high_registers
from amdwarp.asm.table import TABLE, lookup
from amdwarp.errors import EmulatorError


def test_half_registers() -> None:
    inst = parse_instruction("v_mov_b16_e32 v10.h, v1.l")
    assert inst.operands == (Register("v", 10, half="h"), Register("v", 1, half="l"))
    with pytest.raises(EmulatorError, match="half register"):
        parse_instruction("v_mov_b16_e32 v10.h, s1.l")


@pytest.mark.parametrize(
    ("text", "restored"),
    [
        ("v_mov_b32_e32 v33 /*v289*/, v1", "v_mov_b32_e32 v289, v1"),
        ("v_mov_b16_e32 v3.h /*v259.h*/, v1.l", "v_mov_b16_e32 v259.h, v1.l"),
        ("v_add_f32_e64 v1, -v2 /*v258*/, |v3 /*v1003*/|", "v_add_f32_e64 v1, -v258, |v1003|"),
        ("ds_load_b128 v[0:3] /*v[768:771]*/, v1", "ds_load_b128 v[768:771], v1"),
    ],
)
def test_registers_in_comments(text: str, restored: str) -> None:
    assert restore_high_registers(text) == restored


def test_dual_issue() -> None:
    inst = parse_instruction("v_dual_lshlrev_b32 v1, 1, v0 :: v_dual_bitop2_b32 v54, 16, v0 bitop3:0x40")
    assert inst.base == "v_dual_lshlrev_b32" and inst.modifiers == ()
    assert inst.second is not None and inst.second.base == "v_dual_bitop2_b32"
    assert inst.second.modifier("bitop3") == 0x40
    with pytest.raises(EmulatorError, match="v_dual_nothing"):
        parse_instruction("v_dual_mov_b32 v1, v0 :: v_dual_nothing_b32 v2, v3")


def test_hints() -> None:
    for text in (
        "s_delay_alu instid0(VALU_DEP_2) | instskip(NEXT) | instid1(VALU_DEP_1)",
        "s_wait_alu depctr_va_vdst(0)",
    ):
        assert parse_instruction(text).operands == ()
    with pytest.raises(EmulatorError, match="no scheduling hint"):
        parse_instruction("s_delay_alu v1, v2")


def test_missing_comments_are_refused() -> None:
    def check(*lines: str) -> None:
        _check_high_registers([parse_instruction(restore_high_registers(line)) for line in lines])

    check(
        "s_set_vgpr_msb 64",
        "s_nop 0",
        "v_mov_b32_e32 v33 /*v289*/, v1",
        "s_set_vgpr_msb 0x4000",
        "v_mov_b32_e32 v1, v2",
    )
    check("s_set_vgpr_msb 64", "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v3 /*v259*/, v4")
    for tail in ((), ("s_set_vgpr_msb 0", "v_mov_b32_e32 v33 /*v289*/, v1")):
        with pytest.raises(EmulatorError, match="comments"):
            check("s_set_vgpr_msb 64", "v_mov_b32_e32 v33, v1", *tail)


def test_counters() -> None:
    counters = {
        "s_load_b64": "km",
        "ds_load_tr16_b128": "ds",
        "buffer_load_b128": "load",
        "global_store_b32": "store",
        "global_load_async_to_lds_b128": "async",
        "tensor_load_to_lds": "tensor",
    }
    for name, counter in counters.items():
        assert TABLE[name].counter == counter


@pytest.mark.parametrize(
    "name",
    [
        *("v_wmma_scale8_f32_16x16x128_f8f6f4", "v_swmmac_f32_16x16x64_f16", "ds_load_tr6_b96", "s_rfe_i64"),
        *("s_round_mode", "v_pk_fma_bf16", "v_permlane_up_b32", "cluster_load_b32"),
    ],
)
def test_not_known(name: str) -> None:
    assert lookup(name) is None


def test_what_is_refused_has_a_reason_and_no_row() -> None:
    from amdwarp.asm.table_gfx1250 import REFUSED

    assert not set(REFUSED) & set(TABLE)
    assert all(len(reason.split()) > 6 for reason in REFUSED.values())
    for name, reason in REFUSED.items():
        with pytest.raises(EmulatorError, match=reason):
            parse_instruction(f"{name} v0, v1")
