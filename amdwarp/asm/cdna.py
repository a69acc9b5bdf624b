"""The rarer instructions of gfx942 and gfx950: rows of the instruction table, other spellings, what is refused and why.

Names after LLVM's assembler for gfx942 and gfx950.
"""

from __future__ import annotations

from amdwarp.asm.program import words

#: (mnemonics, format, destinations, counter, implicit reads, implicit writes); see `amdwarp.asm.table`.
Row = tuple[str, str, int, str, tuple[str, ...], tuple[str, ...]]

_SCALAR_SIZES = ("dword", "dwordx2", "dwordx4")
_SCALAR_ATOMICS = "add and cmpswap dec inc or smax smin sub swap umax umin xor"


def _scalar_atomics(prefix: str) -> str:
    names = [f"{prefix}_{name}{tail}" for name in _SCALAR_ATOMICS.split() for tail in ("", "_x2")]
    return " ".join(names)


_SCALAR_STORES = " ".join(f"{kind}_store_{size}" for kind in ("s", "s_buffer", "s_scratch") for size in _SCALAR_SIZES)
_SCALAR_SCRATCH_LOADS = " ".join(f"s_scratch_load_{size}" for size in _SCALAR_SIZES)

_VOP1 = """
v_cvt_norm_i16_f16 v_cvt_norm_u16_f16 v_cvt_off_f32_i4 v_frexp_exp_i16_f16 v_frexp_mant_f16 v_prng_b32
"""
_VOP2 = "v_dot2c_i32_i16 v_dot8c_i32_i4 v_pk_fmac_f16 v_mac_f16 v_madak_f16 v_madmk_f16"
_VOP3 = """
v_add_i16 v_sub_i16 v_ashr_pk_i8_i32 v_ashr_pk_u8_i32 v_cubeid_f32 v_cubema_f32 v_cubesc_f32 v_cubetc_f32
v_div_fixup_legacy_f16 v_fma_legacy_f16 v_lerp_u8 v_mad_f16 v_mad_legacy_f16 v_mad_legacy_i16 v_mad_legacy_u16
v_mqsad_pk_u16_u8 v_mqsad_u32_u8 v_msad_u8 v_qsad_pk_u16_u8 v_sad_hi_u8 v_sad_u16 v_trig_preop_f64
v_cvt_pkaccum_u8_f32 v_cvt_pknorm_i16_f16 v_cvt_pknorm_u16_f16 v_cvt_sr_bf16_f32 v_cvt_sr_f16_f32 v_cvt_sr_bf8_f32
v_cvt_sr_fp8_f32
"""


def _scaled_conversions() -> str:
    names = [f"v_cvt_scalef32_2xpk16_{narrow}_f32" for narrow in ("fp6", "bf6")]
    for narrow in ("fp8", "bf8"):
        names += [f"v_cvt_scalef32_{wide}_{narrow}" for wide in ("f16", "f32")]
        names += [f"v_cvt_scalef32_sr_{narrow}_{wide}" for wide in ("f32", "f16", "bf16")]
    for narrow in ("fp6", "bf6"):
        names += [f"v_cvt_scalef32_pk32_{wide}_{narrow}" for wide in ("f32", "f16", "bf16")]
        names += [f"v_cvt_scalef32_pk32_{narrow}_{wide}" for wide in ("f16", "bf16")]
        names += [f"v_cvt_scalef32_sr_pk32_{narrow}_{wide}" for wide in ("f32", "f16", "bf16")]
    names += [f"v_cvt_scalef32_sr_pk_fp4_{wide}" for wide in ("f32", "f16", "bf16")]
    return " ".join(names)


_VOP3P = "v_dot2_i32_i16 v_dot2_u32_u16 v_dot8_i32_i4 v_dot8_u32_u4"


