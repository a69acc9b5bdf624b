"""Rows of the instruction table that gfx1250 adds (wave32, split wait counters).

Mnemonics as LLVM's AMDGPU back end prints them for gfx1250. `amdwarp.asm.table` merges them into its own rows.
"""

from __future__ import annotations

from amdwarp.asm.program import words
from amdwarp.asm.rows import Format, InstructionInfo

_SOP2_SCC = """
s_add_co_u32 s_sub_co_u32 s_add_co_i32 s_sub_co_i32 s_addk_co_i32 s_and_not1_b32 s_and_not1_b64 s_or_not1_b32
s_or_not1_b64
"""
_SOP_SCC_BOTH = "s_add_co_ci_u32 s_sub_co_ci_u32"
_SOP_PLAIN = """
s_add_nc_u64 s_sub_nc_u64 s_mul_u64 s_ctz_i32_b32 s_ctz_i32_b64 s_clz_i32_u32 s_clz_i32_u64 s_cls_i32 s_cls_i32_i64
s_pack_hl_b32_b16 s_cvt_f32_i32 s_cvt_f32_u32 s_cvt_i32_f32 s_cvt_u32_f32 s_cvt_f16_f32 s_cvt_f32_f16
s_cvt_hi_f32_f16 s_cvt_pk_rtz_f16_f32 s_ceil_f32 s_floor_f32 s_trunc_f32 s_rndne_f32 s_ceil_f16 s_floor_f16
s_trunc_f16 s_rndne_f16 s_add_f32 s_sub_f32 s_mul_f32 s_min_num_f32 s_max_num_f32 s_minimum_f32 s_maximum_f32
s_fmac_f32 s_fmamk_f32 s_fmaak_f32 s_add_f16 s_sub_f16 s_mul_f16 s_min_num_f16 s_max_num_f16 s_fmac_f16
"""
_SAVEEXEC = """
s_and_saveexec_b32 s_or_saveexec_b32 s_xor_saveexec_b32 s_nand_saveexec_b32 s_nor_saveexec_b32 s_xnor_saveexec_b32
s_and_not0_saveexec_b32 s_and_not1_saveexec_b32 s_or_not0_saveexec_b32 s_or_not1_saveexec_b32 s_and_not0_wrexec_b32
s_and_not1_wrexec_b32
"""
FLOAT_CONDITIONS = ("lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt")
_COUNTERS = """
s_wait_loadcnt s_wait_storecnt s_wait_dscnt s_wait_kmcnt s_wait_asynccnt s_wait_tensorcnt s_wait_xcnt s_wait_expcnt
s_wait_samplecnt s_wait_bvhcnt s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_wait_idle
"""
_SYNC = """
s_delay_alu s_wait_alu s_clause s_set_vgpr_msb s_sendmsg s_code_end s_monitor_sleep
s_prefetch_inst s_prefetch_inst_pc_rel s_prefetch_data s_prefetch_data_pc_rel
"""
_BARRIERS = """
s_barrier_signal s_barrier_wait s_barrier_init s_barrier_join s_barrier_signal_var
"""
_SMEM_SIZES = "b32 b64 b96 b128 b256 b512"

