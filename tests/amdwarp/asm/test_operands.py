"""Operands and modifiers."""

from __future__ import annotations

from typing import Any

import pytest

from amdwarp.asm import Immediate, Register, Symbol, parse_instruction
from amdwarp.asm.operands import parse_modifier, parse_operand, restore_high_registers, split_top
from amdwarp.asm.reader import split_mnemonic
from amdwarp.asm.table import TABLE, Format, lookup
from amdwarp.errors import EmulatorError

OPERANDS: list[tuple[str, Any]] = [
    ("v0", Register("v", 0)),
    ("v255", Register("v", 255)),
    ("v[4:7]", Register("v", 4, 4)),
    ("v[9]", Register("v", 9)),
    ("a[0:15]", Register("a", 0, 16)),
    ("s[100:101]", Register("s", 100, 2)),
    ("ttmp9", Register("s", 117)),
    ("vcc", Register("s", 106, 2)),
    ("vcc_hi", Register("s", 107)),
    ("exec", Register("s", 126, 2)),
    ("m0", Register("s", 124)),
    ("flat_scratch", Register("s", 102, 2)),
    ("-v3", Register("v", 3, neg=True)),
    ("|v3|", Register("v", 3, absolute=True)),
    ("-|v[2:3]|", Register("v", 2, 2, neg=True, absolute=True)),
    ("neg(v1)", Register("v", 1, neg=True)),
    ("abs(s1)", Register("s", 1, absolute=True)),
    ("sext(v1)", Register("v", 1, sext=True)),
    ("0x7fffffff", Immediate(0x7FFFFFFF)),
    ("-16", Immediate(-16)),
    ("0.5", Immediate(0.5)),
    ("-4.0", Immediate(-4.0)),
    ("1e-05", Immediate(1e-05)),
    ("-|0x40|", Immediate(0x40, neg=True, absolute=True)),
    ("off", Symbol("off")),
    ("null", Symbol("null")),
    ("src_scc", Symbol("src_scc")),
    (".LBB0_12", Symbol(".LBB0_12")),
    ("hwreg(HW_REG_MODE, 23, 1)", Symbol("hwreg(HW_REG_MODE, 23, 1)")),
]


@pytest.mark.parametrize(("text", "expected"), OPERANDS, ids=[text for text, _ in OPERANDS])
def test_operands(text: str, expected: Any) -> None:
    assert parse_operand(text) == expected


@pytest.mark.parametrize(
    "text", ["v[7:4]", "s128", "v1024", "a256", "1+", "-", "||", "-off", "s3.l", "[1,2", "0xg", "-.LBB0"]
)
def test_bad_operands(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_operand(text)


def test_modifiers() -> None:
    assert parse_modifier("offset:16") == ("offset", 16)
    assert parse_modifier("row_mask:0xf") == ("row_mask", 15)
    assert parse_modifier("op_sel:[0,1]") == ("op_sel", (0, 1))
    assert parse_modifier("dst_sel:WORD_1") == ("dst_sel", "WORD_1")
    assert parse_modifier("row_half_mirror") == ("row_half_mirror", None)
    assert parse_modifier("vmcnt(3)") == ("vmcnt", 3)
    for text in ("offest:16", "lsd", "fooCnt(1)", "offset"):
        with pytest.raises(ValueError, match="is not known"):
            parse_modifier(text)


def test_whole_instructions() -> None:
    inst = parse_instruction("buffer_load_dwordx4 v8, s[0:3], 0 offen offset:64 lds", 12)
    assert inst.operands == (Register("v", 8), Register("s", 0, 4), Immediate(0))
    assert inst.modifiers == (("offen", None), ("offset", 64), ("lds", None))
    assert inst.has("lds") and inst.modifier("offset") == 64 and not inst.has("sc0")
    assert inst.line == 12 and inst.where == "line 12"
    inst = parse_instruction("s_waitcnt vmcnt(6) lgkmcnt(0)")
    assert inst.operands == () and dict(inst.modifiers) == {"vmcnt": 6, "lgkmcnt": 0}
    assert parse_instruction("s_waitcnt vmcnt(1) & expcnt(0)").modifiers == (("vmcnt", 1), ("expcnt", 0))
    assert parse_instruction("s_waitcnt 0x70").operands == (Immediate(0x70),)
    inst = parse_instruction("v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf")
    assert (inst.base, inst.encoding) == ("v_mov_b32", "dpp") and inst.modifier("quad_perm") == (1, 0, 3, 2)
    inst = parse_instruction("scratch_store_dword off, v95, off offset:128")
    assert inst.operands == (Symbol("off"), Register("v", 95), Symbol("off"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v_frobnicate_b32 v1, v2", "instruction 'v_frobnicate_b32 v1, v2' is not known"),
        ("v_mov_b32_e32 v1, foo bar", "modifier 'bar' is not known in 'v_mov_b32_e32 v1, foo bar'"),
        ("v_mov_b32_e32 v1 offset:3, v2", "modifier 'offset:3' stands before the last operand"),
        ("v_mov_b32_e32 v1, v[9:8]", "runs backwards"),
        ("ds_read_b32 v1, v2 offset", "modifier 'offset' is not known"),
    ],
)
def test_bad_instructions(text: str, message: str) -> None:
    with pytest.raises(EmulatorError) as caught:
        parse_instruction(text, 77)
    assert message in str(caught.value) and "(line 77)" in str(caught.value)


def test_split_and_suffixes() -> None:
    assert split_top("a[1,2], (b, c) d", ",") == ["a[1,2]", "(b, c) d"]
    assert split_mnemonic("v_add_u32_e32") == ("v_add_u32", "e32")
    assert split_mnemonic("v_cvt_f32_f16_sdwa") == ("v_cvt_f32_f16", "sdwa")
    assert split_mnemonic("s_add_u32") == ("s_add_u32", "")


def test_register_numbers_in_comments() -> None:
    text = "v_add_nc_u32_e32 v144 /*v400*/, s1, v[2:3] /*v[258:259]*/"
    assert restore_high_registers(text) == "v_add_nc_u32_e32 v400, s1, v[258:259]"


def test_table() -> None:
    assert lookup("v_div_fmas_f32").reads == ("exec", "vcc")  # type: ignore[union-attr]
    assert lookup("s_add_u32").writes == ("scc",)  # type: ignore[union-attr]
    assert lookup("ds_write_b32").counter == "lgkm" and lookup("ds_write_b32").destinations == 0  # type: ignore[union-attr]
    assert lookup("v_mfma_f32_32x32x16_f16").format is Format.MFMA  # type: ignore[union-attr]
    assert lookup("v_unknown") is None
    counters = ("", "vm", "lgkm", "load", "store", "ds", "km", "async", "tensor")
    assert all(info.counter in counters and 0 <= info.destinations <= 2 for info in TABLE.values())


def test_every_row_has_a_handler() -> None:
    from importlib import import_module

    from amdwarp.emulator.bind import FAMILIES, HANDLERS
    from amdwarp.emulator.names import NAMES
    from amdwarp.emulator.vopd import single

    for name in FAMILIES:
        import_module(f"amdwarp.emulator.{name}")
    names = {single(name) if name.startswith("v_dual_") else NAMES.get(name, name) for name in TABLE}
    assert sorted(names - set(HANDLERS)) == []
    assert sorted(set(HANDLERS) - names - set(TABLE)) == ["dual issue"]
