"""Arguments, grids, workgroup choice and what a launch refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdwarp.asm import Argument, parse
from amdwarp.emulator import launch
from amdwarp.emulator.launch import choose_workgroups, encode_scalar, hidden_value
from amdwarp.emulator.memory import GlobalMemory
from amdwarp.errors import AmdwarpError, EmulatorError, UsageError

IDS = ["s_load_dwordx2 s[6:7], s[0:1], 0x0", "s_mul_i32 s20, s3, 5", "s_add_i32 s20, s20, s2", "s_mul_i32 s21, s4, 15"]
IDS += ["s_add_i32 s20, s20, s21", "v_mov_b32_e32 v1, s20", "v_lshlrev_b32_e32 v1, 2, v1", "v_mov_b32_e32 v2, 1"]
IDS += ["s_mov_b64 exec, 1", "s_waitcnt lgkmcnt(0)", "global_store_dword v1, v2, s[6:7]"]


def test_every_workgroup_runs(run_text: Any) -> None:
    out = np.zeros(60, np.int32)
    seen: list[tuple[int, int]] = []
    result = run_text(IDS, [out], (5, 3, 4), progress=lambda done, total: seen.append((done, total)))
    assert out.tolist() == [1] * 60 and result.workgroups == 60
    assert seen == [(n, 60) for n in range(1, 61)]


def test_chosen_workgroups(run_text: Any) -> None:
    out = np.zeros(60, np.int32)
    run_text(IDS, [out], (5, 3, 4), workgroups=[0, (4, 2, 1), 7])
    assert np.flatnonzero(out).tolist() == [0, 7, 29]
    out[:] = 0
    result = run_text(IDS, [out], (5, 3, 4), workgroups=4)
    where = np.flatnonzero(out).tolist()
    assert where[0] == 0 and where[-1] == 59 and len(where) == result.workgroups == 4


def test_workgroup_choice() -> None:
    assert list(choose_workgroups((2, 2), None)) == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    assert list(choose_workgroups((1000,), 3)) == [(0, 0, 0), (500, 0, 0), (999, 0, 0)]
    assert list(choose_workgroups((3,), 100)) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert list(choose_workgroups((7,), 1)) == [(0, 0, 0)]
    assert list(choose_workgroups((7,), 2)) == [(0, 0, 0), (6, 0, 0)]
    for grid, chosen in (((), None), ((0,), None), ((2, 2, 2, 2), None), ((4,), 0), ((4,), [4]), ((4, 2), [(0, 2)])):
        with pytest.raises(UsageError):
            choose_workgroups(grid, chosen)


def encoded(value: Any, size: int) -> bytes:
    return encode_scalar(value, Argument(0, size, "by_value"), 0)


def test_scalars() -> None:
    assert encoded(-2, 4) == (2**32 - 2).to_bytes(4, "little") == encoded(2**32 - 2, 4)
    assert encoded(True, 1) == b"\1"
    assert encoded(1.5, 4) == np.float32(1.5).tobytes()
    assert encoded(1.5, 8) == np.float64(1.5).tobytes()
    assert encoded(1.5, 2) == np.float16(1.5).tobytes()
    assert encoded(np.float64(1.5), 4) == np.float32(1.5).tobytes()
    assert encoded(np.int64(7), 4) == encoded(7, 4)
    assert encoded(ml_dtypes.bfloat16(1.5), 2) == b"\xc0\x3f"
    for value, size in ((2**32, 4), (-(2**31) - 1, 4), ("x", 4), (1.5, 1), (None, 4)):
        with pytest.raises(UsageError):
            encoded(value, size)


def test_argument_errors(program_text: Any) -> None:
    text = program_text(["s_nop 0"], pointers=4)
    arrays = [np.zeros(4, np.int32) for _ in range(5)]
    launch(text, arrays[:4], (1,))
    launch(text, arrays[:2], (1,))
    with pytest.raises(UsageError, match=r"takes 4 arguments \(pointer, pointer, pointer, pointer\), got 5"):
        launch(text, arrays, (1,))
    with pytest.raises(UsageError, match="got 1"):
        launch(text, arrays[:1], (1,))
    with pytest.raises(UsageError, match="argument 1 is a pointer, got int"):
        launch(text, [arrays[0], 3], (1,))
    with pytest.raises(UsageError, match="argument 0 is no contiguous block"):
        launch(text, [np.zeros((4, 4))[:, :2], arrays[1]], (1,))
    launch(text, [np.zeros((4, 4)).T, arrays[1]], (1,))


def test_views_of_one_buffer_share_its_address() -> None:
    memory = GlobalMemory()
    whole = np.zeros(100, np.int32)
    first, last, same = memory.add_all([(whole[:50], "a"), (whole, "b"), (whole[10:], "c")])
    assert first == last and same == last + 40 and len(memory.buffers) == 1
    other = memory.add(np.zeros(1, np.uint8), "d")
    assert abs(other - last) > 2**32


def test_overlapping_arguments_share_memory() -> None:
    memory = GlobalMemory()
    whole = np.arange(100, dtype=np.int32)
    first, apart, second = memory.add_all([(whole[:60], "a"), (np.zeros(3), "other"), (whole[50:], "b")])
    assert second == first + 200 and abs(apart - first) > 2**32 and len(memory.buffers) == 2
    buffer = memory.find(first + 399)
    assert buffer is not None and buffer.name == "a and b" and buffer.writable
    buffer.data[220:224].view(np.int32)[0] = -7
    assert whole[55] == -7 and memory.find(first + 400) is None


def test_hidden_arguments() -> None:
    assert [hidden_value(f"hidden_block_count_{axis}", (7, 5), 256) for axis in "xyz"] == [7, 5, 1]
    assert [hidden_value(f"hidden_group_size_{axis}", (7, 5), 256) for axis in "xyz"] == [256, 1, 1]
    assert hidden_value("hidden_grid_dims", (7, 5), 256) == 2 and hidden_value("hidden_queue_ptr", (7,), 64) == 0


def test_read_only_array(run_text: Any) -> None:
    out = np.zeros(60, np.int32)
    out.flags.writeable = False
    with pytest.raises(EmulatorError, match=r"argument 0 is read-only; pass a writeable array"):
        run_text(IDS, [out], (1,))


def test_text_and_program_are_both_taken(program_text: Any) -> None:
    out = np.zeros(60, np.int32)
    launch(parse(program_text(IDS, pointers=1)), [out], (2,))
    assert out[:3].tolist() == [1, 1, 0]


def test_unknown_target(program_text: Any) -> None:
    with pytest.raises(EmulatorError, match="target gfx90a is not known; known are gfx942, gfx950"):
        launch(program_text(["s_nop 0"], arch="gfx90a"), [np.zeros(1), np.zeros(1)], (1,))


REFUSED = [
    ("v_add_f32_e64 v1, v2, v3 mul:3", "output modifier mul:3 is not known"),
    ("global_load_dword v1, v[2:3], off nv", "modifier nv is not known"),
    ("buffer_load_dword v1, v2, s[4:7], 0 idxen offen", "operand 2 must be 2 registers wide"),
    ("ds_read_b32 v1, v2 gds", "modifier gds is not known"),
    ("v_mov_b32_dpp v1, v2", "names exactly one lane pattern"),
    ("v_mov_b32_dpp v1, v2 row_bcast:7", "row_bcast takes 15 or 31"),
    ("v_mov_b32_sdwa v1, v2 dst_sel:BYTE_9 dst_unused:UNUSED_PAD src0_sel:DWORD", "SDWA destination BYTE_9"),
    ("v_mov_b64_dpp v[2:3], v[4:5] quad_perm:[0,1,2,3]", "row_newbcast only"),
    ("v_add_u32_e64 v1, -v2, v3", "neg and abs need a floating-point operand"),
    ("v_pk_add_f32 v[2:3], -v[4:5], v[6:7]", "neg_lo"),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], s[0:3]", "C must be"),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:6], v[6:7], 0", r"operand 2 must be 2 registers wide, not 3"),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0 cbsz:1", "cbsz:1 abid:0 is no broadcast"),
    ("v_add_f32_e32 v1, v2", "3 operands expected, 2 found"),
    ("s_add_u32 s1, s2, v3", "operand 3 must be a scalar register or constant"),
    ("v_mul_lo_u32 v1, v2, v3 clamp", "clamp is not known"),
    ("s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS, 0, 8), 1", "HW_REG_MODE only"),
    ("v_cvt_f32_f16_e64 v1, v2 div:4", "modifier div:4"),
    ("v_add_u32_e64 v1, v2, v3 mul:2", "needs a floating-point result"),
    ("v_cmp_lt_f32_e64 s[2:3], v1, v2 clamp", "modifier clamp"),
    ("v_lshl_add_u32 v1, v2, 3", "4 operands expected"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line for line, _ in REFUSED])
def test_refusals_name_line_and_text(program_text: Any, line: str, message: str) -> None:
    """Everything is bound before anything runs: the text behind the end is refused as well."""
    text = program_text(["s_nop 0", "s_endpgm", line])
    number = next(n for n, row in enumerate(text.splitlines(), 1) if row.strip() == line)
    with pytest.raises(AmdwarpError, match=message) as caught:
        launch(text, [np.zeros(1), np.zeros(1)], (1,))
    assert f"(line {number})" in str(caught.value) and f"'{line}'" in str(caught.value)


def test_conversion_follows_overflow_mode(execute: Any) -> None:
    value = np.full(64, 1e6, np.float32)
    set_mode = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), {}"
    body = [set_mode.format(1), "v_cvt_f16_f32_e32 v10, v1", "v_cvt_pk_fp8_f32 v11, v1, -v1", set_mode.format(0)]
    body += ["v_cvt_f16_f32_e32 v12, v1", "v_cvt_pk_fp8_f32 v13, v1, v1"]
    out = execute(body, {"v1": value, "v11": 0, "v13": 0}, ["v10", "v11", "v12", "v13"])
    assert [int(out[f"v{n}"][0]) for n in (10, 11, 12, 13)] == [0x7BFF, 0xFE7E, 0x7C00, 0x7F7F]


def test_large_buffer_is_not_copied(run_text: Any) -> None:
    """A buffer of 3 GiB that is never touched costs no memory; a store beyond 2 GiB lands in place."""
    big = np.zeros(3 << 30, np.uint8)
    body = [
        "s_load_dwordx2 s[6:7], s[0:1], 0x0",
        "v_mov_b32_e32 v1, 0xb0000000",
        "s_mov_b64 exec, 1",
        "s_waitcnt lgkmcnt(0)",
    ]
    run_text([*body, "v_mov_b32_e32 v2, 7", "global_store_dword v1, v2, s[6:7]"], [big])
    assert big[0xB0000000] == 7
