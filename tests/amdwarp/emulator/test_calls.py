"""Calls, jumps through registers, hardware registers, traps, registers relative to M0, scalar stores and atomics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdwarp.errors import EmulatorError

FUNCTION = ["s_branch start", "double:", "v_add_u32_e32 v10, v10, v10", "s_setpc_b64 s[30:31]", "start:"]
ADDRESS = ["s_getpc_b64 s[12:13]", "s_add_u32 s12, s12, double@rel32@lo+4", "s_addc_u32 s13, s13, double@rel32@hi+12"]


def test_call_through_a_relative_address(execute: Any) -> None:
    body = [*FUNCTION, "v_mov_b32_e32 v10, 3", *ADDRESS, "s_swappc_b64 s[30:31], s[12:13]"]
    body += ["v_add_u32_e32 v10, 1, v10", "s_swappc_b64 s[30:31], s[12:13]"]
    out = execute(body, {}, ["v10"])
    np.testing.assert_array_equal(out["v10"], (3 * 2 + 1) * 2)


def test_call_of_a_label(execute: Any) -> None:
    out = execute([*FUNCTION, "v_mov_b32_e32 v10, 5", "s_call_b64 s[30:31], double"], {}, ["v10"])
    np.testing.assert_array_equal(out["v10"], 10)


def test_waves_call_different_functions(execute: Any) -> None:
    """The batch divides at the call and its waves come together again."""
    body = ["s_branch start", "one:", "v_mov_b32_e32 v10, 1", "s_setpc_b64 s[30:31]", "two:", "v_mov_b32_e32 v10, 2"]
    body += ["s_setpc_b64 s[30:31]", "start:", "s_getpc_b64 s[12:13]", "s_add_u32 s14, s12, one@rel32@lo+4"]
    body += ["s_addc_u32 s15, s13, one@rel32@hi+12", "s_getpc_b64 s[12:13]", "s_add_u32 s16, s12, two@rel32@lo+4"]
    body += ["s_addc_u32 s17, s13, two@rel32@hi+12", "v_readfirstlane_b32 s20, v0", "s_bitcmp1_b32 s20, 6"]
    body += [
        "s_cselect_b64 s[18:19], s[14:15], s[16:17]",
        "s_swappc_b64 s[30:31], s[18:19]",
        "v_add_u32_e32 v10, 10, v10",
    ]
    out = execute(body, {}, ["v10"], waves=4)
    np.testing.assert_array_equal(out["v10"], np.repeat([12, 11, 12, 11], 64))


@pytest.mark.parametrize("arch", ["gfx950", "gfx1250"])
def test_jump_beyond_the_reach_of_a_branch(execute: Any, arch: str) -> None:
    """What LLVM writes where a label is too far away for a branch; forward and, with a distance below 0, back."""
    names = "s_get_pc_i64 s_add_co_u32 s_add_co_ci_u32 s_set_pc_i64"
    if arch == "gfx950":
        names = "s_getpc_b64 s_add_u32 s_addc_u32 s_setpc_b64"
    get, add, carry, go = names.split()

    def far(label: str, here: str) -> list[str]:
        distance = f"({label}-{here})"
        lines = [f"{get} s[12:13]", f"{here}:", f"{add} s12, s12, {distance}&4294967295"]
        return [*lines, f"{carry} s13, s13, {distance}>>32", f"{go} s[12:13]"]

    body = ["v_mov_b32_e32 v10, 1", "s_branch .Lstart", ".Lback:", "v_mov_b32_e32 v10, 7", *far(".Lend", ".Lone")]
    body += ["v_mov_b32_e32 v10, 2", ".Lstart:", *far(".Lback", ".Ltwo"), "v_mov_b32_e32 v10, 3", ".Lend:", "s_nop 0"]
    out = execute(body, {}, ["v10"], arch=arch)
    np.testing.assert_array_equal(out["v10"], 7)


def test_distance_of_a_label_that_the_text_lacks(execute: Any) -> None:
    with pytest.raises(EmulatorError, match="no label 'missing'"):
        execute([".Lhere:", "s_add_u32 s12, s12, (missing-.Lhere)&4294967295"], {}, [])


def test_jump_to_nowhere(execute: Any) -> None:
    with pytest.raises(EmulatorError, match="where no instruction stands"):
        execute(["s_mov_b64 s[12:13], 0x123", "s_setpc_b64 s[12:13]"], {}, [])


def test_function_that_the_text_lacks(execute: Any) -> None:
    with pytest.raises(EmulatorError, match="no function 'missing'"):
        execute(["s_add_u32 s12, s12, missing@rel32@lo+4"], {}, [])


def test_function_that_is_not_inlined() -> None:
    """A stock kernel with a call, compiled as users compile it."""
    pytest.importorskip("triton")
    import importlib.util
    from pathlib import Path

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from amdwarp.emulator import launch

    spec = importlib.util.spec_from_file_location("amdwarp_calls", Path(__file__).with_name("call_kernel.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for arch in ("gfx942", "gfx950"):
        source = ASTSource(module.affine, {"x": "*i32", "out": "*i32", "n": "i32", "B": "constexpr"}, {(3,): 256})
        compiled = compile(source, target=GPUTarget("hip", arch, 64))
        assert "s_swappc_b64" in compiled.asm["amdgcn"]
        x, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
        launch(compiled.asm["amdgcn"], [x, out, 5], (1,), lds_bytes=compiled.metadata.shared)
        np.testing.assert_array_equal(out, x * module.mix_by_hand(module.mix_by_hand(5, 5), 6))


def test_trap_is_an_error_that_says_where(execute: Any) -> None:
    with pytest.raises(EmulatorError, match=r"'s_trap 2'.*the kernel traps") as caught:
        execute(["s_cmp_eq_u32 s0, s0", "s_cbranch_scc0 over", "s_trap 2", "over:"], {}, [])
    assert "line" in str(caught.value)
    execute(["s_cmp_eq_u32 s0, s0", "s_cbranch_scc1 over", "s_trap 2", "over:"], {}, [])


def test_hardware_registers(execute: Any) -> None:
    body = ["s_getreg_b32 s20, hwreg(HW_REG_XCC_ID)", "s_getreg_b32 s21, hwreg(HW_REG_HW_ID, 0, 4)"]
    out = execute(body, {}, ["s20", "s21"], waves=3)
    np.testing.assert_array_equal(out["s20"], 0)
    np.testing.assert_array_equal(out["s21"], np.repeat([0, 1, 2], 64))
    with pytest.raises(EmulatorError, match="no hardware register that is known"):
        execute(["s_getreg_b32 s20, hwreg(HW_REG_SHADER_CYCLES)"], {}, [])


def test_hints_change_nothing(execute: Any) -> None:
    body = [
        "s_mov_b32 s20, 7",
        "s_sleep 3",
        "s_wakeup",
        "s_dcache_wb",
        "s_dcache_inv_vol",
        "s_sendmsg sendmsg(MSG_INTERRUPT)",
    ]
    assert execute(body, {}, ["s20"])["s20"][0] == 7


def test_clock_moves_on(execute: Any) -> None:
    body = ["s_memtime s[20:21]", "s_waitcnt lgkmcnt(0)", "s_nop 0", "s_memrealtime s[22:23]", "s_waitcnt lgkmcnt(0)"]
    out = execute(body, {}, ["s20", "s21", "s22", "s23"])
    assert out["s20"][0] <= out["s22"][0] and out["s21"][0] == out["s23"][0] == 0


# Registers relative to M0


def test_scalar_moves(execute: Any) -> None:
    values = {f"s{20 + n}": 100 + n for n in range(6)}
    body = ["s_mov_b32 m0, 3", "s_movrels_b32 s40, s20", "s_movreld_b32 s42, s20", "s_mov_b32 m0, 2"]
    body += ["s_movrels_b64 s[46:47], s[20:21]", "s_movreld_b64 s[50:51], s[24:25]"]
    out = execute(body, {**values, "s45": 0}, ["s40", "s45", "s46", "s47", "s52", "s53"])
    assert [int(out[name][0]) for name in ("s40", "s45", "s46", "s47", "s52", "s53")] == [103, 100, 102, 103, 104, 105]


def test_index_mode(execute: Any) -> None:
    """Sources and destination that the mode names move by M0[7:0], others stay."""
    inputs = {f"v{20 + n}": np.full(64, 1000 * n, np.uint32) for n in range(4)} | {"v30": 5}
    body = ["s_mov_b32 s20, 2", "s_set_gpr_idx_on s20, gpr_idx(SRC0)", "v_add_u32_e32 v40, v20, v30"]
    body += [
        "s_set_gpr_idx_idx 3",
        "v_mov_b32_e32 v41, v20",
        "s_set_gpr_idx_mode gpr_idx(DST)",
        "v_mov_b32_e32 v42, v21",
    ]
    body += ["s_set_gpr_idx_off", "v_mov_b32_e32 v43, v20"]
    body = ["v_mov_b32_e32 v45, 9", *body]
    out = execute(body, inputs, ["v40", "v41", "v42", "v43", "v45"])
    assert int(out["v40"][0]) == 2005 and int(out["v41"][0]) == 3000
    assert int(out["v45"][0]) == 1000 and int(out["v43"][0]) == 0


def test_index_beyond_the_registers(execute: Any) -> None:
    body = ["s_movk_i32 s20, 0xff", "s_set_gpr_idx_on s20, gpr_idx(SRC0)", "v_mov_b32_e32 v40, v20"]
    with pytest.raises(EmulatorError, match="register index 255 leaves"):
        execute(body, {}, [])


# Scalar memory


def test_scalar_stores(run_text: Any) -> None:
    memory = np.zeros(16, np.uint32)
    body = [
        "s_load_dwordx2 s[4:5], s[0:1], 0x0",
        *(f"s_mov_b32 s{8 + n}, {n + 1}" for n in range(4)),
        "s_movk_i32 s20, 0x20",
    ]
    body += ["s_waitcnt lgkmcnt(0)", "s_store_dword s8, s[4:5], 0x4", "s_store_dwordx2 s[8:9], s[4:5], 0x10"]
    body += ["s_store_dwordx4 s[8:11], s[4:5], s20", "s_dcache_wb"]
    run_text(body, [memory])
    assert memory.tolist() == [0, 1, 0, 0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]


ATOMIC = {
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "umin": min,
    "umax": max,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "swap": lambda old, new: new,
    "inc": lambda old, new: 0 if old >= new else old + 1,
    "dec": lambda old, new: new if old == 0 or old > new else old - 1,
}


@pytest.mark.parametrize("name", [*ATOMIC])
@pytest.mark.parametrize("wide", [False, True])
def test_scalar_atomics(run_text: Any, name: str, wide: bool) -> None:
    for old, new in ((7, 3), (0, 9), (2**31 + 5, 2**31 + 5)):
        kind = np.uint64 if wide else np.uint32
        memory, result = np.array([old, 0], kind), np.zeros(2, kind)
        registers, suffix = ("s[8:9]", "_x2") if wide else ("s8", "")
        body = [
            "s_load_dwordx4 s[4:7], s[0:1], 0x0",
            f"s_mov_b32 s8, {new:#x}",
            "s_mov_b32 s9, 0",
            "s_waitcnt lgkmcnt(0)",
        ]
        body += [f"s_atomic_{name}{suffix} {registers}, s[4:5], 0x0 glc", "s_waitcnt lgkmcnt(0)"]
        body += [f"s_store_dword{'x2' if wide else ''} {registers}, s[6:7], 0x0"]
        run_text(body, [memory, result])
        assert int(memory[0]) == ATOMIC[name](old, new) % 2 ** (64 if wide else 32)
        assert int(result[0]) == old


def test_scalar_compare_and_swap(run_text: Any) -> None:
    memory = np.array([5, 6], np.uint32)
    body = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "s_mov_b32 s8, 77", "s_mov_b32 s9, 5", "s_waitcnt lgkmcnt(0)"]
    body += ["s_atomic_cmpswap s[8:9], s[4:5], 0x0", "s_atomic_cmpswap s[8:9], s[4:5], 0x4"]
    run_text(body, [memory])
    assert memory.tolist() == [77, 6]


@pytest.mark.parametrize(
    ("name", "dwords"), [("dword", 1), ("dwordx2", 2), ("dwordx4", 4), ("dwordx8", 8), ("dwordx16", 16)]
)
def test_scalar_loads_with_register_offsets(run_text: Any, name: str, dwords: int) -> None:
    source, out = np.arange(64, dtype=np.uint32) + 500, np.zeros(16, np.uint32)
    registers = "s32" if dwords == 1 else f"s[32:{31 + dwords}]"
    body = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_movk_i32 s20, 0x40", "s_waitcnt lgkmcnt(0)"]
    body += ["s_mov_b32 s12, s4", "s_mov_b32 s13, s5", "s_movk_i32 s14, 0x100", "s_mov_b32 s15, 0x27000"]
    for at, line in enumerate(
        (f"s_load_{name} {registers}, s[4:5], s20", f"s_buffer_load_{name} {registers}, s[12:15], s20")
    ):
        read = [*body, line, "s_waitcnt lgkmcnt(0)"]
        read += [f"s_store_dword s{32 + n}, s[6:7], {4 * n:#x}" for n in range(dwords)]
        out[:] = at
        run_text(read, [source, out])
        np.testing.assert_array_equal(out[:dwords], source[16 : 16 + dwords])
