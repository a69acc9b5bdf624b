"""Mnemonics of gfx1250 that name an operation which gfx9 has under another name.

The handlers of the instruction families know one name for each operation, the gfx9 one; `bind` translates before it
looks for a handler. Only operations that compute the same thing stand here: one that differs, however little, has a
handler of its own.
"""

from __future__ import annotations

_LOADS = {
    "b32": "dword",
    "b64": "dwordx2",
    "b96": "dwordx3",
    "b128": "dwordx4",
    "u8": "ubyte",
    "i8": "sbyte",
    "u16": "ushort",
    "i16": "sshort",
    "d16_u8": "ubyte_d16",
    "d16_hi_u8": "ubyte_d16_hi",
    "d16_i8": "sbyte_d16",
    "d16_hi_i8": "sbyte_d16_hi",
    "d16_b16": "short_d16",
    "d16_hi_b16": "short_d16_hi",
}
_STORES = {
    "b32": "dword",
    "b64": "dwordx2",
    "b96": "dwordx3",
    "b128": "dwordx4",
    "b8": "byte",
    "b16": "short",
    "d16_hi_b8": "byte_d16_hi",
    "d16_hi_b16": "short_d16_hi",
}
_ATOMICS = {
    "add_u32": "add",
    "sub_u32": "sub",
    "min_i32": "smin",
    "min_u32": "umin",
    "max_i32": "smax",
    "max_u32": "umax",
    "and_b32": "and",
    "or_b32": "or",
    "xor_b32": "xor",
    "swap_b32": "swap",
    "cmpswap_b32": "cmpswap",
    "inc_u32": "inc",
    "dec_u32": "dec",
    "add_u64": "add_x2",
    "sub_u64": "sub_x2",
    "min_i64": "smin_x2",
    "min_u64": "umin_x2",
    "max_i64": "smax_x2",
    "max_u64": "umax_x2",
    "and_b64": "and_x2",
    "or_b64": "or_x2",
    "xor_b64": "xor_x2",
    "swap_b64": "swap_x2",
    "cmpswap_b64": "cmpswap_x2",
    "min_num_f64": "min_f64",
    "max_num_f64": "max_f64",
}

#: Vector ALU, without prefix ``v_``.
_VECTOR = {
    "add_nc_u32": "add_u32",
    "sub_nc_u32": "sub_u32",
    "subrev_nc_u32": "subrev_u32",
    "add_nc_i32": "add_i32",
    "sub_nc_i32": "sub_i32",
    "add_nc_u16": "add_u16",
    "sub_nc_u16": "sub_u16",
    "add_nc_i16": "add_i16",
    "sub_nc_i16": "sub_i16",
    "add_co_ci_u32": "addc_co_u32",
    "sub_co_ci_u32": "subb_co_u32",
    "subrev_co_ci_u32": "subbrev_co_u32",
    "clz_i32_u32": "ffbh_u32",
    "cls_i32": "ffbh_i32",
    "ctz_i32_b32": "ffbl_b32",
    "cvt_nearest_i32_f32": "cvt_rpi_i32_f32",
    "cvt_floor_i32_f32": "cvt_flr_i32_f32",
    "cvt_pk_rtz_f16_f32": "cvt_pkrtz_f16_f32",
    "cvt_pk_norm_i16_f32": "cvt_pknorm_i16_f32",
    "cvt_pk_norm_u16_f32": "cvt_pknorm_u16_f32",
    # The amount has 16 bits.
    "alignbit_b32": "alignbit_half",
    "alignbyte_b32": "alignbyte_half",
    "pk_min_num_f16": "pk_min_f16",
    "pk_max_num_f16": "pk_max_f16",
}
for _kind in ("f16", "f32", "f64"):
    for _name in ("min", "max") if _kind == "f64" else ("min", "max", "min3", "max3", "med3"):
        _VECTOR[f"{_name}_num_{_kind}"] = f"{_name}_{_kind}"

