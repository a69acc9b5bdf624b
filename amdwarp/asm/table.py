"""The instruction table: mnemonic to format, number of destinations, counter and implicit scalar registers.

Rows are data. A mnemonic stands here without its encoding suffix (``_e32``, ``_e64``, ``_dpp``, ``_sdwa``). The widths
of register operands need no column: the text writes every tuple out (``v[0:3]``).
"""

from __future__ import annotations

from amdwarp.asm import cdna, table_gfx1250
from amdwarp.asm.program import words
from amdwarp.asm.rows import Format as Format
from amdwarp.asm.rows import InstructionInfo as InstructionInfo

_SOP2_SCC = """
s_add_u32 s_sub_u32 s_add_i32 s_sub_i32 s_and_b32 s_and_b64 s_or_b32 s_or_b64 s_xor_b32 s_xor_b64 s_andn2_b32
s_andn2_b64 s_orn2_b32 s_orn2_b64 s_nand_b32 s_nand_b64 s_nor_b32 s_nor_b64 s_xnor_b32 s_xnor_b64 s_lshl_b32
s_lshl_b64 s_lshr_b32 s_lshr_b64 s_ashr_i32 s_ashr_i64 s_bfe_u32 s_bfe_i32 s_bfe_u64 s_bfe_i64 s_absdiff_i32 s_min_i32
s_min_u32 s_max_i32 s_max_u32 s_lshl1_add_u32 s_lshl2_add_u32 s_lshl3_add_u32 s_lshl4_add_u32 s_abs_i32 s_not_b32
s_not_b64 s_wqm_b32 s_wqm_b64 s_quadmask_b32 s_quadmask_b64 s_bcnt0_i32_b32 s_bcnt0_i32_b64 s_bcnt1_i32_b32
s_bcnt1_i32_b64 s_addk_i32
"""
_SOP_PLAIN = """
s_mul_i32 s_mul_hi_u32 s_mul_hi_i32 s_bfm_b32 s_bfm_b64 s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hh_b32_b16
s_mov_b32 s_mov_b64 s_brev_b32 s_brev_b64 s_ff0_i32_b32 s_ff0_i32_b64 s_ff1_i32_b32 s_ff1_i32_b64 s_flbit_i32_b32
s_flbit_i32_b64 s_flbit_i32 s_flbit_i32_i64 s_sext_i32_i8 s_sext_i32_i16 s_movk_i32 s_mulk_i32 s_bitset0_b32
s_bitset0_b64 s_bitset1_b32 s_bitset1_b64 s_bitreplicate_b64_b32
"""
_SOP_SCC_IN = "s_cselect_b32 s_cselect_b64 s_cmov_b32 s_cmov_b64 s_cmovk_i32"
_SOP_SCC_BOTH = "s_addc_u32 s_subb_u32"
_SAVEEXEC = """
s_and_saveexec_b64 s_or_saveexec_b64 s_xor_saveexec_b64 s_andn2_saveexec_b64 s_orn2_saveexec_b64 s_nand_saveexec_b64
s_nor_saveexec_b64 s_xnor_saveexec_b64 s_andn1_saveexec_b64 s_orn1_saveexec_b64 s_andn1_wrexec_b64 s_andn2_wrexec_b64
"""
_COMPARES = "eq_i32 lg_i32 gt_i32 ge_i32 lt_i32 le_i32 eq_u32 lg_u32 gt_u32 ge_u32 lt_u32 le_u32"
_SOPC = " ".join(f"s_cmp_{c} s_cmpk_{c}" for c in _COMPARES.split()) + (
    " s_cmp_eq_u64 s_cmp_lg_u64 s_bitcmp0_b32 s_bitcmp1_b32 s_bitcmp0_b64 s_bitcmp1_b64"
)
_BRANCH_SCC = "s_cbranch_scc0 s_cbranch_scc1"
_BRANCH_VCC = "s_cbranch_vccz s_cbranch_vccnz"
_BRANCH_EXEC = "s_cbranch_execz s_cbranch_execnz"
_SYNC = """
s_waitcnt s_barrier s_nop s_sleep s_setprio s_icache_inv s_incperflevel s_decperflevel s_ttracedata s_setreg_b32
s_setreg_imm32_b32
"""
_SMEM = "s_load_dword s_load_dwordx2 s_load_dwordx4 s_load_dwordx8 s_load_dwordx16 " + (
    "s_buffer_load_dword s_buffer_load_dwordx2 s_buffer_load_dwordx4 s_buffer_load_dwordx8 s_buffer_load_dwordx16 "
    "s_memtime s_memrealtime"
)