_VOP1 = """
v_mov_b16 v_not_b16 v_cvt_u32_u16 v_cvt_i32_i16 v_clz_i32_u32 v_cls_i32 v_ctz_i32_b32 v_cvt_nearest_i32_f32
v_cvt_floor_i32_f32 v_tanh_f32 v_tanh_f16
"""
PSEUDO_SCALAR = ("exp", "log", "rcp", "rsq", "sqrt")
_VOP2 = """
v_add_nc_u32 v_sub_nc_u32 v_subrev_nc_u32 v_add_nc_u64 v_sub_nc_u64 v_mul_u64 v_and_b16 v_or_b16 v_xor_b16
v_min_num_f16 v_max_num_f16 v_min_num_f32 v_max_num_f32 v_min_num_f64 v_max_num_f64
v_cvt_pk_rtz_f16_f32 v_bitop2_b32 v_cndmask_b16 v_fmamk_f16 v_fmaak_f16 v_fmamk_f64 v_fmaak_f64
"""
_VOP3 = """
v_mad_u32 v_mad_nc_u64_u32 v_mad_nc_i64_i32 v_xor3_b32 v_add_nc_i32 v_sub_nc_i32 v_add_nc_u16 v_sub_nc_u16
v_add_nc_i16 v_sub_nc_i16 v_min3_num_f16 v_max3_num_f16 v_med3_num_f16 v_min3_num_f32 v_max3_num_f32 v_med3_num_f32
v_maxmin_i32 v_minmax_i32 v_maxmin_u32 v_minmax_u32 v_maxmin_num_f32 v_minmax_num_f32 v_maxmin_num_f16
v_minmax_num_f16 v_minimum_f32 v_maximum_f32 v_minimum_f16 v_maximum_f16 v_minimum_f64 v_maximum_f64
v_minimum3_f16 v_maximum3_f16 v_min_i64 v_max_i64 v_min_u64 v_max_u64 v_cvt_pk_i16_f32 v_cvt_pk_u16_f32
v_cvt_pk_norm_i16_f32 v_cvt_pk_norm_u16_f32 v_permlane16_b32 v_permlanex16_b32
"""
_VOP3P = """
v_pk_min_num_f16 v_pk_max_num_f16 v_pk_add_bf16 v_pk_mul_bf16 v_pk_min_num_bf16 v_pk_max_num_bf16
"""
_WMMA = """
v_wmma_f32_16x16x4_f32 v_wmma_f32_16x16x32_f16 v_wmma_f32_16x16x32_bf16 v_wmma_f16_16x16x32_f16
v_wmma_bf16_16x16x32_bf16 v_wmma_bf16f32_16x16x32_bf16 v_wmma_i32_16x16x64_iu8
v_wmma_f32_16x16x128_f8f6f4
"""
_SCALED_SHAPES = ("16x16x128_f8f6f4", "32x16x128_f4")
_EIGHT_BIT = [f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
_WIDE = ("f16", "bf16", "f32")
_PK8 = ("fp8", "bf8", "fp4")

_DS_LOADS = """
ds_load_b32 ds_load_b64 ds_load_b96 ds_load_b128 ds_load_u8 ds_load_i8 ds_load_u16 ds_load_i16 ds_load_u8_d16
ds_load_u8_d16_hi ds_load_i8_d16 ds_load_i8_d16_hi ds_load_u16_d16 ds_load_u16_d16_hi ds_load_2addr_b32
ds_load_2addr_b64 ds_load_2addr_stride64_b32 ds_load_2addr_stride64_b64 ds_load_tr16_b128 ds_load_tr8_b64
ds_load_tr4_b64 ds_storexchg_rtn_b32 ds_storexchg_rtn_b64 ds_cmpstore_rtn_b32 ds_cmpstore_rtn_b64
"""
_DS_STORES = """
ds_store_b32 ds_store_b64 ds_store_b96 ds_store_b128 ds_store_b8 ds_store_b16 ds_store_b8_d16_hi ds_store_b16_d16_hi
ds_store_2addr_b32 ds_store_2addr_b64 ds_store_2addr_stride64_b32 ds_store_2addr_stride64_b64 ds_max_num_f32
ds_min_num_f32
"""
_LOADS = "b32 b64 b96 b128 u8 i8 u16 i16 d16_u8 d16_hi_u8 d16_i8 d16_hi_i8 d16_b16 d16_hi_b16"
_STORES = "b32 b64 b96 b128 b8 b16 d16_hi_b8 d16_hi_b16"
_ATOMICS = words(
    """
    add_u32 sub_u32 min_i32 min_u32 max_i32 max_u32 and_b32 or_b32 xor_b32 swap_b32 cmpswap_b32 inc_u32 dec_u32
    add_u64 sub_u64 min_i64 min_u64 max_i64 max_u64 and_b64 or_b64 xor_b64 swap_b64 cmpswap_b64 min_num_f32
    max_num_f32 min_num_f64 max_num_f64
    """
)
_ASYNC = "b8 b32 b64 b128"

#: The two operations that a dual-issue instruction may hold, without ``v_dual_``.
DUAL = words(
    """
    fmac_f32 fmaak_f32 fmamk_f32 mul_f32 add_f32 sub_f32 subrev_f32 mul_dx9_zero_f32 mov_b32 cndmask_b32 max_num_f32
    min_num_f32 dot2acc_f32_f16 dot2acc_f32_bf16 add_nc_u32 lshlrev_b32 and_b32 fma_f32 sub_nc_u32 lshrrev_b32
    ashrrev_i32 bitop2_b32 max_i32 min_i32 fma_f64 add_f64 mul_f64 max_num_f64 min_num_f64
    """
)


def build() -> dict[str, InstructionInfo]:
    """Every row."""
    table: dict[str, InstructionInfo] = {}

    def rows(names: str | list[str] | tuple[str, ...], *args: object) -> None:
        info = InstructionInfo(*args)  # type: ignore[arg-type]
        for name in names.split() if isinstance(names, str) else names:
            table[name] = info

    rows(_SOP2_SCC, Format.SALU, 1, "", (), ("scc",))
    rows(_SOP_SCC_BOTH, Format.SALU, 1, "", ("scc",), ("scc",))
    rows(_SOP_PLAIN, Format.SALU, 1)
    rows(_SAVEEXEC, Format.SALU, 1, "", ("exec",), ("exec", "scc"))
    compares = [f"s_cmp_{c}_{t}" for c in FLOAT_CONDITIONS for t in ("f32", "f16")]
    rows(compares, Format.SALU, 0, "", (), ("scc",))
    rows(_COUNTERS, Format.SYNC, 0)
    rows(_SYNC, Format.SYNC, 0)
    rows(_BARRIERS, Format.SYNC, 0)
    rows("s_get_pc_i64", Format.SALU, 1)
    rows("s_set_pc_i64", Format.BRANCH, 0)
    rows("s_swap_pc_i64 s_call_i64", Format.BRANCH, 1)
    rows("s_barrier_signal_isfirst", Format.SYNC, 0, "", (), ("scc",))
    sizes = _SMEM_SIZES.split()
    rows([f"{p}_{size}" for p in ("s_load", "s_buffer_load") for size in sizes], Format.SMEM, 1, "km")
    rows("s_load_i8 s_load_u8 s_load_i16 s_load_u16", Format.SMEM, 1, "km")
    rows(_VOP1, Format.VOP1, 1, "", ("exec",))
    rows([f"v_s_{name}_{t}" for name in PSEUDO_SCALAR for t in ("f32", "f16")], Format.VOP3, 1)
    rows(_VOP2, Format.VOP2, 1, "", ("exec",))
    carries = ("v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32")
    rows(carries, Format.VOP2, 2, "", ("exec",))
    rows(_VOP3, Format.VOP3, 1, "", ("exec",))
    rows(_VOP3P, Format.VOP3P, 1, "", ("exec",))
    rows([f"v_dual_{name}" for name in DUAL], Format.VOP2, 1, "", ("exec",))
    rows(_WMMA, Format.MFMA, 1)
    rows([f"v_wmma_{d}_16x16x{k}_{f}" for d in ("f32", "f16") for k in (64, 128) for f in _EIGHT_BIT], Format.MFMA, 1)
    rows("v_wmma_f32_32x16x128_f4", Format.MFMA, 1)
    rows([f"v_wmma_{s}_f32_{f}" for s in ("scale", "scale16") for f in _SCALED_SHAPES], Format.MFMA, 1)
    rows([f"v_cvt_scale_pk8_{w}_{n}" for w in _WIDE for n in _PK8], Format.VOP3, 1, "", ("exec",))
    rows([f"v_cvt_scalef32_pk8_{n}_{w}" for w in _WIDE for n in _PK8], Format.VOP3, 1, "", ("exec",))
    rows(_DS_LOADS, Format.DS, 1, "ds", ("exec",))
    rows(_DS_STORES, Format.DS, 0, "ds", ("exec",))
    rows("ds_atomic_barrier_arrive_rtn_b64", Format.DS, 1, "ds", ("exec",))
    rows("ds_atomic_async_barrier_arrive_b64", Format.DS, 0, "async", ("exec",))
    for form in (Format.BUFFER, Format.GLOBAL, Format.SCRATCH, Format.FLAT):
        prefix = form.value
        rows([f"{prefix}_load_{size}" for size in _LOADS.split()], form, 1, "load", ("exec",))
        rows([f"{prefix}_store_{size}" for size in _STORES.split()], form, 0, "store", ("exec",))
        if prefix != "scratch":
            rows([f"{prefix}_atomic_{name}" for name in _ATOMICS], form, 0, "store", ("exec",))
    rows([f"global_load_async_to_lds_{size}" for size in _ASYNC.split()], Format.GLOBAL, 0, "async", ("exec",))
    rows([f"global_store_async_from_lds_{size}" for size in _ASYNC.split()], Format.GLOBAL, 0, "async", ("exec",))
    rows("tensor_load_to_lds tensor_store_from_lds", Format.TENSOR, 0, "tensor")
    rows("global_prefetch_b8 flat_prefetch_b8 global_wb global_wbinv global_inv", Format.CACHE, 0)
    return table


#: The rows.
ROWS: dict[str, InstructionInfo] = build()
#: The mnemonics that gfx9 does not have.
ONLY = frozenset(ROWS)


def _refused() -> dict[str, str]:
    sparse = [
        *(f"v_swmmac_{kind}" for kind in ("f32_16x16x64_f16", "f32_16x16x64_bf16", "f16_16x16x64_f16")),
        *(f"v_swmmac_{kind}" for kind in ("bf16_16x16x64_bf16", "bf16f32_16x16x64_bf16", "i32_16x16x128_iu8")),
        *(f"v_swmmac_{d}_16x16x128_{f}" for d in ("f32", "f16") for f in _EIGHT_BIT),
    ]
    loads = ("tr16_b128", "tr8_b64", "tr6_b96", "tr4_b64")
    cluster = [f"cluster_load_{size}" for size in ("b32", "b64", "b128")]
    cluster += [f"cluster_load_async_to_lds_{size}" for size in _ASYNC.split()]
    reasons = {
        "no published source says which k a lane holds of a sparse operand, nor where its indices stand": sparse,
        "no published source says which lane it takes each 6-bit element from": ["ds_load_tr6_b96"],
        "no published source says which lane it takes each element from": [f"global_load_{tail}" for tail in loads],
        "the workgroups of a cluster are run one after the other, so that none can pass data to another": cluster,
    }
    return {name: reason for reason, names in reasons.items() for name in names}


#: Mnemonics that assemble for gfx1250 but are not executed: name to the reason.
REFUSED: dict[str, str] = _refused()