def _sparse() -> str:
    eight = [f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
    names = [
        f"f32_{shape}_{kind}" for shape in ("16x16x32", "32x32x16", "16x16x64", "32x32x32") for kind in ("f16", "bf16")
    ]
    names += [f"i32_{shape}_i8" for shape in ("16x16x64", "32x32x32", "16x16x128", "32x32x64")]
    names += [f"f32_{shape}_{kind}" for shape in ("16x16x64", "32x32x32", "16x16x128", "32x32x64") for kind in eight]
    return " ".join(f"v_smfmac_{name}" for name in names)


def _ds_atomics(returning: bool) -> str:
    """LDS atomics, without or with a result."""
    integer = words("add sub rsub inc dec min max")
    names = [f"{op}@_u{bits}" for op in integer for bits in (32, 64)]
    names += [f"{op}@_i{bits}" for op in ("min", "max") for bits in (32, 64)]
    names += [f"{op}@_b{bits}" for op in ("and", "or", "xor", "mskor") for bits in (32, 64)]
    names += [f"cmpst@_{kind}" for kind in ("b32", "b64", "f32", "f64")]
    names += [f"{op}@_f{bits}" for op in ("add", "min", "max") for bits in (32, 64)]
    names += ["pk_add@_f16", "pk_add@_bf16"]
    if returning:
        names += [f"wrxchg{two}@_b{bits}" for two in ("", "2", "2st64") for bits in (32, 64)]
        names += ["condxchg32@_b64", "wrap@_b32"]
    return " ".join("ds_" + name.replace("@", "_rtn" if returning else "") for name in names)


_NARROW = ("ubyte", "sbyte", "ushort", "sshort")
_VECTOR_ATOMICS = " ".join(
    f"{kind}_atomic_{name}_x2" for kind in ("buffer", "global", "flat") for name in ("inc", "dec")
)

ROWS: tuple[Row, ...] = (
    ("s_getpc_b64 s_getreg_b32", "salu", 1, "", (), ()),
    ("s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64", "salu", 1, "", ("m0",), ()),
    ("s_setpc_b64", "branch", 0, "", (), ()),
    ("s_swappc_b64 s_call_b64", "branch", 1, "", (), ()),
    ("s_sendmsg s_trap s_wakeup s_set_gpr_idx_off", "sync", 0, "", (), ()),
    ("s_set_gpr_idx_on s_set_gpr_idx_mode s_set_gpr_idx_idx", "sync", 0, "", (), ("m0",)),
    (
        "s_dcache_inv_vol s_dcache_wb_vol s_dcache_discard s_dcache_discard_x2 s_atc_probe s_atc_probe_buffer",
        "cache",
        0,
        "",
        (),
        (),
    ),
    (_SCALAR_STORES, "smem", 0, "lgkm", (), ()),
    (_SCALAR_SCRATCH_LOADS, "smem", 1, "lgkm", (), ()),
    (_scalar_atomics("s_atomic") + " " + _scalar_atomics("s_buffer_atomic"), "smem", 0, "lgkm", (), ()),
    ("v_clrexcp", "vop1", 0, "", (), ()),
    (_VOP1, "vop1", 1, "", ("exec",), ()),
    (_VOP2, "vop2", 1, "", ("exec",), ()),
    (_VOP3 + _scaled_conversions(), "vop3", 1, "", ("exec",), ()),
    (_VOP3P, "vop3p", 1, "", ("exec",), ()),
    (_sparse(), "mfma", 1, "", (), ()),
    (_ds_atomics(False), "ds", 0, "lgkm", ("exec",), ()),
    (_ds_atomics(True), "ds", 1, "lgkm", ("exec",), ()),
    ("ds_append ds_consume ds_read_addtid_b32", "ds", 1, "lgkm", ("exec", "m0"), ()),
    ("ds_write_addtid_b32", "ds", 0, "lgkm", ("exec", "m0"), ()),
    ("ds_nop", "ds", 0, "lgkm", (), ()),
    (_VECTOR_ATOMICS, "", 0, "vm", ("exec",), ()),
    (" ".join(f"global_load_lds_{size}" for size in _NARROW), "global", 0, "vm", ("exec", "m0"), ()),
    (" ".join(f"scratch_load_lds_{size}" for size in (*_NARROW, "dword")), "scratch", 0, "vm", ("exec", "m0"), ()),
)

#: The mnemonics of the rows.
ROW_NAMES = frozenset(name for row in ROWS for name in row[0].split())

#: Dense matrix instructions have an older spelling without separators: ``v_mfma_f32_32x32x8f16``.
_MATRIX_SPELLINGS = """
f32_16x16x16_bf16 f32_16x16x16_f16 f32_16x16x1_4b_f32 f32_16x16x32_bf16 f32_16x16x32_f16 f32_16x16x4_4b_bf16
f32_16x16x4_4b_f16 f32_16x16x4_f32 f32_16x16x8_xf32 f32_32x32x16_bf16 f32_32x32x16_f16 f32_32x32x1_2b_f32
f32_32x32x2_f32 f32_32x32x4_2b_bf16 f32_32x32x4_2b_f16 f32_32x32x4_xf32 f32_32x32x8_bf16 f32_32x32x8_f16
f32_4x4x1_16b_f32 f32_4x4x4_16b_bf16 f32_4x4x4_16b_f16 f64_16x16x4_f64 f64_4x4x4_4b_f64 i32_16x16x32_i8
i32_16x16x4_4b_i8 i32_16x16x64_i8 i32_32x32x16_i8 i32_32x32x32_i8 i32_32x32x4_2b_i8 i32_4x4x4_16b_i8
"""


def _aliases() -> dict[str, str]:
    table = {"v_accvgpr_write": "v_accvgpr_write_b32", "v_accvgpr_read": "v_accvgpr_read_b32"}
    table["v_mul_lo_i32"] = "v_mul_lo_u32"
    for name in words(_MATRIX_SPELLINGS):
        kind, shape, *_, element = name.split("_")
        old = f"v_mfma_{kind}_{shape}{element}"
        table[old] = f"v_mfma_{name}"
        if element == "bf16" and not shape.endswith(("x16x32", "x32x16")):
            table[old + "_1k"] = f"v_mfma_{name}"
    return table


#: Other spelling to the mnemonic of the table.
ALIASES: dict[str, str] = _aliases()

_GFX950_ONLY = """
buffer_atomic_pk_add_bf16 ds_read_b64_tr_b16 ds_read_b64_tr_b4 ds_read_b64_tr_b8 ds_read_b96_tr_b6
global_load_lds_dwordx3 global_load_lds_dwordx4 v_ashr_pk_i8_i32 v_ashr_pk_u8_i32 v_bitop3_b16 v_bitop3_b32
v_cvt_f32_bf16 v_cvt_pk_bf16_f32 v_cvt_pk_f16_f32 v_cvt_sr_bf16_f32 v_cvt_sr_f16_f32 v_dot2_f32_bf16
v_dot2c_f32_bf16 v_maximum3_f32 v_minimum3_f32 v_permlane16_swap_b32 v_permlane32_swap_b32 v_pk_maximum3_f16
v_pk_minimum3_f16 v_prng_b32 v_mfma_f32_16x16x128_f8f6f4 v_mfma_f32_32x32x64_f8f6f4 v_mfma_f32_16x16x32_bf16
v_mfma_f32_16x16x32_f16 v_mfma_f32_32x32x16_bf16 v_mfma_f32_32x32x16_f16 v_mfma_i32_16x16x64_i8
v_mfma_i32_32x32x32_i8 v_mfma_scale_f32_16x16x128_f8f6f4 v_mfma_scale_f32_32x32x64_f8f6f4
v_smfmac_f32_16x16x64_f16 v_smfmac_f32_16x16x64_bf16 v_smfmac_f32_32x32x32_f16 v_smfmac_f32_32x32x32_bf16
v_smfmac_i32_16x16x128_i8 v_smfmac_i32_32x32x64_i8
"""
_GFX950_PREFIXES = ("v_cvt_scalef32_", "v_smfmac_f32_16x16x128_", "v_smfmac_f32_32x32x64_")
_GFX942_ONLY = frozenset(words("v_mfma_f32_16x16x8_xf32 v_mfma_f32_32x32x4_xf32"))
_ONLY = frozenset(words(_GFX950_ONLY))
#: Rows of the table that other targets have.
_ELSEWHERE = frozenset(
    words("v_mac_f32 v_madmk_f32 v_madak_f32 v_fmac_f16 v_mad_legacy_f32 buffer_wbinvl1 buffer_wbinvl1_vol")
)


def missing_on(base: str, target: str) -> bool:
    """True if `target` (gfx942 or gfx950) does not have the instruction `base`, which some other target has."""
    if base in _ELSEWHERE:
        return target in ("gfx942", "gfx950")
    if target == "gfx942":
        return base in _ONLY or base.startswith(_GFX950_PREFIXES)
    return target == "gfx950" and base in _GFX942_ONLY


def _refused() -> dict[str, str]:
    reasons = {
        "typed buffers convert by a data format of the resource, which is not modelled": [
            f"{kind}_{way}_format_{half}{tail}"
            for kind in ("buffer", "tbuffer")
            for way in ("load", "store")
            for half in ("", "d16_")
            for tail in ("x", "xy", "xyz", "xyzw")
        ]
        + ["buffer_load_format_d16_hi_x", "buffer_store_format_d16_hi_x"],
        "global wave synchronisation reaches beyond the workgroup": words(
            "ds_gws_barrier ds_gws_init ds_gws_sema_br ds_gws_sema_p ds_gws_sema_release_all ds_gws_sema_v"
        ),
        "it belongs to a debugger or trap handler": words(
            "s_cbranch_cdbgsys s_cbranch_cdbgsys_and_user s_cbranch_cdbgsys_or_user s_cbranch_cdbguser s_rfe_b64 "
            "s_rfe_restore_b64 s_sethalt s_setkill s_sendmsghalt s_endpgm_saved"
        ),
        "its control stack is not modelled": words("s_cbranch_g_fork s_cbranch_i_fork s_cbranch_join"),
        "it belongs to graphics": words("s_endpgm_ordered_ps_done v_screen_partition_4se_b32"),
        "instructions skipped by it are not modelled": ["s_setvskip"],
        "it is the first half of v_mfma_scale, which the text writes as one": ["v_mfma_ld_scale_b32"],
    }
    return {name: reason for reason, names in reasons.items() for name in names}


#: Mnemonics that assemble for gfx942 or gfx950 but are not executed: name to the reason.
REFUSED: dict[str, str] = _refused()