_VOP1 = """
v_mov_b32 v_mov_b64 v_accvgpr_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_not_b32 v_bfrev_b32 v_ffbh_u32
v_ffbh_i32 v_ffbl_b32 v_cvt_f32_i32 v_cvt_f32_u32 v_cvt_i32_f32 v_cvt_u32_f32 v_cvt_f16_f32 v_cvt_f32_f16
v_cvt_f64_f32 v_cvt_f32_f64 v_cvt_f64_i32 v_cvt_f64_u32 v_cvt_i32_f64 v_cvt_u32_f64 v_cvt_f32_ubyte0 v_cvt_f32_ubyte1
v_cvt_f32_ubyte2 v_cvt_f32_ubyte3 v_cvt_f16_u16 v_cvt_f16_i16 v_cvt_u16_f16 v_cvt_i16_f16 v_cvt_rpi_i32_f32
v_cvt_flr_i32_f32 v_cvt_f32_fp8 v_cvt_f32_bf8 v_cvt_pk_f32_fp8 v_cvt_pk_f32_bf8 v_cvt_f32_bf16 v_exp_f32 v_log_f32
v_rcp_f32 v_rcp_iflag_f32 v_rsq_f32 v_sqrt_f32 v_sin_f32 v_cos_f32 v_fract_f32 v_trunc_f32 v_ceil_f32 v_rndne_f32
v_floor_f32 v_rcp_f64 v_rsq_f64 v_sqrt_f64 v_fract_f64 v_trunc_f64 v_ceil_f64 v_rndne_f64 v_floor_f64 v_rcp_f16
v_sqrt_f16 v_rsq_f16 v_log_f16 v_exp_f16 v_floor_f16 v_ceil_f16 v_trunc_f16 v_rndne_f16 v_fract_f16 v_sin_f16
v_cos_f16 v_frexp_exp_i32_f32 v_frexp_mant_f32 v_frexp_exp_i32_f64 v_frexp_mant_f64 v_exp_legacy_f32 v_log_legacy_f32
v_sat_pk_u8_i16 v_readfirstlane_b32
"""
_SWAPS = "v_swap_b32 v_permlane16_swap_b32 v_permlane32_swap_b32"
_VOP2 = """
v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32 v_mul_legacy_f32 v_min_f32 v_max_f32 v_fmac_f32 v_mac_f32 v_fmamk_f32
v_fmaak_f32 v_madmk_f32 v_madak_f32 v_add_f16 v_sub_f16 v_subrev_f16 v_mul_f16 v_min_f16 v_max_f16 v_fmac_f16
v_ldexp_f16 v_add_f64 v_mul_f64 v_min_f64 v_max_f64 v_fmac_f64 v_add_u32 v_sub_u32 v_subrev_u32 v_add_u16 v_sub_u16
v_subrev_u16 v_mul_lo_u16 v_min_u16 v_max_u16 v_min_i16 v_max_i16 v_lshlrev_b16 v_lshrrev_b16 v_ashrrev_i16 v_min_i32
v_max_i32 v_min_u32 v_max_u32 v_and_b32 v_or_b32 v_xor_b32 v_xnor_b32 v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32
v_mul_i32_i24 v_mul_hi_i32_i24 v_mul_u32_u24 v_mul_hi_u32_u24 v_dot2c_f32_f16 v_dot2c_f32_bf16 v_dot4c_i32_i8
"""
_VOP2_CARRY_OUT = "v_add_co_u32 v_sub_co_u32 v_subrev_co_u32"
_VOP2_CARRY_BOTH = "v_addc_co_u32 v_subb_co_u32 v_subbrev_co_u32"
_VOP3 = """
v_fma_f32 v_fma_f16 v_fma_f64 v_mad_u32_u24 v_mad_i32_i24 v_mad_u16 v_mad_i16 v_mad_u32_u16 v_mad_i32_i16
v_mad_legacy_f32 v_add3_u32 v_lshl_add_u32 v_add_lshl_u32 v_lshl_or_b32 v_and_or_b32 v_or3_b32 v_xad_u32
v_lshl_add_u64 v_bfe_u32 v_bfe_i32 v_bfi_b32 v_alignbit_b32 v_alignbyte_b32 v_perm_b32 v_min3_f32 v_max3_f32
v_med3_f32 v_min3_i32 v_max3_i32 v_med3_i32 v_min3_i16 v_max3_i16 v_med3_i16 v_min3_u16 v_max3_u16 v_med3_u16
v_min3_u32 v_max3_u32 v_med3_u32 v_min3_f16 v_max3_f16 v_med3_f16 v_minimum3_f32 v_maximum3_f32 v_mul_lo_u32
v_mul_hi_u32 v_mul_hi_i32 v_lshlrev_b64 v_lshrrev_b64 v_ashrrev_i64 v_add_i32 v_sub_i32 v_bfm_b32 v_bcnt_u32_b32
v_mbcnt_lo_u32_b32 v_mbcnt_hi_u32_b32 v_readlane_b32 v_writelane_b32 v_ldexp_f32 v_ldexp_f64 v_div_fixup_f32
v_div_fixup_f64 v_div_fixup_f16 v_sad_u32 v_sad_u8 v_pack_b32_f16 v_cvt_pkrtz_f16_f32 v_cvt_pknorm_i16_f32
v_cvt_pknorm_u16_f32 v_cvt_pk_u16_u32 v_cvt_pk_i16_i32 v_cvt_pk_u8_f32 v_cvt_pk_fp8_f32 v_cvt_pk_bf8_f32
v_cvt_pk_f16_f32 v_cvt_pk_bf16_f32 v_bitop3_b32 v_bitop3_b16 v_cvt_scalef32_pk_f32_fp4 v_cvt_scalef32_pk_f16_fp4
v_cvt_scalef32_pk_bf16_fp4 v_cvt_scalef32_pk_f32_fp8 v_cvt_scalef32_pk_f32_bf8 v_cvt_scalef32_pk_f16_fp8
v_cvt_scalef32_pk_f16_bf8 v_cvt_scalef32_pk_bf16_fp8 v_cvt_scalef32_pk_bf16_bf8 v_cvt_scalef32_pk_fp8_f32
v_cvt_scalef32_pk_bf8_f32 v_cvt_scalef32_pk_fp8_f16 v_cvt_scalef32_pk_bf8_f16 v_cvt_scalef32_pk_fp8_bf16
v_cvt_scalef32_pk_bf8_bf16 v_cvt_scalef32_pk_fp4_f32 v_cvt_scalef32_pk_fp4_f16 v_cvt_scalef32_pk_fp4_bf16
"""
_VOP3P = """
v_pk_fma_f32 v_pk_mul_f32 v_pk_add_f32 v_pk_mov_b32 v_pk_fma_f16 v_pk_add_f16 v_pk_mul_f16 v_pk_min_f16 v_pk_max_f16
v_pk_add_u16 v_pk_add_i16 v_pk_sub_u16 v_pk_sub_i16 v_pk_mul_lo_u16 v_pk_mad_u16 v_pk_mad_i16 v_pk_lshlrev_b16
v_pk_lshrrev_b16 v_pk_ashrrev_i16 v_pk_min_u16 v_pk_max_u16 v_pk_min_i16 v_pk_max_i16 v_pk_minimum3_f16
v_pk_maximum3_f16 v_fma_mix_f32 v_fma_mixlo_f16 v_fma_mixhi_f16 v_dot2_f32_f16 v_dot2_f32_bf16 v_dot4_i32_i8
v_dot4_u32_u8
"""
_INT_TYPES = ("i16", "u16", "i32", "u32", "i64", "u64")
_FLOAT_TYPES = ("f16", "f32", "f64")
_INT_CONDITIONS = ("f", "lt", "eq", "le", "gt", "ne", "ge", "t")
_FLOAT_CONDITIONS = ("f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "tru")
_CONDITIONS = [f"{c}_{t}" for t in _INT_TYPES for c in _INT_CONDITIONS]
_CONDITIONS += [f"{c}_{t}" for t in _FLOAT_TYPES for c in (*_FLOAT_CONDITIONS, "class")]

_MFMA_SHAPES = {
    "f32": "32x32x1_2b_f32 16x16x1_4b_f32 4x4x1_16b_f32 32x32x2_f32 16x16x4_f32 32x32x4_2b_f16 16x16x4_4b_f16 "
    "4x4x4_16b_f16 32x32x8_f16 16x16x16_f16 32x32x4_2b_bf16 16x16x4_4b_bf16 4x4x4_16b_bf16 32x32x8_bf16 16x16x16_bf16 "
    "32x32x4_xf32 16x16x8_xf32 32x32x16_f16 16x16x32_f16 32x32x16_bf16 16x16x32_bf16 "
    "16x16x32_fp8_fp8 16x16x32_fp8_bf8 16x16x32_bf8_fp8 16x16x32_bf8_bf8 32x32x16_fp8_fp8 32x32x16_fp8_bf8 "
    "32x32x16_bf8_fp8 32x32x16_bf8_bf8 16x16x128_f8f6f4 32x32x64_f8f6f4",
    "i32": "32x32x4_2b_i8 16x16x4_4b_i8 4x4x4_16b_i8 32x32x16_i8 16x16x32_i8 16x16x64_i8 32x32x32_i8",
    "f64": "16x16x4_f64 4x4x4_4b_f64",
}
_MFMA = " ".join(f"v_mfma_{kind}_{shape}" for kind, shapes in _MFMA_SHAPES.items() for shape in shapes.split())
_MFMA += " v_mfma_scale_f32_16x16x128_f8f6f4 v_mfma_scale_f32_32x32x64_f8f6f4"

_DS_READS = """
ds_read_b32 ds_read_b64 ds_read_b96 ds_read_b128 ds_read_u8 ds_read_i8 ds_read_u16 ds_read_i16 ds_read_u8_d16
ds_read_u8_d16_hi ds_read_i8_d16 ds_read_i8_d16_hi ds_read_u16_d16 ds_read_u16_d16_hi ds_read2_b32 ds_read2_b64
ds_read2st64_b32 ds_read2st64_b64 ds_read_b64_tr_b16 ds_read_b64_tr_b8 ds_read_b64_tr_b4 ds_read_b96_tr_b6
ds_bpermute_b32 ds_permute_b32 ds_swizzle_b32 ds_add_rtn_u32 ds_add_rtn_f32 ds_max_rtn_u32 ds_max_rtn_i32
ds_min_rtn_u32 ds_min_rtn_i32 ds_and_rtn_b32 ds_or_rtn_b32 ds_xor_rtn_b32 ds_wrxchg_rtn_b32 ds_cmpst_rtn_b32
ds_sub_rtn_u32 ds_add_rtn_u64 ds_wrxchg_rtn_b64 ds_cmpst_rtn_b64
"""
_DS_WRITES = """
ds_write_b32 ds_write_b64 ds_write_b96 ds_write_b128 ds_write_b8 ds_write_b16 ds_write_b8_d16_hi ds_write_b16_d16_hi
ds_write2_b32 ds_write2_b64 ds_write2st64_b32 ds_write2st64_b64 ds_add_u32 ds_sub_u32 ds_add_f32 ds_max_u32 ds_max_i32
ds_min_u32 ds_min_i32 ds_and_b32 ds_or_b32 ds_xor_b32 ds_add_u64 ds_max_f32 ds_min_f32
"""
_SIZES = ("dword", "dwordx2", "dwordx3", "dwordx4")
_NARROW_LOADS = (
    *("ubyte", "sbyte", "ushort", "sshort", "ubyte_d16", "ubyte_d16_hi", "sbyte_d16", "sbyte_d16_hi"),
    *("short_d16", "short_d16_hi"),
)
_NARROW_STORES = ("byte", "short", "byte_d16_hi", "short_d16_hi")
_ATOMICS = words(
    """
    add smin umin smax umax and or xor swap cmpswap sub inc dec add_x2 smin_x2 umin_x2 smax_x2 umax_x2 and_x2
    or_x2 xor_x2 swap_x2 cmpswap_x2 sub_x2 add_f32 pk_add_f16 pk_add_bf16 add_f64 min_f64 max_f64
    """
)
_CACHE = "buffer_wbl2 buffer_inv buffer_wbinvl1 buffer_wbinvl1_vol s_dcache_inv s_dcache_wb"


def _build() -> dict[str, InstructionInfo]:
    table: dict[str, InstructionInfo] = {}

    def rows(names: str | list[str], *args: object) -> None:
        info = InstructionInfo(*args)  # type: ignore[arg-type]
        for name in names.split() if isinstance(names, str) else names:
            table[name] = info

    rows(_SOP2_SCC, Format.SALU, 1, "", (), ("scc",))
    rows(_SOP_PLAIN, Format.SALU, 1)
    rows(_SOP_SCC_IN, Format.SALU, 1, "", ("scc",))
    rows(_SOP_SCC_BOTH, Format.SALU, 1, "", ("scc",), ("scc",))
    rows(_SAVEEXEC, Format.SALU, 1, "", ("exec",), ("exec", "scc"))
    rows(_SOPC, Format.SALU, 0, "", (), ("scc",))
    rows(_SYNC, Format.SYNC, 0)
    rows("s_endpgm s_branch", Format.BRANCH, 0)
    rows(_BRANCH_SCC, Format.BRANCH, 0, "", ("scc",))
    rows(_BRANCH_VCC, Format.BRANCH, 0, "", ("vcc",))
    rows(_BRANCH_EXEC, Format.BRANCH, 0, "", ("exec",))
    rows(_SMEM, Format.SMEM, 1, "lgkm")
    rows(_VOP1, Format.VOP1, 1, "", ("exec",))
    rows("v_nop", Format.VOP1, 0)
    rows(_SWAPS, Format.VOP1, 2, "", ("exec",))
    rows(_VOP2, Format.VOP2, 1, "", ("exec",))
    rows("v_cndmask_b32", Format.VOP2, 1, "", ("exec",))
    rows(_VOP2_CARRY_OUT, Format.VOP2, 2, "", ("exec",))
    rows(_VOP2_CARRY_BOTH, Format.VOP2, 2, "", ("exec",))
    rows([f"v_cmp_{c}" for c in _CONDITIONS], Format.VOPC, 1, "", ("exec",))
    rows([f"v_cmpx_{c}" for c in _CONDITIONS], Format.VOPC, 1, "", ("exec",), ("exec",))
    rows(_VOP3, Format.VOP3, 1, "", ("exec",))
    rows("v_mad_u64_u32 v_mad_i64_i32 v_div_scale_f32 v_div_scale_f64", Format.VOP3, 2, "", ("exec",))
    rows("v_div_fmas_f32 v_div_fmas_f64", Format.VOP3, 1, "", ("exec", "vcc"))
    rows(_VOP3P, Format.VOP3P, 1, "", ("exec",))
    rows(_MFMA, Format.MFMA, 1)
    rows(_DS_READS, Format.DS, 1, "lgkm", ("exec",))
    rows(_DS_WRITES, Format.DS, 0, "lgkm", ("exec",))
    for form in (Format.BUFFER, Format.GLOBAL, Format.SCRATCH, Format.FLAT):
        prefix = form.value
        rows([f"{prefix}_load_{size}" for size in (*_SIZES, *_NARROW_LOADS)], form, 1, "vm", ("exec",))
        rows([f"{prefix}_store_{size}" for size in (*_SIZES, *_NARROW_STORES)], form, 0, "vm", ("exec",))
        if prefix != "scratch":
            rows([f"{prefix}_atomic_{name}" for name in _ATOMICS], form, 0, "vm", ("exec",))
    to_lds = "global_load_lds_dword global_load_lds_dwordx3 global_load_lds_dwordx4"
    rows(to_lds, Format.GLOBAL, 0, "vm", ("exec", "m0"))
    rows(_CACHE, Format.CACHE, 0)
    for names, form_name, *rest in cdna.ROWS:
        for name in names.split():
            rows([name], Format(form_name or name.split("_")[0]), *rest)
    return table


#: Every mnemonic the reader knows.
TABLE: dict[str, InstructionInfo] = {**table_gfx1250.ROWS, **_build()}


def lookup(base: str) -> InstructionInfo | None:
    """Row of the mnemonic `base` (without encoding suffix), or None if it is not known."""
    return TABLE.get(base)