#: Scalar ALU, without prefix ``s_``.
_SCALAR = {
    "add_co_u32": "add_u32",
    "sub_co_u32": "sub_u32",
    "add_co_i32": "add_i32",
    "sub_co_i32": "sub_i32",
    "add_co_ci_u32": "addc_u32",
    "sub_co_ci_u32": "subb_u32",
    "addk_co_i32": "addk_i32",
    "ctz_i32_b32": "ff1_i32_b32",
    "ctz_i32_b64": "ff1_i32_b64",
    "clz_i32_u32": "flbit_i32_b32",
    "clz_i32_u64": "flbit_i32_b64",
    "cls_i32": "flbit_i32",
    "cls_i32_i64": "flbit_i32_i64",
}
for _bits in ("b32", "b64"):
    _SCALAR[f"and_not1_{_bits}"] = f"andn2_{_bits}"
    _SCALAR[f"or_not1_{_bits}"] = f"orn2_{_bits}"
    _SCALAR[f"and_not1_saveexec_{_bits}"] = f"andn2_saveexec_{_bits}"
    _SCALAR[f"or_not1_saveexec_{_bits}"] = f"orn2_saveexec_{_bits}"
    _SCALAR[f"and_not0_saveexec_{_bits}"] = f"andn1_saveexec_{_bits}"
    _SCALAR[f"or_not0_saveexec_{_bits}"] = f"orn1_saveexec_{_bits}"
    _SCALAR[f"and_not0_wrexec_{_bits}"] = f"andn1_wrexec_{_bits}"
    _SCALAR[f"and_not1_wrexec_{_bits}"] = f"andn2_wrexec_{_bits}"

#: LDS, without prefix ``ds_``.
_LOCAL = {
    "load_u8": "read_u8",
    "load_i8": "read_i8",
    "load_u16": "read_u16",
    "load_i16": "read_i16",
    "load_u8_d16": "read_u8_d16",
    "load_u8_d16_hi": "read_u8_d16_hi",
    "load_i8_d16": "read_i8_d16",
    "load_i8_d16_hi": "read_i8_d16_hi",
    "load_u16_d16": "read_u16_d16",
    "load_u16_d16_hi": "read_u16_d16_hi",
    "store_b8": "write_b8",
    "store_b16": "write_b16",
    "store_b8_d16_hi": "write_b8_d16_hi",
    "store_b16_d16_hi": "write_b16_d16_hi",
    "max_num_f32": "max_f32",
    "min_num_f32": "min_f32",
    "storexchg_rtn_b32": "wrxchg_rtn_b32",
    "storexchg_rtn_b64": "wrxchg_rtn_b64",
}
for _bits in ("b32", "b64", "b96", "b128"):
    _LOCAL[f"load_{_bits}"] = f"read_{_bits}"
    _LOCAL[f"store_{_bits}"] = f"write_{_bits}"
for _bits in ("b32", "b64"):
    for _new, _old in (("2addr", "2"), ("2addr_stride64", "2st64")):
        _LOCAL[f"load_{_new}_{_bits}"] = f"read{_old}_{_bits}"
        _LOCAL[f"store_{_new}_{_bits}"] = f"write{_old}_{_bits}"


def _build() -> dict[str, str]:
    names = {f"v_{new}": f"v_{old}" for new, old in _VECTOR.items()}
    names |= {f"s_{new}": f"s_{old}" for new, old in _SCALAR.items()}
    names |= {f"ds_{new}": f"ds_{old}" for new, old in _LOCAL.items()}
    for prefix in ("buffer", "global", "flat", "scratch"):
        names |= {f"{prefix}_load_{new}": f"{prefix}_load_{old}" for new, old in _LOADS.items()}
        names |= {f"{prefix}_store_{new}": f"{prefix}_store_{old}" for new, old in _STORES.items()}
        if prefix != "scratch":
            names |= {f"{prefix}_atomic_{new}": f"{prefix}_atomic_{old}" for new, old in _ATOMICS.items()}
    for prefix in ("s_load", "s_buffer_load"):
        for bits, dwords in ((32, "dword"), (64, "dwordx2"), (128, "dwordx4"), (256, "dwordx8"), (512, "dwordx16")):
            names[f"{prefix}_b{bits}"] = f"{prefix}_{dwords}"
    return names


#: gfx1250 mnemonic to the name its handler knows.
NAMES: dict[str, str] = _build()

#: Beginnings of gfx9 mnemonics that gfx1250 has under no name.
_GONE = ("v_mfma_", "v_smfmac_", "v_accvgpr_", "s_waitcnt", "s_cmpk_", "ds_read", "ds_write", "s_dcache_", "buffer_wb")
_GONE_WHOLE = frozenset(("s_barrier", "buffer_inv", "s_memtime", "s_memrealtime", "v_permlane32_swap_b32", "v_mac_f32"))
_RENAMED = frozenset(NAMES.values()) - frozenset(NAMES)


def gone(base: str) -> bool:
    """True if gfx1250 does not know the gfx9 mnemonic `base`."""
    is_whole = base in _GONE_WHOLE or base in _RENAMED
    return is_whole or base.startswith(_GONE) or ("_saveexec_" in base and base.endswith("_b64"))
